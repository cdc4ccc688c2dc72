//! The kernel: PTX text, loaded once a device and process.

use core::ffi::{c_uint, c_void};

use super::IdCheck;
use crate::device::Device;
use crate::driver::CuFunction;
use crate::error::{Error, Result};
use crate::stream::Stream;

/// Closed by a NUL, as the driver wants it.
const PTX: &str = concat!(include_str!("check.ptx"), "\0");

/// Its threads do little and mostly wait for memory: small blocks spread them over the device.
const THREADS: c_uint = 128;

/// A missing driver function, with what works without it.
fn needed<F>(device: Device, entry: Option<F>, symbol: &'static str) -> Result<F> {
    entry.ok_or_else(|| Error::Unsupported {
        feature: "looking at expert ids on the device",
        library: format!("the driver of backend {}", device.backend().name()),
        found: format!("no {symbol}"),
        needs:
            "a driver that exports it; without it use Validation::Data, which looks on the host, \
                or Handle::update_trusted, which does not look"
                .into(),
    })
}

/// Host memory that a device writes, for a report.
pub(super) fn pinned(device: Device, bytes: usize) -> Result<*mut c_void> {
    /// `CU_MEMHOSTALLOC_PORTABLE` and `CU_MEMHOSTALLOC_DEVICEMAP`: the same address on the host and
    /// on every device.
    const FLAGS: c_uint = 0x01 | 0x02;
    let backend = device.backend();
    needed(device, backend.driver().host_free, "cuMemFreeHost")?;
    let call = needed(device, backend.driver().host_alloc, "cuMemHostAlloc")?;
    let _current = device.activate()?;
    let mut memory = core::ptr::null_mut();
    // SAFETY: `memory` outlives the call; the device's context is current.
    backend.check_driver("cuMemHostAlloc", unsafe { call(&mut memory, bytes, FLAGS) })?;
    Ok(memory)
}

/// # Safety
/// From [`pinned`], used by nothing any more.
pub(super) unsafe fn free_pinned(device: Device, memory: *mut c_void) {
    let Some(call) = device.backend().driver().host_free else { return };
    let current = device.activate();
    // SAFETY: this function's contract.
    let code = unsafe { call(memory) };
    if let Err(error) = current.and_then(|_| device.backend().check_driver("cuMemFreeHost", code)) {
        tracing::error!(%error, "a report of expert ids was leaked");
    }
}

/// The kernel on a device, loaded if it is the first time.
pub(super) fn load(device: Device) -> Result<CuFunction> {
    let backend = device.backend();
    if let Some(function) = backend.id_kernels().get(device.ordinal()) {
        return Ok(function);
    }
    let driver = backend.driver();
    let load = needed(device, driver.module_load, "cuModuleLoadData")?;
    let find = needed(device, driver.module_function, "cuModuleGetFunction")?;
    needed(device, driver.launch_kernel, "cuLaunchKernel")?;
    let _current = device.activate()?;
    let mut module = core::ptr::null_mut();
    // SAFETY: text that ends with a NUL; `module` outlives the call; the context is current. The
    // module is never unloaded: the function is remembered for the process.
    let code = unsafe { load(&mut module, PTX.as_ptr().cast()) };
    backend.check_driver("cuModuleLoadData", code)?;
    let mut function = core::ptr::null_mut();
    // SAFETY: a module of the current context; `function` outlives the call.
    let code = unsafe { find(&mut function, module, c"nccl_ext_check_ids".as_ptr()) };
    backend.check_driver("cuModuleGetFunction", code)?;
    backend.id_kernels().remember(device.ordinal(), function);
    Ok(function)
}

/// Enqueues the kernel, a thread a token.
///
/// # Safety
/// The function is [`load`]'s for this device, and the memory of `check` stays as the kernel needs
/// it until the stream has run it.
pub(super) unsafe fn launch(
    device: Device,
    function: CuFunction,
    check: &mut IdCheck,
    stream: Stream<'_>,
) -> Result<()> {
    let backend = device.backend();
    let call = needed(device, backend.driver().launch_kernel, "cuLaunchKernel")?;
    let blocks = check.tokens.div_ceil(THREADS.into());
    // Tokens of a rank are counted in 32 bits, so blocks fit.
    let blocks = c_uint::try_from(blocks).unwrap_or(c_uint::MAX);
    let mut parameters = [core::ptr::from_mut(check).cast::<c_void>()];
    let _current = device.activate()?;
    // SAFETY: this function's contract; the driver copies the one parameter before it returns.
    let code = unsafe {
        call(
            function,
            blocks,
            1,
            1,
            THREADS,
            1,
            1,
            0,
            stream.as_raw(),
            parameters.as_mut_ptr(),
            core::ptr::null_mut(),
        )
    };
    backend.check_driver("cuLaunchKernel", code)
}
