//! `ep plan`: its numbers, what it refuses, and how it says so.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{Ended, program, run};
use serde_json::Value;

const GIB: u64 = 1 << 30;

fn plan(args: &str) -> Ended {
    let mut command = program(&["ep", "plan"]);
    run(command.args(args.split_whitespace()))
}

fn json(args: &str) -> Value {
    let Ended { code, stdout, stderr } = plan(&format!("{args} --json"));
    assert_eq!((code, &*stderr), (Some(0), ""), "{args}");
    serde_json::from_str(&stdout).unwrap()
}

/// The answer for a pair.
fn pair<'a>(report: &'a Value, name: &str) -> &'a Value {
    let pairs = report["pairs"].as_array().unwrap();
    pairs.iter().find(|pair| pair["pair"] == name).unwrap()
}

fn bytes(report: &Value, name: &str, buffer: &str) -> u64 {
    let buffers = pair(report, name)["memory"]["buffers"].as_array().unwrap();
    buffers.iter().find(|it| it["name"] == buffer).unwrap()["bytes"].as_u64().unwrap()
}

#[track_caller]
fn refused(args: &str, expected: &str) {
    for json in ["", " --json"] {
        let Ended { code, stdout, stderr } = plan(&format!("{args}{json}"));
        assert_eq!(stderr, format!("nccl-ext: ep plan: {expected}\n"), "{args}");
        assert_eq!((code, &*stdout), (Some(2), ""), "{args}");
    }
}

/// DeepSeek-V3 decoding on 8 ranks, by hand.
#[test]
fn exact_bytes_in_json() {
    let report = json("--model deepseek-v3 --ranks 8 --tokens 128");
    let (row, copies) = (2 * 7168, 32 * 8 * 128);
    assert_eq!(bytes(&report, "LL expert-major", "received tokens"), copies * row);
    assert_eq!(bytes(&report, "LL rank-major", "received tokens"), 8 * 128 * row);
    assert_eq!(bytes(&report, "HT flat", "scale staging"), 8 * 128 * row);
    assert_eq!(bytes(&report, "HT expert-major", "scale staging"), 8 * 128 * 8 * row);
    // EP 3.4: dispatch is smaller than combine here.
    let combine = 128 * (row + 4 * (row / 256)) * (256 + 8);
    let buffer = bytes(&report, "LL expert-major", "communication buffer");
    assert_eq!(buffer, 2 * combine + 2 * 4 * 256);
    // EP 3.1.
    let handle = (4_u64 * 8 * (1 + 9 * 128)).next_multiple_of(256) + 8 * 32 * 8;
    assert_eq!(bytes(&report, "LL rank-major", "handle memory"), handle);
    assert_eq!(report["asked"]["ht_receive"]["mode"], "eager");
    assert_eq!(report["asked"]["model"], "deepseek-v3");
    for plan in report["pairs"].as_array().unwrap() {
        let memory = &plan["memory"];
        let buffers = memory["buffers"].as_array().unwrap();
        let sum: u64 = buffers.iter().map(|it| it["bytes"].as_u64().unwrap()).sum();
        assert_eq!(memory["bytes"]["total"], sum);
    }
}

/// Case E18: what 65,536 tokens a rank would take, before anything is allocated.
#[test]
fn sixty_four_thousand_tokens_a_rank() {
    let report = json("--model deepseek-v3 --ranks 8 --tokens 65536 --algorithm ht");
    let gib = |buffer| bytes(&report, "HT expert-major", buffer) as f64 / GIB as f64;
    assert_eq!(gib("dispatch token staging"), 7.0);
    assert_eq!(gib("combine token staging"), 7.0);
    assert_eq!(gib("dispatch weight staging"), 4.0);
    assert_eq!(gib("scale staging"), 56.0);
    assert_eq!(gib("received tokens"), 56.0);
    let Ended { stdout, .. } = plan("--model deepseek-v3 --ranks 8 --tokens 65536 --algorithm ht");
    let line = |name: &str| stdout.lines().find(|line| line.contains(name)).unwrap();
    assert!(line("dispatch token staging").contains("7.00 GiB"), "{stdout}");
    assert!(line("scale staging").contains("56.0 GiB"), "{stdout}");
    assert!(stdout.contains("8192"), "{stdout}");
}

