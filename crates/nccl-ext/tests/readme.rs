//! The README shows the example that is built and run here.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;

#[test]
fn the_readme_shows_the_example() {
    let file =
        |path: &str| fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let example = file("examples/two_ranks.rs");
    let (_, code) = example.split_once("\n\n").unwrap();
    assert!(file("../../README.md").contains(&format!("```rust\n{code}```\n")));
}
