//! What the process has mapped: which NCCLs, which file an address is of, which build.

use core::ffi::{CStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// A file with mapped code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MappedFile {
    /// Device and inode: a library opened under two names is one.
    pub(super) id: (u64, u64),
    pub(super) path: PathBuf,
}

/// The files with code of NCCL that the process has mapped, whoever loaded them.
pub(super) fn nccls() -> Vec<MappedFile> {
    std::fs::read("/proc/self/maps").map(|maps| nccls_in(&maps)).unwrap_or_default()
}

/// NCCL's shared memory files (`/dev/shm/nccl-*`), its plugins (`libnccl-net.so`) and its
/// extensions have other names, and a library that is only read has no executable mapping.
fn nccls_in(maps: &[u8]) -> Vec<MappedFile> {
    let mut files: Vec<MappedFile> = Vec::new();
    for file in maps.split(|byte| *byte == b'\n').filter_map(executable_file) {
        let name = file.path.file_name().unwrap_or_default().as_bytes();
        let rest = name.strip_prefix(b"libnccl.so");
        let is_nccl = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."));
        if is_nccl && !files.iter().any(|known| known.id == file.id) {
            files.push(file);
        }
    }
    files
}

/// `address perms offset device inode path`, with the path padded to a column.
fn executable_file(line: &[u8]) -> Option<MappedFile> {
    let mut fields = line.splitn(6, |byte| *byte == b' ');
    let (_, permissions) = (fields.next()?, fields.next()?);
    let (_, device) = (fields.next()?, fields.next()?);
    let inode = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let path = fields.next()?.trim_ascii_start();
    // A file that was replaced or removed since is mapped all the same.
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let (major, minor) = std::str::from_utf8(device).ok()?.split_once(':')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let device = (number(major)? << 32) | number(minor)?;
    let executable = permissions.get(2) == Some(&b'x') && path.starts_with(b"/");
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(path));
    executable.then_some(MappedFile { id: (device, inode), path })
}

/// The file that holds the code at `address`.
pub(super) fn file_of(address: *const c_void) -> Option<PathBuf> {
    let mut info = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `info` outlives the call; any address may be asked for.
    let found = unsafe { libc::dladdr(address, info.as_mut_ptr()) };
    // SAFETY: zero bytes are a valid `Dl_info`, and `dladdr` only writes valid fields.
    let file = unsafe { info.assume_init() }.dli_fname;
    if found == 0 || file.is_null() {
        return None;
    }
    // SAFETY: the linker's names are NUL-terminated and live as long as the mapping.
    let file = unsafe { CStr::from_ptr(file) };
    Some(Path::new(std::ffi::OsStr::from_bytes(file.to_bytes())).into())
}

/// The GNU build id of the mapped library that holds `address`, in hexadecimal. The file may have
/// been replaced since, so it is not asked.
pub(super) fn build_id(address: *const c_void) -> Option<String> {
    struct Wanted {
        address: u64,
        id: Option<String>,
    }

    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _: libc::size_t,
        wanted: *mut c_void,
    ) -> c_int {
        // SAFETY: `dl_iterate_phdr` passes on the pointer to `wanted` below and its own `info`.
        let (info, wanted) = unsafe { (&*info, &mut *wanted.cast::<Wanted>()) };
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: the linker's program headers, as many as it says.
        let headers =
            unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let loaded = |start: u64, size: u64| {
            headers.iter().filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_R != 0).any(
                |h| {
                    let begin = info.dlpi_addr.wrapping_add(h.p_vaddr);
                    start >= begin && start.wrapping_add(size) <= begin.wrapping_add(h.p_memsz)
                },
            )
        };
        if !loaded(wanted.address, 1) {
            return 0;
        }
        for note in headers.iter().filter(|header| header.p_type == libc::PT_NOTE) {
            let start = info.dlpi_addr.wrapping_add(note.p_vaddr);
            if !loaded(start, note.p_memsz) {
                continue;
            }
            let (Ok(start), Ok(size)) = (usize::try_from(start), usize::try_from(note.p_memsz))
            else {
                continue;
            };
            let start = core::ptr::with_exposed_provenance(start);
            // SAFETY: the bytes lie in a readable segment of a library that stays mapped during
            // the iteration, which holds the linker's lock.
            let bytes: &[u8] = unsafe { core::slice::from_raw_parts(start, size) };
            wanted.id = wanted.id.take().or_else(|| id_in_notes(bytes, note.p_align));
        }
        1
    }

    let mut wanted = Wanted { address: address.addr() as u64, id: None };
    // SAFETY: `wanted` outlives the call, and `visit` follows the callback's contract.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut wanted).cast()) };
    wanted.id
}

