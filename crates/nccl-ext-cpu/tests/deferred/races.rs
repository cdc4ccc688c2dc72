//! What has no order is found. The driver's table is called directly, past the order that the safe
//! layer makes.

use core::ffi::c_void;
use std::ptr::null_mut;

use nccl_ext_core::Error;
use nccl_ext_core::backend::Hooks;
use nccl_ext_core::driver::{CuEvent, CuResult, DriverApi};
use nccl_ext_core::raw::cudaStream_t;
use nccl_ext_cpu::deferred_backend;

struct Driver(DriverApi);

impl Driver {
    fn new() -> Self {
        Self(*deferred_backend().driver())
    }

    fn stream(&self) -> cudaStream_t {
        let mut stream = null_mut();
        // SAFETY: `stream` outlives the call.
        let code = unsafe { self.0.stream_create.unwrap()(&mut stream, 1) };
        assert_eq!(code, CuResult::SUCCESS);
        stream
    }

    fn fill(&self, to: *mut c_void, bytes: usize, stream: cudaStream_t) {
        // SAFETY: the memory lives until the test frees it.
        let code = unsafe { self.0.fill.unwrap()(to as u64, 7, bytes, stream) };
        assert_eq!(code, CuResult::SUCCESS);
    }

    fn wait(&self, stream: cudaStream_t) -> Result<(), Error> {
        // SAFETY: a live stream.
        match unsafe { self.0.stream_synchronize.unwrap()(stream) } {
            CuResult::SUCCESS => Ok(()),
            CuResult::LAUNCH_FAILED => Err(take_error()),
            other => panic!("{other:?}"),
        }
    }
}

fn take_error() -> Error {
    let Some(Hooks { take_error, .. }) = deferred_backend().hooks() else { panic!("no hooks") };
    take_error().expect("the error behind the code")
}

fn alloc(bytes: usize) -> *mut c_void {
    let mut memory = null_mut();
    // SAFETY: `memory` outlives the call.
    let code = unsafe { (deferred_backend().nccl().ncclMemAlloc)(&mut memory, bytes) };
    assert!(code.is_success());
    memory
}

fn free(memory: *mut c_void) -> Result<(), Error> {
    // SAFETY: it came from `alloc`, and the backend refuses what is in use.
    let code = unsafe { (deferred_backend().nccl().ncclMemFree)(memory) };
    if code.is_success() { Ok(()) } else { Err(take_error()) }
}

#[test]
fn two_writes_on_two_streams_are_a_race_that_names_all_of_it() {
    let driver = Driver::new();
    let (a, b, memory) = (driver.stream(), driver.stream(), alloc(64));
    driver.fill(memory, 48, a);
    driver.fill(memory.wrapping_byte_add(32), 32, b);
    let ends = [driver.wait(a), driver.wait(b)];
    // Whichever came second found the other.
    let error = ends.into_iter().find_map(Result::err).expect("a race");
    let Error::Race { first, second, buffer, bytes, .. } = &error else { panic!("{error}") };
    assert_eq!(*bytes, 32..48);
    assert!(first.writes && second.writes && first.stream != second.stream);
    assert_eq!((first.call, second.call), ("cuMemsetD8Async", "cuMemsetD8Async"));
    assert!(buffer.contains("64 bytes"), "{buffer}");
}

#[test]
fn an_event_or_a_wait_orders_them() {
    let driver = Driver::new();
    let (a, b, memory) = (driver.stream(), driver.stream(), alloc(64));
    driver.fill(memory, 64, a);
    let mut event: CuEvent = null_mut();
    // SAFETY: live objects.
    unsafe {
        assert_eq!(driver.0.event_create.unwrap()(&mut event, 0), CuResult::SUCCESS);
        assert_eq!(driver.0.event_record.unwrap()(event, a), CuResult::SUCCESS);
        assert_eq!(driver.0.stream_wait_event.unwrap()(b, event, 0), CuResult::SUCCESS);
        // What waits for it has its share of it.
        assert_eq!(driver.0.event_destroy.unwrap()(event), CuResult::SUCCESS);
    }
    driver.fill(memory, 64, b);
    driver.wait(b).unwrap();
    driver.fill(memory, 64, a);
    driver.wait(a).unwrap();
    free(memory).unwrap();
}

#[test]
fn memory_that_a_stream_may_still_use_is_not_freed_in_silence() {
    let driver = Driver::new();
    let (a, memory) = (driver.stream(), alloc(64));
    driver.fill(memory, 64, a);
    match free(memory) {
        // The fill has run, but nobody has waited for it.
        Err(Error::Race { first, second, .. }) => {
            assert_eq!((first.call, second.call), ("cuMemsetD8Async", "ncclMemFree"));
            assert!(second.writes);
            driver.wait(a).unwrap();
            free(memory).unwrap();
        }
        // It ran afterwards.
        Ok(()) => {
            let error = driver.wait(a).unwrap_err().to_string();
            assert!(error.contains("after it was freed"), "{error}");
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn freed_memory_is_not_used_nor_freed_again() {
    let driver = Driver::new();
    let (a, memory) = (driver.stream(), alloc(64));
    driver.fill(memory, 64, a);
    driver.wait(a).unwrap();
    free(memory).unwrap();
    // SAFETY: the table checks that the memory lives.
    let code = unsafe { driver.0.fill.unwrap()(memory as u64, 1, 64, a) };
    assert_eq!(code, CuResult::INVALID_VALUE);
    let error = free(memory).unwrap_err().to_string();
    assert!(error.contains("freed once"), "{error}");
}
