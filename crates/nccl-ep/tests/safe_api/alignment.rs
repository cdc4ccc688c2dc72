//! Memory that starts where its elements cannot lie never reaches the library (case A9).

use nccl_ep::{
    DataType, DeviceBuffer, DeviceBufferMut, DispatchConfig, DispatchInputs, DispatchOutputs,
    Error, Layout, LayoutInfo, Result, Tensor, TensorMut,
};
use nccl_ext_core::RawBuffer;

use crate::support::*;

/// Memory of some elements, one byte past where the first of them could lie.
struct Odd {
    memory: Vec<u64>,
    data_type: DataType,
    bytes: usize,
}

impl Odd {
    fn new(data_type: DataType, elements: usize) -> Self {
        let bytes = elements * data_type.size();
        Self { memory: vec![0; bytes / 8 + 2], data_type, bytes }
    }

    fn address(&self) -> usize {
        self.raw().ptr as usize
    }
}

// SAFETY: bytes of the vector, which lives as long as the value; the host's calls are done when they
// return.
unsafe impl DeviceBuffer for Odd {
    fn raw(&self) -> RawBuffer {
        let start = self.memory.as_ptr().cast_mut().cast::<u8>().wrapping_add(1);
        RawBuffer::host(start.cast(), self.bytes, self.data_type)
    }
}

// SAFETY: as above, exclusively; any bytes are integers.
unsafe impl DeviceBufferMut for Odd {
    fn raw_mut(&mut self) -> RawBuffer {
        let start = self.memory.as_mut_ptr().cast::<u8>().wrapping_add(1);
        RawBuffer::host(start.cast(), self.bytes, self.data_type)
    }
}

#[track_caller]
fn is_misplaced<T>(result: Result<T>, argument: &str, size: usize, address: usize) {
    let Err(Error::Invalid { name, argument: named, expected, found, .. }) = result else {
        panic!("accepted {argument}");
    };
    assert_eq!((name, named), ("memory.alignment", argument));
    assert_eq!(expected, format!("a multiple of {size} bytes"));
    assert_eq!(found, format!("{address:#x}"));
}

#[test]
fn ids() {
    with_handle(1, &low_latency(), Layout::ExpertMajor, |_, handle| {
        for (data_type, size) in [(DataType::Int64, 8), (DataType::Int32, 4)] {
            let ids = Odd::new(data_type, 8);
            let result = handle.update(Tensor::new(&ids, &[4, 2])?, None, STREAM).map(drop);
            is_misplaced(result, "topk_idx", size, ids.address());
        }
        Ok(())
    });
}

#[test]
fn rows_and_counters() {
    // Each ends the group, since the peers of a rank that does not come would wait.
    for wrong in ["inputs.tokens", "outputs.tokens", "expert_counters"] {
        on_ranks(1, |comm| {
            let (group, mut handle) = handle(&comm, &low_latency(), Layout::ExpertMajor)?;
            let ids = [0_i64, 1, 1, 2, 2, 3, 3, 0];
            let mut step = handle.update(Tensor::new(&ids, &[4, 2])?, None, STREAM)?;
            let (local, slots) = (group.local_experts(), 4);
            let mut odd = match wrong {
                "inputs.tokens" => Odd::new(DataType::Bfloat16, 4 * 512),
                "outputs.tokens" => Odd::new(DataType::Bfloat16, local * slots * 512),
                _ => Odd::new(DataType::Int32, local),
            };
            let (address, size) = (odd.address(), odd.data_type.size());
            let tokens = G2::tokens(0, 512);
            let mut received = ExpertMajor::new(&group, 4, 512);
            let shape = [local, slots, 512];
            let (mut inputs, mut rows, mut counters) = (
                Tensor::new(&tokens, &[4, 512])?,
                TensorMut::new(&mut received.rows, &shape)?,
                TensorMut::new(&mut received.counters, &[local])?,
            );
            match wrong {
                "inputs.tokens" => inputs = Tensor::new(&odd, &[4, 512])?,
                "outputs.tokens" => rows = TensorMut::new(&mut odd, &shape)?,
                _ => counters = TensorMut::new(&mut odd, &[local])?,
            }
            let mut info = LayoutInfo::new().expert_counters(counters);
            let config = DispatchConfig::new();
            let result = step.dispatch(
                &DispatchInputs::new(inputs),
                &mut DispatchOutputs::new(rows),
                Some(&mut info),
                &config,
                STREAM,
            );
            let argument =
                if wrong == "expert_counters" { "layout_info.expert_counters" } else { wrong };
            is_misplaced(result, argument, size, address);
            Ok(())
        });
    }
}
