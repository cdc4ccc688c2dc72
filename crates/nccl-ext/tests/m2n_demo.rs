//! `m2n demo`: real weights, generated ones, faults, and files that are none.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Ended, Recording, Tensor, program, run, with_header, write};
use serde_json::{Value, json};

fn demo(path: &Path, flags: &[&str]) -> Ended {
    let mut command = program(&["m2n", "demo", "--input", path.to_str().unwrap()]);
    // The library's settings are not for these tests.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("NCCL_RESHARD_")) {
        command.env_remove(name);
    }
    run(command.args(flags))
}

/// A file of these tensors: name, type, shape, bytes an element.
fn file(name: &str, tensors: &[(&str, &str, &[u64], u64)]) -> PathBuf {
    let mut recording = Recording { metadata: Vec::new(), tensors: Vec::new() };
    for (number, (name, dtype, shape, size)) in tensors.iter().enumerate() {
        let bytes = size * shape.iter().product::<u64>();
        let byte = |at: u64| (at * 167 + at / 251 + number as u64 * 29) as u8;
        recording.tensors.push(Tensor {
            name: (*name).into(),
            dtype: (*dtype).into(),
            shape: shape.to_vec(),
            bytes: (0..bytes).map(byte).collect(),
        });
    }
    write(name, &recording.bytes())
}

/// One of each type and shape that there is something to say about.
fn mixed(name: &str) -> PathBuf {
    file(
        name,
        &[
            ("a.bf16", "BF16", &[8, 12], 2),
            ("b.f32", "F32", &[4, 4, 3], 4),
            ("c.f64", "F64", &[16, 4], 8),
            ("d.i8", "I8", &[12, 8], 1),
            ("e.u32", "U32", &[4, 8], 4),
            ("f.i64", "I64", &[8, 4], 8),
            ("g.f8", "F8_E4M3", &[4, 4], 1),
            ("h.odd-rows", "F16", &[6, 8], 2),
            ("i.odd-columns", "I32", &[8, 6], 4),
            ("j.prime", "U64", &[7], 8),
            ("k.scalar", "F32", &[], 4),
            ("l.four", "F32", &[4, 4, 1, 1], 4),
            ("m.bool", "BOOL", &[8, 8], 1),
            ("n.empty", "F32", &[0, 4], 4),
        ],
    )
}

#[test]
fn every_kind_of_tensor_is_moved_or_accounted_for() {
    let Ended { code, stdout, stderr } = demo(&mixed("m2n-mixed"), &["--json"]);
    assert_eq!((code, &*stderr), (Some(0), ""), "{stdout}");
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&report["passed"], &report["fault_injected"]), (&json!(true), &json!(false)));
    let cases = report["cases"].as_array().unwrap();
    let issued: Vec<_> = cases.iter().map(|case| case["issued"].as_str().unwrap()).collect();
    assert_eq!(issued, ["calls", "group", "calls", "group"]);
    // Bytes of all ten tensors, in the order of the file.
    let bytes = [192, 192, 512, 96, 128, 256, 16, 96, 192, 56];
    let halves: usize = bytes[..9].iter().map(|bytes| bytes / 2).sum::<usize>() + bytes[9];
    let quarters: usize = bytes[..8].iter().map(|bytes| bytes / 4).sum::<usize>() + 192 + 56;
    for case in cases {
        assert_eq!((&case["verdict"], &case["tensors"]), (&json!("pass"), &json!(10)), "{case}");
        let skipped = case["skipped"].as_array().unwrap();
        let names: Vec<_> = skipped.iter().map(|it| it["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["k.scalar", "l.four", "m.bool", "n.empty"]);
        assert_eq!(skipped[2]["reason"], "the library has no type BOOL");
        assert_eq!(case["replicated_at_source"], json!(["h.odd-rows", "j.prime"]));
        let (columns, each) = match case["case"].as_str().unwrap() {
            "TP4 to TP2 x DP2" => (json!(["j.prime"]), halves),
            _ => (json!(["i.odd-columns", "j.prime"]), quarters),
        };
        assert_eq!(case["replicated_at_destination"], columns);
        assert_eq!(case["bytes_moved"], 4 * each);
        assert_eq!(case["bytes_compared"], 2 * 4 * each);
    }
    let Ended { stdout, .. } = demo(&mixed("m2n-mixed-table"), &[]);
    assert_eq!(stdout.matches("  pass\n").count(), 4, "{stdout}");
    assert!(stdout.contains("  skipped m.bool: the library has no type BOOL\n"), "{stdout}");
    assert!(stdout.contains("does not divide: 2, such as h.odd-rows\n"), "{stdout}");
}

/// The verdict is not a formality.
#[test]
fn a_disturbed_byte_fails_every_case() {
    let path = mixed("m2n-disturbed");
    let Ended { code, stdout, stderr } = demo(&path, &["--corrupt", "--json"]);
    assert_eq!((code, &*stderr), (Some(1), ""));
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&report["passed"], &report["fault_injected"]), (&json!(false), &json!(true)));
    for case in report["cases"].as_array().unwrap() {
        // One byte in each of two rounds.
        assert_eq!((&case["verdict"], &case["bytes_wrong"]), (&json!("fail"), &json!(2)));
        let problem = case["problems"][0].as_str().unwrap();
        assert!(problem.starts_with("rank 4: 2 of "), "{problem}");
        assert!(problem.contains("first byte 0 of a.bf16, expected 0x00, found 0xff"), "{problem}");
    }
    let Ended { code, stdout, .. } = demo(&path, &["--corrupt"]);
    assert_eq!((code, stdout.matches("  fail\n").count()), (Some(1), 4), "{stdout}");
}

