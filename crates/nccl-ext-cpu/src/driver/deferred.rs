//! The driver of the backend whose calls return before their work is done.

use core::ffi::{c_int, c_uint, c_void};
use std::sync::{Arc, Mutex, MutexGuard};

use nccl_ext_core::driver::{
    CuDevicePtr, CuEvent, CuResult, DriverApi, MEMORY_DEVICE, MEMORY_HOST, POINTER_MEMORY_TYPE,
};
use nccl_ext_core::raw::cudaStream_t;

use super::common::{COMMON, OUT_OF_MEMORY, pointer, store};
use super::contexts::current_device;
use super::waits::{code, ready};
use super::{contexts, pinned};
use crate::lock::lock;
use crate::queue::{self, Point, Stream};
use crate::refusal::record_success;

pub(crate) const TABLE: DriverApi = DriverApi {
    primary_context_retain: Some(contexts::retain),
    context_get: Some(contexts::get),
    context_set: Some(contexts::set),
    context_synchronize: Some(contexts::synchronize),
    stream_create: Some(stream_create),
    stream_destroy: Some(stream_destroy),
    stream_is_capturing: Some(stream_is_capturing),
    stream_synchronize: Some(stream_synchronize),
    stream_query: Some(stream_query),
    stream_wait_event: Some(stream_wait_event),
    pointer_attribute: Some(pointer_attribute),
    copy_to_device: Some(copy_to_device),
    copy_to_host: Some(copy_to_host),
    copy_on_device: Some(copy_on_device),
    fill: Some(fill),
    event_create: Some(event_create),
    event_record: Some(event_record),
    event_synchronize: Some(event_synchronize),
    event_query: Some(event_query),
    event_elapsed: Some(event_elapsed),
    event_destroy: Some(event_destroy),
    host_alloc: Some(pinned::alloc),
    host_free: Some(pinned::free),
    ..COMMON
};

fn with_stream(stream: cudaStream_t, body: impl FnOnce(&Stream) -> CuResult) -> CuResult {
    match queue::stream(stream, current_device()) {
        Some(stream) => body(&stream),
        None => {
            record_success();
            CuResult::INVALID_VALUE
        }
    }
}

unsafe extern "C" fn stream_create(stream: *mut cudaStream_t, _flags: c_uint) -> CuResult {
    match queue::create_stream(current_device()) {
        // SAFETY: the C contract of cuStreamCreate.
        Some(made) => unsafe { store(stream, made) },
        None => OUT_OF_MEMORY,
    }
}

unsafe extern "C" fn stream_destroy(stream: cudaStream_t) -> CuResult {
    if queue::destroy_stream(stream) { CuResult::SUCCESS } else { CuResult::INVALID_VALUE }
}

unsafe extern "C" fn stream_is_capturing(_stream: cudaStream_t, status: *mut c_int) -> CuResult {
    // SAFETY: the C contract of cuStreamIsCapturing.
    unsafe { store(status, 0) }
}

unsafe extern "C" fn stream_synchronize(stream: cudaStream_t) -> CuResult {
    with_stream(stream, |stream| code(stream.wait()))
}

unsafe extern "C" fn stream_query(stream: cudaStream_t) -> CuResult {
    with_stream(stream, |stream| ready(stream.ask()))
}

/// An event: its latest recording.
type Event = Mutex<Option<Arc<Point>>>;

/// The latest recording of an event.
///
/// # Safety
/// The event lives.
unsafe fn latest<'a>(event: CuEvent) -> MutexGuard<'a, Option<Arc<Point>>> {
    // SAFETY: this function's contract; `event_create` made it.
    lock(unsafe { &*event.cast_const().cast::<Event>() })
}

unsafe extern "C" fn event_create(event: *mut CuEvent, _flags: c_uint) -> CuResult {
    let made: Box<Event> = Box::default();
    // SAFETY: the C contract of cuEventCreate.
    unsafe { store(event, Box::into_raw(made).cast()) }
}

unsafe extern "C" fn event_destroy(event: CuEvent) -> CuResult {
    // SAFETY: the C contract of cuEventDestroy: it lives, and is given up. Streams that wait for it
    // have a share of the recording.
    drop(unsafe { Box::from_raw(event.cast::<Event>()) });
    CuResult::SUCCESS
}

unsafe extern "C" fn event_record(event: CuEvent, stream: cudaStream_t) -> CuResult {
    with_stream(stream, |stream| {
        let point = Arc::default();
        stream.record(&point);
        // SAFETY: the C contract of cuEventRecord.
        *unsafe { latest(event) } = Some(point);
        CuResult::SUCCESS
    })
}

unsafe extern "C" fn stream_wait_event(
    stream: cudaStream_t,
    event: CuEvent,
    _flags: c_uint,
) -> CuResult {
    with_stream(stream, |stream| {
        // SAFETY: the C contract of cuStreamWaitEvent.
        if let Some(point) = &*unsafe { latest(event) } {
            stream.wait_for(point);
        }
        CuResult::SUCCESS
    })
}

unsafe extern "C" fn event_synchronize(event: CuEvent) -> CuResult {
    // SAFETY: the C contract of cuEventSynchronize.
    let point = unsafe { latest(event) }.clone();
    code(point.map_or(Ok(()), |point| point.wait_on_host()))
}

unsafe extern "C" fn event_query(event: CuEvent) -> CuResult {
    // SAFETY: the C contract of cuEventQuery.
    let point = unsafe { latest(event) }.clone();
    ready(point.map_or(Ok(true), |point| point.ask()))
}

