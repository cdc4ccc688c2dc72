//! Reductions, in ascending rank order.

use std::ops::Range;

use half::{bf16, f16};
use nccl_ext_core::DataType;
use nccl_ext_core::raw::ncclRedOp_t;

use super::buffers::Buffers;
use crate::refusal::{FailureClass, Outcome, Refusal};

/// Reduces a range of elements of all ranks' send buffers into all ranks' receive buffers.
///
/// # Safety
/// Every buffer holds the range's elements of the kernel's type, and nobody else touches them.
pub(super) type Kernel = unsafe fn(&[Buffers], Range<usize>);

/// A type that can be reduced. Narrow floats are summed in fp32 and rounded once.
trait Element: Copy {
    type Sum: Copy;
    fn widen(self) -> Self::Sum;
    fn narrow(sum: Self::Sum) -> Self;
    fn combine<const OP: u32>(a: Self::Sum, b: Self::Sum) -> Self::Sum;
}

const SUM: u32 = ncclRedOp_t::ncclSum.0;
const PRODUCT: u32 = ncclRedOp_t::ncclProd.0;
const MAX: u32 = ncclRedOp_t::ncclMax.0;

macro_rules! elements {
    ($($ty:ty as $sum:ty, $widen:expr, $narrow:expr, $add:expr, $multiply:expr;)+) => {$(
        impl Element for $ty {
            type Sum = $sum;
            fn widen(self) -> $sum { $widen(self) }
            fn narrow(sum: $sum) -> Self { $narrow(sum) }
            fn combine<const OP: u32>(a: $sum, b: $sum) -> $sum {
                match OP {
                    SUM => $add(a, b),
                    PRODUCT => $multiply(a, b),
                    MAX => a.max(b),
                    _ => a.min(b),
                }
            }
        }
    )+};
}

macro_rules! integers {
    ($($ty:ident)+) => {
        elements! { $($ty as $ty, |x| x, |x| x, $ty::wrapping_add, $ty::wrapping_mul;)+ }
    };
}

integers! { i8 u8 i32 u32 i64 u64 }
elements! {
    f32 as f32, |x| x, |x| x, |a, b| a + b, |a, b| a * b;
    f64 as f64, |x| x, |x| x, |a, b| a + b, |a, b| a * b;
    f16 as f32, f16::to_f32, f16::from_f32, |a, b| a + b, |a, b| a * b;
    bf16 as f32, bf16::to_f32, bf16::from_f32, |a, b| a + b, |a, b| a * b;
}

/// # Safety
/// As [`Kernel`].
unsafe fn reduce<T: Element, const OP: u32>(ranks: &[Buffers], range: Range<usize>) {
    for i in range {
        // SAFETY: the contract: every send buffer has element `i`. It need not be aligned.
        let element = |b: &Buffers| unsafe { b.send.cast::<T>().add(i).read_unaligned() }.widen();
        let Some(total) = ranks.iter().map(element).reduce(T::combine::<OP>) else { return };
        for buffers in ranks {
            // SAFETY: the contract: every receive buffer has element `i`.
            unsafe { buffers.recv.cast::<T>().add(i).write_unaligned(T::narrow(total)) };
        }
    }
}

fn kernel_of<T: Element>(op: ncclRedOp_t) -> Option<Kernel> {
    Some(match op {
        ncclRedOp_t::ncclSum => reduce::<T, SUM>,
        ncclRedOp_t::ncclProd => reduce::<T, PRODUCT>,
        ncclRedOp_t::ncclMax => reduce::<T, MAX>,
        ncclRedOp_t::ncclMin => reduce::<T, { ncclRedOp_t::ncclMin.0 }>,
        _ => return None,
    })
}

/// The kernel for a type and an operation.
pub(super) fn kernel(data_type: DataType, op: ncclRedOp_t) -> Outcome<Kernel> {
    let found = match data_type {
        DataType::Int8 => kernel_of::<i8>(op),
        DataType::Uint8 => kernel_of::<u8>(op),
        DataType::Int32 => kernel_of::<i32>(op),
        DataType::Uint32 => kernel_of::<u32>(op),
        DataType::Int64 => kernel_of::<i64>(op),
        DataType::Uint64 => kernel_of::<u64>(op),
        DataType::Float16 => kernel_of::<f16>(op),
        DataType::Float32 => kernel_of::<f32>(op),
        DataType::Float64 => kernel_of::<f64>(op),
        DataType::Bfloat16 => kernel_of::<bf16>(op),
        _ => None,
    };
    found.ok_or_else(|| {
        Refusal::argument(
            FailureClass::Return,
            "op",
            "the CPU backend reduces this type with this operation",
            "sum, product, max or min of integers or of floats of 16 bits and more",
            format_args!("operation {} on {data_type}", op.0),
        )
    })
}
