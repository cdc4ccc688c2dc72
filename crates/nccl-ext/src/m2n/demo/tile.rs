//! A tile in the backend's memory, whatever its element type.

use nccl_m2n::{
    Buffer, Comm, DataType, DeviceBuffer, DeviceBufferMut, Element, Result, Stream, bf16, f16,
};

/// Memory that is filled and read as bytes.
pub(super) trait Tile {
    fn device(&self) -> &dyn DeviceBuffer;
    fn device_mut(&mut self) -> &mut dyn DeviceBufferMut;
    fn write(&mut self, bytes: &[u8], stream: Stream<'_>) -> Result<()>;
    fn read(&self, stream: Stream<'_>) -> Result<Vec<u8>>;
}

/// Elements as little-endian bytes, and back, bit by bit.
trait Bytes: Element {
    fn decode(bytes: &[u8]) -> Vec<Self>;
    fn encode(elements: &[Self]) -> Vec<u8>;
}

macro_rules! bytes {
    ($($type:ty),+) => {$(
        impl Bytes for $type {
            fn decode(bytes: &[u8]) -> Vec<Self> {
                let chunks = bytes.as_chunks::<{ size_of::<$type>() }>().0;
                chunks.iter().map(|bytes| <$type>::from_le_bytes(*bytes)).collect()
            }

            fn encode(elements: &[Self]) -> Vec<u8> {
                elements.iter().flat_map(|element| element.to_le_bytes()).collect()
            }
        }
    )+};
}

bytes!(i8, u8, i32, u32, i64, u64, f16, bf16, f32, f64);

impl<T: Bytes> Tile for Buffer<T> {
    fn device(&self) -> &dyn DeviceBuffer {
        self
    }

    fn device_mut(&mut self) -> &mut dyn DeviceBufferMut {
        self
    }

    fn write(&mut self, bytes: &[u8], stream: Stream<'_>) -> Result<()> {
        Buffer::write(self, &T::decode(bytes), stream)
    }

    fn read(&self, stream: Stream<'_>) -> Result<Vec<u8>> {
        Ok(T::encode(&self.to_vec(stream)?))
    }
}

/// # Errors
/// What the backend reports.
pub(super) fn of(comm: &Comm, data_type: DataType, bytes: &[u8]) -> Result<Box<dyn Tile>> {
    fn made<T: Bytes>(comm: &Comm, bytes: &[u8]) -> Result<Box<dyn Tile>> {
        Ok(Box::new(Buffer::from_slice(comm, &T::decode(bytes))?))
    }
    match data_type {
        DataType::Int8 => made::<i8>(comm, bytes),
        DataType::Int32 => made::<i32>(comm, bytes),
        DataType::Uint32 => made::<u32>(comm, bytes),
        DataType::Int64 => made::<i64>(comm, bytes),
        DataType::Uint64 => made::<u64>(comm, bytes),
        DataType::Float16 => made::<f16>(comm, bytes),
        DataType::Bfloat16 => made::<bf16>(comm, bytes),
        DataType::Float32 => made::<f32>(comm, bytes),
        DataType::Float64 => made::<f64>(comm, bytes),
        // Bytes will do for 8-bit floats.
        _ => made::<u8>(comm, bytes),
    }
}
