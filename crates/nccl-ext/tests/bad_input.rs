//! Everything that can be wrong with an input ends in exit code 2 and one line that names file or
//! argument, rule, expected and found.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::fs;

use common::{Ended, Recording, Tensor, demo, program, run, with_header, write};

/// Asserts that the demo refuses this file with exactly this line, after the file's name.
#[track_caller]
fn refused(name: &str, bytes: &[u8], expected: &str) {
    refused_path(write(name, bytes).to_str().unwrap(), expected);
}

#[track_caller]
fn refused_path(path: &str, expected: &str) {
    for flags in [&[][..], &["--json"]] {
        let Ended { code, stdout, stderr } = demo(path, flags);
        assert_eq!(stderr, format!("nccl-ext: {path}: {expected}\n"));
        assert_eq!(stdout, "");
        assert_eq!(code, Some(2));
    }
}

#[track_caller]
fn refused_recording(name: &str, recording: &Recording, expected: &str) {
    refused(name, &recording.bytes(), expected);
}

#[test]
fn files_that_cannot_be_read() {
    let rule = "`--input`: routing comes from a regular file that can be read; expected a \
                safetensors file of at most 4294967296 bytes, found";
    let folder = env!("CARGO_TARGET_TMPDIR");
    let missing = format!("{folder}/missing.safetensors");
    refused_path(&missing, &format!("{rule} No such file or directory (os error 2)"));
    refused_path(folder, &format!("{rule} a directory"));
    refused_path("/dev/zero", &format!("{rule} a pipe, socket or device"));
    let huge = write("huge", b"");
    fs::File::options().write(true).open(&huge).unwrap().set_len(5 << 30).unwrap();
    refused_path(huge.to_str().unwrap(), &format!("{rule} 5368709120 bytes"));
    fs::remove_file(huge).unwrap();
}

#[test]
fn file_names_with_line_breaks_stay_on_one_line() {
    let Ended { code, stderr, .. } = demo("no\nsuch\nfile", &[]);
    assert!(stderr.starts_with("nccl-ext: no\\nsuch\\nfile: `--input`"), "{stderr}");
    assert_eq!((code, stderr.lines().count()), (Some(2), 1));
}

#[test]
fn files_that_are_not_safetensors() {
    let rule = "`header`: the file is in the safetensors format; expected";
    let short = format!("{rule} a header as long as its first eight bytes say, found");
    refused("empty", b"", &format!("{short} 0 bytes in all"));
    refused("short", b"1234567", &format!("{short} 7 bytes in all"));
    refused("text", b"tokens,topk_idx,topk_weights\n", &format!("{short} 29 bytes in all"));
    refused("length", &[0xFF; 64], &format!("{short} 64 bytes in all"));
    let whole = Recording::small().bytes();
    refused("cut-header", &whole[..100], &format!("{short} 100 bytes in all"));
    refused("cut", &whole[..whole.len() - 1], &format!("{rule} 8384 bytes of tensors, found 8383"));
    let longer = [&whole[..], b"!"].concat();
    refused("longer", &longer, &format!("{rule} 8384 bytes of tensors, found 8385"));
    let tensors = format!("{rule} a JSON object of tensors side by side, found");
    for (name, header) in [("json", "{\"tokens\": "), ("array", "[1, 2]"), ("nul", "\0")] {
        // What follows is the JSON library's own sentence.
        let path = write(name, &with_header(header, b""));
        let Ended { code, stderr, .. } = demo(path.to_str().unwrap(), &[]);
        let line = format!("nccl-ext: {}: {tensors} ", path.display());
        assert!(stderr.starts_with(&line), "{stderr}");
        assert_eq!((code, stderr.lines().count()), (Some(2), 1));
    }
    let info = "{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[";
    let overlap = format!("{{\"a\":{info}0,2]}},\"b\":{info}1,3]}}}}");
    let found = "invalid offset for tensor `b`";
    refused("overlap", &with_header(&overlap, &[0; 3]), &format!("{tensors} {found}"));
}

