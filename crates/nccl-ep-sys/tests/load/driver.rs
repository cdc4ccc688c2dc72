//! Drivers that lack something.

use crate::libraries::Libraries;

/// Case L6.
#[test]
fn a_driver_without_one_function_fails_only_the_call_that_needs_it() {
    let libraries = Libraries::new("older-driver");
    let context = ["cuInit", "cuDevicePrimaryCtxRetain", "cuCtxGetCurrent", "cuCtxSetCurrent"];
    libraries.driver_with(13, &[context.as_slice(), &["cuStreamSynchronize"]].concat());
    let tree = libraries.tree("tree", &[13]);
    let one_rank = "int ncclCommCount(void *c, int *n) { *n = 1; return 0; }";
    libraries.nccl_with("tree/nccl/lib/libnccl.so.2", 23007, one_rank);
    let child = libraries.child("older driver").env("NCCL_EXTENSIONS_NATIVE_DIR", tree);
    assert_eq!(
        child.says(),
        "synchronize: fine; is_capturing: cuStreamIsCapturing is not offered by the driver of backend \
         native (no such function); it needs a driver that exports it"
    );
}
