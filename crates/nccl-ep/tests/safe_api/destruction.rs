//! Groups and handles that are dropped or destroyed.

use nccl_ep::{Error, Group, Layout, Tensor};

use crate::support::*;

/// Case E12: whatever goes first, the next group works.
#[test]
fn dropped_in_any_order_they_can_be_made_again() {
    on_ranks(2, |comm| {
        let rank = comm.rank();
        let ids = Tensor::new(&G2::IDS[rank], &[4, 2])?;
        for order in ["group", "handle", "destroyed"] {
            let (group, mut handle) = handle(&comm, &high_throughput(), Layout::Flat)?;
            let step = &mut handle.update(ids, None, STREAM)?;
            assert_eq!(Flat::new(16, 512, 2).round_of_g2(step, rank)?, G2::SUMMED[rank], "{order}");
            match order {
                "group" => {
                    drop(group); // the handle keeps what it needs
                    drop(handle);
                }
                "handle" => {
                    drop(handle);
                    drop(group);
                }
                _ => {
                    handle.destroy()?;
                    group.destroy()?;
                }
            }
        }
        let again = comm.clone();
        let (group, mut handle) = handle(&comm, &low_latency(), Layout::ExpertMajor)?;
        drop(comm); // the group has a share of its own
        let ids = Tensor::new(&G2::UNIQUE_IDS[rank], &[4, 2])?;
        let step = &mut handle.update(ids, None, STREAM)?;
        let combined = ExpertMajor::new(&group, 4, 512).round_of_g2(step, rank)?;
        assert_eq!(combined, G2::WEIGHTED[rank]);
        handle.destroy()?;
        group.destroy()?;
        assert_eq!((again.rank(), again.size()), (rank, 2));
        meet(&again)
    });
}

/// Case E12.
#[test]
fn destroy_with_live_handles_is_busy_and_gives_the_group_back() {
    on_ranks(2, |comm| {
        let (group, handle) = handle(&comm, &low_latency(), Layout::ExpertMajor)?;
        let refused = group.destroy().unwrap_err();
        assert!(matches!(*refused.error, Error::Busy { .. }), "{refused}");
        let group = refused.value.unwrap();
        let busy = comm.clone().destroy().unwrap_err();
        assert!(matches!(*busy.error, Error::Busy { .. }), "{busy}");
        drop(busy);
        handle.destroy()?;
        group.destroy()?;
        comm.destroy()?;
        Ok(())
    });
}

#[test]
fn a_dropped_group_marks_its_communicator_for_abort() {
    on_ranks(2, |comm| {
        let group = Group::create(&comm, &low_latency())?;
        assert!(!comm.is_marked_for_abort());
        drop(group);
        assert!(comm.is_marked_for_abort());
        Ok(())
    });
}
