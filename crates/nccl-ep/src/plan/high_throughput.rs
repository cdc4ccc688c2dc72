//! Buffers of a high-throughput group and handle, over one load/store team.

use nccl_ext_core::Result;

use super::buffer::{Buffer, Owner, Piece};
use super::bytes::{product, rounded};
use super::check::Checked;
use super::constants::{COUNTER_BLOCK_BYTES, HANDLE_PIECE_UNIT, WORKSPACE_BYTES};
use super::setup::Setup;
use crate::enums::ZeroCopyMode;
use crate::geometry::{EmMode, Geometry};

pub(super) fn buffers(setup: &Setup, checked: &Checked) -> Result<Vec<Buffer>> {
    let staged = setup.group.zero_copy != ZeroCopyMode::On;
    let mut buffers = group(&checked.geometry, staged)?;
    let pieces = handle_pieces(checked, setup.device_sms.into())?;
    let formula = "each piece rounded up to 256";
    buffers.push(Buffer::of_pieces(Owner::Handle, "handle memory", pieces, formula, "EP 3.1")?);
    Ok(buffers)
}

/// EP 2.4 and the allocations of EP 2.1 #29. With zero-copy no tokens are staged.
pub(super) fn group(geometry: &Geometry, staged: bool) -> Result<Vec<Buffer>> {
    let Geometry { ranks, lsa, local_experts, max_tokens, max_recv, max_token_bytes, .. } =
        *geometry;
    let plain =
        |name, bytes, formula, source| Buffer::plain(Owner::Group, name, bytes, formula, source);
    let mut buffers = vec![
        plain("workspace", Some(WORKSPACE_BYTES.into()), "32 MiB", "EP 2.4")?,
        plain("counter block", Some(COUNTER_BLOCK_BYTES.into()), "32", "EP 2.1 #29")?,
    ];
    if staged {
        let (bytes, formula) = match geometry.em_mode {
            EmMode::LocalPermute => (product([ranks, max_tokens, max_token_bytes]), "R M MTB"),
            EmMode::LocalDup | EmMode::NvlinkDup => {
                (product([max_recv, max_token_bytes]), "MR MTB")
            }
        };
        buffers.push(plain("dispatch token staging", bytes, formula, "EP 2.4")?);
        buffers.push(plain("combine token staging", bytes, formula, "EP 2.4")?);
    }
    let weights = product([max_recv, local_experts, lsa, 4]);
    buffers.push(plain("dispatch weight staging", weights, "4 MR L R", "EP 2.4")?);
    buffers.push(plain("combine weight staging", weights, "4 MR L R", "EP 2.4")?);
    let scales = product([max_recv, max_token_bytes]);
    buffers.push(plain("scale staging", scales, "MR MTB", "EP 2.4")?);
    let row = product([lsa, local_experts]).map(|bits| bits.div_ceil(8));
    let bitmap = row.and_then(|row| product([ranks, max_tokens])?.checked_mul(row));
    buffers.push(plain("routing bitmap", bitmap, "R M ceil(R L / 8)", "EP 2.4")?);
    Ok(buffers)
}

/// EP 3.1. What `ncclEpHandleMemSize` gives on a device with that many SMs.
pub(super) fn handle_pieces(checked: &Checked, device_sms: u64) -> Result<Vec<Piece>> {
    let Geometry { lsa, experts, local_experts, max_tokens, max_recv, em_mode, .. } =
        checked.geometry;
    let topk = checked.topk;
    let expert_major = checked.expert_major();
    let permute = em_mode == EmMode::LocalPermute;
    let piece = |name, bytes, formula| Piece::new(name, rounded(bytes, HANDLE_PIECE_UNIT), formula);
    let (copies_a_token, slots) =
        if expert_major && !permute { (topk, "4 M K") } else { (lsa, "4 M R") };
    let mut pieces = vec![
        piece("RDMA to attention map", rounded(product([max_tokens]), 16), "round16(M)")?,
        piece("local expert routing map", product([max_recv, local_experts]), "MR L")?,
        piece("token count", Some(4), "4")?,
        piece("sparse to dense map", product([max_tokens, copies_a_token, 4]), slots)?,
        piece("rank mask", product([max_tokens, lsa, 8, lsa.div_ceil(64)]), "8 M R ceil(R / 64)")?,
        piece("scan scratch", product([device_sms, lsa, 8]), "8 SMs R")?,
        piece("dense weights", product([max_tokens, experts, 4]), "4 M E")?,
        piece("cached top-k", product([max_tokens, topk, 8]), "8 M K")?,
    ];
    if !expert_major {
        return Ok(pieces);
    }
    pieces.push(piece("active counts", product([local_experts, 4]), "4 L")?);
    pieces.push(piece("expert offsets", product([local_experts + 1, 8]), "8 (L + 1)")?);
    match em_mode {
        EmMode::LocalDup => {
            let groups = product([max_recv / 2, topk.min(local_experts), 4]);
            pieces.push(piece("duplicate groups", groups, "4 floor(MR / 2) min(K, L)")?);
            pieces.push(piece("duplicate group count", Some(4), "4")?);
        }
        EmMode::LocalPermute => {
            let copies = product([max_recv, topk, 4]);
            pieces.push(piece("flat to expert-major map", copies, "4 MR K")?);
            pieces.push(piece("flat weights", copies, "4 MR K")?);
            let slots = product([max_tokens, lsa, 4]);
            pieces.push(piece("token to slot map", slots, "4 M R")?);
        }
        EmMode::NvlinkDup => {}
    }
    Ok(pieces)
}
