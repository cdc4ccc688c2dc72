//! The parts of a plan.

use std::fmt;

use nccl_ext_core::{DataType, Result};

use super::bytes::{in_64_bits, product, sum};
use crate::view::Shape;

/// Who holds a buffer, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The group: allocated with it or with its first handle, shared by all of its handles.
    Group,
    /// One handle. The library's own memory, or what the caller gives to
    /// [`Group::init_handle`](crate::Group::init_handle).
    Handle,
    /// The caller: tensors of a step.
    Caller,
}

impl Owner {
    /// Every owner.
    pub const ALL: [Self; 3] = [Self::Group, Self::Handle, Self::Caller];
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Group => "group",
            Self::Handle => "handle",
            Self::Caller => "caller",
        })
    }
}

/// One allocation of a plan: a size, not memory. ([`crate::Buffer`] is memory.)
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Buffer {
    /// Its name, the same in every version of this crate.
    pub name: &'static str,
    /// Who holds it.
    pub owner: Owner,
    /// Its size on one rank, in bytes.
    pub bytes: u64,
    /// How the size is computed, in the letters of [`plan`](crate::plan).
    pub formula: &'static str,
    /// The section of the EP specification that the formula comes from.
    pub source: &'static str,
    /// What it consists of; the sizes add up to [`bytes`](Self::bytes). Empty when it is one piece.
    pub pieces: Vec<Piece>,
    /// LL communication buffer: what one of its two banks holds, dispatch (send, receive) or
    /// combine (send, receive), which lie in the same bytes. Empty for every other buffer.
    pub bank: Vec<Piece>,
    /// Extents and element type of a tensor of the caller's.
    pub tensor: Option<(Shape, DataType)>,
}

/// A part of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Piece {
    /// What it is.
    pub name: &'static str,
    /// Its size, in bytes.
    pub bytes: u64,
    /// How the size is computed, before rounding.
    pub formula: &'static str,
}

/// Something that a reader of the numbers should know.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Note {
    /// What it says.
    pub text: String,
    /// The section of the EP specification behind it.
    pub source: &'static str,
}

/// The device memory of one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// Every buffer: the group's, the handle's, the caller's.
    pub buffers: Vec<Buffer>,
    /// What to know about the numbers.
    pub notes: Vec<Note>,
    total: u64,
}

impl Memory {
    pub(super) fn new(buffers: Vec<Buffer>, notes: Vec<Note>) -> Result<Self> {
        let all = sum(buffers.iter().map(|buffer| Some(buffer.bytes.into())));
        Ok(Self { total: in_64_bits("all buffers", all)?, buffers, notes })
    }

    /// Bytes of all buffers.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Bytes of the buffers of one owner.
    #[must_use]
    pub fn of(&self, owner: Owner) -> u64 {
        let owned = self.buffers.iter().filter(|buffer| buffer.owner == owner);
        // At most the total, which fits.
        owned.map(|buffer| buffer.bytes).sum()
    }

    /// The buffer of this name.
    #[must_use]
    pub fn buffer(&self, name: &str) -> Option<&Buffer> {
        self.buffers.iter().find(|buffer| buffer.name == name)
    }
}

impl Buffer {
    /// A buffer of one piece.
    pub(super) fn plain(
        owner: Owner,
        name: &'static str,
        bytes: Option<u128>,
        formula: &'static str,
        source: &'static str,
    ) -> Result<Self> {
        let bytes = in_64_bits(name, bytes)?;
        let (pieces, bank, tensor) = (Vec::new(), Vec::new(), None);
        Ok(Self { name, owner, bytes, formula, source, pieces, bank, tensor })
    }

    /// A buffer of the sum of its pieces.
    pub(super) fn of_pieces(
        owner: Owner,
        name: &'static str,
        pieces: Vec<Piece>,
        formula: &'static str,
        source: &'static str,
    ) -> Result<Self> {
        let bytes = sum(pieces.iter().map(|piece| Some(piece.bytes.into())));
        Ok(Self { pieces, ..Self::plain(owner, name, bytes, formula, source)? })
    }

    /// A tensor of the caller's.
    pub(super) fn tensor(
        name: &'static str,
        shape: Shape,
        data_type: DataType,
        formula: &'static str,
        source: &'static str,
    ) -> Result<Self> {
        let extents = shape.iter().map(|extent| *extent as u64);
        let bytes = product(extents.chain([data_type.size() as u64]));
        let plain = Self::plain(Owner::Caller, name, bytes, formula, source)?;
        Ok(Self { tensor: Some((shape, data_type)), ..plain })
    }
}

impl Piece {
    pub(super) fn new(
        name: &'static str,
        bytes: Option<u128>,
        formula: &'static str,
    ) -> Result<Self> {
        Ok(Self { name, bytes: in_64_bits(name, bytes)?, formula })
    }
}
