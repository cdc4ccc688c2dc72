//! Memory of a tile.

/// What untouched memory holds.
pub const CANARY: u8 = 0xEE;
const MARGIN: usize = 48;

/// A tile with canaries before and after it.
#[derive(Debug, Clone)]
pub struct CanaryTile {
    memory: Vec<u8>,
    /// Odd distances from the allocation: data has no alignment.
    offset: usize,
    bytes: usize,
}

impl CanaryTile {
    pub fn new(bytes: usize) -> Self {
        let offset = MARGIN + bytes % 7;
        Self { memory: vec![CANARY; offset + bytes + MARGIN], offset, bytes }
    }

    pub fn of(data: &[u8]) -> Self {
        let mut tile = Self::new(data.len());
        tile.memory[tile.offset..][..data.len()].copy_from_slice(data);
        tile
    }

    pub fn pointer(&mut self) -> *mut u8 {
        // SAFETY: the offset is within the memory.
        unsafe { self.memory.as_mut_ptr().add(self.offset) }
    }

    pub fn data(&self) -> &[u8] {
        &self.memory[self.offset..][..self.bytes]
    }

    /// # Panics
    /// If something was written beside the tile.
    #[track_caller]
    pub fn assert_canaries(&self) {
        let around = self.memory[..self.offset].iter();
        let mut around = around.chain(&self.memory[self.offset + self.bytes..]);
        assert!(around.all(|&byte| byte == CANARY), "written beyond the tile");
    }
}
