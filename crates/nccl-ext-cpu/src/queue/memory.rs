//! The device memory of the deferred backend.

use std::alloc::Layout;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use nccl_ext_core::raw::ncclResult_t;

use super::clock::{Actor, VectorClock};
use super::uses::{NewUse, Uses};
use crate::lock::lock;
use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// What fresh memory holds, so that nobody takes it for zeros.
const FRESH: u8 = 0xA5;
/// What freed memory holds.
const FREED: u8 = 0xDB;
/// Freed memory that is kept, so that late uses of it are found.
const MOST_KEPT: usize = 64 << 20;

struct Allocation {
    layout: Layout,
    /// Counts allocations, from 1.
    number: u64,
    device: i32,
    freed: bool,
    uses: Uses,
}

#[derive(Default)]
struct Memory {
    /// By address.
    allocations: BTreeMap<usize, Allocation>,
    /// Addresses of freed allocations, the oldest first, and their bytes.
    kept: VecDeque<usize>,
    kept_bytes: usize,
    number: u64,
}

static MEMORY: Mutex<Memory> = Mutex::new(Memory {
    allocations: BTreeMap::new(),
    kept: VecDeque::new(),
    kept_bytes: 0,
    number: 0,
});

impl Allocation {
    fn name(&self) -> String {
        format!(
            "allocation {} of device {} ({} bytes)",
            self.number,
            self.device,
            self.layout.size()
        )
    }
}

impl Memory {
    /// The allocation that an address lies in, and the address within it.
    fn find(&mut self, address: usize) -> Option<(&mut Allocation, usize)> {
        let (&start, found) = self.allocations.range_mut(..=address).next_back()?;
        let at = address - start;
        (at < found.layout.size()).then_some((found, at))
    }
}

/// Allocates on a device; `None` without memory for it.
pub(crate) fn allocate(device: i32, bytes: usize, align: usize) -> Option<*mut u8> {
    let layout = Layout::from_size_align(bytes.max(1), align).ok()?;
    // SAFETY: the size is not zero.
    let memory = unsafe { std::alloc::alloc(layout) };
    if memory.is_null() {
        return None;
    }
    // SAFETY: just allocated, that many bytes.
    unsafe { memory.write_bytes(FRESH, layout.size()) };
    let mut all = lock(&MEMORY);
    all.number += 1;
    let (number, uses) = (all.number, Uses::default());
    let allocation = Allocation { layout, number, device, freed: false, uses };
    all.allocations.insert(memory.expose_provenance(), allocation);
    Some(memory)
}

/// Frees, which is a write of every byte.
pub(super) fn free(address: usize, actor: &Actor, time: u64, before: &VectorClock) -> Outcome {
    let mut all = lock(&MEMORY);
    let found = all.find(address).filter(|(found, at)| *at == 0 && !found.freed);
    let (allocation, _) = found.ok_or_else(|| {
        let rule = "the memory came from ncclMemAlloc and is freed once";
        let found = format_args!("{address:#x}").to_string();
        Refusal::argument(FailureClass::Return, "ptr", rule, "such memory", found)
    })?;
    let size = allocation.layout.size();
    let name = allocation.name();
    let new = NewUse { bytes: 0..size, writes: true, actor, time, before };
    allocation.uses.add(&new, || name)?;
    allocation.freed = true;
    let memory: *mut u8 = core::ptr::with_exposed_provenance_mut(address);
    // SAFETY: the allocation's bytes; every use so far is over, and there will be no other.
    unsafe { memory.write_bytes(FREED, size) };
    all.kept.push_back(address);
    all.kept_bytes += size;
    while all.kept_bytes > MOST_KEPT {
        let Some(oldest) = all.kept.pop_front() else { break };
        let Some(Allocation { layout, .. }) = all.allocations.remove(&oldest) else { continue };
        all.kept_bytes -= layout.size();
        // SAFETY: it was allocated with this layout, is marked as freed, and nobody finds it any more.
        unsafe { std::alloc::dealloc(core::ptr::with_exposed_provenance_mut(oldest), layout) };
    }
    Ok(())
}

/// Whether the bytes are live memory of a device.
pub(crate) fn is_device(address: usize, bytes: usize) -> bool {
    let mut all = lock(&MEMORY);
    all.find(address)
        .is_some_and(|(found, at)| !found.freed && bytes <= found.layout.size().saturating_sub(at))
}

/// Notes a use of bytes that are about to be used. What lies in no allocation is not looked after.
pub(super) fn note(
    address: usize,
    bytes: usize,
    writes: bool,
    actor: &Actor,
    time: u64,
    before: &VectorClock,
) -> Outcome {
    let mut all = lock(&MEMORY);
    let Some((allocation, at)) = all.find(address) else { return Ok(()) };
    let undefined = FailureClass::UndefinedBehaviour;
    let name = allocation.name();
    let wrong = |rule: &str, found: String| {
        let expected = "live memory";
        Refusal::argument(undefined, "memory", rule, expected, found)
            .with_code(ncclResult_t::ncclInvalidUsage)
    };
    require(!allocation.freed, || {
        let found = format!("{name}, which was freed, used on {}", actor.name);
        wrong("memory is not used after it was freed", found)
    })?;
    require(bytes <= allocation.layout.size() - at, || {
        let end = at.saturating_add(bytes);
        wrong("a use ends where the memory does", format!("bytes {at}..{end} of {name}"))
    })?;
    let new = NewUse { bytes: at..at + bytes, writes, actor, time, before };
    allocation.uses.add(&new, || name)
}
