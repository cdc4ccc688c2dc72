//! Groups with masks.

use nccl_ep::{Buffer, Group, HandleConfig, Layout, OwnedStream, Reduction, Tensor, TopK};
use nccl_ext_test::routing::G2;

use crate::low_latency::{Buffers, config};
use crate::world::on_two_ranks;

#[test]
fn masks_are_asked_for_set_and_cleaned_between_rounds() {
    on_two_ranks(|comm| {
        let owned = [OwnedStream::new(comm)?, OwnedStream::new(comm)?];
        let [a, b] = [owned[0].stream(), owned[1].stream()];
        let group = Group::create(comm, &config().enable_mask(true))?;
        let layout = Layout::RankMajor;
        let mut handle = group.init_handle(layout, &HandleConfig::new(), TopK::N(2), None)?;
        let mut buffers = Buffers::new(comm, layout)?;
        for _ in 0..2 {
            let ids = Buffer::from_slice(comm, &G2::UNIQUE_IDS[comm.rank()])?;
            let mut step = handle.update(Tensor::new(&ids, &[4, 2])?, None, a)?;
            buffers.dispatch(&mut step, a, false)?;
            buffers.combine(&mut step, b, false)?;
            drop(step);
            group.mask_update(&[true, true], a)?;
            let mut mask = Buffer::<i32>::zeroed(comm, 2)?;
            group.mask_query(&mut mask, b)?;
            assert_eq!(mask.to_vec(a)?, [1, 1]);
            buffers.assert_sums(comm.rank(), a)?;
            group.mask_clean(b)?;
            // Clean is no barrier (EP 6.2).
            let mut sum = Buffer::<i32>::zeroed(comm, 1)?;
            let one = Buffer::from_slice(comm, &[1_i32])?;
            comm.all_reduce(&one, &mut sum, Reduction::Sum, a)?;
            assert_eq!(sum.to_vec(a)?, [2]);
        }
        assert!(!group.get_async_error()?);
        handle.destroy()?;
        group.destroy()?;
        Ok(())
    });
}