/// Reads a segment of ELF notes: three words (size of name, size of content, type), name, content.
fn id_in_notes(mut notes: &[u8], align: u64) -> Option<String> {
    const NT_GNU_BUILD_ID: usize = 3;
    let align = if align == 8 { 8 } else { 4 };
    let word = |bytes: &[u8], at: usize| -> Option<usize> {
        let word = bytes.get(at..)?.first_chunk::<4>()?;
        usize::try_from(u32::from_ne_bytes(*word)).ok()
    };
    loop {
        let (name_size, size, kind) = (word(notes, 0)?, word(notes, 4)?, word(notes, 8)?);
        let content = 12_usize.checked_add(name_size)?.next_multiple_of(align);
        let end = content.checked_add(size)?;
        let bytes = notes.get(content..end)?;
        if kind == NT_GNU_BUILD_ID && notes.get(12..)?.starts_with(b"GNU\0") {
            return Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        notes = notes.get(end.next_multiple_of(align)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &[u8] = b"\
7f01-7f02 r--p 00000000 fe:00 11                         /a/libnccl.so.2.30.7
7f02-7f03 r-xp 00001000 fe:00 11                         /a/libnccl.so.2.30.7
7f03-7f04 r-xp 00000000 fe:00 11                         /other name/libnccl.so.2
7f04-7f05 r-xp 00000000 fe:01 11                         /with space/libnccl.so.2 (deleted)
7f05-7f06 r--p 00000000 fe:00 12                         /only read/libnccl.so.2
7f06-7f07 rwxs 00000000 00:19 13                         /dev/shm/nccl-AbCdEf
7f07-7f08 r-xp 00000000 fe:00 14                         /a/libnccl-net.so
7f08-7f09 r-xp 00000000 fe:00 15                         /a/libnccl_other.so.0
7f09-7f0a r-xp 00000000 fe:00 16                         /a/libnccl.software
7f0a-7f0b rw-p 00000000 00:00 0 
7f0b-7f0c r-xp 00000000 00:00 0                          [vdso]
";

    #[test]
    fn an_nccl_is_told_by_its_inode_and_other_names_are_no_libraries() {
        let found = nccls_in(MAPS);
        let paths: Vec<_> = found.iter().map(|file| file.path.to_str()).collect();
        assert_eq!(paths, [Some("/a/libnccl.so.2.30.7"), Some("/with space/libnccl.so.2")]);
    }

    #[test]
    fn the_build_id_of_this_program_is_what_its_file_says() {
        let here = the_build_id_of_this_program_is_what_its_file_says as fn() as *const c_void;
        let Some(id) = build_id(here) else { return };
        let bytes: Vec<u8> = (0..id.len())
            .step_by(2)
            .filter_map(|at| u8::from_str_radix(id.get(at..at + 2)?, 16).ok())
            .collect();
        let file = std::fs::read("/proc/self/exe").unwrap_or_default();
        assert!(bytes.len() > 7 && file.windows(bytes.len()).any(|window| window == bytes));
        assert_eq!(build_id(core::ptr::null()), None);
    }

    #[test]
    fn notes_are_walked_and_damaged_ones_end_the_walk() {
        let note = |kind: u32, name: &[u8], content: &[u8]| {
            let mut bytes: Vec<u8> = [name.len() as u32, content.len() as u32, kind]
                .iter()
                .flat_map(|word| word.to_ne_bytes())
                .collect();
            bytes.extend_from_slice(name);
            bytes.extend_from_slice(content);
            bytes
        };
        let mut notes = note(1, b"GNU\0", &[9; 8]);
        notes.extend(note(3, b"GNU\0", &[0xab, 1, 0, 0xff]));
        assert_eq!(id_in_notes(&notes, 4).as_deref(), Some("ab0100ff"));
        assert_eq!(id_in_notes(&notes[..notes.len() - 1], 4), None);
        assert_eq!(id_in_notes(&note(3, b"GNU\0", &[])[..11], 4), None);
        assert_eq!(id_in_notes(&note(3, b"Go\0\0", &[1]), 4), None);
    }
}
