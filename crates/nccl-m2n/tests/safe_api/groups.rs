//! Groups on the CPU backend (M2N vectors G01 to G25).
//!
//! By type, a group cannot be ended or aborted without having been started (M2N vectors G01, G02),
//! nest (M2N vector G04), hold NULL (M2N vectors G04, G05, G16, G17), malformed structures (M2N
//! vectors G07, G08) or a bad handle (M2N vectors G09, G10); it copies its descriptors (M2N vector
//! G15). Abort (M2N vector G06) is tested with stubs.

use nccl_ext_cpu::{CpuConfig, unique_id};
use nccl_ext_test::worlds::*;
use nccl_m2n::{
    Agreement, Comm, Config, DistTensor, DistTensorMut, Error, Layout, Result, Runtime, Stream,
};

use crate::common::{destination, layout, source, tile};

fn runtime(comm: &Comm, agreement: Agreement) -> Result<Runtime> {
    Runtime::new(comm.backend(), &Config::new().agreement(agreement))
}

/// M2N vector G03.
#[test]
fn an_empty_group_succeeds() {
    on_ranks(2, |comm| {
        let runtime = runtime(&comm, Agreement::PerShape)?;
        runtime.group(|_| Ok(()))?;
        runtime.finalize().map_err(Error::from)
    });
}

/// Entries of one topology are fused, others are not; all arrive.
///
/// M2N vector G25.
#[test]
fn entries_of_one_and_of_several_topologies_arrive() {
    let pairs = [
        ("{2}@0 [S0] 2x4 uint8", "{2}@2 [S1] 4x2 uint8"),
        ("{2}@0 [S0] 3 fp32", "{2}@2 [R] 6 fp32"),
        ("{2}@0 [S0] 4x2 fp16", "{2}@2 [S1] 8x1 fp16"),
        ("{2}@0 [R] 5 uint8", "{2}@2 [R] 5 uint8"),
        ("{2}@0 [S0] 1x2 fp32", "{2}@2 [S1] 2x1 fp32"),
    ]
    .map(|(from, to)| (layout(from), layout(to)));
    let received = on_ranks(4, |comm| {
        let runtime = runtime(&comm, Agreement::EveryCall)?;
        let own: Vec<_> = pairs.iter().map(|(from, _)| tile(from, comm.rank())).collect();
        let mut rooms: Vec<_> =
            pairs.iter().map(|(_, to)| vec![0; tile(to, comm.rank()).len()]).collect();
        runtime.group(|group| {
            for (((from, to), own), room) in pairs.iter().zip(&own).zip(&mut rooms) {
                group.reshard(&comm, source(own, from), destination(room, to), STREAM)?;
            }
            Ok(())
        })?;
        runtime.finalize()?;
        comm.destroy()?;
        Ok(rooms)
    });
    for (rank, rooms) in received.iter().enumerate() {
        for ((_, to), room) in pairs.iter().zip(rooms) {
            assert_eq!(*room, tile(to, rank), "r{rank} {to}");
        }
    }
}

/// A good entry, then a bad one: the same error with its number on every rank, nothing issued, and
/// the next call works.
///
/// M2N vectors G08, G11 and G12. Case M10.
#[test]
fn one_bad_entry_fails_the_group_on_every_rank() {
    let (from, to) = (layout("{1}@0 [R] 4 uint8"), layout("{1}@1 [R] 4 uint8"));
    let outside = layout("{2}@1 [R] 4 uint8");
    let other_shape = layout("{1}@1 [R] 5 uint8");
    for bad in [outside, other_shape] {
        let errors = errors(2, |comm| {
            let runtime = runtime(&comm, Agreement::PerShape)?;
            let own = [1_u8, 2, 3, 4];
            let mut rooms = [[0_u8; 8]; 3];
            let [first, second, third] = &mut rooms;
            let failed = runtime.group(|group| {
                let from = DistTensor::new(&own, &from);
                group.reshard(&comm, from, DistTensorMut::new(first, &to), STREAM)?;
                group.reshard(&comm, from, DistTensorMut::new(second, &bad), STREAM)?;
                group.reshard(&comm, from, DistTensorMut::new(third, &to), STREAM)
            });
            assert_eq!(rooms, [[0; 8]; 3]);
            let mut room = [0_u8; 4];
            let mut destination = DistTensorMut::new(&mut room, &to);
            let from = DistTensor::new(&own, &from);
            runtime.reshard(&comm, &from, &mut destination, STREAM)?;
            assert_eq!(room, if comm.rank() == 1 { own } else { [0; 4] });
            runtime.finalize()?;
            failed
        });
        assert!(matches!(errors[0], Error::Entry { index: 1, .. }), "{:?}", errors[0]);
        assert_eq!(errors[0].to_string(), errors[1].to_string());
    }
}

