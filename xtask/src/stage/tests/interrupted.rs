//! Runs that are killed.

use super::*;

/// A process that stages is killed while it unpacks. Another one, later, cleans up.
#[test]
fn l14_a_killed_run_leaves_the_tree_and_the_next_one_cleans_up() {
    let case = Case::new();
    let wheel = case.bench.zip("x-1-py3-none-any.whl", &case.bench.wheel(&[13]));
    case.stage(Source::Wheel(wheel.clone()), &[13], false).unwrap();
    let before = snapshot(&case.native());

    // As a run leaves it that died after it unpacked a library.
    let dead = case.native().join(".staging-99999999");
    case.bench.sh.write_file(dead.join("new/ep/lib/cu13/libnccl_ep.so.0"), "half").unwrap();
    case.bench.sh.write_file(dead.join("download/x.whl"), "half").unwrap();
    let visible: Files =
        snapshot(&case.native()).into_iter().filter(|(name, _)| !name.starts_with('.')).collect();
    assert_eq!(visible, before);

    case.stage(Source::Wheel(wheel), &[13], false).unwrap();
    assert_eq!(snapshot(&case.native()), before);
}