/// Tensors whose sizes add up to nearly 2^64 bytes.
#[test]
fn offsets_that_overflow() {
    let size = (1_u64 << 61) - 1;
    let tensors: Vec<_> = (0..8)
        .map(|i| {
            let offsets = format!("[{},{}]", i * size, (i + 1) * size);
            format!("\"{i}\":{{\"dtype\":\"I8\",\"shape\":[{size}],\"data_offsets\":{offsets}}}")
        })
        .collect();
    let rule = "`header`: the file is in the safetensors format; expected";
    let found = "18446744073709551608 bytes of tensors, found 4";
    let header = format!("{{{}}}", tensors.join(","));
    refused("overflow", &with_header(&header, &[0; 4]), &format!("{rule} {found}"));
}

#[test]
fn metadata_that_is_missing_or_no_size() {
    let rule = "the metadata gives the sizes of the recording; expected a metadata entry";
    let mut bare = Recording::small();
    bare.metadata.clear();
    refused_recording("bare", &bare, &format!("`ranks`: {rule} `ranks`, found none"));
    for key in ["ranks", "tokens_per_rank", "hidden", "top_k", "experts"] {
        let name = format!("without-{key}");
        let line = format!("`{key}`: {rule} `{key}`, found none");
        refused_recording(&name, &Recording::small().without(key), &line);
        let rule = "a size in the metadata is a whole number, and at least 1; expected 1 to \
                    4294967295, found";
        for value in ["0", "-4", "4.0", "four", "", "4294967296", "99999999999999999999"] {
            let line = format!("`{key}`: {rule} {value:?}");
            refused_recording(&name, &Recording::small().with(key, value), &line);
        }
    }
}

#[test]
fn sizes_that_do_not_go_together() {
    let most = u32::MAX;
    let overflow =
        Recording::small().with("ranks", most).with("tokens_per_rank", most).with("hidden", most);
    refused_recording(
        "product",
        &overflow,
        "`ranks`: the number of elements fits 64 bits; expected a smaller product of ranks, \
         tokens_per_rank and hidden or top_k, found 4294967295 x 4294967295 x 4294967295",
    );
    refused_recording(
        "experts-130",
        &Recording::new([4, 4, 512, 2, 130], |row, k| (row + k) as i64),
        "`experts`: experts divide evenly over ranks; expected a multiple of 4, found 130",
    );
    refused_recording(
        "experts-65536",
        &Recording::small().with("experts", 65536),
        "`experts`: low latency carries expert ids in 16 bits; expected 1 to 65535, found 65536",
    );
}

#[test]
fn tensors_that_are_missing_or_others() {
    for name in ["tokens", "topk_idx", "topk_weights"] {
        let mut recording = Recording::small();
        recording.tensors.retain(|tensor| tensor.name != name);
        let mut left: Vec<_> = recording.tensors.iter().map(|tensor| &*tensor.name).collect();
        left.sort();
        let line = format!(
            "`{name}`: the file has tokens, topk_idx and topk_weights; expected a tensor \
             `{name}`, found {}",
            left.join(", ")
        );
        refused_recording(&format!("without-{name}"), &recording, &line);
    }
    let mut none = Recording::small();
    none.tensors.clear();
    refused_recording(
        "no-tensors",
        &none,
        "`tokens`: the file has tokens, topk_idx and topk_weights; expected a tensor `tokens`, \
         found no tensor",
    );
}

#[test]
fn tensors_of_other_types() {
    let rule = "tokens are BF16, expert ids I64, weights F32; expected";
    for (name, dtype, other) in
        [("tokens", "BF16", "F16"), ("topk_idx", "I64", "U64"), ("topk_weights", "F32", "I32")]
    {
        let mut recording = Recording::small();
        recording.tensor(name).dtype = other.into();
        let line = format!("`{name}`: {rule} {dtype}, found {other}");
        refused_recording(&format!("type-{name}"), &recording, &line);
    }
}

