//! The library's version, from the manifest of the tree that the file was staged in.

use std::path::Path;

use nccl_ext_core::Version;

/// Where a staged library lies below the tree's root: `m2n/lib/cu13/libnccl_m2n.so`.
const DEPTH: usize = 4;

/// The version that the tree's `manifest.toml` has for `library`. `None` outside of a staged tree,
/// and when the manifest speaks of a file of another size.
pub(crate) fn version_of(library: &Path) -> Option<Version> {
    let library = library.canonicalize().ok()?;
    let root = library.ancestors().nth(DEPTH)?;
    let text = std::fs::read_to_string(root.join("manifest.toml")).ok()?;
    let path = library.strip_prefix(root).ok()?.to_str()?;
    version_in(&text, path, library.metadata().ok()?.len())
}

/// Reads the two keys that matter. `cargo xtask stage-native` writes one key a line, so no TOML
/// parser has to come along.
fn version_in(manifest: &str, path: &str, size: u64) -> Option<Version> {
    let entry = manifest.split("[[file]]").find(|entry| value(entry, "path") == Some(path))?;
    let recorded: u64 = value(entry, "size")?.parse().ok()?;
    let mut numbers = value(entry, "version")?.split('.').map(|number| number.parse().ok());
    let version = Version::new(numbers.next()??, numbers.next()??, numbers.next()??);
    (recorded == size).then_some(version)
}

fn value<'a>(entry: &'a str, key: &str) -> Option<&'a str> {
    let pairs = entry.lines().filter_map(|line| line.split_once('='));
    let mut values = pairs.filter(|(name, _)| name.trim() == key);
    values.next().map(|(_, value)| value.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = r#"
schema = 1

[[file]]
path = "m2n/include/nccl_m2n.h"
size = 7

[[file]]
path = "m2n/lib/cu13/libnccl_m2n.so"
size = 12
sha256 = "00"

[file.library]
version = "0.3.1"
cuda_major = 13
"#;

    #[test]
    fn the_entry_of_the_file_counts_and_its_size_must_fit() {
        let path = "m2n/lib/cu13/libnccl_m2n.so";
        assert_eq!(version_in(MANIFEST, path, 12), Some(Version::new(0, 3, 1)));
        assert_eq!(version_in(MANIFEST, path, 13), None);
        assert_eq!(version_in(MANIFEST, "m2n/include/nccl_m2n.h", 7), None);
        assert_eq!(version_in(MANIFEST, "m2n/lib/cu12/libnccl_m2n.so", 12), None);
    }

    #[test]
    fn no_manifest_no_version() {
        assert_eq!(version_of(Path::new("/nonexistent/libnccl_m2n.so")), None);
        assert_eq!(version_of(Path::new("libnccl_m2n.so")), None);
    }
}
