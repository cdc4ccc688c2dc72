//! `m2n plan`: its numbers, its drawing, what it refuses and how it says so.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::fs;
use std::path::PathBuf;

use common::{Ended, program, run};
use serde_json::{Value, json};

const ROWS: &str = "mesh=2@0 place=S(0)";
const COLUMNS: &str = "mesh=2x2@2 place=S(-1),R";

/// The plan of a tensor between two sides.
fn plan(shape: &str, source: &str, destination: &str, flags: &[&str]) -> Ended {
    let mut command = program(&["m2n", "plan", "--shape", shape]);
    command.args(["--src", source, "--dst", destination]).args(flags);
    // The library's settings are not for these tests.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("NCCL_RESHARD_")) {
        command.env_remove(name);
    }
    run(&mut command)
}

fn answer(shape: &str, source: &str, destination: &str, flags: &[&str]) -> (Option<i32>, Value) {
    let Ended { code, stdout, stderr } =
        plan(shape, source, destination, &[flags, &["--json"]].concat());
    assert_eq!(stderr, "");
    (code, serde_json::from_str(&stdout).unwrap())
}

/// Two row blocks of a 4 x 6 matrix of floats to two column blocks with two copies each.
#[test]
fn the_table_of_a_small_case() {
    let Ended { code, stdout, stderr } = plan("4,6", ROWS, COLUMNS, &["--dtype", "fp32"]);
    assert_eq!((code, &*stderr), (Some(0), ""));
    let all = 4 * 6 * 4;
    // A destination takes two rows of three floats from each source; a source serves all four.
    let (piece, tile) = (2 * 3 * 4, all / 2);
    let (sent, received) = (4 * piece, 2 * piece);
    let (written, pairs) = (4 * received, 2 * 4);
    let expected = format!(
        "\
nccl-ext m2n plan: what each rank sends and receives
tensor        4x6 fp32, {all} B
source        {{2}}@0 [S0]: 2 blocks, 1 copy of each; a tile is 2x6, {tile} B
destination   {{2,2}}@2 [S1,R]: 2 blocks, 2 copies of each; a tile is 4x3, {tile} B
communicator  6 ranks, one NVLink domain, no network
transport     single-domain PACK expected
library       accepts
load balance  node-aware; every source rank sends {sent} B
busiest rank  {sent} B; no plan has less than {tile} B (a source puts out {tile} B, a destination takes in {tile} B)
coverage      proved: {pairs} transfers fill {written} bytes of destination tiles, each once and from its place
digest        DIGEST

rank  side         block  copy  tile        sends  to   receives  from
0     source       0      0     [0:2, 0:6]  {sent} B   2-5  0 B       -
1     source       1      0     [2:4, 0:6]  {sent} B   2-5  0 B       -
2     destination  0      0     [0:4, 0:3]  0 B    -    {received} B      0,1
3     destination  0      1     [0:4, 0:3]  0 B    -    {received} B      0,1
4     destination  1      0     [0:4, 3:6]  0 B    -    {received} B      0,1
5     destination  1      1     [0:4, 3:6]  0 B    -    {received} B      0,1

link      bytes      way
0 -> 2-5  {piece} B each  NVLink
1 -> 2-5  {piece} B each  NVLink
"
    );
    let digest = stdout.lines().find_map(|line| line.strip_prefix("digest        ")).unwrap();
    assert_eq!(digest.len(), 32);
    assert_eq!(stdout.replace(digest, "DIGEST"), expected);
}

