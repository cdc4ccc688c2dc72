//! Memory in which something was changed.

use nccl_ep_sys::ncclEpLayout_t;
use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_test::cpu::ep::import::*;
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;
use nccl_ext_test::rows::check_rows;
use proptest::prelude::*;

use super::G2_STATE;

/// The bytes that an update writes, whatever was there.
fn image(group: &TestGroup, layout: ncclEpLayout_t) -> (TestTensor<u8>, usize) {
    let bytes = handle_memory_size(group, layout, 2);
    let [zeros, ones] = [0x00, 0xFF].map(|fill| {
        let handle = HandleInMemory::init_in(filled_memory(bytes, fill), group, layout, 2, 0);
        handle.update(&mut int64_ids(2, &[0, 2, 3, 1, 1, 0, -1, -1]));
        handle.memory
    });
    let differ = zeros.data.iter().zip(&ones.data).position(|(a, b)| *a == 0 && *b == 0xFF);
    // Update numbers differ, so compare where the fills show.
    (ones, differ.unwrap())
}

/// The code of an import of these bytes.
fn import(group: &TestGroup, layout: ncclEpLayout_t, data: Vec<u8>) -> ncclResult_t {
    let memory = TestTensor::new(&[data.len()], data);
    HandleInMemory::try_import(memory, group, layout, 0, G2_STATE).0
}

#[test]
fn a_change_of_any_byte_is_refused() {
    check_rows(HIGH_THROUGHPUT_LAYOUTS, |layout| {
        both_ways(1, |comm| {
            let group = TestGroup::new(comm, &G2.config(HIGH_THROUGHPUT, HT_HIDDEN));
            let (good, len) = image(&group, layout);
            assert_ok(import(&group, layout, good.data.clone()));
            for at in 0..len {
                for flip in [0x01, 0x80, 0xFF] {
                    let mut bad = good.data.clone();
                    bad[at] ^= flip;
                    let code = import(&group, layout, bad);
                    assert_eq!(code, INVALID_ARGUMENT, "byte {at} of {len} with {flip:#x}");
                }
            }
            // What lies behind it does not count.
            let mut more = good.data.clone();
            more[len + 8] ^= 0xFF;
            assert_ok(import(&group, layout, more));
        });
    });
}

#[test]
fn a_truncated_image_is_refused() {
    both_ways(1, |comm| {
        let group = TestGroup::new(comm, &G2.config(HIGH_THROUGHPUT, HT_HIDDEN));
        let (good, len) = image(&group, EXPERT_MAJOR);
        for end in 0..len {
            let mut bad = good.data.clone();
            // Where the image ends in zeros, cutting them changes nothing.
            bad[end..].fill(0xA5);
            let code = import(&group, EXPERT_MAJOR, bad);
            assert_eq!(code, INVALID_ARGUMENT, "cut at {end} of {len}");
        }
    });
}

/// Damage: some bytes of the image become others.
fn damage() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    prop::collection::vec((any::<prop::sample::Index>(), 1..=255_u8), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_damage_is_refused(damage in damage()) {
        both_ways(1, |comm| {
            let group = TestGroup::new(comm, &G2.config(HIGH_THROUGHPUT, HT_HIDDEN));
            let (good, len) = image(&group, EXPERT_MAJOR);
            let mut bad = good.data.clone();
            for (at, flip) in &damage {
                bad[at.index(len)] ^= flip;
            }
            // Two changes of one byte may undo each other.
            let expected = if bad == good.data { SUCCESS } else { INVALID_ARGUMENT };
            assert_eq!(import(&group, EXPERT_MAJOR, bad), expected);
        });
    }
}
