//! An allocator that counts the allocations of each thread.
//!
//! A test binary installs it for all of its tests:
//!
//! ```
//! # use nccl_ext_test::allocations::{CountingAllocator, allocations};
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator;
//!
//! let (count, boxed) = allocations(|| Box::new(1));
//! assert_eq!((count, *boxed), (1, 1));
//! assert_eq!(allocations(|| 1), (0, 1));
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which counts.
#[derive(Debug)]
pub struct CountingAllocator;

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// How often `call` allocates on this thread, and what it returns.
pub fn allocations<T>(call: impl FnOnce() -> T) -> (usize, T) {
    let before = COUNT.get();
    let result = call();
    (COUNT.get() - before, result)
}
