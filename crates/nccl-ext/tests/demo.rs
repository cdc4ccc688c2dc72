//! The demo on recordings that are in order, and on one that is disturbed on purpose.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::process::Stdio;

use common::{Ended, Recording, demo, program, run, write};
use serde_json::{Value, json};

const PAIRS: [&str; 4] = ["LL expert-major", "LL rank-major", "HT flat", "HT expert-major"];

#[test]
fn the_recording_inside_the_program_passes() {
    let Ended { code, stdout, stderr } = run(&mut program(&["demo"]));
    assert_eq!((code, &*stderr), (Some(0), ""), "{stdout}");
    let lines: Vec<_> = stdout.lines().collect();
    assert!(lines[0].starts_with("nccl-ext demo: "), "{stdout}");
    assert!(lines[1].starts_with("backend  cpu (ranks are threads"), "{stdout}");
    assert_eq!(
        lines[2],
        "input    moe_text_4x128: 4 ranks x 128 tokens, hidden 2048 bf16, top-8 of 128 experts, \
         recorded from text"
    );
    for pair in PAIRS {
        let line = lines.iter().find(|line| line.starts_with(pair)).unwrap();
        assert!(line.ends_with("pass"), "{line}");
    }
}

#[test]
fn json_has_the_same_facts() {
    let path = write("facts", &Recording::small().bytes());
    let path = path.to_str().unwrap();
    let Ended { code, stdout, .. } = demo(path, &["--json"]);
    assert_eq!(code, Some(0), "{stdout}");
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(report["passed"], true);
    assert_eq!(report["backend"]["name"], "cpu");
    let input = &report["input"];
    assert_eq!((&input["name"], &input["embedded"]), (&path.into(), &false.into()));
    assert_eq!((&input["ranks"], &input["hidden"]), (&2.into(), &512.into()));
    assert_eq!((&input["expert_load_min"], &input["expert_load_max"]), (&4.into(), &4.into()));
    // Token t goes to experts t and t + 1: three of four tokens reach a rank, one of them twice.
    let rows = [[8, 8], [6, 6], [6, 6], [8, 8]];
    for ((pair, name), rows) in report["pairs"].as_array().unwrap().iter().zip(PAIRS).zip(rows) {
        assert_eq!((&pair["pair"], &pair["verdict"]), (&name.into(), &"pass".into()));
        assert_eq!(pair["rows_received"], json!(rows));
        assert_eq!(pair["bytes_moved"], 2 * (rows[0] + rows[1]) * 512 * 2);
        assert_eq!(pair["values_compared"], 8 * 512 * 6);
        let off = pair["distance_to_f64"].as_f64().unwrap();
        assert!(off > 0.0 && off < 0.02, "{off}");
        assert!(pair["dispatch_seconds"].as_f64().unwrap() > 0.0);
    }
}

/// Work runs after its call has returned, in the order that the program gives it and in no other.
#[test]
fn put_off_work_gives_the_same_bits_whatever_the_seed() {
    let path = write("deferred", &Recording::small().bytes());
    let path = path.to_str().unwrap();
    for seed in ["0", "1", "18446744073709551615"] {
        let Ended { code, stdout, .. } = demo(path, &["--deferred", seed]);
        assert_eq!(code, Some(0), "{stdout}");
        let line = stdout.lines().nth(1).unwrap();
        assert!(line.starts_with("backend  cpu-deferred (ranks are threads"), "{line}");
        assert!(line.contains(&format!("seed {seed})")), "{line}");
        for pair in PAIRS {
            let line = stdout.lines().find(|line| line.starts_with(pair)).unwrap();
            assert!(line.ends_with("pass"), "{line}");
        }
    }
    let Ended { code, stderr, .. } = demo(path, &["--deferred", "0", "--backend", "native"]);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("--deferred") && stderr.contains("--backend cpu"), "{stderr}");
}

/// The verdict is not a formality.
#[test]
fn a_disturbed_byte_fails_every_pair() {
    let path = write("disturbed", &Recording::small().bytes());
    let path = path.to_str().unwrap();
    let Ended { code, stdout, stderr } = demo(path, &["--corrupt", "--json"]);
    assert_eq!((code, &*stderr), (Some(1), ""));
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&report["passed"], &report["fault_injected"]), (&false.into(), &true.into()));
    for pair in report["pairs"].as_array().unwrap() {
        assert_eq!(pair["verdict"], "fail", "{pair}");
        // One value in each of the six rounds, and nothing else.
        let problems = pair["problems"].as_array().unwrap();
        let problem = problems[0].as_str().unwrap();
        assert_eq!(problems.len(), 1);
        assert!(
            problem.starts_with("6 of 24576 values differ; first rank 0, round 0"),
            "{problem}"
        );
    }
    let Ended { code, stdout, .. } = demo(path, &["--corrupt"]);
    assert_eq!(code, Some(1));
    for pair in PAIRS {
        assert!(stdout.contains(&format!("\n{pair}: 6 of 24576 values differ; first rank 0")));
    }
}

