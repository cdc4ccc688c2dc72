//! The demo with ranks as processes: on the CPU backend, of which a process can hold one rank, and
//! without the native libraries.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::fs;
use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Ended, Recording, program, run, write};
use serde_json::Value;

const SMALL: &str = "tokens=16,hidden=512,topk=4,experts=8,seed=3";

/// The demo with one process, on small routing.
fn one(flags: &[&str]) -> Ended {
    let args = ["demo", "--backend", "cpu-process", "--ranks", "1", "--rounds", "2"];
    run(program(&args).args(flags))
}

#[test]
fn a_process_gives_the_verdict_the_comparison_and_the_times() {
    let Ended { code, stdout, stderr } = one(&["--generate", SMALL, "--json"]);
    assert_eq!((code, &*stderr), (Some(0), ""), "{stdout}");
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(report["input"]["name"], "generated, seed 3");
    assert_eq!((&report["timed_rounds"], &report["passed"]), (&2.into(), &true.into()));
    let pairs = report["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 4);
    for (pair, rows) in pairs.iter().zip(["as multisets", "as multisets", "in order", "in order"]) {
        assert_eq!((&pair["verdict"], &pair["cpu"]["result"]), (&"pass".into(), &"equal".into()));
        assert_eq!(
            (&pair["cpu"]["rows"], &pair["largest_difference"]),
            (&rows.into(), &0.0.into())
        );
        for call in ["update", "dispatch", "combine"] {
            for side in ["gpu", "host"] {
                assert!(pair["speed"][call][side].as_f64().unwrap() > 0.0, "{pair}");
            }
        }
    }
    let Ended { code, stdout, .. } =
        one(&["--generate", SMALL, "--pairs", "ht FLAT, LL rank-major"]);
    assert_eq!(code, Some(0), "{stdout}");
    let starts = |text: &str| stdout.lines().filter(|line| line.starts_with(text)).count();
    assert_eq!([starts("LL"), starts("HT flat "), starts("HT expert")], [2, 2, 0], "{stdout}");
    assert_eq!(stdout.matches("  pass\n").count(), 2);
    assert_eq!(stdout.matches("  equal\n").count(), 2);
}

#[test]
fn a_disturbed_byte_fails() {
    let Ended { code, stdout, .. } = one(&["--generate", SMALL, "--corrupt", "--json"]);
    assert_eq!(code, Some(1));
    let report: Value = serde_json::from_str(&stdout).unwrap();
    for pair in report["pairs"].as_array().unwrap() {
        assert_eq!(pair["verdict"], "fail");
        let problems: Vec<_> =
            pair["problems"].as_array().unwrap().iter().map(|p| p.as_str().unwrap()).collect();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].starts_with("3 of 24576 values differ; first rank 0, round 0"));
        assert_eq!(problems[1], "rank 0: combined bytes differ from the CPU backend's");
        assert!(pair["largest_difference"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn what_a_rank_says_is_said_once_and_its_exit_code_kept() {
    let Ended { code, stdout, stderr } =
        one(&["--generate", "tokens=4,hidden=256,topk=2,experts=4"]);
    assert_eq!((code, &*stdout), (Some(2), ""));
    assert!(
        stderr.starts_with("nccl-ext: rank 0: generated, seed 0: LL expert-major: `inputs.tokens`"),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1);
}

#[test]
fn ranks_that_take_too_long_are_ended() {
    let start = Instant::now();
    let endless = "tokens=64,hidden=2048,topk=8,experts=16";
    let args = ["demo", "--backend", "cpu-process", "--ranks", "1", "--rounds", "1000"];
    let mut program = program(&args);
    let Ended { code, stdout, stderr } =
        run(program.args(["--generate", endless, "--timeout", "1"]));
    assert_eq!((code, &*stdout), (Some(1), ""));
    assert_eq!(
        stderr,
        "nccl-ext: `--timeout`: the ranks finish in time; expected at most 1 s, still running: 0\n"
    );
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[test]
fn more_ranks_than_devices() {
    let path = write("two-ranks", &Recording::small().bytes());
    let path = path.to_str().unwrap();
    let Ended { code, stderr, .. } =
        run(&mut program(&["demo", "--backend", "cpu-process", "--input", path]));
    assert_eq!(
        stderr,
        format!(
            "nccl-ext: {path}: `--ranks`: every rank has a GPU of its own; expected at most 1, \
             found 2\n"
        )
    );
    assert_eq!(code, Some(2));
}

/// Arguments of a rank whose peer never comes.
fn lonely(timeout: &'static str, folder: &'static str) -> Vec<&'static str> {
    let mut args = vec!["demo", "--backend", "cpu-process", "--ranks", "2", "--rank", "1"];
    args.extend(["--generate", SMALL, "--rendezvous", folder, "--timeout", timeout]);
    args
}

#[test]
fn a_rank_does_not_wait_for_ever() {
    let folder = env!("CARGO_TARGET_TMPDIR");
    let mut child =
        program(&lonely("1", folder)).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    // `wait` would close its input first.
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
    };
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert_eq!(
        stderr,
        format!(
            "nccl-ext: the folder where ranks meet could not be used to meet: {folder}/\
             pair-0.attempt-1.id did not come within 1s\n"
        )
    );
}

#[cfg(unix)]
#[test]
fn a_rank_without_a_parent_ends_itself() {
    use std::os::unix::process::ExitStatusExt;

    let start = Instant::now();
    let folder = env!("CARGO_TARGET_TMPDIR");
    // Standard input is at its end from the start.
    let status = program(&lonely("300", folder)).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.signal(), Some(6));
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[test]
fn without_the_libraries_there_is_one_line() {
    let start = Instant::now();
    let nowhere = "/nonexistent/libnccl.so.2";
    let mut program = program(&["demo", "--backend", "native", "--ranks", "2"]);
    let Ended { code, stdout, stderr } =
        run(program.env("NCCL_LIBRARY", nowhere).env("NCCL_EP_LIBRARY", nowhere));
    assert_eq!((code, &*stdout), (Some(1), ""));
    assert!(stderr.starts_with("nccl-ext: backend native: lib"), "{stderr}");
    assert!(stderr.contains("was not found; tried "), "{stderr}");
    assert_eq!(stderr.lines().count(), 1);
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[test]
fn no_memory_of_this_machine_is_taken() {
    let Ended { code, stderr, .. } = one(&["--provoke-exception"]);
    assert_eq!(code, Some(2));
    assert_eq!(
        stderr,
        "nccl-ext: demo: `--provoke-exception`: it takes all the memory of a GPU; expected \
         --backend native, found a backend on the host\n"
    );
}

#[test]
fn nothing_is_left_in_the_folder_for_temporary_files() {
    let folder = format!("{}/own-tmp", env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(&folder).unwrap();
    let args = ["demo", "--backend", "cpu-process", "--ranks", "1", "--generate", SMALL];
    assert_eq!(run(program(&args).env("TMPDIR", &folder)).code, Some(0));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}