/// Only source rank 0 sees the first, rank 1 the second.
///
/// M2N vectors G18 and G20.
#[test]
fn shared_memory_is_refused_on_every_rank() {
    let (from, to) = (layout("{1}@0 [R] 4 uint8"), layout("{1}@1 [R] 4 uint8"));
    for (shares_source, sees) in [(true, 0), (false, 1)] {
        let errors = errors(2, |comm| {
            let runtime = runtime(&comm, Agreement::PerShape)?;
            let own = [[1_u8; 4], [2; 4]];
            let mut rooms = [[0_u8; 4], [0; 4]];
            let [first, second] = &mut rooms;
            let alias = first.as_mut_ptr();
            runtime.group(|group| {
                let source = DistTensor::new(&own[0], &from);
                group.reshard(&comm, source, DistTensorMut::new(first, &to), STREAM)?;
                let (source, destination) = if shares_source {
                    (source, DistTensorMut::new(second, &to))
                } else {
                    // SAFETY: the memory is there; that it is used twice is what is refused.
                    let shared = unsafe {
                        DistTensorMut::from_raw(alias.cast(), &to, nccl_m2n::MemorySpace::Host)
                    };
                    (DistTensor::new(&own[1], &from), shared)
                };
                group.reshard(&comm, source, destination, STREAM)
            })
        });
        assert!(matches!(errors[sees], Error::Entry { index: 1, .. }), "{:?}", errors[sees]);
        assert!(errors[sees].to_string().contains("share no memory"), "{}", errors[sees]);
        let (rank, heard) = failed_peer(&errors[1 - sees]);
        assert_eq!(rank, sees);
        assert!(heard.contains("share no memory"), "{heard}");
    }
}

/// M2N vector G21: slices that touch.
#[test]
fn neighbouring_slices_arrive() {
    let (from, to) = (layout("{1}@0 [R] 4 uint8"), layout("{1}@1 [R] 4 uint8"));
    let received = on_ranks(2, |comm| {
        let runtime = runtime(&comm, Agreement::PerShape)?;
        let own = [1_u8, 2, 3, 4, 5, 6, 7, 8];
        let mut room = [0_u8; 8];
        let (low, high) = room.split_at_mut(4);
        runtime.group(|group| {
            let first = DistTensor::new(&own[..4], &from);
            group.reshard(&comm, first, DistTensorMut::new(low, &to), STREAM)?;
            let second = DistTensor::new(&own[4..], &from);
            group.reshard(&comm, second, DistTensorMut::new(high, &to), STREAM)
        })?;
        Ok(room)
    });
    assert_eq!(received[1], [1, 2, 3, 4, 5, 6, 7, 8]);
}

/// One group over two communicators, one of which the last rank is no part of.
#[test]
fn a_group_spans_communicators() {
    let id = unique_id(&CpuConfig::new());
    let (from, to) = (layout("{1}@0 [R] 2 uint8"), layout("{1}@1 [R] 2 uint8"));
    let wide = layout("{2}@1 [R] 2 uint8");
    let received = on_ranks(3, |comm| {
        let runtime = runtime(&comm, Agreement::PerShape)?;
        let pair = (comm.rank() < 2)
            .then(|| Comm::init_rank(comm.backend(), 2, &id, comm.rank()))
            .transpose()?;
        let own = [[1_u8, 2], [3, 4]];
        let mut rooms = [[0_u8; 2]; 2];
        let [first, second] = &mut rooms;
        runtime.group(|group| {
            let source = DistTensor::new(&own[0], &from);
            group.reshard(&comm, source, DistTensorMut::new(first, &wide), STREAM)?;
            if let Some(pair) = &pair {
                let source = DistTensor::new(&own[1], &from);
                group.reshard(pair, source, DistTensorMut::new(second, &to), STREAM)?;
            }
            Ok(())
        })?;
        runtime.finalize()?;
        pair.map_or(Ok(()), Comm::destroy)?;
        Ok(rooms)
    });
    assert_eq!(received, [[[0; 2]; 2], [[1, 2], [3, 4]], [[1, 2], [0, 0]]]);
}

/// Case M7: one rank lists its tensors in another order.
#[test]
fn another_order_is_a_digest_mismatch_on_every_rank() {
    let pairs =
        [("{1}@0 [R] 4 uint8", "{1}@1 [R] 4 uint8"), ("{1}@0 [R] 8 uint8", "{1}@1 [R] 8 uint8")]
            .map(|(from, to)| (layout(from), layout(to)));
    let calls = |comm: &Comm, grouped: bool| -> Result<()> {
        let runtime = runtime(comm, Agreement::PerShape)?;
        let order: [usize; 2] = if comm.rank() == 0 { [0, 1] } else { [1, 0] };
        let own = [[1_u8; 8]; 2];
        let mut rooms = [[0_u8; 8]; 2];
        if grouped {
            return runtime.group(|group| {
                for (i, room) in order.iter().zip(&mut rooms) {
                    let (from, to) = &pairs[*i];
                    let source = DistTensor::new(&own[*i], from);
                    group.reshard(comm, source, DistTensorMut::new(room, to), STREAM)?;
                }
                Ok(())
            });
        }
        for i in order {
            let (from, to) = &pairs[i];
            let mut destination = DistTensorMut::new(&mut rooms[i], to);
            runtime.reshard(comm, &DistTensor::new(&own[i], from), &mut destination, STREAM)?;
        }
        Ok(())
    };
    for grouped in [false, true] {
        for error in errors(2, |comm| calls(&comm, grouped)) {
            let Error::DigestMismatch { rank: 1, first_difference } = error else {
                panic!("{error:?}")
            };
            let expected = "call 0, source local_shape: [4] on rank 0, [8] on rank 1";
            assert_eq!(first_difference, expected);
        }
    }
}

