//! Handles in the caller's memory, and how many experts per token they are for.

use nccl_ep::{Buffer, Group, HandleConfig, Layout, Tensor, TopK};

use crate::support::*;

/// EP vector B23.
#[test]
fn handle_memory_of_the_caller_is_used_and_given_back() {
    on_ranks(2, |comm| {
        let rank = comm.rank();
        let group = Group::create(&comm, &high_throughput())?;
        let options = HandleConfig::new();
        let size = group.handle_mem_size(Layout::Flat, &options, TopK::N(2))?;
        assert!(size > 0);
        let short = Buffer::<u8>::zeroed(&comm, size - 1)?;
        let refused = group.init_handle(Layout::Flat, &options, TopK::N(2), Some(Box::new(short)));
        let text = refused.unwrap_err().to_string();
        assert!(text.contains(&format!("expected {size} bytes")), "{text}");
        let memory = Buffer::<u8>::zeroed(&comm, size)?;
        let mut handle =
            group.init_handle(Layout::Flat, &options, TopK::N(2), Some(Box::new(memory)))?;
        let mut step = handle.update(Tensor::new(&G2::IDS[rank], &[4, 2])?, None, STREAM)?;
        let mut received = Flat::new(16, 512, 2);
        assert_eq!(received.round_of_g2(&mut step, rank)?, G2::SUMMED[rank]);
        assert_eq!(received.values(3), [[1.0, 2.0, 3.0], [1.0, 2.0, 5.0]][rank]);
        drop(step);
        let memory = handle.destroy()?.unwrap();
        assert_eq!(memory.raw().bytes, size);
        group.destroy()?;
        Ok(())
    });
}

#[test]
fn automatic_topk_is_the_groups_or_an_error_that_names_both_ways() {
    on_ranks(2, |comm| {
        let group = Group::create(&comm, &low_latency())?;
        let options = HandleConfig::new();
        let made = group.init_handle(Layout::ExpertMajor, &options, TopK::Auto, None);
        let text = made.unwrap_err().to_string();
        assert!(text.contains("GroupConfig::num_topk") && text.contains("TopK::N"), "{text}");
        group.destroy()?;
        let group = Group::create(&comm, &low_latency().num_topk(2))?;
        let handle = group.init_handle(Layout::ExpertMajor, &options, TopK::Auto, None)?;
        assert_eq!(handle.num_topk(), 2);
        drop(handle);
        group.destroy()?;
        Ok(())
    });
}
