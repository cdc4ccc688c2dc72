//! Runtimes on the CPU backend (M2N 8.3, as far as types leave it possible).
//!
//! NULL (M2N vector L01), other structures (M2N vectors L02 to L04) and tokens (M2N vectors L06, L07
//! and L10) cannot be written; M2N vectors L11 to L14 are tests of the settings.

use nccl_ext_test::worlds::on_ranks;
use nccl_m2n::{Config, Error, Runtime, finalize_default, last_error};

use crate::common::{layout, reshard, tile};

/// M2N vector L05: the library warns and ignores it.
#[test]
fn a_limit_that_would_be_ignored_is_refused() {
    let error = Runtime::new(nccl_ext_cpu::backend(), &Config::new().max_cta(Some(0))).unwrap_err();
    assert!(error.to_string().contains("positive C int"), "{error}");
    let runtime = Runtime::new(nccl_ext_cpu::backend(), &Config::new().max_cta(Some(4))).unwrap();
    assert_eq!(runtime.settings().ctas, 4);
    runtime.finalize().unwrap();
}

/// M2N vector L08.
#[test]
fn the_default_handle_may_be_finalised_twice() {
    // SAFETY: nothing in this process uses the default handle.
    unsafe {
        finalize_default(nccl_ext_cpu::backend()).unwrap();
        finalize_default(nccl_ext_cpu::backend()).unwrap();
    }
    assert_eq!(last_error(nccl_ext_cpu::backend()).unwrap(), "");
}

/// M2N vector L09.
#[test]
fn nothing_is_finalised_inside_a_group() {
    let backend = nccl_ext_cpu::backend();
    let runtime = Runtime::new(backend, &Config::new()).unwrap();
    let inside = runtime.group(|_| {
        // SAFETY: refused.
        let refused = unsafe { finalize_default(backend) };
        assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
        Ok(())
    });
    inside.unwrap();
    runtime.finalize().unwrap();
}

/// One runtime serves the ranks of several threads, one after the other or at once.
#[test]
fn threads_share_a_runtime() {
    let runtime = Runtime::new(nccl_ext_cpu::backend(), &Config::new()).unwrap();
    let (from, to) = (layout("{2}@0 [S0] 2x4 fp16"), layout("{2}@2 [S1] 4x2 fp16"));
    let received = on_ranks(4, |comm| {
        let mut room = vec![0; tile(&to, comm.rank()).len()];
        for _ in 0..3 {
            reshard(&runtime, &comm, (&tile(&from, comm.rank()), &from), (&mut room, &to))?;
        }
        Ok(room)
    });
    for (rank, room) in received.iter().enumerate() {
        assert_eq!(*room, tile(&to, rank), "r{rank}");
    }
    runtime.finalize().unwrap();
}
