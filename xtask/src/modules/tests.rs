use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::circles::{self, Circle};
use super::source::Crate;

fn parse(files: &[(&str, &str)]) -> Crate {
    let sources: BTreeMap<PathBuf, String> =
        files.iter().map(|&(path, text)| (path.into(), text.into())).collect();
    Crate::parse(Path::new("lib.rs"), &sources).unwrap()
}

fn members(circles: &[Circle]) -> Vec<Vec<&str>> {
    circles.iter().map(|circle| circle.members.iter().map(String::as_str).collect()).collect()
}

fn file_circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let found = circles::of_files(&parse(files));
    members(&found).into_iter().map(|c| c.into_iter().map(str::to_owned).collect()).collect()
}

fn room_circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let found = circles::of_rooms(&parse(files));
    members(&found).into_iter().map(|c| c.into_iter().map(str::to_owned).collect()).collect()
}

const NONE: [[&str; 0]; 0] = [];

#[test]
fn two_files_that_import_each_other_are_a_circle() {
    let found = circles::of_files(&parse(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use super::b::B; pub struct A(B);"),
        ("b.rs", "pub struct B; fn f() { crate::a::A; }"),
    ]));
    assert_eq!(members(&found), [["a.rs", "b.rs"]]);
    let text = found[0].to_string();
    assert!(text.contains("a circle of files: a.rs -> b.rs -> a.rs"), "{text}");
    assert!(text.contains("b.rs names `crate::a::A` of a.rs"), "{text}");
}

#[test]
fn a_chain_is_none() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; pub use a::A;"),
        ("a.rs", "use crate::b::B; pub struct A(B);"),
        ("b.rs", "use super::c; pub struct B(c::C);"),
        ("c.rs", "pub struct C;"),
    ];
    assert_eq!(file_circles(&files), NONE);
    assert_eq!(room_circles(&files), NONE);
}

#[test]
fn the_shortest_of_several_circles_is_shown_with_the_number_of_others() {
    let found = circles::of_files(&parse(&[
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use super::b::B; pub struct A;"),
        ("b.rs", "use super::{a::A, c::C}; pub struct B;"),
        ("c.rs", "use super::a::A; pub struct C;"),
    ]));
    assert_eq!(members(&found), [["a.rs", "b.rs"]]);
    assert!(found[0].to_string().contains("and 1 more"), "{}", found[0]);
}

#[test]
fn test_modules_are_ignored() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "pub struct A; #[cfg(test)] mod tests { use crate::b::B; } #[cfg(test)] mod t;"),
        ("a/t.rs", "use crate::b::B;"),
        ("b.rs", "use crate::a::A; pub struct B; impl B { #[cfg(test)] fn f() { crate::a::A } }"),
    ];
    assert_eq!(file_circles(&files), NONE);
}

#[test]
fn re_exports_are_followed_and_make_no_arrow() {
    let files = [
        ("lib.rs", "mod room;"),
        ("room/mod.rs", "mod a; mod b; pub(crate) use a::A; pub(crate) use b::*;"),
        ("room/a.rs", "pub struct A;"),
        ("room/b.rs", "use super::A; pub struct B(A);"),
    ];
    assert_eq!(file_circles(&files), NONE);
    // The same where the sibling is reached through the parent and names this file back.
    let files = [
        ("lib.rs", "mod room;"),
        ("room/mod.rs", "mod a; mod b; pub(crate) use a::A; pub(crate) use b::*;"),
        ("room/a.rs", "use crate::room::B; pub struct A(B);"),
        ("room/b.rs", "use super::A; pub struct B(A);"),
    ];
    assert_eq!(file_circles(&files), [["room/a.rs", "room/b.rs"]]);
}

#[test]
fn a_parent_that_uses_the_children_that_use_it_is_a_circle() {
    let files = [
        ("lib.rs", "mod room;"),
        ("room/mod.rs", "mod a; const N: usize = a::M;"),
        ("room/a.rs", "pub const M: usize = super::N;"),
    ];
    assert_eq!(file_circles(&files), [["room/mod.rs", "room/a.rs"]]);
    assert_eq!(room_circles(&files), [["room/mod.rs", "a"]]);
}

#[test]
fn rooms_may_be_in_a_circle_where_files_are_not() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a/mod.rs", "mod low; mod high; pub(crate) use low::Low;"),
        ("a/low.rs", "pub struct Low;"),
        ("a/high.rs", "use crate::b::B;"),
        ("b.rs", "use crate::a::Low; pub struct B(Low);"),
    ];
    assert_eq!(file_circles(&files), NONE);
    assert_eq!(room_circles(&files), [["a", "b"]]);
}

#[test]
fn macros_bodies_and_inner_modules_count() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "pub struct A; mod inner { fn f() { println!(\"{}\", super::super::b::B); } }"),
        ("b.rs", "pub struct B; fn f() { use crate::a as other; other::A; }"),
    ];
    assert_eq!(file_circles(&files), [["a.rs", "b.rs"]]);
}

#[test]
fn files_are_found_where_paths_and_folders_say() {
    let files = [
        ("lib.rs", "#[path = \"else/where.rs\"] mod a; mod b;"),
        ("else/where.rs", "mod inner; pub use inner::A;"),
        ("else/inner.rs", "use crate::b::B; pub struct A;"),
        ("b/mod.rs", "use crate::a::A; pub struct B;"),
    ];
    assert_eq!(file_circles(&files), [["else/inner.rs", "b/mod.rs"]]);
}

#[test]
fn imports_of_everything_do_not_lead_in_circles() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use one::*; use two::*; use three::*; use super::b::*; fn f() { x::y(); }"),
        ("b.rs", "use four::*; use five::*; use super::a::*; fn g() { z::y(); }"),
    ];
    assert_eq!(file_circles(&files), NONE);
}
