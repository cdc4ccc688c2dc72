//! Memory that is refused, and why.

use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::Mutex;

use nccl_ep_sys::{ncclEpGroupConfig_t, ncclEpLayout_t};
use nccl_ext_core::DataType;
use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_cpu::{FailureClass, backend};
use nccl_ext_test::cpu::ep::import::*;
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;
use nccl_ext_test::rows::check_rows;

use super::{DROP, G2_STATE};

/// Imports the memory of a handle of G2, expert-major with an alignment of 4, on a group that was
/// changed, and is refused with this word.
#[track_caller]
fn assert_import_refused(
    change: fn(&mut ncclEpGroupConfig_t),
    (layout, alignment): (ncclEpLayout_t, usize),
    state: ImportState,
    word: &str,
) {
    both_ways(2, |comm| {
        let config = G2.config(HIGH_THROUGHPUT, HT_HIDDEN);
        let group = TestGroup::new(comm, &config);
        let original = HandleInMemory::init(&group, EXPERT_MAJOR, 2, 4);
        original.update(&mut G2.ids(comm.rank()));
        // Enough for any shape.
        let mut bytes = original.copy().data;
        bytes.resize(1 << 16, 0);
        let memory = || TestTensor::new(&[1 << 16], bytes.clone());
        let mut other = config;
        change(&mut other);
        let other = TestGroup::new(comm, &other);
        let import = HandleInMemory::try_import;
        let (code, handle) = import(memory(), &other, layout, alignment, state);
        assert!(handle.is_none());
        assert_refused_saying(code, word);
        // The same bytes are still good.
        assert_ok(import(memory(), &group, EXPERT_MAJOR, 4, G2_STATE).0);
    });
}

#[test]
fn memory_of_another_group_names_the_difference() {
    type Change = fn(&mut ncclEpGroupConfig_t);
    let rows: [(&str, Change); 5] = [
        ("max_dispatch_tokens_per_rank", |c| c.max_dispatch_tokens_per_rank = 8),
        ("max_recv_tokens_per_rank", |c| c.max_recv_tokens_per_rank = 24),
        ("num_experts", |c| c.num_experts = 8),
        ("DROP", |c| c.overflow_policy = DROP),
        ("the expert-major mode", |c| c.zero_copy = ZERO_COPY_ON),
    ];
    check_rows(rows.map(|(word, change)| (word, (word, change))), |(word, change)| {
        assert_import_refused(change, (EXPERT_MAJOR, 4), G2_STATE, word);
    });
}

#[test]
fn memory_of_another_handle_names_the_difference() {
    let right = (EXPERT_MAJOR, 4);
    let rows = [
        ("the layout", ((FLAT, 0), G2_STATE)),
        ("alignment", ((EXPERT_MAJOR, 2), G2_STATE)),
        ("num_tokens", (right, ImportState { tokens: 3, ..G2_STATE })),
        ("num_topk", (right, ImportState { topk: 1, ..G2_STATE })),
        ("the type of topk_idx", (right, ImportState { id_type: DataType::Int32, ..G2_STATE })),
    ];
    check_rows(rows.map(|(word, row)| (word, (word, row))), |(word, (layout, state))| {
        assert_import_refused(|_| (), layout, state, word);
    });
}

#[test]
fn memory_of_another_rank_is_refused() {
    let memories = Mutex::new(vec![Vec::new(); 2]);
    both_ways(2, |comm| {
        let ht = HighThroughputRank::fresh(comm, G2, FLAT, 0, |_| ());
        let original = HandleInMemory::init(&ht.group, FLAT, 2, 0);
        original.update(&mut G2.ids(comm.rank()));
        memories.lock().unwrap()[comm.rank()] = original.copy().data;
        // Both are there after the next collective.
        original.update(&mut G2.ids(comm.rank()));
        let other = memories.lock().unwrap()[1 - comm.rank()].clone();
        let other = TestTensor::new(&[other.len()], other);
        let (code, _) = HandleInMemory::try_import(other, &ht.group, FLAT, 0, G2_STATE);
        assert_refused_saying(code, "the rank");
    });
}