#[test]
fn metadata_that_contradicts_the_shapes() {
    let rule = "shapes are ranks x tokens_per_rank rows of hidden or top_k, as the metadata says; \
                expected";
    for (key, value, item, expected, found) in [
        ("tokens_per_rank", 5, "tokens", "[10, 512]", "[8, 512]"),
        ("ranks", 4, "tokens", "[16, 512]", "[8, 512]"),
        ("hidden", 1024, "tokens", "[8, 1024]", "[8, 512]"),
        ("top_k", 1, "topk_idx", "[8, 1]", "[8, 2]"),
    ] {
        let line = format!("`{item}`: {rule} {expected}, found {found}");
        refused_recording(&format!("{key}-{value}"), &Recording::small().with(key, value), &line);
    }
    let mut flat = Recording::small();
    flat.tensor("topk_weights").shape = vec![16];
    let line = format!("`topk_weights`: {rule} [8, 2], found [16]");
    refused_recording("flat-weights", &flat, &line);
    let mut scalar = Recording::small();
    let tensor = Tensor { shape: vec![], bytes: vec![0; 2], ..tokens(&scalar) };
    scalar.tensors[0] = tensor;
    refused_recording("scalar", &scalar, &format!("`tokens`: {rule} [8, 512], found []"));
}

fn tokens(recording: &Recording) -> Tensor {
    let Tensor { name, dtype, shape, bytes } = &recording.tensors[0];
    let (name, dtype) = (name.clone(), dtype.clone());
    Tensor { name, dtype, shape: shape.clone(), bytes: bytes.clone() }
}

#[test]
fn ids_that_name_no_expert() {
    let rule =
        "`topk_idx`: an id names an expert, or is negative for none; expected at most 3, found";
    for id in [4, 5, 1 << 40, i64::MAX] {
        let line = format!("{rule} {id} in row 3, column 1");
        refused_recording(&format!("id{id}"), &Recording::small().id(7, id), &line);
    }
}

#[test]
fn an_expert_twice_in_a_row() {
    refused_recording(
        "twice",
        &Recording::small().id(8, 2).id(9, 2),
        "`topk_idx`: a row names an expert at most once: low-latency expert-major has one place \
         for each token of an expert; expected different experts, found expert 2 twice in row 4",
    );
}

#[test]
fn values_that_are_not_finite() {
    let rule = "values are finite: a NaN or infinity would hide what else is summed; expected \
                finite values, found";
    let token = |bits: u16| Recording::small().set("tokens", 513, bits.to_le_bytes());
    let line = |found| format!("`tokens`: {rule} {found} in row 1, column 1");
    refused_recording("nan-token", &token(0x7FC0), &line("NaN"));
    refused_recording("inf-token", &token(0xFF80), &line("-inf"));
    let weight = |value: f32| Recording::small().set("topk_weights", 15, value.to_le_bytes());
    let line = |found| format!("`topk_weights`: {rule} {found} in row 7, column 1");
    refused_recording("nan-weight", &weight(f32::NAN), &line("NaN"));
    refused_recording("inf-weight", &weight(f32::INFINITY), &line("inf"));
}

#[test]
fn what_would_use_up_the_machine() {
    refused_recording(
        "ranks-300",
        &Recording::new([300, 1, 8, 1, 300], |row, _| row as i64),
        "`ranks`: the ranks of the demo are threads of one process; expected at most 256, found \
         300",
    );
    refused_recording(
        "experts-65532",
        &Recording::new([2, 64, 512, 1, 65532], |row, _| row as i64),
        "`experts`: low-latency expert-major has room for every token at every expert: experts x \
         ranks x tokens_per_rank x hidden x 2 bytes in all; expected at most 2147483648 bytes, \
         found 65532 x 2 x 64 x 512 x 2 = 8589410304",
    );
}

/// What only the API knows is refused in its words, with the pair that was tried.
#[test]
fn sizes_that_the_api_refuses() {
    let pair = "LL expert-major: `inputs.tokens`: low latency";
    let hidden = |hidden| Recording::new([2, 4, hidden, 2, 4], |row, k| ((row + k) % 4) as i64);
    refused_recording(
        "hidden-100",
        &hidden(100),
        &format!(
            "{pair} moves rows of 256 two-byte or 128 four-byte elements at a time; expected a \
             hidden size that is a multiple of 256, found 100"
        ),
    );
    refused_recording(
        "hidden-768",
        &hidden(768),
        &format!(
            "{pair} combines rows of 512 elements at a time; expected a hidden size that is a \
             multiple of 512, found 768"
        ),
    );
    refused_recording(
        "top-5-of-4",
        &Recording::new([2, 4, 512, 5, 4], |row, k| if k == 0 { row as i64 % 4 } else { -1 }),
        "LL expert-major: `num_topk`: a token goes to at most all experts; expected at most 4, \
         found 5",
    );
}

