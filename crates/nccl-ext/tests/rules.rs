//! `nccl-ext rules`: for people, for programs and for the book.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::collections::BTreeSet;

use common::{Ended, program, run};
use serde_json::Value;

#[test]
fn json_lists_every_rule_of_every_crate_once() {
    let Ended { code, stdout, stderr } = run(&mut program(&["rules", "--json"]));
    assert_eq!((code, &*stderr), (Some(0), ""));
    let listing: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(listing["tool"], "nccl-ext");
    let rules = listing["rules"].as_array().unwrap();
    let of = |name: &str| rules.iter().filter(|rule| rule["crate"] == name).count();
    assert_eq!(of("nccl-ext-core"), nccl_ext_core::rules::all().count());
    assert_eq!(of("nccl-ep"), nccl_ep::rules().count());
    assert_eq!(of("nccl-m2n"), nccl_m2n::rules().count());
    let names: BTreeSet<&str> = rules.iter().filter_map(|rule| rule["name"].as_str()).collect();
    assert_eq!(names.len(), rules.len());
    for rule in rules {
        assert!(["uniform", "local"].contains(&rule["scope"].as_str().unwrap()), "{rule}");
        for key in ["argument", "rule", "source"] {
            assert!(rule[key].as_str().is_some_and(|words| !words.is_empty()), "{rule}");
        }
    }
}

#[test]
fn text_and_markdown_have_a_line_for_each_rule() {
    for form in [&["rules"][..], &["rules", "--markdown"]] {
        let Ended { code, stdout, .. } = run(&mut program(form));
        assert_eq!(code, Some(0));
        let rules = nccl_ext_core::rules::all().chain(nccl_ep::rules()).chain(nccl_m2n::rules());
        for info in rules {
            let named = |line: &&str| line.split([' ', '`']).any(|word| word == info.name);
            assert_eq!(stdout.lines().filter(named).count(), 1, "{} in {form:?}", info.name);
        }
    }
}

#[test]
fn forms_exclude_each_other_and_unknown_flags_are_refused() {
    for arguments in [&["rules", "--json", "--markdown"][..], &["rules", "--yaml"], &["rules", "x"]]
    {
        let Ended { code, stdout, stderr } = run(&mut program(arguments));
        assert_eq!((code, &*stdout), (Some(2), ""), "{arguments:?}");
        assert!(stderr.starts_with("error: "), "{stderr}");
    }
}
