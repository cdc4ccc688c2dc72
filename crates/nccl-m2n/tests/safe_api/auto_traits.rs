//! What may cross threads, as types.

use nccl_m2n::plan::{Digest, Plan};
use nccl_m2n::{DistTensor, DistTensorMut, Layout, Runtime, Window};

fn send<T: Send>() {}
fn sync<T: Sync>() {}

#[test]
fn runtimes_are_shared_and_tensors_move() {
    send::<Runtime>();
    sync::<Runtime>();
    send::<DistTensor<'static>>();
    send::<DistTensorMut<'static>>();
    send::<Window<'static>>();
    send::<Layout>();
    sync::<Layout>();
    send::<Plan>();
    sync::<Plan>();
    send::<Digest>();
}