#[test]
fn json_has_exact_bytes() {
    let (code, answer) = answer("4,6", ROWS, COLUMNS, &["--dtype", "fp32", "--comm-size", "8"]);
    assert_eq!(code, Some(0));
    assert_eq!(answer["source"]["tile"], json!([2, 6]));
    assert_eq!(answer["destination"]["placements"], json!(["S1", "R"]));
    assert_eq!(answer["communicator"]["idle_ranks"], json!([6, 7]));
    assert_eq!(answer["ranks"][4]["tile"], json!([[0, 4], [3, 6]]));
    assert_eq!(answer["ranks"][4]["received_bytes"], 48);
    assert_eq!(answer["links"].as_array().unwrap().len(), 8);
    for link in answer["links"].as_array().unwrap() {
        assert_eq!((&link["bytes"], &link["within_domain"]), (&json!(24), &json!(true)));
    }
    assert_eq!(answer["bytes_within_domains"], 4 * 48);
    assert_eq!(answer["lower_bound"]["busiest_rank_bytes"], 48);
    assert_eq!((&answer["accepted"], &answer["refused"]), (&json!(true), &Value::Null));
    assert_eq!(
        (&answer["coverage"]["proved"], &answer["coverage"]["bytes"]),
        (&json!(true), &json!(192))
    );
    assert_eq!(answer["digest"].as_str().unwrap().len(), 32);
}

/// Case M9: 17 sources with and without the single-domain path, and 33 on it.
#[test]
fn too_many_sources_are_refused_with_the_limit_of_the_path() {
    let sides = |shards: u32| (format!("mesh={shards}@0 place=S(0)"), "mesh=1 place=R");
    let ask = |shards: u32, flags: &[&str]| {
        let (source, destination) = sides(shards);
        answer(&(shards * 2).to_string(), &source, destination, flags)
    };
    let (code, answer) = ask(17, &[]);
    assert_eq!((code, &answer["transport"]), (Some(0), &json!("single-domain PACK")));
    let (code, answer) = ask(17, &["--domain", "9"]);
    assert_eq!((code, &answer["refused"]["name"]), (Some(1), &json!("call.sources")));
    assert!(answer["refused"]["expected"].as_str().unwrap().contains("16"), "{answer}");
    let (code, answer) = ask(33, &[]);
    assert_eq!((code, &answer["refused"]["name"]), (Some(1), &json!("call.single-domain-sources")));
    assert!(answer["refused"]["expected"].as_str().unwrap().contains("32"), "{answer}");
    let (source, destination) = sides(33);
    let Ended { code, stdout, .. } = plan("66", &source, destination, &[]);
    assert_eq!(code, Some(1));
    assert!(
        stdout.contains("\nlibrary       refuses, by call.single-domain-sources: "),
        "{stdout}"
    );
}

/// Case M4: the source above the destination needs a network.
#[test]
fn order_matters_without_a_network() {
    let (above, below) = ("mesh=2@2 place=S(0)", "mesh=2@0 place=R");
    let (code, refused) = answer("4", above, below, &[]);
    assert_eq!((code, &refused["refused"]["name"]), (Some(1), &json!("call.network")));
    let advice = refused["single_domain_would_take"].as_str().unwrap();
    assert!(advice.contains("lower ranks"), "{advice}");
    let (code, taken) = answer("4", above, below, &["--network", "gin"]);
    assert_eq!((code, &taken["accepted"]), (Some(0), &json!(true)));
}

