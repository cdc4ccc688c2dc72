//! What may cross threads, as types.

use nccl_ep::{Buffer, Comm, Error, Group, Handle, Step, Stream, Tensor, TensorMut};

fn send<T: Send>() {}
fn sync<T: Sync>() {}

#[test]
fn groups_handles_and_steps_move_between_threads() {
    send::<Group>();
    send::<Handle>();
    send::<Step<'static>>();
    send::<Step<'static, Handle>>();
    send::<Comm>();
    sync::<Comm>();
    send::<Buffer<f32>>();
    send::<Tensor<'static>>();
    send::<TensorMut<'static>>();
    send::<Stream<'static>>();
    send::<Error>();
    sync::<Error>();
}

/// Everything a rank needs lives in one struct, without lifetimes.
#[test]
fn an_owning_step_lives_beside_its_group() {
    #[allow(dead_code)]
    struct Engine {
        comm: Comm,
        group: Group,
        step: Step<'static, Handle>,
    }
    send::<Engine>();
}