/// The recording function fails on one rank: its peer is told, not left waiting.
#[test]
fn a_rank_that_fails_while_recording_tells_its_peers() {
    let (from, to) = (layout("{1}@0 [R] 4 uint8"), layout("{1}@1 [R] 4 uint8"));
    let record = |comm: &Comm, fails: bool| -> Result<()> {
        let runtime = runtime(comm, Agreement::Off)?;
        let (own, mut room) = ([1_u8; 4], [0_u8; 4]);
        runtime.group(|group| {
            let source = DistTensor::new(&own, &from);
            group.reshard(comm, source, DistTensorMut::new(&mut room, &to), STREAM)?;
            if fails {
                return Err(Error::RankGone { reason: "its file was not there".into() });
            }
            Ok(())
        })
    };
    let errors = errors(2, |comm| record(&comm, comm.rank() == 0));
    assert_eq!(errors[0].to_string(), "its file was not there");
    assert!(matches!(errors[1], Error::PeerFailed { rank: 0, .. }), "{:?}", errors[1]);
}

#[test]
fn a_panic_while_recording_tells_its_peers() {
    let (from, to) = (layout("{1}@0 [R] 4 uint8"), layout("{1}@1 [R] 4 uint8"));
    let results = outcomes(2, |comm| {
        let runtime = runtime(&comm, Agreement::Off)?;
        let (own, mut room) = ([1_u8; 4], [0_u8; 4]);
        runtime.group(|group| {
            let source = DistTensor::new(&own, &from);
            group.reshard(&comm, source, DistTensorMut::new(&mut room, &to), STREAM)?;
            assert!(comm.rank() != 0, "as a user may");
            Ok(())
        })
    });
    let texts: Vec<_> = results.into_iter().map(|result| result.unwrap_err().to_string()).collect();
    assert!(texts[0].contains("panicked"), "{texts:?}");
    assert!(texts[1].contains("rank 0 failed"), "{texts:?}");
}

/// The default stream has two names, and they make one bucket.
///
/// M2N vectors G13 and G14.
#[test]
fn the_legacy_stream_is_the_default_one() {
    let (from, to) = (layout("{1}@0 [R] 4 uint8"), layout("{1}@1 [R] 4 uint8"));
    let errors = errors(2, |comm| {
        let runtime = runtime(&comm, Agreement::EveryCall)?;
        let own = [1_u8; 4];
        let mut rooms = [[0_u8; 4]; 2];
        let [first, second] = &mut rooms;
        // SAFETY: the legacy stream's name; the CPU backend ignores it.
        let legacy: Stream<'static> =
            unsafe { Stream::from_raw(core::ptr::without_provenance_mut(1)) };
        runtime.group(|group| {
            let source = DistTensor::new(&own, &from);
            group.reshard(&comm, source, DistTensorMut::new(first, &to), STREAM)?;
            group.reshard(&comm, source, DistTensorMut::new(second, &to), legacy)
        })
    });
    assert!(errors[0].to_string().contains("share no memory"), "{}", errors[0]);
    let (rank, heard) = failed_peer(&errors[1]);
    assert_eq!(rank, 0);
    assert!(heard.contains("share no memory"), "{heard}");
}

/// Zero-size entries are fine alone, and not beside filled ones of their topology (M2N 2.7).
#[test]
fn empty_entries() {
    let pair = |text: [&str; 2]| -> (Layout, Layout) { (layout(text[0]), layout(text[1])) };
    let empty = pair(["{1}@0 [R] 0 uint8", "{1}@1 [R] 0 uint8"]);
    let filled = pair(["{1}@0 [R] 4 uint8", "{1}@1 [R] 4 uint8"]);
    let run = |second: &(Layout, Layout)| {
        outcomes(2, |comm| {
            let runtime = runtime(&comm, Agreement::PerShape)?;
            let own = [[1_u8; 4], [2; 4]];
            let mut rooms = [[0_u8; 4]; 2];
            let [first, last] = &mut rooms;
            runtime.group(|group| {
                let source = DistTensor::new(&own[0], &empty.0);
                group.reshard(&comm, source, DistTensorMut::new(first, &empty.1), STREAM)?;
                let source = DistTensor::new(&own[1], &second.0);
                group.reshard(&comm, source, DistTensorMut::new(last, &second.1), STREAM)
            })?;
            runtime.finalize().map_err(Error::from)
        })
    };
    run(&empty).into_iter().for_each(|result| result.unwrap());
    for result in run(&filled) {
        let message = result.unwrap_err().to_string();
        assert!(message.starts_with("entry 1 of the group: `local_shape`"), "{message}");
    }
}
