//! What a library's file says of the CUDA toolkit that built it.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// How much of a file is searched. The vendor's libraries say it within the first 3 MiB.
const LIMIT: usize = 16 << 20;

const CHUNK: usize = 1 << 20;

/// Longer than any mark: a mark that two chunks share is found in the second.
const OVERLAP: usize = 64;

/// The CUDA major that a library is built for: by the marks that the compiler and the vendor's
/// version string leave in it, else by the folder `cuNN` that it lies in.
pub(super) fn cuda_major(library: &Path) -> Option<u32> {
    by_marks(library).or_else(|| by_folder(library))
}

/// The major in a folder's name.
pub(super) fn folder_major(name: &std::ffi::OsStr) -> Option<u32> {
    name.to_str()?.strip_prefix("cu")?.parse().ok()
}

fn by_folder(library: &Path) -> Option<u32> {
    folder_major(library.canonicalize().ok()?.parent()?.file_name()?)
}

fn by_marks(library: &Path) -> Option<u32> {
    let mut file = File::open(library).ok()?;
    let mut buffer = vec![0; OVERLAP + CHUNK];
    let (mut kept, mut seen) = (0, 0);
    while seen < LIMIT {
        let read = file.read(buffer.get_mut(kept..)?).ok().filter(|read| *read > 0)?;
        let bytes = buffer.get(..kept + read)?;
        if let Some(major) = mark(bytes) {
            return Some(major);
        }
        seen += read;
        let end = bytes.len();
        kept = end.min(OVERLAP);
        buffer.copy_within(end - kept..end, 0);
    }
    None
}

/// `+cuda13.3` of a version string, or `Build cuda_13.3` of the compiler.
fn mark(bytes: &[u8]) -> Option<u32> {
    let mut from = 0;
    while let Some(at) = find(bytes.get(from..)?, b"cuda") {
        let at = from + at;
        from = at + 4;
        let (before, after) = (bytes.get(..at)?, bytes.get(from..)?);
        let number = match after.strip_prefix(b"_") {
            Some(after) if before.ends_with(b"Build ") => after,
            None if before.ends_with(b"+") => after,
            _ => continue,
        };
        let digits = number.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if let (1..=3, Some(b'.')) = (digits, number.get(digits)) {
            let digits = std::str::from_utf8(number.get(..digits)?).ok()?;
            return digits.parse().ok();
        }
    }
    None
}

/// The C library's search, which a debug build too has in its fast form.
fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    // SAFETY: both pointers are valid for the lengths given with them.
    let found = unsafe {
        libc::memmem(bytes.as_ptr().cast(), bytes.len(), needle.as_ptr().cast(), needle.len())
    };
    (!found.is_null()).then(|| found.addr() - bytes.as_ptr().addr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_the_compiler_and_of_version_strings() {
        assert_eq!(mark(b"NCCL EP version 0.2.0+cuda13.3\0"), Some(13));
        assert_eq!(mark(b"\0Build cuda_12.9.r12.9/compiler.36083019_0"), Some(12));
        // Compressed text, as it is found in real files, and names that only look alike.
        for none in ["Build cuda_r/er.38163682_0", "cuda13.3", "-cuda_12.9", "+cuda", "+cuda13"] {
            assert_eq!(mark(none.as_bytes()), None, "{none}");
        }
        assert_eq!(mark(b"cuda_9.1 Build cuda_x +cuda14.0"), Some(14));
    }

    #[test]
    fn a_mark_across_two_chunks_is_found() {
        let name = format!("nccl-ext-content-{}", std::process::id());
        let file = std::env::temp_dir().join(name);
        for lead in [0, OVERLAP + CHUNK - 12, OVERLAP + CHUNK - 1, 3 * CHUNK] {
            let mut bytes = vec![b'x'; lead];
            bytes.extend_from_slice(b"Build cuda_12.9.r");
            let written = std::fs::write(&file, bytes);
            assert_eq!((written.is_ok(), by_marks(&file)), (true, Some(12)), "{lead}");
        }
        let _ = std::fs::remove_file(file);
    }

    #[test]
    fn without_marks_the_folder_tells() {
        assert_eq!(folder_major("cu13".as_ref()), Some(13));
        assert_eq!(folder_major("lib".as_ref()), None);
        assert_eq!(folder_major("custom".as_ref()), None);
    }
}
