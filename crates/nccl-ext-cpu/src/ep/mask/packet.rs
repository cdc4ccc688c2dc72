//! What a rank of a group with masks sends to another.

use std::sync::Arc;

use crate::queue::Clock;
use crate::refusal::{FailureClass, Outcome, Refusal};
use crate::world::KEYS;

/// What one rank sends to another in one operation.
pub(crate) struct Packet {
    /// The operation and its shape, which the receiver expects to be its own.
    pub(crate) name: &'static str,
    /// What happened before its sender sent it.
    pub(crate) clock: Clock,
    pub(crate) key: [u64; KEYS],
    /// Its sender's number of the operation.
    pub(crate) number: u64,
    /// The dispatch that this is, or that it answers: its sender's number.
    pub(crate) dispatch: u64,
    pub(crate) tokens: usize,
    pub(crate) rows: Rows,
    pub(crate) scales: Rows,
    pub(crate) experts: Vec<u32>,
    pub(crate) per_expert: Vec<u32>,
    pub(crate) weights: Vec<f32>,
    /// The first row of each region of a combine.
    pub(crate) starts: Vec<usize>,
}

/// Copies of rows, aligned for every type.
#[derive(Default)]
pub(crate) struct Rows {
    memory: Vec<u128>,
    bytes: usize,
}

impl Rows {
    /// Room for that many bytes.
    pub(crate) fn with_room(bytes: usize) -> Self {
        Self { memory: vec![0; bytes.div_ceil(size_of::<u128>())], bytes: 0 }
    }

    /// Copies `bytes` bytes behind what is there, as far as there is room.
    ///
    /// # Safety
    /// `from` has that many.
    pub(crate) unsafe fn push(&mut self, from: *const u8, bytes: usize) {
        let room = size_of_val(&self.memory[..]);
        let bytes = bytes.min(room - self.bytes);
        if bytes > 0 {
            // SAFETY: this function's contract; the room is there.
            unsafe {
                let to = self.memory.as_mut_ptr().cast::<u8>().add(self.bytes);
                core::ptr::copy_nonoverlapping(from, to, bytes);
            }
            self.bytes += bytes;
        }
    }

    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.memory.as_ptr().cast()
    }
}

/// Every rank is in the same operation as this one.
pub(crate) fn check_same_call(
    packets: &[Option<Arc<Packet>>],
    name: &str,
    key: [u64; KEYS],
    me: usize,
) -> Outcome {
    let other = packets.iter().enumerate().find_map(|(rank, packet)| {
        let packet = packet.as_ref()?;
        (packet.name != name || packet.key != key).then_some((rank, packet))
    });
    let Some((rank, packet)) = other else { return Ok(()) };
    let rule = "every rank makes the same calls in the same order";
    let expected = format_args!("{name} {key:?} as on rank {me}").to_string();
    let found = format_args!("{} {:?} of rank {rank}", packet.name, packet.key).to_string();
    let class = FailureClass::UndefinedBehaviour;
    Err(Refusal::usage(class, "handle", rule, expected, found))
}