/// The whole table, and that a fixed budget is taken and named.
#[test]
fn the_table_of_every_pair() {
    let Ended { code, stdout, stderr } =
        plan("--hidden 512 --experts 8 --topk 2 --ranks 4 --tokens 8 --max-recv 16");
    assert_eq!((code, &*stderr), (Some(0), ""));
    let expected = "\
nccl-ext ep plan: device memory of one rank
model   hidden 512 bf16, 8 experts, top-2
ranks   4; on each: experts 2, tokens a step up to 8, SMs 132
HT      all ranks in one NVLink domain; a budget of 16 rows a rank

                           LL expert-major  LL rank-major   HT flat  HT expert-major
group                             32.2 MiB       32.1 MiB  32.1 MiB         32.1 MiB
  workspace                       32.0 MiB       32.0 MiB  32.0 MiB         32.0 MiB
  counter block                          -              -      32 B             32 B
  dispatch token staging                 -              -  32.0 KiB         32.0 KiB
  combine token staging                  -              -  32.0 KiB         32.0 KiB
  dispatch weight staging                -              -     512 B            512 B
  combine weight staging                 -              -     512 B            512 B
  scale staging                          -              -  16.0 KiB         16.0 KiB
  routing bitmap                         -              -      32 B             32 B
  communication buffer           162.8 KiB       97.8 KiB         -                -
handle                            1.12 KiB       1.12 KiB  6.38 KiB         7.62 KiB
  handle memory                      768 B          768 B  6.00 KiB         7.25 KiB
  expert ids                         384 B          384 B     384 B            384 B
caller                           128.0 KiB       64.5 KiB  32.4 KiB         32.1 KiB
  received tokens                 64.0 KiB       32.0 KiB  16.0 KiB         16.0 KiB
  received weights                       -          256 B     128 B             64 B
  received expert ids                    -          256 B     256 B                -
  source rank counters                   -           16 B         -                -
  expert counters                      8 B              -         -                -
  expert outputs                  64.0 KiB       32.0 KiB  16.0 KiB         16.0 KiB
total                             32.3 MiB       32.2 MiB  32.1 MiB         32.1 MiB

LL expert-major, LL rank-major: the communication buffer grows to what the group's largest handle \
needs; this is one handle's (EP 3.4)
";
    assert_eq!(stdout, expected);
}

/// The page about planning shows what the tool prints.
#[test]
fn the_page_shows_this_output() {
    let page = include_str!("../../../docs/src/planning.md");
    let Ended { stdout, .. } = plan("--model deepseek-v3 --ranks 8 --tokens 128");
    let (table, _) = stdout.split_once("\n\nLL expert-major").unwrap();
    assert!(page.contains(table), "docs/src/planning.md lacks:\n{table}");
}

/// With one pair there is room for the pieces of its buffers.
#[test]
fn pieces_where_one_pair_is_asked_for() {
    let Ended { stdout, .. } =
        plan("--model mixtral --ranks 8 --tokens 128 --algorithm ht --layout expert-major");
    for piece in ["local expert routing map", "scan scratch", "token to slot map"] {
        assert!(stdout.contains(&format!("    {piece}")), "{stdout}");
    }
    let Ended { stdout, .. } = plan("--model mixtral --ranks 8 --tokens 128 --layout rank-major");
    for piece in ["signals of two banks", "each bank: combine send", "source info"] {
        assert!(stdout.contains(&format!("    {piece}")), "{stdout}");
    }
}

/// Rows of 2880 elements: low latency says which rule stands against it.
#[test]
fn a_model_that_one_algorithm_cannot_run() {
    let rule = "low latency moves rows of 256 two-byte or 128 four-byte elements at a time; \
                expected a hidden size that is a multiple of 256, found 2880 (EP 4.1)";
    let line = format!("LL expert-major, LL rank-major: refused: `inputs.tokens`: {rule}\n");
    let args = "--model gpt-oss-120b --ranks 8 --tokens 128";
    let Ended { code, stdout, stderr } = plan(args);
    assert_eq!((code, &*stderr), (Some(0), ""));
    assert!(stdout.contains(&line), "{stdout}");
    let report = json(args);
    assert_eq!(pair(&report, "LL rank-major")["refused"]["name"], "dispatch.ll-row-unit");
    assert!(pair(&report, "LL rank-major").get("memory").is_none());
    assert!(bytes(&report, "HT flat", "received tokens") > 0);

    let Ended { code, stdout, stderr } = plan(&format!("{args} --algorithm ll"));
    assert_eq!((code, &*stderr), (Some(1), ""));
    assert!(stdout.ends_with(&line), "{stdout}");
}

