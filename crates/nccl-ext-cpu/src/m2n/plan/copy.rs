//! Copying the bytes of a piece.

use super::pieces::Piece;

/// Copies one piece between two tiles.
///
/// # Safety
/// The tiles hold what the piece names. They may overlap only where the piece is one run.
pub(crate) unsafe fn copy(piece: &Piece, src: *const u8, dst: *mut u8) {
    // SAFETY: the offsets are within the tiles by this function's contract.
    let (src, dst) = unsafe { (src.add(piece.src_offset), dst.add(piece.dst_offset)) };
    if piece.counts == [1, 1] {
        // SAFETY: the contract. A communicator of one rank may copy a tile onto itself (M2N 2.5).
        unsafe { core::ptr::copy(src, dst, piece.run) };
        return;
    }
    // A run of a few bytes as one move of a known size, not a call of memcpy.
    // SAFETY: the contract.
    unsafe {
        match piece.run {
            1 => rows(piece, src, dst, |src, dst| copy_exact::<1>(src, dst)),
            2 => rows(piece, src, dst, |src, dst| copy_exact::<2>(src, dst)),
            4 => rows(piece, src, dst, |src, dst| copy_exact::<4>(src, dst)),
            8 => rows(piece, src, dst, |src, dst| copy_exact::<8>(src, dst)),
            16 => rows(piece, src, dst, |src, dst| copy_exact::<16>(src, dst)),
            32 => rows(piece, src, dst, |src, dst| copy_exact::<32>(src, dst)),
            run => rows(piece, src, dst, |src, dst| core::ptr::copy_nonoverlapping(src, dst, run)),
        }
    }
}

/// # Safety
/// Both hold `N` bytes and do not overlap.
unsafe fn copy_exact<const N: usize>(src: *const u8, dst: *mut u8) {
    // SAFETY: this function's contract; an array of bytes has no alignment.
    unsafe { dst.cast::<[u8; N]>().write(src.cast::<[u8; N]>().read()) };
}

/// Calls `run` for every run of the piece.
///
/// # Safety
/// The pointers are to the piece's first bytes in tiles that hold all of it.
unsafe fn rows(piece: &Piece, src: *const u8, dst: *mut u8, run: impl Fn(*const u8, *mut u8)) {
    for outer in 0..piece.counts[0] {
        for inner in 0..piece.counts[1] {
            let from = outer * piece.src_strides[0] + inner * piece.src_strides[1];
            let to = outer * piece.dst_strides[0] + inner * piece.dst_strides[1];
            // SAFETY: this function's contract.
            unsafe { run(src.add(from), dst.add(to)) };
        }
    }
}
