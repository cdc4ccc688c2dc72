//! Errors on their way to the caller: a C code for everyone, and beside it the whole story for
//! callers of this process.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString};
use std::fmt::Display;

use nccl_ext_core::Error;
use nccl_ext_core::raw::ncclResult_t;

/// What the vendor's library does where this backend returns a code (EP 0.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureClass {
    /// It returns the same code.
    Return,
    /// A failed C `assert`: the process aborts.
    Assert,
    /// A C++ exception leaves the C function.
    Throw,
    /// It calls `exit`.
    Exit,
    /// It aborts because a kernel does not compile or launch.
    JitAbort,
    /// A device trap: the CUDA context is lost.
    Trap,
    /// Anything: memory may be corrupted without a sign.
    UndefinedBehaviour,
}

/// `Result` of everything between a C function's entry and its code.
pub(crate) type Outcome<T = ()> = Result<T, Refusal>;

/// Why a call does not succeed.
#[derive(Debug, Clone)]
pub(crate) struct Refusal(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    code: ncclResult_t,
    class: Option<FailureClass>,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    /// The words of [`Error::Native`]; the entry point adds its name and the code.
    Detail(String),
    Error(Error),
}

impl Refusal {
    fn rule(
        code: ncclResult_t,
        class: FailureClass,
        argument: &str,
        rule: &str,
        expected: impl Display,
        found: impl Display,
    ) -> Self {
        let detail = format!("`{argument}`: {rule}; expected {expected}, found {found}");
        Self(Box::new(Inner { code, class: Some(class), what: What::Detail(detail) }))
    }

    /// An argument breaks a rule: `ncclInvalidArgument`.
    pub(crate) fn argument(
        class: FailureClass,
        argument: &str,
        rule: &str,
        expected: impl Display,
        found: impl Display,
    ) -> Self {
        Self::rule(ncclResult_t::ncclInvalidArgument, class, argument, rule, expected, found)
    }

    /// The state of the objects forbids the call: `ncclInvalidUsage`.
    pub(crate) fn usage(
        class: FailureClass,
        argument: &str,
        rule: &str,
        expected: impl Display,
        found: impl Display,
    ) -> Self {
        Self::rule(ncclResult_t::ncclInvalidUsage, class, argument, rule, expected, found)
    }

    /// A pointer that must not be NULL is.
    pub(crate) fn null(class: FailureClass, argument: &str) -> Self {
        Self::argument(class, argument, "the pointer must not be NULL", "an object", "NULL")
    }

    /// A whole error, such as a time-out, that no rule of the vendor's stands behind.
    pub(crate) fn error(error: Error) -> Self {
        let code = match &error {
            Error::Native { code, .. } => *code,
            Error::Timeout { .. } => ncclResult_t::ncclTimeout,
            Error::PeerFailed { .. } => ncclResult_t::ncclRemoteError,
            Error::Invalid { .. } => ncclResult_t::ncclInvalidArgument,
            _ => ncclResult_t::ncclInvalidUsage,
        };
        Self(Box::new(Inner { code, class: None, what: What::Error(error) }))
    }

    /// Something the vendor's library has and this backend does not have yet.
    pub(crate) fn unsupported(feature: &'static str, code: ncclResult_t) -> Self {
        let error = Error::Unsupported {
            feature,
            library: "the CPU backend".into(),
            found: format!("version {}", nccl_ext_core::VERSION),
            needs: "the native library".into(),
        };
        Self(Box::new(Inner { code, class: None, what: What::Error(error) }))
    }

    /// The same with another code.
    pub(crate) fn with_code(mut self, code: ncclResult_t) -> Self {
        self.0.code = code;
        self
    }

    /// The same, or rather what the vendor's library does at this place.
    pub(crate) fn with_class(mut self, class: FailureClass) -> Self {
        self.0.class = Some(class);
        self
    }

    /// The error that the caller of `call` sees.
    pub(crate) fn to_error(&self, call: &'static str) -> Error {
        match &self.0.what {
            What::Detail(detail) => {
                Error::Native { call, code: self.0.code, detail: detail.clone() }
            }
            What::Error(error) => error.clone(),
        }
    }
}

/// `Ok` when the rule holds.
pub(crate) fn require(holds: bool, refusal: impl FnOnce() -> Refusal) -> Outcome {
    if holds { Ok(()) } else { Err(refusal()) }
}

/// What a panic said.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no message)")
}

thread_local! {
    static ERROR: RefCell<Option<Error>> = const { RefCell::new(None) };
    static CLASS: Cell<Option<FailureClass>> = const { Cell::new(None) };
    static TEXT: RefCell<CString> = RefCell::new(CString::default());
}

/// What the vendor's library would have done with this thread's last call that failed.
///
/// `None` when there was none, or when it failed for a reason that has no counterpart there: a
/// time-out, a failed peer, a feature that this backend lacks. Successful calls leave it.
#[must_use]
pub fn last_refusal() -> Option<FailureClass> {
    CLASS.get()
}

/// Notes the success of a call of this thread.
pub(crate) fn record_success() {
    ERROR.take();
}

/// Notes the failure of a call of this thread and gives its code.
pub(crate) fn record(call: &'static str, refusal: Refusal) -> ncclResult_t {
    let error = refusal.to_error(call);
    let Inner { code, class, .. } = *refusal.0;
    // A C string ends at its first NUL; no message has one.
    TEXT.set(CString::new(error.to_string()).unwrap_or_default());
    ERROR.set(Some(error));
    CLASS.set(class);
    code
}

/// Notes the error behind a driver's code that the calling thread is about to get.
pub(crate) fn note(error: Error) {
    ERROR.set(Some(error));
}

/// Gives and clears the error behind this thread's last call, if that failed.
pub(crate) fn take_error() -> Option<Error> {
    ERROR.take()
}

/// The text of this thread's last error, valid until its next one.
pub(crate) fn last_text() -> *const core::ffi::c_char {
    TEXT.with_borrow(|text| CStr::as_ptr(text))
}
