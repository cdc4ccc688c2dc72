//! The few CUDA driver functions that a safe layer needs, as a table.

use core::ffi::{c_char, c_int, c_uint, c_void};

use crate::raw::cudaStream_t;

/// C `CUresult`; 0 is success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct CuResult(pub c_uint);

impl CuResult {
    /// `CUDA_SUCCESS`.
    pub const SUCCESS: Self = Self(0);
    /// `CUDA_ERROR_INVALID_VALUE`.
    pub const INVALID_VALUE: Self = Self(1);
    /// `CUDA_ERROR_NOT_READY`: what was asked for is not done yet.
    pub const NOT_READY: Self = Self(600);
    /// `CUDA_ERROR_LAUNCH_FAILED`: enqueued work failed.
    pub const LAUNCH_FAILED: Self = Self(719);
}

/// C `CUdevice`: a device ordinal.
pub type CuDevice = c_int;
/// C `CUcontext`.
pub type CuContext = *mut c_void;
/// C `CUevent`.
pub type CuEvent = *mut c_void;
/// C `CUmodule`.
pub type CuModule = *mut c_void;
/// C `CUfunction`.
pub type CuFunction = *mut c_void;
/// C `CUgraph`.
pub type CuGraph = *mut c_void;
/// C `CUgraphExec`.
pub type CuGraphExec = *mut c_void;
/// C `CUdeviceptr`.
pub type CuDevicePtr = u64;

