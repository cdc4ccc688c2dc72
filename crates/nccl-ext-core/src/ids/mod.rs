//! Expert ids: copied into memory of ours and looked at where they lie, before a library sees them.
//!
//! The library takes ids as they are, and one that is no expert's corrupts memory. Looking at them
//! on the host would wait for the device, so the device looks: [`IdCopies::copy`] enqueues a kernel
//! that copies the ids and replaces those that would corrupt. What it finds is read later, without
//! waiting. One set of rules, [`IdRules`], has three ways to run: a kernel through the driver, a
//! backend's own function ([`IdCheckApi`]), or a loop on backends whose memory is the host's.

mod copies;
mod host;
mod kernel;
mod report;

use core::ffi::c_void;

pub use self::copies::{IdCopies, IdSource};
pub use self::report::IdReport;
use crate::backend::ExtensionTable;
use crate::raw::{cudaStream_t, ncclComm_t, ncclResult_t};

/// What an id may be. Every negative id says "no expert" and becomes -1; it is never wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdRules {
    /// Ids below it are experts. An id that is not becomes -1 and is counted.
    pub experts: u64,
    /// Ids of a token.
    pub topk: u32,
    /// What becomes of an id that stands earlier in its row, too.
    pub repeated: Repeated,
    /// Experts of a rank, where a token may have at most [`MOST_OF_A_RANK`] different ones of a rank:
    /// any further one becomes -1 and is counted. 0 where there is no such limit.
    pub rank_experts: u32,
}

/// The most experts of one rank that a token may have, where that is limited (EP 4.8.1).
pub const MOST_OF_A_RANK: u32 = 8;

/// What becomes of an id that stands earlier in its row, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Repeated {
    /// It stays, as good as any other.
    Allowed = 0,
    /// It stays, since it only loses its weight, and is counted.
    Counted = 1,
    /// It becomes -1, since it would corrupt memory, and is counted.
    Dropped = 2,
}

/// One copy of ids, as the kernel and [`IdCheckApi`] take it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct IdCheck {
    /// `tokens * topk` integers.
    pub from: *const c_void,
    /// Room for as many.
    pub to: *mut c_void,
    /// Rows.
    pub tokens: u64,
    /// [`IdRules::experts`].
    pub experts: u64,
    /// [`IdRules::topk`].
    pub topk: u32,
    /// 1 for ids of 64 bits, 0 for 32.
    pub wide: u32,
    /// A [`Repeated`].
    pub repeated: u32,
    /// [`IdRules::rank_experts`].
    pub rank_experts: u32,
    /// Three words of device memory for the kernel to count in, zero between launches. Only the
    /// kernel uses them.
    pub state: *mut u64,
    /// Where wrong ids are reported.
    pub report: *const IdReport,
}

// SAFETY: a description of memory; who runs it vouches for the pointers.
unsafe impl Send for IdCheck {}

/// How a backend without kernels looks at ids on its streams. A backend that has this table is asked
/// through it, any other through the driver.
#[derive(Clone, Copy)]
#[allow(non_snake_case, reason = "named as the C functions beside it")]
pub struct IdCheckApi {
    /// Enqueues a copy on a stream of the communicator's device, which calls
    /// [`IdCheck::run`] when the stream gets there.
    pub ncclExtCheckIds: unsafe extern "C" fn(
        check: *const IdCheck,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> ncclResult_t,
}

impl ExtensionTable for IdCheckApi {
    const LIBRARY: &'static str = "ncclExtCheckIds";
}

#[cfg(test)]
mod tests {
    use core::mem::offset_of;

    use super::*;

    /// The offsets that `check.ptx` has in numbers.
    #[test]
    fn the_kernel_finds_each_argument_in_its_place() {
        let offsets = [
            offset_of!(IdCheck, from),
            offset_of!(IdCheck, to),
            offset_of!(IdCheck, tokens),
            offset_of!(IdCheck, experts),
            offset_of!(IdCheck, topk),
            offset_of!(IdCheck, wide),
            offset_of!(IdCheck, repeated),
            offset_of!(IdCheck, rank_experts),
            offset_of!(IdCheck, state),
            offset_of!(IdCheck, report),
            size_of::<IdCheck>(),
        ];
        assert_eq!(offsets, [0, 8, 16, 24, 32, 36, 40, 44, 48, 56, 64]);
    }
}
