//! Element types of tensors.

use std::fmt;

use half::{bf16, f16};

use crate::raw::ncclDataType_t;

macro_rules! data_types {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $size:literal, $text:literal;)+) => {
        /// The element type of a tensor or buffer.
        #[doc(alias = "ncclDataType_t")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[repr(u32)]
        #[non_exhaustive]
        pub enum DataType { $($(#[$doc])* $name = $value,)+ }

        impl DataType {
            /// Every type, in the order of its C value.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Bytes one element takes. `Float4x2` counts as one byte that holds two values.
            #[must_use]
            pub const fn size(self) -> usize {
                match self { $(Self::$name => $size,)+ }
            }

            /// The short name the field uses.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// The type with this C value, if there is one.
            #[must_use]
            pub const fn from_raw(raw: ncclDataType_t) -> Option<Self> {
                match raw.0 { $($value => Some(Self::$name),)+ _ => None }
            }
        }
    };
}

data_types! {
    /// Signed 8-bit integer.
    Int8 = 0, 1, "int8";
    /// Unsigned 8-bit integer.
    Uint8 = 1, 1, "uint8";
    /// Signed 32-bit integer.
    Int32 = 2, 4, "int32";
    /// Unsigned 32-bit integer.
    Uint32 = 3, 4, "uint32";
    /// Signed 64-bit integer.
    Int64 = 4, 8, "int64";
    /// Unsigned 64-bit integer.
    Uint64 = 5, 8, "uint64";
    /// IEEE half precision.
    Float16 = 6, 2, "fp16";
    /// IEEE single precision.
    Float32 = 7, 4, "fp32";
    /// IEEE double precision.
    Float64 = 8, 8, "fp64";
    /// bfloat16.
    Bfloat16 = 9, 2, "bf16";
    /// 8-bit float, 4 exponent and 3 mantissa bits.
    Float8E4m3 = 10, 1, "fp8-e4m3";
    /// 8-bit float, 5 exponent and 2 mantissa bits.
    Float8E5m2 = 11, 1, "fp8-e5m2";
    /// Packed 4-bit floats, two a byte; extents count bytes.
    Float4x2 = 12, 1, "fp4x2";
}

impl DataType {
    /// The C value.
    #[must_use]
    pub const fn as_raw(self) -> ncclDataType_t {
        ncclDataType_t(self as u32)
    }
}

impl From<DataType> for ncclDataType_t {
    fn from(value: DataType) -> Self {
        value.as_raw()
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// Rust types whose slices can be tensors.
///
/// Sealed: every implementor has no padding, no invalid bit pattern and the size of its
/// [`DataType`], so that a library may write any bytes into it.
pub trait Element: sealed::Sealed + Copy + Default + Send + Sync + 'static {
    /// The tensor element type.
    const DATA_TYPE: DataType;
}

macro_rules! elements {
    ($($ty:ty => $data_type:ident),+ $(,)?) => {$(
        impl sealed::Sealed for $ty {}
        impl Element for $ty { const DATA_TYPE: DataType = DataType::$data_type; }
        const _: () = assert!(size_of::<$ty>() == DataType::$data_type.size());
    )+};
}

elements! {
    i8 => Int8, u8 => Uint8, i32 => Int32, u32 => Uint32, i64 => Int64, u64 => Uint64,
    f16 => Float16, f32 => Float32, f64 => Float64, bf16 => Bfloat16,
}

#[cfg(test)]
mod tests {
    use super::DataType;
    use crate::raw::{ncclDataType_t, ncclFloat4x2};

    #[test]
    fn c_values_round_trip() {
        for &data_type in DataType::ALL {
            assert_eq!(DataType::from_raw(data_type.as_raw()), Some(data_type));
        }
        assert_eq!(DataType::Bfloat16.as_raw(), ncclDataType_t::ncclBfloat16);
        assert_eq!(DataType::Float8E5m2.as_raw(), ncclDataType_t::ncclFloat8e5m2);
        assert_eq!(DataType::Float4x2.as_raw(), ncclFloat4x2);
        assert_eq!(DataType::from_raw(ncclDataType_t(13)), None);
    }
}
