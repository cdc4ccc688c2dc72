//! Modules and launches: the kernel that looks at expert ids, run at once by the loop that says what
//! it does.

use core::ffi::{CStr, c_char, c_uint, c_void};
use std::cell::Cell;

use nccl_ext_core::driver::{CuFunction, CuModule, CuResult};
use nccl_ext_core::ids::IdCheck;
use nccl_ext_core::raw::cudaStream_t;

/// `CUDA_ERROR_NOT_FOUND`.
const NOT_FOUND: CuResult = CuResult(500);

/// A launch of the kernel.
#[derive(Debug, Clone, Copy)]
pub struct Launch {
    /// Blocks and threads of a block, in the first dimension.
    pub grid: [c_uint; 2],
    /// Its one parameter.
    pub check: IdCheck,
    /// The stream.
    pub stream: cudaStream_t,
    /// Whether the kernel's words were zero.
    pub clean: bool,
}

thread_local! {
    static LAUNCHED: Cell<Option<Launch>> = const { Cell::new(None) };
}

/// This thread's last launch since the last look.
pub fn take_launch() -> Option<Launch> {
    LAUNCHED.take()
}

/// The text is its own module.
pub(super) unsafe extern "C" fn load(module: *mut CuModule, text: *const c_void) -> CuResult {
    // SAFETY: the caller's out pointer.
    unsafe { *module = text.cast_mut() };
    CuResult::SUCCESS
}

pub(super) unsafe extern "C" fn function(
    function: *mut CuFunction,
    module: CuModule,
    name: *const c_char,
) -> CuResult {
    // SAFETY: a module is its text, closed by a NUL, as names are.
    let (text, name) = unsafe { (CStr::from_ptr(module.cast()), CStr::from_ptr(name)) };
    let entry = format!(".visible .entry {}(", name.to_string_lossy());
    if !text.to_string_lossy().contains(&entry) {
        return NOT_FOUND;
    }
    // SAFETY: the caller's out pointer.
    unsafe { *function = module };
    CuResult::SUCCESS
}

pub(super) unsafe extern "C" fn launch(
    _: CuFunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    _: c_uint,
    stream: cudaStream_t,
    parameters: *mut *mut c_void,
    _: *mut *mut c_void,
) -> CuResult {
    if [grid_y, grid_z, block_y, block_z] != [1; 4] || grid_x == 0 {
        return CuResult::INVALID_VALUE;
    }
    // SAFETY: the kernel has one parameter, whose memory is the host's like all of the stub's.
    unsafe {
        let check = (*parameters).cast::<IdCheck>().read();
        let clean = core::slice::from_raw_parts(check.state, 3) == [0; 3];
        LAUNCHED.set(Some(Launch { grid: [grid_x, block_x], check, stream, clean }));
        check.run();
    }
    CuResult::SUCCESS
}

pub(super) unsafe extern "C" fn host_alloc(
    out: *mut *mut c_void,
    bytes: usize,
    _: c_uint,
) -> CuResult {
    let memory = vec![0_u64; bytes.div_ceil(8)].into_boxed_slice();
    // SAFETY: the caller's out pointer.
    unsafe { *out = Box::into_raw(memory).cast() };
    CuResult::SUCCESS
}

/// Leaks: the stub does not know the size.
pub(super) unsafe extern "C" fn host_free(_: *mut c_void) -> CuResult {
    CuResult::SUCCESS
}