/// The weights in this project's checkout; a packaged crate has none.
#[test]
fn real_weights_pass() {
    let weights = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../testdata/minilm_layers_0_1.f16.safetensors");
    if !weights.is_file() {
        eprintln!("not in a checkout: nothing to reshard");
        return;
    }
    // Tests run in the crate's folder, from where the file is found.
    let Ended { code, stdout, stderr } = run(&mut program(&["m2n", "demo", "--json"]));
    assert_eq!((code, &*stderr), (Some(0), ""), "{stdout}");
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(report["input"]["tensors"], 32);
    // Twelve matrices, twenty vectors.
    let vectors = 2 * 2 * (9 * 384 + 1536);
    let all = report["input"]["bytes"].as_u64().unwrap();
    assert_eq!(all, 7_097_856);
    for case in report["cases"].as_array().unwrap() {
        assert_eq!((&case["verdict"], &case["skipped"]), (&json!("pass"), &json!([])));
        let (sharded, moved) = match case["case"].as_str().unwrap() {
            "TP4 to TP2 x DP2" => (32, 2 * all),
            _ => (12, all - vectors + 4 * vectors),
        };
        assert_eq!((&case["sharded"], &case["bytes_moved"]), (&json!(sharded), &json!(moved)));
    }
}

#[track_caller]
fn refused(path: &Path, expected: &str) {
    for flags in [&[][..], &["--json"]] {
        let Ended { code, stdout, stderr } = demo(path, flags);
        assert_eq!((code, &*stdout, stderr.matches('\n').count()), (Some(2), "", 1), "{stderr}");
        let name = format!("nccl-ext: {}: `--input`: ", path.display());
        assert!(stderr.starts_with(&name) && stderr.contains(expected), "{stderr}");
    }
}

#[test]
fn files_that_are_no_models_are_one_line() {
    refused(Path::new("no-such-file"), "No such file");
    refused(Path::new(env!("CARGO_TARGET_TMPDIR")), "no regular file");
    refused(&write("m2n-empty", &[]), "safetensors format");
    refused(&write("m2n-text", b"weights, honestly"), "safetensors format");
    refused(&write("m2n-none", &with_header("{}", &[])), "at least one tensor");
    let short = r#"{"a":{"dtype":"F16","shape":[4],"data_offsets":[0,8]}}"#;
    refused(&write("m2n-short", &with_header(short, &[0; 6])), "safetensors format");
    let wrong = r#"{"a":{"dtype":"F16","shape":[4],"data_offsets":[0,6]}}"#;
    refused(&write("m2n-wrong", &with_header(wrong, &[0; 6])), "safetensors format");
}

/// There is nothing to compare: no verdict may pass over it.
#[test]
fn a_file_of_which_nothing_can_be_moved_does_not_pass() {
    let path = file("m2n-unmovable", &[("only", "BOOL", &[4], 1)]);
    let Ended { code, stdout, stderr } = demo(&path, &[]);
    assert_eq!((code, &*stderr), (Some(1), ""), "{stdout}");
    assert!(stdout.contains("0 of 0 bytes were compared"), "{stdout}");
}

/// Outside of a checkout the tool says which file to give.
#[test]
fn without_a_checkout_a_file_is_asked_for() {
    let folder = std::env::temp_dir().join(format!("nccl-ext-m2n-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let copy = folder.join("nccl-ext");
    fs::copy(env!("CARGO_BIN_EXE_nccl-ext"), &copy).unwrap();
    let mut command = std::process::Command::new(&copy);
    let Ended { code, stdout, stderr } = run(command.args(["m2n", "demo"]).current_dir(&folder));
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!((code, &*stdout, stderr.matches('\n').count()), (Some(2), "", 1), "{stderr}");
    let expected = "such as testdata/minilm_layers_0_1.f16.safetensors of the project's repository";
    assert!(stderr.starts_with("nccl-ext: m2n demo: `--input`: "), "{stderr}");
    assert!(stderr.contains(expected), "{stderr}");
}
