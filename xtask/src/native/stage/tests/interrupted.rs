//! Runs that are killed.

use std::process::Command;
use std::time::{Duration, Instant};

use xshell::cmd;

use super::*;
use crate::fixture::assert_names;

const FOLDER: &str = "XTASK_TEST_FOLDER";

/// Not a test of its own: stages from a wheel that never comes.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let (from, prefix) = (Source::Wheel(folder.join("x.whl")), Some(folder.join("native")));
    let args = Args { from, with_nccl: false, prefix, cuda: vec![13], arch: None };
    run(&args, &Shell::new().unwrap(), &folder).unwrap();
}

#[test]
fn l14_a_killed_run_leaves_the_tree_and_the_next_one_cleans_up() {
    let case = Case::new();
    let wheel = case.bench.zip("x-1-py3-none-any.whl", &case.bench.wheel(&[13]));
    case.stage(Source::Wheel(wheel.clone()), &[13], false).unwrap();
    let before = snapshot(&case.native());

    let (sh, pipe) = (&case.bench.sh, case.bench.path("x.whl"));
    cmd!(sh, "mkfifo {pipe}").quiet().run().unwrap();
    // The harness names tests by their path inside the crate.
    let (_, module) = module_path!().split_once("::").unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("{module}::child"), "--nocapture"])
        .env(FOLDER, case.bench.path(""))
        .spawn()
        .unwrap();
    let staging = case.native().join(format!(".staging-{}", child.id()));
    let start = Instant::now();
    while !staging.join("download").is_dir() {
        assert!(start.elapsed() < Duration::from_secs(60), "the run does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Two at once would be in each other's way.
    let message =
        format!("{:#}", case.stage(Source::Wheel(wheel.clone()), &[13], false).unwrap_err());
    assert_names(&message, &[&format!(".staging-{}", child.id()), "another run", "wait for it"]);

    child.kill().unwrap();
    child.wait().unwrap();
    assert!(staging.is_dir(), "a killed process removes nothing");
    let outside = |(name, _): &(String, Vec<u8>)| !name.starts_with(".staging-");
    let visible: Files = snapshot(&case.native()).into_iter().filter(outside).collect();
    assert_eq!(visible, before);

    case.stage(Source::Wheel(wheel), &[13], false).unwrap();
    assert_eq!(snapshot(&case.native()), before);
    assert!(!staging.exists());
}