#[track_caller]
fn refused_arguments(args: &[&str], expected: &str) {
    let Ended { code, stdout, stderr } = run(program(&["demo"]).args(args));
    assert_eq!(stderr, format!("nccl-ext: {expected}\n"));
    assert_eq!((code, &*stdout), (Some(2), ""));
}

#[test]
fn numbers_that_are_none_and_pairs_that_do_not_exist() {
    let rule = "the option takes a whole number; expected";
    for (flag, values, range) in [
        ("--ranks", &["x", "-1", "1.5", "", "4294967296"][..], "0 to 4294967295"),
        ("--rounds", &["0", "1001", "two"], "1 to 1000"),
        ("--timeout", &["0", "86401", "99999999999999999999999"], "1 to 86400"),
    ] {
        for value in values {
            let flag_and_value = format!("{flag}={value}");
            refused_arguments(
                &[&flag_and_value],
                &format!("demo: `{flag}`: {rule} {range}, found {value:?}"),
            );
        }
    }
    for name in ["", "LL", "LL flat", "HT flat,"] {
        let last = name.rsplit(',').next().unwrap();
        refused_arguments(
            &["--pairs", name],
            &format!(
                "demo: `--pairs`: a pair is an algorithm with a layout; expected LL expert-major, \
                 LL rank-major, HT flat, HT expert-major, found {last:?}"
            ),
        );
    }
}

#[test]
fn ranks_that_do_not_divide() {
    for ranks in ["0", "3", "256"] {
        refused_arguments(
            &["--ranks", ranks],
            &format!(
                "moe_text_4x128: `--ranks`: tokens and experts divide evenly over ranks; expected \
                 1, 2, 4, 8, 16, 32, 64, 128, found {ranks}, for 512 tokens and 128 experts"
            ),
        );
    }
    let recipe = "tokens=4,hidden=512,topk=2,experts=6";
    for ranks in ["0", "4"] {
        refused_arguments(
            &["--generate", recipe, "--ranks", ranks],
            &format!(
                "--generate: `--ranks`: experts divide evenly over ranks; expected 1, 2, 3, 6, \
                 found {ranks}, for 6 experts"
            ),
        );
    }
}

#[test]
fn recipes_that_make_nothing() {
    let size = "a size is a whole number, and at least 1; expected 1 to";
    for (recipe, line) in [
        ("tokens=4,hidden=512,topk=2", format!("`experts`: {size} 65535, found none")),
        ("tokens=0,hidden=512,topk=2,experts=4", format!("`tokens`: {size} 4294967295, found \"0\"")),
        (
            "tokens=4,hidden=18446744073709551616,topk=2,experts=4",
            format!("`hidden`: {size} 4294967295, found \"18446744073709551616\""),
        ),
        (
            "tokens=4,hidden=512,topk=5,experts=4",
            "`topk`: a token names different experts; expected at most 4, found 5".into(),
        ),
        (
            "tokens=4294967295,hidden=4294967295,topk=1,experts=2",
            "`tokens`: the tokens of all ranks fit into memory; expected at most 4294967296 bytes, \
             found 2 ranks x 4294967295 tokens x 8589934602 bytes = 73786976363557683180"
                .into(),
        ),
    ] {
        refused_arguments(&["--generate", recipe], &format!("--generate: {line}"));
    }
    refused_arguments(
        &["--generate", "tokens=4096,hidden=7168,topk=8,experts=256"],
        "generated, seed 0: `experts`: low-latency expert-major has room for every token at every \
         expert: experts x ranks x tokens_per_rank x hidden x 2 bytes in all; expected at most \
         2147483648 bytes, found 256 x 2 x 4096 x 7168 x 2 = 30064771072",
    );
}

#[test]
fn arguments_that_do_not_exist() {
    for args in [
        &[][..],
        &["dmeo"],
        &["demo", "--inptu", "x"],
        &["demo", "--input"],
        &["info", "x"],
        &["demo", "--input", "x", "--generate", "y"],
        &["demo", "--backend", "gpu"],
        &["demo", "--rank", "0"],
    ] {
        let Ended { code, stdout, stderr } = run(&mut program(args));
        assert_eq!((code, &*stdout), (Some(2), ""), "{args:?}");
        assert!(!stderr.is_empty());
    }
}
