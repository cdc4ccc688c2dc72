//! How a plan looks as JSON.

use nccl_ep::Mode;
use nccl_ep::plan::{Memory, Owner, Piece};
use serde::{Serialize, Serializer};

pub(super) fn mode<S: Serializer>(mode: &Mode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(mode)
}

/// A plan, for JSON.
#[derive(Serialize)]
struct MemoryJson<'a> {
    bytes: BytesJson,
    buffers: Vec<BufferJson<'a>>,
    notes: Vec<NoteJson<'a>>,
}

#[derive(Serialize)]
struct BytesJson {
    group: u64,
    handle: u64,
    caller: u64,
    total: u64,
}

#[derive(Serialize)]
struct BufferJson<'a> {
    name: &'static str,
    owner: String,
    bytes: u64,
    formula: &'static str,
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    shape: Option<&'a [usize]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pieces: Vec<PieceJson>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bank: Vec<PieceJson>,
}

#[derive(Serialize)]
struct PieceJson {
    name: &'static str,
    bytes: u64,
    formula: &'static str,
}

#[derive(Serialize)]
struct NoteJson<'a> {
    text: &'a str,
    source: &'static str,
}

pub(super) fn memory<S: Serializer>(memory: &Memory, serializer: S) -> Result<S::Ok, S::Error> {
    let piece =
        |piece: &Piece| PieceJson { name: piece.name, bytes: piece.bytes, formula: piece.formula };
    let buffers = memory.buffers.iter().map(|buffer| BufferJson {
        name: buffer.name,
        owner: buffer.owner.to_string(),
        bytes: buffer.bytes,
        formula: buffer.formula,
        source: buffer.source,
        shape: buffer.tensor.as_ref().map(|(shape, _)| &**shape),
        data_type: buffer.tensor.as_ref().map(|(_, data_type)| data_type.name()),
        pieces: buffer.pieces.iter().map(piece).collect(),
        bank: buffer.bank.iter().map(piece).collect(),
    });
    let notes = memory.notes.iter().map(|note| NoteJson { text: &note.text, source: note.source });
    let [group, handle, caller] = Owner::ALL.map(|owner| memory.of(owner));
    MemoryJson {
        bytes: BytesJson { group, handle, caller, total: memory.total() },
        buffers: buffers.collect(),
        notes: notes.collect(),
    }
    .serialize(serializer)
}