#[track_caller]
fn refused(shape: &str, source: &str, destination: &str, flags: &[&str], expected: &str) {
    for json in [&[][..], &["--json"]] {
        let Ended { code, stdout, stderr } =
            plan(shape, source, destination, &[flags, json].concat());
        assert_eq!(stderr.matches('\n').count(), 1, "{stderr}");
        assert!(stderr.starts_with("nccl-ext: m2n plan: "), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
        assert_eq!((code, &*stdout), (Some(2), ""));
    }
}

/// Cases M2 and M11, and M6.
#[test]
fn layouts_that_cannot_be_are_refused_with_what_can() {
    refused("5,10", "mesh=4@0 place=S(0)", "mesh=2 place=R", &[], "`--src`: a sharded dimension");
    refused(
        "5,10",
        "mesh=4@0 place=S(0)",
        "mesh=2 place=R",
        &[],
        "dimension 0 of 5 elements over 4",
    );
    let three = "mesh=3 place=S(0)";
    refused("4096", "mesh=4 place=S(0)", three, &[], "`--dst`: a sharded dimension divides");
    refused("4096", "mesh=4 place=S(0)", three, &[], "move 0..4095 (1365 a shard) and 4095..4096");
    refused("4,4", "mesh=2x2 place=S(0),S(1)", "mesh=2 place=R", &[], "make 2 call(s) instead");
    refused("4,4", "mesh=2x2 place=S(0),S(1)", "mesh=2 place=R", &[], "(layout.one-shard, M2N ");
}

#[test]
fn arguments_at_fault_are_one_line() {
    let bad = |flags: &[&str], expected: &str| refused("4,6", ROWS, COLUMNS, flags, expected);
    bad(&["--dtype", "int16"], "`--dtype`: elements have a type that has a name here");
    bad(&["--dtype", "fp4x2"], "`--dtype`: elements have a type that libnccl_m2n moves");
    bad(&["--comm-size", "5"], "`--dst`: the destination mesh lies inside the communicator");
    bad(&["--comm-size", "0"], "`--comm-size`: a number of ranks is whole");
    bad(&["--comm-size", "99999999"], "`--comm-size`: a plan lists every rank");
    bad(&["--comm-size", "-1"], "`--comm-size`: ");
    bad(&["--domain", "7"], "`--domain`: an NVLink domain lies inside the communicator");
    bad(&["--network", "wifi"], "`--network`: ");
    bad(&["--svg", "/nonexistent/folder/plan.svg"], "`--svg`: the drawing is written to a file");
    let of =
        |shape, source, destination, expected| refused(shape, source, destination, &[], expected);
    of("4;6", ROWS, COLUMNS, "`--shape`: a shape is whole numbers");
    of("4,,6", ROWS, COLUMNS, "`--shape`: a shape is whole numbers");
    of("4,6,1,1", ROWS, COLUMNS, "`--shape`: a tensor has one to three dimensions");
    of("18446744073709551615,2", ROWS, COLUMNS, "`--shape`: the bytes of a tile fit size_t");
    of("18446744073709551614,6", ROWS, COLUMNS, "`--shape`: ");
    of("4,6", "mesh=2 place=S(2)", COLUMNS, "`--src`: a sharded dimension is one of the tensor's");
    of("4,6", "mesh=2 place=S(-3)", COLUMNS, "`--src`: a sharded dimension is one of the tensor's");
    of("4,6", "mesh=0 place=S(0)", COLUMNS, "`--src`: ");
    of("4,6", "mesh=1x1x2 place=S(0)", COLUMNS, "`--src`: ");
    of("4,6", "mesh=2@0", COLUMNS, "`--src`: a side has one mesh= and one place=");
    of("4,6", "mesh=2\nplace=X", COLUMNS, "`--src`: placements are");
    of("4,6", ROWS, "mesh=2@1 place=R", "`--dst`: source and destination meshes share no rank");
    of("4,6", ROWS, "mesh=2,2 place=R", "`--dst`: a mesh is one or two sizes");
    of(
        "65536,65536",
        "mesh=16384 place=S(0)",
        "mesh=16384 place=S(1)",
        "`--dst`: a plan lists every",
    );
    let Ended { code, stdout, stderr } = run(&mut program(&["m2n", "plan"]));
    let expected = "nccl-ext: m2n plan: `--shape`: this argument is needed; expected such as \
                    \"1024,4096\", found none\n";
    assert_eq!((code, &*stdout, &*stderr), (Some(2), "", expected));
}

/// Every tag is closed by one of its name, and text holds no bare `&`.
fn well_formed(svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    for (at, _) in svg.match_indices('<') {
        let tag = &svg[at + 1..];
        let tag = &tag[..tag.find('>').unwrap()];
        assert!(!tag.contains('<'), "{tag}");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
    }
    assert_eq!(open, [""; 0]);
    let bare = svg.split('&').skip(1).filter(|rest| {
        !["amp;", "lt;", "gt;", "quot;"].iter().any(|entity| rest.starts_with(entity))
    });
    assert_eq!(bare.count(), 0);
}

#[test]
fn the_drawing_is_well_formed_and_has_every_rank() {
    let cases: [(&str, &str, &str, &[&str], usize); 5] = [
        ("4,6", ROWS, COLUMNS, &["--comm-size", "8"], 8),
        ("64", "mesh=16 place=S(0)", "mesh=1x4 place=R,R", &[], 20),
        ("24,4,32", "mesh=2 place=S(0)", "mesh=3x4 place=R,S(2)", &["--domain", "2"], 14),
        ("40,80", "mesh=40 place=S(0)", "mesh=2x40 place=R,S(1)", &["--network", "gin"], 120),
        ("0,4", "mesh=1 place=R", "mesh=2 place=S(1)", &[], 3),
    ];
    for (number, (shape, source, destination, flags, ranks)) in cases.into_iter().enumerate() {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("plan-{number}.svg"));
        let svg = ["--svg", path.to_str().unwrap()];
        let Ended { stdout, stderr, .. } =
            plan(shape, source, destination, &[flags, &svg].concat());
        assert_eq!(stderr, "");
        assert!(stdout.starts_with("nccl-ext m2n plan"));
        let drawing = fs::read_to_string(&path).unwrap();
        assert!(drawing.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
        well_formed(&drawing);
        for rank in 0..ranks {
            let name = format!("rank {rank}");
            let word = |rest: &str| !rest.starts_with(|next: char| next.is_ascii_digit());
            assert!(drawing.split(&name).skip(1).any(word), "{name} of case {number}");
        }
        for foreign in ["href", "url(http", "@import", "NaN", "inf"] {
            assert!(!drawing.contains(foreign), "{foreign} in case {number}");
        }
    }
    let sides = ("mesh=300 place=S(0)", "mesh=2 place=R");
    refused("300", sides.0, sides.1, &["--svg", "unused.svg"], "`--svg`: a drawing has room for");
}

/// A copy to oneself, an empty tensor, and more ranks than the table lists.
#[test]
fn unusual_plans() {
    let (code, alone) = answer("4", "mesh=1@0 place=R", "mesh=1@0 place=R", &["--network", "gin"]);
    assert_eq!(
        (code, &alone["links"]),
        (
            Some(0),
            &json!([{
                "from": 0, "to": 0, "bytes": 8, "within_domain": true
            }])
        )
    );
    assert_eq!(alone["ranks"][1]["sent_bytes"], 0);
    let (code, empty) = answer("0,4", "mesh=1 place=R", "mesh=2 place=S(1)", &[]);
    assert_eq!((code, &empty["coverage"]["bytes"]), (Some(0), &json!(0)));
    let Ended { stdout, .. } = plan("512", "mesh=128 place=S(0)", "mesh=128 place=S(0)", &[]);
    assert!(stdout.contains("\nand 192 more ranks; --json has them\n"), "{stdout}");
}

/// The documentation's table and drawing; a packaged crate has none.
#[test]
fn the_page_shows_this_output() {
    let pages = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/src");
    let Ok(page) = fs::read_to_string(pages.join("m2n.md")) else {
        eprintln!("not in a checkout: no documentation");
        return;
    };
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("page.svg");
    let (source, destination) = ("mesh=4@0 place=S(0)", "mesh=2x2@4 place=S(1),R");
    let flags = ["--dtype", "bf16", "--svg", path.to_str().unwrap()];
    let Ended { stdout, .. } = plan("1024,4096", source, destination, &flags);
    assert!(page.contains(&format!("```text\n{stdout}```\n")), "{stdout}");
    let shown = fs::read_to_string(pages.join("m2n-plan.svg")).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), shown);
}
