//! Importing in the expert-major mode that only the environment chooses.

use nccl_ext_test::cpu::ep::import::assert_imported_does_as_original;
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;
use nccl_ext_test::rows::check_rows;

use super::with_environment;

#[test]
fn expert_major_nvlink_dup_goes_on_as_the_original() {
    with_environment(&[("NCCL_EP_HT_EM_NVLINK_DUP", "1")], || {
        check_rows([0, 4].map(|alignment| (alignment, alignment)), |alignment| {
            both_ways(2, |comm| {
                assert_imported_does_as_original(comm, G2, EXPERT_MAJOR, alignment, |_| ());
            });
        });
    });
}
