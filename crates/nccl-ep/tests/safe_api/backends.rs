//! Two backends in one process.

use nccl_ep::{Buffer, Group, Layout, MemorySpace, Tensor};
use nccl_ext_test::stub::ep as stub;

use crate::support::*;

#[test]
fn two_backends_in_one_process_do_not_mix() {
    let foreign = stub::comm(1);
    let elsewhere = stub::comm_on(stub::backend(MemorySpace::Device), 1);
    on_ranks(1, |comm| {
        let config = high_throughput();
        let (group, mut handle) = handle(&comm, &config, Layout::Flat)?;
        let ids = Buffer::from_slice(&foreign, &[0_i64; 8])?;
        let error = handle.update(Tensor::new(&ids, &[4, 2])?, None, STREAM).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("expected host memory of device 0 of backend cpu"), "{text}");
        assert!(text.contains("found host memory of device 0 of backend stub"), "{text}");
        drop(handle);
        drop(group);
        Ok(())
    });
    // Host memory on a backend with device memory.
    let (device, mut handle) = handle(&elsewhere, &high_throughput(), Layout::Flat).unwrap();
    let error = handle.update(Tensor::new(&[0_i64; 8], &[4, 2]).unwrap(), None, STREAM);
    let text = error.unwrap_err().to_string();
    assert!(
        text.contains("expected device memory of device 0 of backend stub, found host memory"),
        "{text}"
    );
    drop((device, handle));
    // Both work side by side.
    let group = Group::create(&foreign, &high_throughput()).unwrap();
    on_ranks(2, |comm| {
        let group = Group::create(&comm, &low_latency())?;
        group.destroy()?;
        Ok(())
    });
    group.destroy().unwrap();
}