#[test]
fn every_model_is_known_and_names_are_listed() {
    let names = "deepseek-v3, deepseek-v4-pro, kimi-k2, qwen3-235b, qwen3-30b, glm-4.5, \
                 gpt-oss-120b, mixtral";
    for name in names.split(", ") {
        for dtype in ["bf16", "fp16", "fp32"] {
            json(&format!("--model {name} --ranks 8 --tokens 128 --dtype {dtype}"));
        }
    }
    refused(
        "--model gpt-5 --ranks 8 --tokens 128",
        &format!("`--model`: a model that this tool knows; expected {names}, found gpt-5"),
    );
    let Ended { stdout, .. } = plan("--help");
    let help: Vec<_> = stdout.split_whitespace().collect();
    assert!(help.join(" ").contains(names), "{stdout}");
}

#[test]
fn arguments_that_are_no_question() {
    let rest = "--ranks 8 --tokens 128";
    let size = "a size is a whole number, and at least 1; expected 1 to 4294967295, found";
    for value in ["0", "-8", "8.0", "eight", "4294967296", "+8"] {
        refused(
            &format!("--model mixtral --tokens 8 --ranks {value}"),
            &format!("`--ranks`: {size} {value:?}"),
        );
        refused(
            &format!("--model mixtral --ranks 8 --tokens {value}"),
            &format!("`--tokens`: {size} {value:?}"),
        );
        refused(&format!("--hidden {value} {rest}"), &format!("`--hidden`: {size} {value:?}"));
        refused(
            &format!("--model mixtral {rest} --sms {value}"),
            &format!("`--sms`: {size} {value:?}"),
        );
        refused(
            &format!("--model mixtral {rest} --max-recv {value}"),
            &format!("`--max-recv`: {size} {value:?}"),
        );
    }
    let named = "`--model`: a model is named, or its shape given; expected --model, or --hidden, \
                 --experts and --topk, found";
    refused(rest, &format!("{named} neither"));
    refused(&format!("--model mixtral --topk 2 {rest}"), &format!("{named} both"));
    let needed = "this argument is needed; expected a whole number, found none";
    refused(&format!("--hidden 512 --topk 2 {rest}"), &format!("`--experts`: {needed}"));
    refused("--model mixtral --ranks 8", &format!("`--tokens`: {needed}"));
    for (args, expected) in [
        (
            "--algorithm fast",
            "`--algorithm`: an algorithm of the library; expected ll or ht, found fast",
        ),
        (
            "--layout tall",
            "`--layout`: a layout of the library; expected expert-major, rank-major or flat, found \
             tall",
        ),
        (
            "--algorithm ht --layout rank-major",
            "`--layout`: low latency has expert-major and rank-major, high throughput flat and \
             expert-major; expected expert-major or flat, found rank-major",
        ),
        (
            "--dtype fp8",
            "`--dtype`: tokens are of a type that is moved as it is; expected bf16, fp16 or fp32, \
             found fp8",
        ),
        (
            "--algorithm ll --max-recv 4096",
            "`--max-recv`: only high throughput has a receive budget; expected no --max-recv with \
             low latency, found 4096",
        ),
        (
            "--max-recv 127",
            "`--max-recv`: the receive budget holds one rank's tokens, or is 0 (eager); expected 0 \
             or at least 128, found 127",
        ),
    ] {
        refused(&format!("--model mixtral {rest} {args}"), expected);
    }
}

#[test]
fn shapes_that_no_pair_can_take() {
    refused(
        "--model deepseek-v3 --ranks 3 --tokens 128",
        "`num_experts`: experts divide evenly over ranks; expected 256 experts over 1, 2, 4, 8, \
         16, 32, 64, 128, 256 ranks, found 3 ranks",
    );
    refused(
        "--hidden 512 --experts 8 --topk 9 --ranks 8 --tokens 8",
        "`--topk`: a token goes to at most all experts; expected at most 8, found 9",
    );
    refused(
        "--hidden 2147483648 --experts 8 --topk 2 --ranks 8 --tokens 8",
        "`--hidden`: the library counts bytes of a row in 32 bits; expected at most 2147483647 \
         elements of bf16, found 2147483648",
    );
    refused(
        "--hidden 512 --experts 2147483648 --topk 8 --ranks 8 --tokens 128 --max-recv 4294967295 \
         --layout flat",
        "`dispatch weight staging`: the bytes of a buffer are counted in 64 bits; expected at most \
         18446744073709551615 bytes, found 36893488138829168640",
    );
}