#[track_caller]
fn assert_refused_saying(code: ncclResult_t, word: &str) {
    assert_refused(code, INVALID_ARGUMENT, FailureClass::Return);
    // That took the error; the text of the thread's last error stays.
    let last_error = backend().nccl().ncclGetLastError;
    // SAFETY: the call takes a null communicator and returns a string that lives until the thread's
    // next call.
    let text = unsafe { CStr::from_ptr(last_error(null_mut())) }.to_string_lossy();
    assert!(text.contains(word), "{word}: {text}");
}

#[test]
fn memory_that_no_update_prepared_is_refused() {
    both_ways(1, |comm| {
        let group = TestGroup::new(
            comm,
            &ncclEpGroupConfig_t { num_experts: 4, ..G2.config(HIGH_THROUGHPUT, HT_HIDDEN) },
        );
        let original = HandleInMemory::init(&group, FLAT, 2, 0);
        let none = |memory| HandleInMemory::try_import(memory, &group, FLAT, 0, G2_STATE).0;
        assert_refused_saying(none(original.copy()), "mark");
        assert_refused_saying(none(filled_memory(original.memory.data.len(), 0xFF)), "mark");
        original.update(&mut int64_ids(2, &[0, 1, 2, 3, 0, -1, -1, -1]));
        assert_ok(none(original.copy()));
    });
}

#[test]
fn an_update_that_overruns_leaves_nothing_to_import() {
    every_rank(1, |comm| {
        let config = ncclEpGroupConfig_t {
            max_recv_tokens_per_rank: 4,
            ..G2.config(HIGH_THROUGHPUT, HT_HIDDEN)
        };
        let group = TestGroup::new(comm, &config);
        let original = HandleInMemory::init(&group, EXPERT_MAJOR, 2, 0);
        original.update(&mut int64_ids(2, &[0, 1]));
        let mut many = int64_ids(2, &[0, 1, 0, 1, 0, 1]);
        let code = update_handle(&original.handle, &mut many, None);
        assert_refused(code, INVALID_USAGE, FailureClass::Trap);
        let state = ImportState { tokens: 1, ..G2_STATE };
        let (code, _) = HandleInMemory::try_import(original.copy(), &group, EXPERT_MAJOR, 0, state);
        assert_refused_saying(code, "mark");
    });
}

#[test]
fn low_latency_handles_are_not_imported() {
    both_ways(2, |comm| {
        let group = TestGroup::new(comm, &G2.config(LOW_LATENCY, LL_HIDDEN));
        let (code, _) = HandleInMemory::try_import(
            filled_memory(handle_memory_size(&group, EXPERT_MAJOR, 2), 0),
            &group,
            EXPERT_MAJOR,
            0,
            G2_STATE,
        );
        assert_refused(code, INVALID_USAGE, FailureClass::Return);
    });
}

#[test]
fn the_descriptor_has_the_rules_of_init_handle() {
    both_ways(1, |comm| {
        let group = TestGroup::new(comm, &G2.config(HIGH_THROUGHPUT, HT_HIDDEN));
        let bytes = handle_memory_size(&group, FLAT, 2);
        let (code, _) =
            HandleInMemory::try_import(filled_memory(bytes - 1, 0), &group, FLAT, 0, G2_STATE);
        assert_refused(code, INVALID_ARGUMENT, FailureClass::Assert);
        let mut flat = filled_memory(bytes, 0);
        flat.raw_mut().ndim = 0;
        let (code, _) = HandleInMemory::try_import(flat, &group, FLAT, 0, G2_STATE);
        assert_refused(code, INVALID_ARGUMENT, FailureClass::Assert);
    });
}
