//! Reshards of ranks that agree.

use nccl_ext_cpu::backend;
use nccl_ext_test::cpu::m2n::*;
use nccl_ext_test::cpu::*;
use nccl_ext_test::rows::check_rows;
use nccl_m2n_sys::M2nApi;

#[test]
fn the_library_says_its_version() {
    let library = backend().library("libnccl_m2n.so").unwrap();
    assert_eq!(library.version.to_string(), "0.2.0");
    assert!(library.path.is_none());
    assert!(std::ptr::eq(backend().extension::<M2nApi>().unwrap(), api()));
}

#[test]
fn two_ranks_reshard() {
    both_ways(2, |comm| ReshardCase::plain(8).run(comm));
}

/// Ranks in neither mesh take part, and a rank may be in any of many calls.
#[test]
fn eight_threads_reshard_at_once() {
    let cases = [
        ReshardCase::new(8, 1, "{2,2}@0 [R,S0] 20x40", "{2,2}@4 [R,S1] 40x20"),
        ReshardCase::new(8, 4, "{2}@5 [S2] 4x6x8", "{3}@1 [S1] 4x2x16"),
        ReshardCase::new(8, 2, "{7}@0 [S0] 12", "{1}@7 [R] 84"),
        ReshardCase::new(8, 8, "{1}@3 [R] 5x5", "{4}@4 [R] 5x5"),
    ];
    both_ways(8, |comm| {
        for _ in 0..50 {
            for case in &cases {
                case.run(comm);
            }
        }
    });
}

#[test]
fn worlds_do_not_disturb_each_other() {
    let case = ReshardCase::new(4, 2, "{2}@0 [S0] 8x6", "{2}@2 [S1] 16x3");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                both_ways(4, |comm| (0..50).for_each(|_| case.run(comm)));
            });
        }
    });
}

#[test]
fn large_tiles_arrive_whole() {
    let case = ReshardCase::new(4, 4, "{2}@0 [S0] 512x1024", "{2}@2 [S1] 1024x512");
    both_ways(4, |comm| case.run(comm));
}

/// M2N 2.2: other ways to write the same transfer are the same transfer.
#[test]
fn normal_forms_are_compared() {
    let one = ReshardCase::new(4, 1, "{2}@0 [S0] 4", "{2}@2 [R] 8");
    let other = ReshardCase::new(4, 1, "{2,1}@0 [S0,R] 4", "{1,2}@2 [R,R] 8");
    both_ways(4, |comm| if comm.rank() % 2 == 0 { one.run(comm) } else { other.run(comm) });
}

/// The lone rank of a communicator copies, in place if it is told to (M2N 2.5).
#[test]
fn one_rank_copies_to_itself() {
    let rows = [
        ("a mesh of two axes", ("{1}@0 [R] 3x4", "{1,1}@0 [S1,R] 3x4")),
        ("a mesh of one axis", ("{1}@0 [S0] 3x4", "{1}@0 [R] 3x4")),
    ];
    check_rows(rows, |(src, dst)| {
        let case = ReshardCase::new(1, 2, src, dst);
        both_ways(1, |comm| {
            case.run(comm);
            let mut tile = CanaryTile::of(&case.bytes(&case.src, 0, pattern_byte));
            let pointer = tile.pointer();
            for distance in [0, 4] {
                let mut src = OwnedDescriptor::new(&case.src, case.dtype, pointer);
                // SAFETY: the pointer stays within the memory of the tile, which has canaries
                // behind it.
                let data = unsafe { pointer.add(distance) };
                let mut dst = OwnedDescriptor::new(&case.dst, case.dtype, data);
                // SAFETY: the communicator is live; descriptors and tile outlive the call.
                assert_ok(unsafe { reshard(comm.as_raw(), src.raw(), dst.raw()) });
            }
            let expected = case.bytes(&case.src, 0, pattern_byte);
            assert_eq!(tile.data()[4..], expected[..20]);
        });
    });
}
