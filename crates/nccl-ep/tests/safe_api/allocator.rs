//! Workspaces and handle memory from the application's allocator, on the CPU backend.

use core::ffi::c_void;
use std::alloc::{Layout as Memory, alloc, dealloc};
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use nccl_ep::{Comm, DeviceAllocator, Error, Group, HandleConfig, Layout, TopK};
use nccl_ext_core::Reduction;
use nccl_ext_core::raw::ncclResult_t;

use crate::support::*;

/// Counts what it gave and got back; refuses or panics when told to.
#[derive(Default)]
struct RecordingAllocator {
    live: Mutex<HashMap<usize, usize>>,
    given: Mutex<Vec<usize>>,
    refuse: bool,
    panic: bool,
}

fn memory(bytes: usize) -> Memory {
    Memory::from_size_align(bytes.max(1), 256).unwrap()
}

// SAFETY: memory of the host's, which is the CPU backend's device, of size and alignment asked for.
unsafe impl DeviceAllocator for RecordingAllocator {
    fn allocate(&self, bytes: usize) -> Option<NonNull<c_void>> {
        assert!(!self.panic, "the allocator breaks");
        if self.refuse {
            return None;
        }
        // SAFETY: the size is not zero.
        let pointer = NonNull::new(unsafe { alloc(memory(bytes)) })?;
        self.given.lock().unwrap().push(bytes);
        self.live.lock().unwrap().insert(pointer.as_ptr() as usize, bytes);
        Some(pointer.cast())
    }

    unsafe fn free(&self, pointer: NonNull<c_void>) {
        let bytes = self.live.lock().unwrap().remove(&(pointer.as_ptr() as usize)).unwrap();
        // SAFETY: it came from `allocate` with this size.
        unsafe { dealloc(pointer.as_ptr().cast(), memory(bytes)) };
    }
}

/// EP 2.1 #29: what creation asks for, in order; and every block comes back.
#[test]
fn everything_given_comes_back() {
    on_ranks(2, |comm| {
        let allocator = Arc::new(RecordingAllocator::default());
        let group = Group::create_with_allocator(&comm, &low_latency(), allocator.clone())?;
        assert_eq!(*allocator.given.lock().unwrap(), [32 << 20]);
        group.destroy()?;
        assert!(allocator.live.lock().unwrap().is_empty());

        let allocator = Arc::new(RecordingAllocator::default());
        let group = Group::create_with_allocator(&comm, &high_throughput(), allocator.clone())?;
        // The routing bitmap: 2 ranks x 4 tokens x 1 byte for 4 experts.
        assert_eq!(*allocator.given.lock().unwrap(), [32 << 20, 32, 8]);
        let handle = group.init_handle(Layout::Flat, &HandleConfig::new(), TopK::N(2), None)?;
        assert_eq!(allocator.given.lock().unwrap().len(), 4, "handle memory");
        handle.destroy()?;
        assert_eq!(allocator.live.lock().unwrap().len(), 3);
        group.destroy()?;
        assert!(allocator.live.lock().unwrap().is_empty());
        assert_eq!(Arc::strong_count(&allocator), 1, "the group let go of it");
        Ok(())
    });
}

/// Case E15: a refusal or a panic is an error on the rank, and does not unwind through C.
#[test]
fn an_allocator_that_refuses_or_panics_is_an_error() {
    for panic in [false, true] {
        let errors = errors(2, |comm| {
            let allocator =
                RecordingAllocator { refuse: !panic, panic, ..RecordingAllocator::default() };
            Group::create_with_allocator(&comm, &low_latency(), Arc::new(allocator)).map(drop)
        });
        for error in errors {
            assert!(error.to_string().contains("alloc_fn"), "panic {panic}: {error}");
        }
    }
}

