//! The text of `ncclM2nGetLastError` (M2N 1.7): one buffer a thread, cleared by every other call.

use core::ffi::c_char;
use std::cell::RefCell;

/// Bytes of the buffer, with the terminator.
const BYTES: usize = 640;

thread_local! {
    static TEXT: RefCell<[u8; BYTES]> = const { RefCell::new([0; BYTES]) };
}

pub(super) fn clear() {
    TEXT.with_borrow_mut(|buffer| buffer[0] = 0);
}

pub(super) fn is_empty() -> bool {
    TEXT.with_borrow(|buffer| buffer[0] == 0)
}

/// Longer text is cut at a character.
pub(super) fn set(text: &str) {
    let mut length = text.len().min(BYTES - 1);
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    TEXT.with_borrow_mut(|buffer| {
        buffer[..length].copy_from_slice(&text.as_bytes()[..length]);
        buffer[length] = 0;
    });
}

/// Never NULL; the content is valid until this thread's next call.
pub(super) fn pointer() -> *const c_char {
    TEXT.with(|buffer| buffer.as_ptr().cast_const().cast())
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn read() -> String {
        // SAFETY: the buffer is terminated and nobody writes it meanwhile.
        unsafe { CStr::from_ptr(pointer()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn text_is_kept_cut_and_cleared() {
        assert!(is_empty());
        set("short");
        assert_eq!(read(), "short");
        set(&"x".repeat(700));
        assert_eq!(read().len(), 639);
        set(&format!("{}é", "x".repeat(638)));
        assert_eq!(read(), "x".repeat(638));
        clear();
        assert!(is_empty() && read().is_empty());
    }

    #[test]
    fn every_thread_has_its_own() {
        set("here");
        std::thread::spawn(|| assert!(is_empty())).join().unwrap();
        assert_eq!(read(), "here");
    }
}
