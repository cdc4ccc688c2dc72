//! Prepared handles, copied and bound again.

use nccl_ep::{
    Buffer, DataType, Error, Group, GroupConfig, Handle, HandleConfig, HandleMemory, HandleState,
    Layout, LayoutInfo, Result, Step, Tensor, TensorMut, TopK,
};

use nccl_ext_core::raw::ncclResult_t;

use crate::support::*;

fn config() -> GroupConfig {
    high_throughput().num_topk(2)
}

/// Both ranks of G2 with a group, their number and their ids.
fn on_g2(body: impl Fn(&Group, usize, [i32; 8]) -> Result<()> + Sync) {
    on_ranks(2, |comm| {
        let (group, rank) = (Group::create(&comm, &config())?, comm.rank());
        body(&group, rank, G2::IDS[rank].map(|id| id as i32))?;
        group.destroy()?;
        Ok(())
    });
}

/// Dispatches and combines G2 with a step that owns its handle.
fn round(step: &mut Step<'_, Handle>, rank: usize) -> Result<(Flat, Vec<f32>)> {
    let mut received = Flat::new(16, 512, 2);
    let combined = received.round_of_g2(step, rank)?;
    Ok((received, combined))
}

/// A handle in memory of the caller's, prepared with int32 ids.
fn prepared(group: &Group, ids: &[i32; 8]) -> Result<Handle> {
    let options = HandleConfig::new();
    let size = group.handle_mem_size(Layout::Flat, &options, TopK::Auto)?;
    let memory: HandleMemory = Box::new(Buffer::<u8>::zeroed(group.comm(), size)?);
    let mut handle = group.init_handle(Layout::Flat, &options, TopK::Auto, Some(memory))?;
    handle.update(Tensor::new(ids, &[4, 2])?, None, STREAM)?;
    Ok(handle)
}

/// The published lifecycle: size query with automatic top-k, init with the caller's memory, update
/// with layout information, copy of the prepared buffer, import from the handle's state with int32
/// ids; the restored handle gives the same bytes as the first.
#[test]
fn a_restored_handle_gives_the_same_bytes() {
    on_g2(|group, rank, ids| {
        let options = HandleConfig::new();
        let size = group.handle_mem_size(Layout::Flat, &options, TopK::Auto)?;
        let memory = Buffer::<u8>::zeroed(group.comm(), size)?;
        let mut handle =
            group.init_handle(Layout::Flat, &options, TopK::Auto, Some(Box::new(memory)))?;
        assert_eq!(handle.state(), None);

        let (mut total, mut counters) = ([-1_i32], [-1_i32; 2]);
        let mut info = LayoutInfo::new()
            .recv_total_counter(TensorMut::new(&mut total, &[1])?)
            .expert_counters(TensorMut::new(&mut counters, &[2])?);
        let mut step = handle.update(Tensor::new(&ids, &[4, 2])?, Some(&mut info), STREAM)?;
        let mut first = Flat::new(16, 512, 2);
        let combined = first.round_of_g2(&mut step, rank)?;
        let expected = ([4, 5][rank], [3, 3], &G2::SUMMED[rank][..]);
        assert_eq!((total[0], counters, &*combined), expected);
        drop(step);

        let snapshot = handle.snapshot(STREAM)?;
        let state = snapshot.state();
        let expected =
            HandleState { num_tokens: 4, num_topk: 2, topk_idx_datatype: DataType::Int32 };
        assert_eq!(state, expected);
        // The first handle goes, and takes its memory along.
        drop(handle.destroy()?);

        let mut restored = snapshot.restore(group)?;
        assert_eq!(restored.tokens(), 4);
        let (second, combined) = round(&mut restored, rank)?;
        assert_eq!(second.rows, first.rows);
        assert_eq!((&second.weights, &second.ids), (&first.weights, &first.ids));
        assert_eq!(combined, G2::SUMMED[rank]);
        restored.into_handle().destroy()?;
        Ok(())
    });
}

/// A snapshot is of one moment: a later update of its handle does not change it.
#[test]
fn a_snapshot_outlives_its_handles_next_update() {
    on_g2(|group, rank, ids| {
        let mut handle = prepared(group, &ids)?;
        let snapshot = handle.snapshot(STREAM)?;
        let none = [-1_i64; 2];
        let step = handle.update(Tensor::new(&none, &[1, 2])?, None, STREAM)?;
        drop(step);
        let (_, combined) = round(&mut snapshot.restore(group)?, rank)?;
        assert_eq!(combined, G2::SUMMED[rank]);
        Ok(())
    });
}

/// Where the library cannot import, the same memory is prepared again from the indices.
#[test]
fn restore_collective_prepares_again() {
    on_g2(|group, rank, ids| {
        let handle = prepared(group, &ids)?;
        let snapshot = handle.snapshot(STREAM)?;
        drop(handle);
        let topk_idx = Tensor::new(&ids, &[4, 2])?;
        let mut step = snapshot.restore_collective(group, topk_idx, None, STREAM)?;
        assert_eq!(round(&mut step, rank)?.1, G2::SUMMED[rank]);
        Ok(())
    });
}

/// Memory that no update has prepared, or with a byte that differs, is refused, and so is the
/// memory of another rank.
#[test]
fn foreign_and_damaged_memory_is_refused() {
    on_g2(|group, rank, ids| {
        let options = HandleConfig::new();
        let size = group.handle_mem_size(Layout::Flat, &options, TopK::N(2))?;
        let state = HandleState { num_tokens: 4, num_topk: 2, topk_idx_datatype: DataType::Int32 };
        let import = |memory: Buffer<u8>, state: &HandleState| {
            group.import_handle(Layout::Flat, &options, state, Box::new(memory)).map(drop)
        };
        let refused = |memory, state: &HandleState, what: &str| match import(memory, state) {
            Err(Error::Native { call: "ncclExtImportHandle", code, .. }) => {
                assert_eq!(code, ncclResult_t::ncclInvalidArgument, "{what}");
            }
            other => panic!("{what}: {other:?}"),
        };
        let comm = group.comm();
        refused(Buffer::zeroed(comm, size)?, &state, "memory that nobody prepared");

        let handle = prepared(group, &ids)?;
        let memory = handle.destroy()?.unwrap();
        let copy = |change: &dyn Fn(&mut Vec<u8>)| -> Result<Buffer<u8>> {
            let mut copy = Buffer::<u8>::zeroed(comm, memory.raw().bytes)?;
            copy.copy_from(&*memory, STREAM)?;
            let mut bytes = copy.to_vec(STREAM)?;
            change(&mut bytes);
            copy.write(&bytes, STREAM)?;
            Ok(copy)
        };
        import(copy(&|_| {})?, &state)?;
        for at in [0, 4, 9, 20, 40] {
            refused(copy(&|bytes| bytes[at] ^= 1)?, &state, &format!("byte {at}"));
        }
        let wide = HandleState { topk_idx_datatype: DataType::Int64, ..state };
        refused(copy(&|_| {})?, &wide, "another id type");
        let fewer = HandleState { num_tokens: 3, ..state };
        refused(copy(&|_| {})?, &fewer, "another number of tokens");

        // What the other rank prepared.
        let mut both = Buffer::<u8>::zeroed(comm, 2 * size)?;
        let own = copy(&|bytes| bytes.truncate(size))?;
        comm.all_gather(&own, &mut both, STREAM)?;
        let bytes = both.to_vec(STREAM)?;
        let mut other = Buffer::<u8>::zeroed(comm, size)?;
        other.write(&bytes[(1 - rank) * size..][..size], STREAM)?;
        refused(other, &state, "another rank's");
        Ok(())
    });
}
