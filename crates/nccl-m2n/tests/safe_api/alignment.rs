//! A tile that starts where its elements cannot lie never reaches the library (case A9).

use nccl_ext_core::{DataType, DeviceBuffer, RawBuffer};
use nccl_ext_test::worlds::{STREAM, on_ranks};
use nccl_m2n::{Config, DistTensor, DistTensorMut, Error, Runtime};

use crate::common::layout;

/// Four floats, one byte past where the first of them could lie.
struct Odd([u32; 5]);

// SAFETY: bytes of the array, which lives as long as the value; the host's calls are done when they
// return.
unsafe impl DeviceBuffer for Odd {
    fn raw(&self) -> RawBuffer {
        let start = self.0.as_ptr().cast_mut().wrapping_byte_add(1);
        RawBuffer::host(start.cast(), 16, DataType::Float32)
    }
}

#[test]
fn tiles_at_odd_addresses_are_refused() {
    on_ranks(1, |comm| {
        let runtime = Runtime::new(comm.backend(), &Config::new())?;
        let layout = layout("{1}@0 [R] 4 fp32");
        let (odd, mut into) = (Odd([0; 5]), [0_f32; 4]);
        let source = DistTensor::new(&odd, &layout);
        let mut destination = DistTensorMut::new(&mut into, &layout);
        let error = runtime.reshard(&comm, &source, &mut destination, STREAM).unwrap_err();
        let Error::Invalid { name, argument, expected, found, .. } = error else {
            panic!("{error}");
        };
        assert_eq!((name, argument), ("memory.alignment", "source"));
        assert_eq!(expected, "a multiple of 4 bytes");
        assert_eq!(found, format!("{:#x}", odd.raw().ptr as usize));
        Ok(())
    });
}