/// Case A13: what is panicked with may itself panic when it is dropped.
#[test]
fn an_allocator_whose_panic_payload_panics_in_its_drop_is_an_error() {
    struct Payload;
    impl Drop for Payload {
        fn drop(&mut self) {
            panic!("the payload breaks, too");
        }
    }
    struct Breaks;
    // SAFETY: it never gives memory.
    unsafe impl DeviceAllocator for Breaks {
        fn allocate(&self, _: usize) -> Option<NonNull<c_void>> {
            std::panic::panic_any(Payload)
        }

        unsafe fn free(&self, _: NonNull<c_void>) {}
    }
    let errors = errors(2, |comm| {
        Group::create_with_allocator(&comm, &low_latency(), Arc::new(Breaks)).map(drop)
    });
    for error in errors {
        assert!(error.to_string().contains("alloc_fn"), "{error}");
    }
}

/// Case E15 at handle creation, where the group lives on.
#[test]
fn handle_memory_that_cannot_be_had_is_an_error() {
    #[derive(Default)]
    struct Small(RecordingAllocator);
    // SAFETY: as `RecordingAllocator`.
    unsafe impl DeviceAllocator for Small {
        fn allocate(&self, bytes: usize) -> Option<NonNull<c_void>> {
            let handle = self.0.given.lock().unwrap().len() == 3;
            if handle { None } else { self.0.allocate(bytes) }
        }

        unsafe fn free(&self, pointer: NonNull<c_void>) {
            // SAFETY: the caller's contract.
            unsafe { self.0.free(pointer) };
        }
    }
    on_ranks(2, |comm| {
        let allocator = Arc::new(Small::default());
        let group = Group::create_with_allocator(&comm, &high_throughput(), allocator.clone())?;
        let made = group.init_handle(Layout::Flat, &HandleConfig::new(), TopK::N(2), None);
        let error = made.map(drop).unwrap_err();
        let Error::Native { call: "ncclEpInitHandle", code, .. } = &error else {
            panic!("{error:?}")
        };
        assert_eq!(*code, ncclResult_t::ncclInvalidUsage, "{error}");
        group.destroy()?;
        assert!(allocator.0.live.lock().unwrap().is_empty());
        Ok(())
    });
}

/// Case A13: an allocator that calls back into the communicator whose call asks it for memory.
#[test]
fn an_allocator_that_uses_the_communicator_is_refused_and_nothing_waits() {
    /// Gives memory, and keeps what its own calls came to.
    struct CallsBack {
        memory: RecordingAllocator,
        comm: Comm,
        errors: Mutex<Vec<Error>>,
    }
    impl CallsBack {
        fn call_back(&self) {
            let sum = self.comm.all_reduce(&[1_i32], &mut [0_i32], Reduction::Sum, STREAM);
            let group = Group::create(&self.comm, &low_latency()).map(drop);
            self.errors.lock().unwrap().extend([sum, group].map(|result| result.unwrap_err()));
        }
    }
    // SAFETY: the memory of the allocator inside.
    unsafe impl DeviceAllocator for CallsBack {
        fn allocate(&self, bytes: usize) -> Option<NonNull<c_void>> {
            self.call_back();
            self.memory.allocate(bytes)
        }

        unsafe fn free(&self, pointer: NonNull<c_void>) {
            self.call_back();
            // SAFETY: this function's contract.
            unsafe { self.memory.free(pointer) };
        }
    }
    on_ranks(2, |comm| {
        let (memory, errors) = (RecordingAllocator::default(), Mutex::default());
        let allocator = Arc::new(CallsBack { memory, comm: comm.clone(), errors });
        let group = Group::create_with_allocator(&comm, &low_latency(), allocator.clone())?;
        group.destroy()?;
        let errors = allocator.errors.lock().unwrap();
        assert_eq!(errors.len(), 4, "two calls each in allocate and free: {errors:?}");
        for error in &*errors {
            let busy = matches!(error, Error::Busy { what: "the communicator", .. });
            assert!(busy && error.to_string().contains("callback"), "{error}");
        }
        Ok(())
    });
}
