use super::links::Target;
use super::*;

fn inside(file: &str, anchor: Option<&str>) -> Target {
    Target::Inside { file: file.to_owned(), anchor: anchor.map(str::to_owned) }
}

/// The problems of a book with these pages.
fn problems(texts: &[(&str, &str)]) -> Vec<String> {
    let pages: BTreeMap<String, Page> =
        texts.iter().map(|(file, text)| ((*file).to_owned(), Page::parse(text))).collect();
    let files = texts.iter().map(|(file, _)| *file).collect();
    let mut checked = Checked::default();
    check::summary(&pages, &mut checked);
    check::pages(&pages, &files, &mut checked);
    checked.problems
}

#[track_caller]
fn one_problem(texts: &[(&str, &str)], expected: &str) {
    let problems = problems(texts);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains(expected), "{problems:?}");
}

#[test]
fn headings_have_the_anchors_that_mdbook_gives_them() {
    let page = Page::parse(
        "# What `it` is: the 2nd, _time_\n## Results\n## Results\n## Named {#ep-3.5.2}\n\n| a |\n|---|\n\
         | <a id=\"ep-2.1-1\"></a>1 |\n",
    );
    let expected = ["ep-2.1-1", "ep-3.5.2", "results", "results-1", "what-it-is-the-2nd-time"];
    assert_eq!(page.anchors.into_iter().collect::<Vec<_>>(), expected);
    assert_eq!(page.problems, []);
}

#[test]
fn targets_are_seen_from_the_root() {
    assert_eq!(Target::of("docs/src/a.md", "b.md#x"), inside("docs/src/b.md", Some("x")));
    assert_eq!(Target::of("docs/src/spec/a.md", "../b.md"), inside("docs/src/b.md", None));
    assert_eq!(Target::of("docs/src/a.md", "#x"), inside("docs/src/a.md", Some("x")));
    assert_eq!(Target::of("README.md", "../x"), Target::Outside);
    assert_eq!(Target::of("README.md", "https://a.b/c.md"), Target::Elsewhere);
}

#[test]
fn pages_and_summary_agree() {
    let summary = "docs/src/SUMMARY.md";
    assert_eq!(problems(&[(summary, "* [A](a.md)"), ("docs/src/a.md", "# A")]), [""; 0]);
    one_problem(&[(summary, ""), ("docs/src/a.md", "# A")], "docs/src/a.md:1: is not listed");
    one_problem(&[(summary, "\n* [A](a.md)")], "SUMMARY.md:2: a.md leads to no file");
    let twice = "* [A](a.md)\n* [A](a.md)";
    one_problem(&[(summary, twice), ("docs/src/a.md", "")], "SUMMARY.md:2: lists a.md twice");
}

#[test]
fn links_lead_to_files_and_headings() {
    let book = |text: &'static str| {
        [("docs/src/SUMMARY.md", "* [A](a.md)"), ("docs/src/a.md", text), ("README.md", "# R")]
    };
    assert_eq!(problems(&book("# A b\n[x](#a-b) [y](https://x.y)")), [""; 0]);
    one_problem(&book("# A\n\n[x](#b)"), "docs/src/a.md:3: #b leads to no heading");
    one_problem(&book("[x](b.md)"), "b.md leads to no file: there is no docs/src/b.md");
    one_problem(&book("[x](../../README.md)"), "is no page of the book");
    one_problem(&book("`<a>` and <nccl string>"), "<nccl string> is taken for HTML");
}

#[test]
fn pages_that_sources_name_exist() {
    let pages = BTreeMap::from([("docs/src/a.md".to_owned(), Page::parse("# A"))]);
    let mut checked = Checked::default();
    let text = "// See docs/src/a.md#a, docs/src/a.md.\n\n// docs/src/b.md, docs/src/a.md#c\n\
                (\"book a.md\", Local), (\"book c.md\", Local)";
    check::source("x.rs", text, &pages, &mut checked);
    assert_eq!(checked.links, 6);
    let expected = [
        "x.rs:3: docs/src/b.md: the book has no such page",
        "x.rs:3: docs/src/a.md#c: the page has no such heading",
        "x.rs:4: docs/src/c.md: the book has no such page",
    ];
    assert_eq!(checked.problems, expected);
}
