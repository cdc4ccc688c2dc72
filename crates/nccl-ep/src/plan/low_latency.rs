//! Buffers of a low-latency group and handle.

use nccl_ext_core::Result;

use super::buffer::{Buffer, Owner, Piece};
use super::bytes::{product, rounded};
use super::check::Checked;
use super::constants::{HANDLE_PIECE_UNIT, WORKSPACE_BYTES};
use super::setup::Setup;
use crate::geometry::Geometry;

/// The signals of a bank, and an automatic buffer, take a multiple of this many bytes (EP 3.4).
const BUFFER_UNIT: u64 = 128;

pub(super) fn buffers(setup: &Setup, checked: &Checked) -> Result<Vec<Buffer>> {
    let workspace = Some(WORKSPACE_BYTES.into());
    let mut buffers = vec![
        Buffer::plain(Owner::Group, "workspace", workspace, "32 MiB", "EP 2.1 #29")?,
        communication(setup, checked)?,
    ];
    if setup.group.enable_mask {
        let bytes = product([4, checked.geometry.ranks]);
        buffers.push(Buffer::plain(Owner::Group, "mask", bytes, "4 R", "EP 6.2")?);
    }
    buffers.push(handle(&checked.geometry, checked.topk)?);
    Ok(buffers)
}

/// Two banks, used in turn, and the signals of each.
fn communication(setup: &Setup, checked: &Checked) -> Result<Buffer> {
    let layout = checked.geometry.ll_buffer(setup.layout, checked.topk);
    let [dispatch_send, dispatch_receive, combine_send, combine_receive] = layout.parts;
    let signals = rounded(product([4, checked.geometry.experts]), BUFFER_UNIT);
    let signals = signals.and_then(|bytes| bytes.checked_mul(2));
    let banks = signals.and_then(|bytes| layout.total.checked_sub(bytes));
    // What is left of an explicit buffer, or of the last unit of an automatic one.
    let size = match checked.geometry.rdma_buffer {
        0 => rounded(Some(layout.total), BUFFER_UNIT),
        explicit => Some(explicit.into()),
    };
    let spare = size.and_then(|size| size.checked_sub(layout.total));
    let expert_major = checked.expert_major();
    let (header, sources) = if expert_major {
        ("M (round16(4 + 2 K) + MTB)", "E M (MTB + 4 floor(MTB / 256))")
    } else {
        ("M (round16(4 + 8 K) + MTB)", "R M (MTB + 4 floor(MTB / 256))")
    };
    let mut pieces = vec![
        Piece::new("two banks", banks, "2 max(dispatch, combine)")?,
        Piece::new("signals of two banks", signals, "2 round128(4 E)")?,
    ];
    if spare != Some(0) {
        pieces.push(Piece::new("spare", spare, "the buffer, less what the handle needs")?);
    }
    let bank = vec![
        Piece::new("dispatch send", Some(dispatch_send), header)?,
        Piece::new("dispatch receive", Some(dispatch_receive), "R x dispatch send")?,
        Piece::new("combine send", Some(combine_send), sources)?,
        Piece::new("combine receive", Some(combine_receive), "K M (MTB + 4 floor(MTB / 256))")?,
    ];
    let name = "communication buffer";
    let formula = match checked.geometry.rdma_buffer {
        0 => "round128(two banks + signals)",
        _ => "rdma_buffer_size",
    };
    let buffer = Buffer::of_pieces(Owner::Group, name, pieces, formula, "EP 3.4")?;
    Ok(Buffer { bank, ..buffer })
}

/// EP 3.1; exactly what `ncclEpHandleMemSize` gives. Independent of the layout.
pub(super) fn handle(geometry: &Geometry, topk: u64) -> Result<Buffer> {
    let Geometry { ranks, local_experts, max_tokens, .. } = *geometry;
    let entries = product([topk + 1, max_tokens]).and_then(|entries| entries.checked_add(1));
    let sources = entries.and_then(|entries| entries.checked_mul(u128::from(4 * ranks)));
    let counts = product([8, local_experts, ranks]);
    let piece = |name, bytes, formula| Piece::new(name, rounded(bytes, HANDLE_PIECE_UNIT), formula);
    let pieces = vec![
        piece("source info", sources, "4 R (1 + (K + 1) M)")?,
        piece("layout by expert and rank", counts, "8 L R")?,
    ];
    let formula = "each piece rounded up to 256";
    Buffer::of_pieces(Owner::Handle, "handle memory", pieces, formula, "EP 3.1")
}
