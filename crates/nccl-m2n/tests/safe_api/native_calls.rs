//! Which native calls a runtime and its reshards make over stub tables, and when.

use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_test::stub::m2n as stub;
use nccl_ext_test::worlds::STREAM;
use nccl_m2n::{
    Agreement, Config, DistTensor, DistTensorMut, Error, MemorySpace, Runtime, Window,
    finalize_default, last_error,
};

use crate::stub_runtime::{config, layouts, send, setup};

#[test]
fn init_comes_first_and_finalize_last() {
    let backend = stub::backend(MemorySpace::Host);
    let runtime = Runtime::new(backend, &config(Agreement::Off)).unwrap();
    assert_eq!(stub::take_calls(), ["ncclM2nInit"]);
    runtime.finalize().unwrap();
    assert_eq!(stub::take_calls(), ["ncclM2nFinalize"]);
    stub::fail_next("ncclM2nInit", ncclResult_t::ncclSystemError);
    let error = Runtime::new(backend, &Config::new()).unwrap_err();
    let words = "ncclM2nInit returned ncclSystemError (2): the stub's words";
    assert_eq!(error.to_string(), words);
    stub::take_calls();
    assert_eq!(last_error(backend).unwrap(), "the stub's words");
    // SAFETY: stubs have no default handle.
    unsafe { finalize_default(backend).unwrap() };
    assert_eq!(stub::take_calls(), ["ncclM2nFinalize"]);
}

#[test]
fn a_backend_without_the_library_says_so() {
    let builder = nccl_ext_core::Backend::builder("bare", MemorySpace::Host);
    // SAFETY: it has no functions.
    let backend = unsafe { builder.build() };
    let error = Runtime::new(backend, &Config::new()).unwrap_err();
    assert!(error.to_string().starts_with("libnccl_m2n.so is not offered by backend bare"));
}

#[test]
fn communicators_of_another_backend_are_refused() {
    let (runtime, _, _) = setup(MemorySpace::Host, Agreement::Off);
    let other = stub::comm(4);
    let (source, destination) = layouts();
    let mut to = DistTensorMut::inactive(&destination);
    let error = runtime.reshard(&other, &DistTensor::inactive(&source), &mut to, STREAM);
    assert!(error.unwrap_err().to_string().contains("belongs to the runtime's backend"));
}

#[test]
fn a_runtime_keeps_its_communicators_until_it_is_finalized() {
    let (runtime, comm, tile) = setup(MemorySpace::Host, Agreement::Off);
    send(&runtime, &comm, &tile).unwrap();
    drop(tile);
    let comm = comm.destroy().unwrap_err().value.unwrap();
    runtime.finalize().unwrap();
    comm.destroy().unwrap();
    let calls = ["ncclReshard", "ncclM2nFinalize", "ncclCommFinalize", "ncclCommDestroy"];
    assert_eq!(stub::take_calls(), calls);
}

/// M2N 4.1: the library's caches are the process's, and last until its last handle is finalised.
#[test]
fn on_devices_communicators_are_kept_until_the_last_runtime_is_finalized() {
    let (runtime, comm, tile) = setup(MemorySpace::Device, Agreement::Off);
    let other = Runtime::new(comm.backend(), &Config::new()).unwrap();
    send(&runtime, &comm, &tile).unwrap();
    drop(tile);
    runtime.finalize().unwrap();
    let comm = comm.destroy().unwrap_err().value.unwrap();
    other.finalize().unwrap();
    comm.destroy().unwrap();
}

#[test]
fn dropped_on_a_device_a_runtime_is_leaked_and_its_communicators_are_to_be_aborted() {
    let (runtime, comm, tile) = setup(MemorySpace::Device, Agreement::Off);
    send(&runtime, &comm, &tile).unwrap();
    stub::take_calls();
    drop(runtime);
    assert_eq!(stub::take_calls(), [""; 0]);
    assert!(comm.is_marked_for_abort());
    // Another communicator at the same address would hit the caches of this one.
    let again = Runtime::new(comm.backend(), &Config::new()).unwrap();
    let error = send(&again, &comm, &tile).unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error:?}");
    assert!(error.to_string().contains("address"), "{error}");
}

#[test]
fn dropped_on_a_host_a_runtime_is_finalized() {
    let (runtime, comm, tile) = setup(MemorySpace::Host, Agreement::Off);
    send(&runtime, &comm, &tile).unwrap();
    stub::take_calls();
    drop(runtime);
    assert_eq!(stub::take_calls(), ["ncclM2nFinalize"]);
    drop(tile);
    comm.destroy().unwrap();
}

#[test]
fn windows_have_a_function_of_their_own() {
    let (runtime, comm, tile) = setup(MemorySpace::Host, Agreement::Off);
    let (source, destination) = layouts();
    let from = DistTensor::new(&tile, &source);
    let mut to = DistTensorMut::inactive(&destination);
    runtime.reshard_with_window(&comm, Window::NONE, &from, &mut to, STREAM).unwrap();
    assert_eq!(stub::take_calls(), ["ncclReshardWithWindow"]);
    assert_eq!(stub::passed(), [true, false]);
}

/// Inactive ranks call too, and what they pass anyway is not looked at.
#[test]
fn ranks_outside_of_a_mesh_pass_no_memory() {
    let backend = stub::backend(MemorySpace::Host);
    let comm = stub::comm_on(backend, 5, 4);
    let runtime = Runtime::new(backend, &config(Agreement::Off)).unwrap();
    let tile = [0.0_f32];
    let (source, destination) = layouts();
    let mut other = [0.0_f32];
    let mut to = DistTensorMut::new(&mut other, &destination);
    runtime.reshard(&comm, &DistTensor::new(&tile, &source), &mut to, STREAM).unwrap();
    assert_eq!(stub::passed(), [false, false]);
}
