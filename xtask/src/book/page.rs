//! A page: what can be linked to in it, and what it links to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// Where the book's pages lie, and the page that lists them.
pub(super) const PAGES: &str = "docs/src";
pub(super) const SUMMARY: &str = "docs/src/SUMMARY.md";

#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) anchors: BTreeSet<String>,
    pub(super) links: Vec<Link>,
    /// Anchors that stand twice, and HTML that is no anchor: a `<name>` that a reader does not see.
    pub(super) problems: Vec<(usize, String)>,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) line: usize,
    pub(super) target: String,
}

impl Page {
    pub(super) fn read(root: &Path, file: &str) -> Result<Self> {
        let text = std::fs::read_to_string(root.join(file))
            .with_context(|| format!("{file}: cannot be read"))?;
        Ok(Self::parse(&text))
    }

    pub(super) fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut slugs = Slugs::default();
        // The text of the heading that is being read, and the anchor that it gives itself.
        let mut heading: Option<(String, Option<String>)> = None;
        let lines: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
        for (event, range) in Parser::new_ext(text, options()).into_offset_iter() {
            let line = 1 + lines.partition_point(|end| *end < range.start);
            match event {
                Event::Start(Tag::Heading { id, .. }) => {
                    heading = Some((String::new(), id.map(|id| id.to_string())));
                }
                Event::End(TagEnd::Heading(_)) => {
                    if let Some((text, id)) = heading.take() {
                        page.add(id.unwrap_or_else(|| slugs.next(&text)), line);
                    }
                }
                Event::Text(text) | Event::Code(text) => {
                    if let Some((heading, _)) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(Link { line, target: dest_url.to_string() });
                }
                Event::Html(html) | Event::InlineHtml(html) => page.html(&html, line),
                _ => {}
            }
        }
        page
    }

    fn html(&mut self, html: &str, line: usize) {
        let html = html.trim();
        let anchor = html.strip_prefix("<a id=\"").and_then(|rest| rest.strip_suffix("\">"));
        if let Some(anchor) = anchor {
            self.add(anchor.to_owned(), line);
        } else if html != "</a>" && !html.starts_with("<!--") {
            self.problems.push((line, format!("{html} is taken for HTML; write it as `code`")));
        }
    }

    fn add(&mut self, anchor: String, line: usize) {
        if self.anchors.contains(&anchor) {
            self.problems.push((line, format!("the anchor `{anchor}` stands twice")));
        }
        self.anchors.insert(anchor);
    }
}

/// What mdbook turns on.
fn options() -> Options {
    Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_HEADING_ATTRIBUTES
}

/// Anchors of headings as mdbook makes them: the second "Results" of a page is `results-1`.
#[derive(Default)]
struct Slugs {
    taken: BTreeMap<String, usize>,
}

impl Slugs {
    fn next(&mut self, heading: &str) -> String {
        let slug: String = heading.trim().chars().filter_map(slug).collect();
        let count = self.taken.entry(slug.clone()).or_default();
        *count += 1;
        if *count == 1 { slug } else { format!("{slug}-{}", *count - 1) }
    }
}

fn slug(c: char) -> Option<char> {
    if c.is_alphanumeric() || c == '_' || c == '-' {
        Some(c.to_ascii_lowercase())
    } else {
        c.is_whitespace().then_some('-')
    }
}
