//! Mask functions of groups without masks, and their pointers.

use nccl_ext_test::cpu::ep::masks::*;

use super::*;

/// What a mask function gives, which has NULL where it takes a pointer.
type MaskCall = fn(ncclEpGroup_t) -> ncclResult_t;

const MASK_CALLS: [(&str, MaskCall); 5] = [
    // SAFETY: the group lives or is null, and a null pointer is refused before it is used.
    ("ncclEpMaskQuery", |group| unsafe { (api().ncclEpMaskQuery)(group, null_mut(), null_mut()) }),
    // SAFETY: as above.
    ("ncclEpMaskUpdate", |group| unsafe { (api().ncclEpMaskUpdate)(group, null(), null_mut()) }),
    // SAFETY: as above.
    ("ncclEpMaskClean", |group| unsafe { (api().ncclEpMaskClean)(group, null_mut()) }),
    // SAFETY: as above.
    ("ncclEpGetAsyncError", |group| unsafe { (api().ncclEpGetAsyncError)(group, null_mut()) }),
    // SAFETY: as above.
    ("ncclEpErrorClear", |group| unsafe { (api().ncclEpErrorClear)(group) }),
];

/// Calls without a mask to speak of are refused so by each function.
fn assert_all_refused(group: ncclEpGroup_t, code: ncclResult_t, class: FailureClass) {
    check_rows(MASK_CALLS, |call| assert_refused(call(group), code, class));
}

/// EP vector A23.
#[test]
fn mask_functions_need_a_mask() {
    every_rank(1, |comm| {
        for config in [ht_config(), ll_config(8)] {
            let group = TestGroup::new(comm, &config);
            assert_all_refused(group.raw, INVALID_USAGE, FailureClass::Return);
        }
        assert_all_refused(null_mut(), INVALID_ARGUMENT, FailureClass::Throw);
        // High throughput has none, whatever its configuration asks for.
        let group = TestGroup::new(comm, &ncclEpGroupConfig_t { enable_mask: 1, ..ht_config() });
        assert_all_refused(group.raw, INVALID_USAGE, FailureClass::Throw);
    });
}

#[test]
fn mask_functions_need_somewhere_to_read_and_write() {
    every_rank(1, |comm| {
        let group = TestGroup::new(comm, &masked_config(ONE, LONG_TIMEOUT));
        let _handle = group.handle(EXPERT_MAJOR, 1, 0);
        check_rows(MASK_CALLS, |call| match call(group.raw) {
            // These two take no pointer.
            SUCCESS => (),
            code => assert_refused(code, INVALID_ARGUMENT, FailureClass::Throw),
        });
        let refused = MASK_CALLS.map(|(_, call)| call(group.raw) != SUCCESS);
        assert_eq!(refused, [true, true, false, true, false]);
    });
}