/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
pub const ATTRIBUTE_MULTIPROCESSOR_COUNT: c_int = 16;
/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`.
pub const POINTER_MEMORY_TYPE: c_int = 2;
/// `CU_MEMORYTYPE_HOST`.
pub const MEMORY_HOST: u32 = 1;
/// `CU_MEMORYTYPE_DEVICE`.
pub const MEMORY_DEVICE: u32 = 2;
/// `CU_MEMORYTYPE_UNIFIED`.
pub const MEMORY_UNIFIED: u32 = 4;

macro_rules! driver_table {
    ($($(#[$doc:meta])* $field:ident = $symbol:literal: fn($($arg:ident: $ty:ty),*);)+) => {
        /// Entry points of `libcuda.so.1`.
        ///
        /// An entry may be missing (older driver): the call that needs it reports
        /// [`Error::Unsupported`](crate::Error::Unsupported), everything else works.
        #[derive(Clone, Copy)]
        pub struct DriverApi {
            $($(#[$doc])* #[doc(alias = $symbol)]
            pub $field: Option<unsafe extern "C" fn($($arg: $ty),*) -> CuResult>,)+
        }

        impl DriverApi {
            /// A table without entries.
            pub const NONE: Self = Self { $($field: None),+ };

            /// Fills the table from `symbol`, which gives NULL for what the driver lacks.
            ///
            /// # Safety
            /// Every non-null pointer is the driver function of that name, and stays callable.
            pub unsafe fn resolve(mut symbol: impl FnMut(&'static str) -> *mut c_void) -> Self {
                Self { $($field: {
                    let pointer = symbol($symbol);
                    if pointer.is_null() {
                        None
                    } else {
                        // SAFETY: the caller says that this is the function of that name, whose
                        // signature is the field's.
                        Some(unsafe { core::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($arg: $ty),*) -> CuResult,
                        >(pointer) })
                    }
                }),+ }
            }
        }
    };
}

driver_table! {
    /// Initialises the driver.
    init = "cuInit": fn(flags: c_uint);
    /// The newest CUDA version the driver supports, `1000 * major + 10 * minor`.
    version = "cuDriverGetVersion": fn(version: *mut c_int);
    /// Number of devices.
    device_count = "cuDeviceGetCount": fn(count: *mut c_int);
    /// One attribute of a device.
    device_attribute = "cuDeviceGetAttribute":
        fn(value: *mut c_int, attribute: c_int, device: CuDevice);
    /// The device's primary context, reference counted.
    primary_context_retain = "cuDevicePrimaryCtxRetain":
        fn(context: *mut CuContext, device: CuDevice);
    /// The calling thread's context.
    context_get = "cuCtxGetCurrent": fn(context: *mut CuContext);
    /// Makes a context current on the calling thread.
    context_set = "cuCtxSetCurrent": fn(context: CuContext);
    /// Waits for all work of the current context.
    context_synchronize = "cuCtxSynchronize": fn();
    /// Makes a stream of the current context.
    stream_create = "cuStreamCreate": fn(stream: *mut cudaStream_t, flags: c_uint);
    /// Frees a stream once its work is done.
    stream_destroy = "cuStreamDestroy_v2": fn(stream: cudaStream_t);
    /// Whether a stream is being captured into a graph.
    stream_is_capturing = "cuStreamIsCapturing": fn(stream: cudaStream_t, status: *mut c_int);
    /// Waits for all work of a stream.
    stream_synchronize = "cuStreamSynchronize": fn(stream: cudaStream_t);
    /// Whether all work of a stream is done: success or [`CuResult::NOT_READY`].
    stream_query = "cuStreamQuery": fn(stream: cudaStream_t);
    /// Makes a stream's later work wait for an event.
    stream_wait_event = "cuStreamWaitEvent":
        fn(stream: cudaStream_t, event: CuEvent, flags: c_uint);
    /// Starts to capture a stream's work into a graph.
    stream_begin_capture = "cuStreamBeginCapture_v2": fn(stream: cudaStream_t, mode: c_int);
    /// Ends it and gives the graph.
    stream_end_capture = "cuStreamEndCapture": fn(stream: cudaStream_t, graph: *mut CuGraph);
    /// Makes a graph ready for launches.
    graph_instantiate = "cuGraphInstantiateWithFlags":
        fn(executable: *mut CuGraphExec, graph: CuGraph, flags: u64);
    /// Enqueues a graph on a stream.
    graph_launch = "cuGraphLaunch": fn(executable: CuGraphExec, stream: cudaStream_t);
    /// Frees a graph.
    graph_destroy = "cuGraphDestroy": fn(graph: CuGraph);
    /// Frees what instantiation made.
    graph_exec_destroy = "cuGraphExecDestroy": fn(executable: CuGraphExec);
    /// Loads a module from PTX text.
    module_load = "cuModuleLoadData": fn(module: *mut CuModule, image: *const c_void);
    /// A function of a module.
    module_function = "cuModuleGetFunction":
        fn(function: *mut CuFunction, module: CuModule, name: *const c_char);
    /// Enqueues a kernel.
    launch_kernel = "cuLaunchKernel": fn(
        function: CuFunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
        block_y: c_uint, block_z: c_uint, shared_bytes: c_uint, stream: cudaStream_t,
        parameters: *mut *mut c_void, extra: *mut *mut c_void);
    /// Allocates page-locked host memory.
    host_alloc = "cuMemHostAlloc": fn(memory: *mut *mut c_void, bytes: usize, flags: c_uint);
    /// Frees it.
    host_free = "cuMemFreeHost": fn(memory: *mut c_void);
    /// An attribute of a pointer.
    pointer_attribute = "cuPointerGetAttribute":
        fn(value: *mut c_void, attribute: c_int, pointer: CuDevicePtr);
    /// Copies host memory to the device.
    copy_to_device = "cuMemcpyHtoDAsync_v2":
        fn(to: CuDevicePtr, from: *const c_void, bytes: usize, stream: cudaStream_t);
    /// Copies device memory to the host.
    copy_to_host = "cuMemcpyDtoHAsync_v2":
        fn(to: *mut c_void, from: CuDevicePtr, bytes: usize, stream: cudaStream_t);
    /// Copies within devices.
    copy_on_device = "cuMemcpyDtoDAsync_v2":
        fn(to: CuDevicePtr, from: CuDevicePtr, bytes: usize, stream: cudaStream_t);
    /// Fills device memory with one byte value.
    fill = "cuMemsetD8Async":
        fn(to: CuDevicePtr, value: u8, bytes: usize, stream: cudaStream_t);
    /// Makes an event.
    event_create = "cuEventCreate": fn(event: *mut CuEvent, flags: c_uint);
    /// Records an event on a stream.
    event_record = "cuEventRecord": fn(event: CuEvent, stream: cudaStream_t);
    /// Waits for an event.
    event_synchronize = "cuEventSynchronize": fn(event: CuEvent);
    /// Whether an event's work is done: success or [`CuResult::NOT_READY`].
    event_query = "cuEventQuery": fn(event: CuEvent);
    /// Milliseconds between two events.
    event_elapsed = "cuEventElapsedTime": fn(ms: *mut f32, start: CuEvent, end: CuEvent);
    /// Frees an event.
    event_destroy = "cuEventDestroy_v2": fn(event: CuEvent);
    /// The C name of an error.
    error_name = "cuGetErrorName": fn(error: CuResult, name: *mut *const c_char);
}
