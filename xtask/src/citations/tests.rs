use super::*;

fn book() -> BTreeSet<String> {
    let mut anchors: BTreeSet<String> = [
        "ep-3.5.2",
        "ep-4.2",
        "ep-4.3",
        "ep-4.4",
        "ep-2.1",
        "ep-2.1-10",
        "ep-2.1-21",
        "ep-2.1-22",
        "ep-2.1-23",
        "ep-3.2-ll-a",
        "ep-3.2-ll-b",
        "ep-3.2-ll-c",
        "m2n-2.1-28d",
        "m2n-2.1-29",
        "m2n-2.1-30",
        "ep-9.2",
        "ep-f4k2",
        "m2n-d09",
        "m2n-d10",
        "m2n-d11",
        "case-e18",
        "m2n-6",
        "m2n-2.7",
    ]
    .map(str::to_owned)
    .into();
    anchors.extend((1..=13).map(|n| format!("ep-b{n}")));
    anchors
}

fn anchors(text: &str) -> Vec<String> {
    let joined = Joined::new(text);
    citation::all(joined.text()).into_iter().flat_map(|citation| citation.anchors).collect()
}

#[track_caller]
fn cites(text: &str, expected: &[&str]) {
    assert_eq!(anchors(text), expected, "{text}");
}

#[track_caller]
fn complains(file: &str, text: &str, expected: &[&str]) {
    let found = read(file, text, &book());
    assert_eq!(found.problems.len(), expected.len(), "{:?}", found.problems);
    for (problem, expected) in found.problems.iter().zip(expected) {
        assert!(problem.starts_with(expected), "{problem}");
    }
}

#[test]
fn a_citation_without_a_heading_is_found_with_file_and_line() {
    complains(
        "a.rs",
        "//! One.\n\n/// Two (EP 4.99).\n",
        &["a.rs:3: \"EP 4.99\": the book has no `ep-4.99`"],
    );
    complains("a.rs", "// EP 2.1 #10 and EP 4.2.\n", &[]);
}

#[test]
fn lists_are_read_wholly() {
    cites("(EP 3.5.2, 4.2)", &["ep-3.5.2", "ep-4.2"]);
    cites("EP 3.5.2, 4.2 and 4.3.", &["ep-3.5.2", "ep-4.2", "ep-4.3"]);
    cites("EP 2.1 #10, #21, 4.2", &["ep-2.1-10", "ep-2.1-21", "ep-4.2"]);
    cites("M2N 2.1 #29, M2N 6", &["m2n-2.1-29", "m2n-6"]);
    cites("EP vectors B1, B3 and F4K2", &["ep-b1", "ep-b3", "ep-f4k2"]);
    complains(
        "a.md",
        "EP 4.2, 4.98, 4.3",
        &["a.md:1: \"EP 4.2, 4.98, 4.3\": the book has no `ep-4.98`"],
    );
}

#[test]
fn ranges_stand_for_all_that_they_span() {
    cites("EP 4.2 to 4.4", &["ep-4.2", "ep-4.3", "ep-4.4"]);
    cites("EP 2.1 #21 to #23.", &["ep-2.1-21", "ep-2.1-22", "ep-2.1-23"]);
    cites("M2N 2.1 #28d to #30, 2.7", &["m2n-2.1-28d", "m2n-2.1-29", "m2n-2.1-30", "m2n-2.7"]);
    cites("EP 3.2 LL a to c:", &["ep-3.2-ll-a", "ep-3.2-ll-b", "ep-3.2-ll-c"]);
    cites("M2N vectors D09 to D11", &["m2n-d09", "m2n-d10", "m2n-d11"]);
    cites("EP 3.2 LL a, c", &["ep-3.2-ll-a", "ep-3.2-ll-c"]);
    complains("a.md", "EP 4.2 to 4.5", &["a.md:1: \"EP 4.2 to 4.5\": the book has no `ep-4.5`"]);
}

#[test]
fn a_citation_goes_on_in_the_next_line() {
    cites("/// (EP 3.5.2,\n    /// 4.2) for M2N\n    /// 2.7", &["ep-3.5.2", "ep-4.2", "m2n-2.7"]);
    let text = "x\n    \"see EP \\\n     4.97\"";
    complains("a.rs", text, &["a.rs:2: \"EP 4.97\""]);
}

#[test]
fn strings_of_code_count() {
    complains("a.rs", "rule(\"EP 4.96\", Local)", &["a.rs:1: \"EP 4.96\""]);
    cites("(\"EP 2.1 #10\", Uniform)", &["ep-2.1-10"]);
}

#[test]
fn what_follows_a_citation_is_none_of_it() {
    cites("EP 4.2, and what else", &["ep-4.2"]);
    cites("EP 4.2 to its end", &["ep-4.2"]);
    cites("EP 4.2 a token", &["ep-4.2"]);
    cites("EP 4.2\n#[test]", &["ep-4.2"]);
    cites("NCCL EP 0.2.0, libnccl_ep 0.2.0, EP8, EP group, case of EP, REP 4", &[]);
}

#[test]
fn a_letter_without_its_list_leads_nowhere() {
    complains("a.rs", "// EP 3.2 c.", &["a.rs:1: \"EP 3.2 c\": the book has no `ep-3.2-c`"]);
}

#[test]
fn vectors_say_of_which_document() {
    complains("a.rs", "/// EP vector B3.\n/// Case E18: many tokens.", &[]);
    complains("a.rs", "/// EP vector B99.", &["a.rs:1: \"EP vector B99\": the book has no"]);
    complains(
        "a.rs",
        "/// B3 to B5: rows.",
        &["a.rs:1: \"B3\" of what?", "a.rs:1: \"B5\" of what?"],
    );
    complains("a.rs", "    // E18, in short", &["a.rs:1: \"E18\" of what?"]);
    complains("a.rs", "/// Vector B3.", &["a.rs:1: \"B3\" of what?"]);
    complains("a.rs", "/// The numbers of B3.", &["a.rs:1: \"B3\" of what?"]);
    complains("a.rs", "/// EP vectors B1,\n/// B2 and\n/// B3.", &[]);
    complains("a.rs", "/// B200 is a GPU, `B3` and B3-like are code.\nlet b = B3;", &[]);
    complains("a.rs", "/// EP 9.2 B3.", &["a.rs:1: \"B3\" of what?"]);
    // Tables of the book itself name their rows so.
    complains("a.md", "B3, B4", &[]);
}