unsafe extern "C" fn event_elapsed(ms: *mut f32, start: CuEvent, end: CuEvent) -> CuResult {
    // SAFETY: the C contract of cuEventElapsedTime.
    let [start, end] = [start, end].map(|event| unsafe { latest(event) }.clone());
    let (Some(start), Some(end)) = (start, end) else { return CuResult::INVALID_VALUE };
    let (Some(start), Some(end)) = (start.time(), end.time()) else { return CuResult::NOT_READY };
    // SAFETY: as above.
    unsafe { store(ms, end.saturating_duration_since(start).as_secs_f32() * 1e3) }
}

unsafe extern "C" fn pointer_attribute(
    value: *mut c_void,
    attribute: c_int,
    pointer: CuDevicePtr,
) -> CuResult {
    let address = pointer as usize;
    let space = match (queue::is_device(address, 1), pinned::is_pinned(address, 1)) {
        (true, _) => MEMORY_DEVICE,
        (_, true) => MEMORY_HOST,
        _ => return CuResult::INVALID_VALUE,
    };
    if attribute != POINTER_MEMORY_TYPE {
        return CuResult::INVALID_VALUE;
    }
    // SAFETY: the C contract of cuPointerGetAttribute: the memory type is an unsigned int.
    unsafe { store(value.cast::<c_uint>(), space) }
}

/// Bytes that an entry of a stream uses.
#[derive(Clone, Copy)]
struct Bytes(*mut u8);

// SAFETY: whoever enqueues a copy keeps the memory until it is done.
unsafe impl Send for Bytes {}

impl Bytes {
    fn pointer(self) -> *mut u8 {
        self.0
    }
}

/// Enqueues a copy between two places that stay valid until it has run.
///
/// # Safety
/// Both have that many bytes until then.
unsafe fn enqueue_copy(
    stream: &Stream,
    call: &'static str,
    to: *mut u8,
    from: *const u8,
    bytes: usize,
) {
    let (to, from) = (Bytes(to), Bytes(from.cast_mut()));
    stream.run(call, None, move || {
        let (to, from) = (to.pointer(), from.pointer());
        queue::read(from, bytes)?;
        queue::write(to, bytes)?;
        // SAFETY: this function's contract, and no other work uses the bytes that were noted.
        unsafe { core::ptr::copy(from, to, bytes) };
        Ok(())
    });
}

unsafe extern "C" fn copy_to_device(
    to: CuDevicePtr,
    from: *const c_void,
    bytes: usize,
    stream: cudaStream_t,
) -> CuResult {
    const CALL: &str = "cuMemcpyHtoDAsync";
    if bytes == 0 {
        return CuResult::SUCCESS;
    }
    if !queue::is_device(to as usize, bytes) || from.is_null() {
        return CuResult::INVALID_VALUE;
    }
    with_stream(stream, |stream| {
        let to = Bytes(pointer(to));
        if pinned::is_pinned(from.addr(), bytes) {
            // SAFETY: the C contract: the host's memory stays until the copy is done.
            unsafe { enqueue_copy(stream, CALL, to.0, from.cast(), bytes) };
        } else {
            // SAFETY: the C contract. Other memory is read before the call returns.
            let staged = unsafe { core::slice::from_raw_parts(from.cast::<u8>(), bytes) }.to_vec();
            stream.run(CALL, None, move || {
                let to = to.pointer();
                queue::write(to, bytes)?;
                // SAFETY: live memory, or the note would have been refused.
                unsafe { core::ptr::copy_nonoverlapping(staged.as_ptr(), to, bytes) };
                Ok(())
            });
        }
        CuResult::SUCCESS
    })
}

unsafe extern "C" fn copy_to_host(
    to: *mut c_void,
    from: CuDevicePtr,
    bytes: usize,
    stream: cudaStream_t,
) -> CuResult {
    if bytes == 0 {
        return CuResult::SUCCESS;
    }
    if !queue::is_device(from as usize, bytes) || to.is_null() {
        return CuResult::INVALID_VALUE;
    }
    with_stream(stream, |stream| {
        // SAFETY: the C contract: the host's memory stays until the copy is done.
        unsafe { enqueue_copy(stream, "cuMemcpyDtoHAsync", to.cast(), pointer(from), bytes) };
        // Other memory has its bytes when the call returns.
        if pinned::is_pinned(to.addr(), bytes) { CuResult::SUCCESS } else { code(stream.wait()) }
    })
}

unsafe extern "C" fn copy_on_device(
    to: CuDevicePtr,
    from: CuDevicePtr,
    bytes: usize,
    stream: cudaStream_t,
) -> CuResult {
    if bytes == 0 {
        return CuResult::SUCCESS;
    }
    if ![to, from].into_iter().all(|at| queue::is_device(at as usize, bytes)) {
        return CuResult::INVALID_VALUE;
    }
    with_stream(stream, |stream| {
        // SAFETY: the C contract: both stay until the copy is done.
        unsafe { enqueue_copy(stream, "cuMemcpyDtoDAsync", pointer(to), pointer(from), bytes) };
        CuResult::SUCCESS
    })
}

unsafe extern "C" fn fill(
    to: CuDevicePtr,
    value: u8,
    bytes: usize,
    stream: cudaStream_t,
) -> CuResult {
    if bytes == 0 {
        return CuResult::SUCCESS;
    }
    if !queue::is_device(to as usize, bytes) {
        return CuResult::INVALID_VALUE;
    }
    with_stream(stream, |stream| {
        let to = Bytes(pointer(to));
        stream.run("cuMemsetD8Async", None, move || {
            let to = to.pointer();
            queue::write(to, bytes)?;
            // SAFETY: live memory, or the note would have been refused.
            unsafe { to.write_bytes(value, bytes) };
            Ok(())
        });
        CuResult::SUCCESS
    })
}
