//! The guard in assembly.
//!
//! An unwinder finds the frames of a thread through their call frame information (the `.cfi_*`
//! directives), asks each frame's personality routine whether it handles the exception, and, once
//! one does, lets that routine choose where to go on: it restores the registers that the frame's
//! callee had to preserve, and jumps. `enter` has such a routine, in Rust, and `landing` is where
//! it sends the thread. Both are naked functions and not global assembly: their names are mangled
//! like any Rust function's, so that several copies of this crate live side by side.

mod abi;
mod exception;
mod runtime;

use core::arch::naked_asm;
use core::ffi::{c_int, c_void};

use self::abi::Exception;
use super::foreign::{Foreign, MOST, Slot};

pub(super) const KIND: &str = "assembly";

/// Two registers' worth of result: `rax` and `rdx`, or `x0` and `x1`. Personality routines may
/// set these two, and no others, before the landing.
#[repr(C)]
struct Landing {
    value: Slot,
    exception: *mut Exception,
}

/// # Safety
/// As for the call, which exceptions may leave.
#[inline]
pub(super) unsafe fn call<F: Foreign>(
    function: F,
    arguments: F::Arguments,
) -> Result<F::Output, String> {
    let slots = F::slots(arguments);
    // SAFETY: `Foreign` is implemented for C functions of at most `MOST` words, which are in
    // `slots`; a call with the others, zeros, in registers or behind the arguments on the stack
    // is the same call. The caller vouches for it.
    let landing = unsafe { enter(function.address(), &slots) };
    if landing.exception.is_null() {
        // SAFETY: the function returned, and `enter` hands its result on.
        Ok(unsafe { F::output(landing.value) })
    } else {
        // SAFETY: the personality routine put it there; nobody else handles it.
        Err(unsafe { exception::consume(landing.exception) })
    }
}

/// Calls `function` with `MOST` words.
///
/// Needs no more than the return address and the frame pointer of its own: the unwinder restores
/// all other registers that a caller relies on, as they were at the call. `endbr64` marks the
/// places that may be jumped to, for processors that check.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C-unwind" fn enter(function: *const c_void, slots: &[Slot; MOST]) -> Landing {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_personality 0x1b, {personality}", // 0x1b: a signed 32-bit distance from here
        "endbr64",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rax, rdi",
        "mov r10, rsi",
        "push qword ptr [r10 + 56]", // two words: the stack stays aligned
        "push qword ptr [r10 + 48]",
        "mov r9, qword ptr [r10 + 40]",
        "mov r8, qword ptr [r10 + 32]",
        "mov rcx, qword ptr [r10 + 24]",
        "mov rdx, qword ptr [r10 + 16]",
        "mov rsi, qword ptr [r10 + 8]",
        "mov rdi, qword ptr [r10]",
        "call rax",
        "xor edx, edx",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        personality = sym personality,
    )
}

/// Where a thread goes on, in `enter`'s frame, after an exception: the end of `enter`.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn landing() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_def_cfa rbp, 16",
        ".cfi_offset rbp, -16",
        "endbr64",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// Calls `function` with `MOST` words.
///
/// Needs no more than the return address and the frame pointer of its own: the unwinder restores
/// all other registers that a caller relies on, as they were at the call. The hints are `bti`,
/// which marks the places that may be jumped to, spelled for assemblers that do not know it.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C-unwind" fn enter(function: *const c_void, slots: &[Slot; MOST]) -> Landing {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_personality 0x1b, {personality}", // 0x1b: a signed 32-bit distance from here
        "hint #34",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "mov x16, x0",
        "mov x17, x1",
        "ldp x0, x1, [x17]",
        "ldp x2, x3, [x17, #16]",
        "ldp x4, x5, [x17, #32]",
        "ldp x6, x7, [x17, #48]",
        "blr x16",
        "mov x1, xzr",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa sp, 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
        personality = sym personality,
    )
}

/// Where a thread goes on, in `enter`'s frame, after an exception: the end of `enter`.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn landing() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_def_cfa x29, 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "hint #38",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa sp, 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
    )
}

/// The class of Rust panics. Which end comes first has changed between versions of the standard
/// library, and those of all Rust programs in the process count.
const RUST: [u64; 2] = [u64::from_be_bytes(*b"MOZ\0RUST"), u64::from_le_bytes(*b"MOZ\0RUST")];

// From the Itanium C++ ABI's exception handling, level I.
const SEARCH_PHASE: c_int = 1;
const HANDLER_FRAME: c_int = 4;
const FORCE_UNWIND: c_int = 8;
const HANDLER_FOUND: c_int = 6;
const INSTALL_CONTEXT: c_int = 7;
const CONTINUE_UNWIND: c_int = 8;

unsafe extern "C" {
    fn _Unwind_SetGR(context: *mut c_void, index: c_int, value: usize);
    fn _Unwind_SetIP(context: *mut c_void, value: usize);
}

/// Number, to the unwinder, of the registers that [`Landing`] is returned in. Fixed by the ABI:
/// `__builtin_eh_return_data_regno` of 0 and 1.
const RESULT: (c_int, c_int) = (0, 1);

/// Answers for `enter`: every exception stops here, except Rust panics and forced unwinds.
unsafe extern "C" fn personality(
    version: c_int,
    actions: c_int,
    class: u64,
    exception: *mut Exception,
    context: *mut c_void,
) -> c_int {
    if version != 1 || RUST.contains(&class) || actions & FORCE_UNWIND != 0 {
        return CONTINUE_UNWIND;
    }
    if actions & SEARCH_PHASE != 0 {
        return HANDLER_FOUND;
    }
    if actions & HANDLER_FRAME == 0 {
        return CONTINUE_UNWIND;
    }
    // SAFETY: the unwinder's own context, in the phase in which it may be changed. `landing`
    // expects `enter`'s frame, which is the one that was asked.
    unsafe {
        _Unwind_SetGR(context, RESULT.0, 0);
        _Unwind_SetGR(context, RESULT.1, exception.expose_provenance());
        _Unwind_SetIP(context, landing as *const () as usize);
    }
    INSTALL_CONTEXT
}
