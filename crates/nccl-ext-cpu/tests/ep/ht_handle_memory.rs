//! Handles in memory of the caller's.

use nccl_ext_cpu::FailureClass;
use nccl_ext_test::cpu::ep::import::*;
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;

/// EP vector B23.
#[test]
fn a_handle_works_in_memory_of_the_callers() {
    both_ways(4, |comm| {
        let group = TestGroup::new(comm, &F4.config(HIGH_THROUGHPUT, HT_HIDDEN));
        let HandleInMemory { handle, mut memory, .. } = HandleInMemory::init(&group, FLAT, 1, 0);
        assert!(!memory.data.is_empty());
        let mut ht = HighThroughputRank::with_handle(F4, comm.rank(), group, handle);
        assert_ok(ht.update(&mut F4.ids(comm.rank())));
        let rows = ht.dispatch().rows;
        // Tokens of this rank and of the one two before or after it (EP vector B2).
        let first = 2. * comm.rank() as f32 + 1.;
        assert_eq!(rows[..4], [first, first + 1., first + 8., first + 9.]);
        assert_eq!(ht.combine(&rows), (F4.values)(comm.rank()));
        drop(ht);
        // It is still the caller's.
        memory.data.fill(1);
    });
}

#[test]
fn memory_that_is_one_byte_short_is_refused() {
    both_ways(1, |comm| {
        let fixture = Fixture { ranks: 1, ..F4 };
        let group = TestGroup::new(comm, &fixture.config(HIGH_THROUGHPUT, HT_HIDDEN));
        let short = filled_memory(handle_memory_size(&group, FLAT, 1) - 1, 0);
        let (code, _handle) = HandleInMemory::try_init(short, &group, FLAT, 1, 0);
        assert_refused(code, INVALID_ARGUMENT, FailureClass::Assert);
    });
}
