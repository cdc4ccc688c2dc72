//! Which functions can be called through the guard, and how their arguments travel.
//!
//! Every argument and every result is one integer register's worth, so that `enter` needs to know
//! neither types nor names: it gets an array of words and gives one back. The functions of the
//! extension libraries take nothing else.

use core::ffi::c_void;
use core::mem::MaybeUninit;

/// Most arguments a guarded function takes: as many as aarch64 passes in registers.
pub(super) const MOST: usize = 8;

/// A value on its way: the low bytes hold it, the others are zero. Not an integer, so that a
/// pointer stays one.
pub(super) type Slot = MaybeUninit<u64>;

/// A value that C passes in one integer register.
///
/// # Safety
/// The type has the layout of, and C passes it like, a 32-bit or 64-bit integer or a pointer.
/// Floating-point numbers, and structures other than `#[repr(transparent)]` ones, do not.
pub unsafe trait Word: Copy {}

// SAFETY: they are what the trait's contract names.
unsafe impl Word for i32 {}
// SAFETY: as above.
unsafe impl Word for u32 {}
// SAFETY: as above.
unsafe impl Word for i64 {}
// SAFETY: as above.
unsafe impl Word for u64 {}
// SAFETY: as above.
unsafe impl Word for isize {}
// SAFETY: as above.
unsafe impl Word for usize {}
// SAFETY: as above; sized, so it is thin.
unsafe impl<T> Word for *const T {}
// SAFETY: as above; sized, so it is thin.
unsafe impl<T> Word for *mut T {}
// SAFETY: transparent over a C integer.
unsafe impl Word for crate::raw::ncclResult_t {}
// SAFETY: transparent over a C integer.
unsafe impl Word for crate::raw::ncclDataType_t {}
// SAFETY: transparent over a C integer.
unsafe impl Word for crate::raw::ncclRedOp_t {}

fn pack<T: Word>(value: T) -> Slot {
    const { assert!(size_of::<T>() == 4 || size_of::<T>() == 8, "a word has 4 or 8 bytes") };
    let mut slot = Slot::zeroed();
    // SAFETY: the slot is as large as the largest `T`, and as aligned.
    unsafe { slot.as_mut_ptr().cast::<T>().write(value) };
    slot
}

/// # Safety
/// The slot holds a `T`.
unsafe fn unpack<T: Word>(slot: Slot) -> T {
    const { assert!(size_of::<T>() == 4 || size_of::<T>() == 8, "a word has 4 or 8 bytes") };
    // SAFETY: this function's own contract; C passes a `T` in the low bytes.
    unsafe { slot.as_ptr().cast::<T>().read() }
}

mod sealed {
    pub trait Sealed {}
}

/// A pointer to a C function of up to eight [`Word`]s that returns a [`Word`].
///
/// `unsafe extern "C"` and `unsafe extern "C-unwind"` pointers are. The guard relies on neither
/// promise about unwinding.
pub trait Foreign: Copy + sealed::Sealed {
    /// The arguments, as a tuple.
    type Arguments;
    /// What it returns.
    type Output;

    #[doc(hidden)]
    fn address(self) -> *const c_void;

    #[doc(hidden)]
    fn slots(arguments: Self::Arguments) -> [MaybeUninit<u64>; MOST];

    /// # Safety
    /// The slot holds what the function returned.
    #[doc(hidden)]
    unsafe fn output(slot: MaybeUninit<u64>) -> Self::Output;

    /// # Safety
    /// As for a call of the function.
    #[doc(hidden)]
    unsafe fn plain(self, arguments: Self::Arguments) -> Self::Output;
}

macro_rules! foreign {
    ($abi:literal: $($argument:ident)*) => {
        impl<R: Word, $($argument: Word),*> sealed::Sealed
            for unsafe extern $abi fn($($argument),*) -> R
        {
        }

        impl<R: Word, $($argument: Word),*> Foreign
            for unsafe extern $abi fn($($argument),*) -> R
        {
            type Arguments = ($($argument,)*);
            type Output = R;

            #[inline]
            fn address(self) -> *const c_void {
                self as *const c_void
            }

            #[inline]
            #[allow(non_snake_case, reason = "arguments are named like their types")]
            fn slots(($($argument,)*): Self::Arguments) -> [Slot; MOST] {
                let given = [$(pack($argument)),*];
                let mut slots = [Slot::zeroed(); MOST];
                slots[..given.len()].copy_from_slice(&given);
                slots
            }

            #[inline]
            unsafe fn output(slot: Slot) -> R {
                // SAFETY: this function's own contract.
                unsafe { unpack(slot) }
            }

            #[inline]
            #[allow(non_snake_case, reason = "arguments are named like their types")]
            unsafe fn plain(self, ($($argument,)*): Self::Arguments) -> R {
                // SAFETY: this function's own contract.
                unsafe { self($($argument),*) }
            }
        }
    };
    ($($($argument:ident)*;)*) => {$(
        foreign!("C": $($argument)*);
        foreign!("C-unwind": $($argument)*);
    )*};
}

foreign! {
    ;
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
}
