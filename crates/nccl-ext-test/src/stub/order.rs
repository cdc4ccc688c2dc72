//! Streams and events of a driver whose work is done at once. They are numbers. What orders streams is
//! on a record of its own.

use core::ffi::c_uint;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};

use nccl_ext_core::driver::{CuEvent, CuResult, DriverApi};
use nccl_ext_core::raw::cudaStream_t;

/// What orders work on streams, which are numbers here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderCall {
    /// An event was recorded on the stream.
    Recorded(usize),
    /// The stream waits for an event.
    Waits(usize),
}

thread_local! {
    static ORDER: RefCell<Vec<OrderCall>> = RefCell::new(Vec::with_capacity(1024));
    static TRAPPED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a kernel has trapped: from then on every call about streams and events of this thread gives
/// that error, as a driver does.
pub fn set_trapped(trapped: bool) {
    TRAPPED.set(trapped);
}

fn answer() -> CuResult {
    if TRAPPED.get() { CuResult::LAUNCH_FAILED } else { CuResult::SUCCESS }
}

/// What this thread ordered since the last look.
pub fn take_order() -> Vec<OrderCall> {
    ORDER.with_borrow_mut(|order| {
        let taken = order.clone();
        order.clear(); // keeps the capacity: a call must not allocate
        taken
    })
}

fn ordered(call: OrderCall) -> CuResult {
    ORDER.with_borrow_mut(|order| {
        if order.len() < order.capacity() {
            order.push(call);
        }
    });
    answer()
}

/// The rest of a driver over them.
pub(super) const TABLE: DriverApi = DriverApi {
    stream_create: Some(stream_create),
    stream_destroy: Some(stream_call),
    stream_synchronize: Some(stream_call),
    stream_query: Some(stream_call),
    stream_wait_event: Some(stream_wait_event),
    event_create: Some(event_create),
    event_record: Some(event_record),
    event_synchronize: Some(event_call),
    event_query: Some(event_call),
    event_destroy: Some(event_call),
    ..DriverApi::NONE
};

/// Above the addresses that tests make up.
fn next<T>() -> *mut T {
    static NEXT: AtomicUsize = AtomicUsize::new(0x1_0000);
    core::ptr::without_provenance_mut(NEXT.fetch_add(1, Ordering::Relaxed))
}

unsafe extern "C" fn stream_create(out: *mut cudaStream_t, _: c_uint) -> CuResult {
    // SAFETY: the caller's out pointer.
    unsafe { *out = next() };
    CuResult::SUCCESS
}

unsafe extern "C" fn stream_call(_: cudaStream_t) -> CuResult {
    answer()
}

unsafe extern "C" fn stream_wait_event(stream: cudaStream_t, _: CuEvent, _: c_uint) -> CuResult {
    ordered(OrderCall::Waits(stream.addr()))
}

unsafe extern "C" fn event_create(out: *mut CuEvent, _: c_uint) -> CuResult {
    // SAFETY: the caller's out pointer.
    unsafe { *out = next() };
    CuResult::SUCCESS
}

unsafe extern "C" fn event_record(_: CuEvent, stream: cudaStream_t) -> CuResult {
    ordered(OrderCall::Recorded(stream.addr()))
}

unsafe extern "C" fn event_call(_: CuEvent) -> CuResult {
    answer()
}