#[test]
fn unusual_routing_passes() {
    let ring = |row: u64, k: u64| ((row + k) % 4) as i64;
    for (name, recording) in [
        ("small", Recording::small()),
        ("one-rank", Recording::new([1, 8, 512, 2, 4], ring)),
        ("one-token", Recording::new([2, 1, 512, 2, 4], ring)),
        (
            "five-ranks-of-three",
            Recording::new([5, 3, 512, 3, 20], |row, k| (row + 5 * k) as i64 % 20),
        ),
        ("no-experts-at-all", Recording::new([2, 4, 512, 2, 4], |_, _| -1)),
        ("all-to-one", Recording::new([4, 4, 512, 1, 8], |_, _| 5)),
        (
            "some-without",
            Recording::new([2, 4, 1024, 3, 8], |row, k| {
                if (row + k) % 3 == 0 { -1 } else { ((row * 3 + k * 5) % 8) as i64 }
            }),
        ),
        (
            "some-far-below-zero",
            Recording::new([2, 4, 512, 3, 8], |row, k| match (row + k) % 4 {
                0 => -2,
                1 => -65_535,
                2 => i64::MIN,
                _ => ((row * 3 + k * 5) % 8) as i64,
            }),
        ),
        ("top-8", Recording::new([2, 16, 512, 8, 8], |row, k| ((row + k * 3) % 8) as i64)),
    ] {
        let path = write(name, &recording.bytes());
        let Ended { code, stdout, stderr } = demo(path.to_str().unwrap(), &[]);
        assert_eq!((code, &*stderr), (Some(0), ""), "{name}: {stdout}");
        assert_eq!(stdout.matches("  pass\n").count(), 4, "{name}: {stdout}");
        assert!(!stdout.contains("recorded from text"));
    }
}

/// Products that overflow, sums that are no number, values too small for a normal exponent: bits
/// are compared all the same.
#[test]
fn extreme_values_pass() {
    let patterns: [u16; 7] = [0x7F7F, 0x0001, 0x8001, 0xFF7F, 0x8000, 0x0000, 0x3F80];
    let mut recording = Recording::new([2, 4, 512, 2, 4], |row, k| ((row + 2 * k) % 4) as i64);
    let tokens = patterns.iter().cycle().take(8 * 512).flat_map(|bits| bits.to_le_bytes());
    recording.tensor("tokens").bytes = tokens.collect();
    let weights = [3.0_f32, -3.0, 1e-30, 0.0, 1.0, -1.0].iter().cycle().take(16);
    recording.tensor("topk_weights").bytes =
        weights.flat_map(|weight| weight.to_le_bytes()).collect();
    let path = write("extreme", &recording.bytes());
    for flags in [&[][..], &["--json"]] {
        let Ended { code, stdout, stderr } = demo(path.to_str().unwrap(), flags);
        assert_eq!((code, &*stderr), (Some(0), ""), "{stdout}");
    }
}

/// The library's modes of high-throughput expert-major round differently; the oracle follows.
#[test]
fn modes_that_the_environment_chooses_pass() {
    let recording = Recording::new([2, 16, 512, 8, 8], |row, k| ((row + k * 3) % 8) as i64);
    let path = write("modes", &recording.bytes());
    for variable in ["NCCL_EP_HT_EM_LOCAL_DUP", "NCCL_EP_HT_EM_NVLINK_DUP"] {
        let mut program = program(&["demo", "--input", path.to_str().unwrap()]);
        let Ended { code, stdout, stderr } = run(program.env(variable, "1"));
        assert_eq!((code, &*stderr), (Some(0), ""), "{variable}: {stdout}");
    }
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let path = write("left", &Recording::small().bytes());
    let mut child = program(&["demo", "--input", path.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert_eq!(output.status.code(), Some(0));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_of_one_line() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let path = write("full", &Recording::small().bytes());
    let output =
        program(&["demo", "--input", path.to_str().unwrap()]).stdout(full).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr, "nccl-ext: stdout: No space left on device (os error 28)\n");
    assert_eq!(output.status.code(), Some(1));
}
