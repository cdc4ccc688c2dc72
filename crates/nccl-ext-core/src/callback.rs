//! Callbacks of the application that run inside a native call.

use std::cell::Cell;

use crate::error::{Error, Result};

thread_local! {
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// Runs a callback that a native call of a communicator makes on this thread. The thread holds the
/// communicator's lock, so calls of a communicator that the callback makes are [`Error::Busy`]: they
/// would wait for themselves.
pub fn inside_callback<T>(callback: impl FnOnce() -> T) -> T {
    struct Inside;
    impl Drop for Inside {
        fn drop(&mut self) {
            INSIDE.set(INSIDE.get() - 1);
        }
    }
    INSIDE.set(INSIDE.get() + 1);
    let _inside = Inside; // also when the callback panics
    callback()
}

/// Refuses calls of a communicator inside a callback.
#[inline]
pub(crate) fn refuse_inside_callback() -> Result<()> {
    if INSIDE.get() == 0 { Ok(()) } else { Err(inside()) }
}

#[cold]
fn inside() -> Error {
    Error::Busy {
        what: "the communicator",
        reason:
            "this thread is in a callback that a native call made, such as an allocator's; make \
                 the call when the callback has returned, or on another thread that nothing here \
                 waits for"
                .into(),
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn only_the_callback_is_refused_also_when_it_panics() {
        assert!(refuse_inside_callback().is_ok());
        inside_callback(|| {
            inside_callback(|| assert!(refuse_inside_callback().is_err()));
            assert!(matches!(refuse_inside_callback(), Err(Error::Busy { .. })));
        });
        assert!(refuse_inside_callback().is_ok());
        assert!(catch_unwind(|| inside_callback(|| panic!("a callback"))).is_err());
        assert!(refuse_inside_callback().is_ok());
    }
}
