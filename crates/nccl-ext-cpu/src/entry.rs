//! The way into every C function of this crate, and out again.

use std::cell::OnceCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use nccl_ext_core::Error;
use nccl_ext_core::raw::ncclResult_t;

use crate::refusal::{FailureClass, Outcome, Refusal, panic_text, record, record_success, require};
use crate::world::Member;

/// What a C function has found out about its caller so far.
#[derive(Default)]
pub(crate) struct Scope {
    member: OnceCell<Arc<Member>>,
}

impl Scope {
    /// Names the rank whose world fails should this call panic.
    pub(crate) fn enter(&self, member: &Arc<Member>) {
        // A call concerns one rank; should it say so twice, the first stays.
        let _ = self.member.set(Arc::clone(member));
    }
}

/// Runs the body of the C function `call`.
///
/// A panic is a bug of this crate. It must not cross the C boundary, and the peers must not wait
/// for a rank that is half-way through an operation: it becomes `ncclInternalError` here and
/// `PeerFailed` there.
pub(crate) fn entry(call: &'static str, body: impl FnOnce(&Scope) -> Outcome) -> ncclResult_t {
    let scope = Scope::default();
    match catch_unwind(AssertUnwindSafe(|| body(&scope))) {
        Ok(Ok(())) => {
            record_success();
            ncclResult_t::ncclSuccess
        }
        Ok(Err(refusal)) => record(call, refusal),
        Err(payload) => {
            let error = Error::Native {
                call,
                code: ncclResult_t::ncclInternalError,
                detail: format!("the CPU backend panicked: {}", panic_text(&*payload)),
            };
            if let Some(member) = scope.member.get() {
                member.fail(&error);
            }
            record(call, Refusal::error(error))
        }
    }
}

/// Gives the caller a value through an out pointer.
///
/// # Safety
/// `to` is NULL or writable.
pub(crate) unsafe fn store<T>(to: *mut T, name: &str, value: T) -> Outcome {
    require(!to.is_null(), || Refusal::null(FailureClass::Return, name))?;
    // SAFETY: this function's contract.
    unsafe { to.write(value) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::take_error;

    #[test]
    fn a_panic_becomes_internal_error_with_its_words() {
        let code = entry("ncclEpDispatch", |_| panic!("row {} of {}", 7, 3));
        assert_eq!(code, ncclResult_t::ncclInternalError);
        let error = take_error().unwrap();
        assert!(error.to_string().contains("row 7 of 3"), "{error}");
        assert!(take_error().is_none());
    }
}
