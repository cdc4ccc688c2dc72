//! Every C item with its counterparts, or with the reason for having none.

use std::collections::BTreeMap;

use super::c_api::{CApi, Field, member};
use super::library::Library;
use super::rust_api::RustApi;
use super::unwrapped::Entry;

/// What stands for a C item.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    /// Rust items.
    Rust(Vec<String>),
    /// Nothing, for this reason.
    Reason(&'static str),
}

/// An answer for every item, and counterparts of constants.
#[derive(Debug)]
pub(super) struct Map {
    answers: BTreeMap<String, Answer>,
}

impl Map {
    /// # Errors
    /// Every problem, a line each.
    pub(super) fn new(library: &Library, c: &CApi, rust: &RustApi) -> Result<Self, String> {
        let mut problems = Vec::new();
        let wrapped = wrapped(library, c, rust, &mut problems);
        let items = c.items();
        for entry in library.unwrapped {
            check_entry(entry, &items, &wrapped, &mut problems);
        }
        let mut answers = BTreeMap::new();
        for item in &items {
            let answer = match wrapped.get(item) {
                Some(rust) => Answer::Rust(rust.clone()),
                None => match reason(library.unwrapped, item) {
                    Some(reason) => Answer::Reason(reason),
                    None => {
                        problems.push(format!(
                            "  `{item}` has no Rust counterpart (a `#[doc(alias = \"{item}\")]` in \
                             {}) and no reason in xtask/src/api_map/unwrapped.rs",
                            library.sources
                        ));
                        continue;
                    }
                },
            };
            answers.insert(item.clone(), answer);
        }
        for constant in &c.constants {
            if let Some(rust) = wrapped.get(constant) {
                answers.insert(constant.clone(), Answer::Rust(rust.clone()));
            }
        }
        if problems.is_empty() { Ok(Self { answers }) } else { Err(problems.join("\n")) }
    }

    /// What stands for an item; nothing for a constant that has no counterpart and needs none.
    pub(super) fn answer(&self, item: &str) -> Option<&Answer> {
        self.answers.get(item)
    }
}

/// Rust names by C name: what the aliases say, fields by the names of fields and methods, and what
/// is passed by value by its type.
fn wrapped(
    library: &Library,
    c: &CApi,
    rust: &RustApi,
    problems: &mut Vec<String>,
) -> BTreeMap<String, Vec<String>> {
    let names = c.names();
    let mut wrapped: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut add = |c: String, rust: String| {
        let all = wrapped.entry(c).or_default();
        if !all.contains(&rust) {
            all.push(rust);
        }
    };
    for counterpart in &rust.counterparts {
        for alias in &counterpart.aliases {
            let ours = library.prefixes.iter().any(|prefix| alias.starts_with(prefix));
            if ours && !names.contains(alias) && !library.macros.contains(&&**alias) {
                let rust = &counterpart.rust;
                problems.push(format!("  `{rust}` has the alias `{alias}`, which is no C item"));
            }
            add(alias.clone(), counterpart.rust.clone());
            let Some(structure) = c.structure(alias) else { continue };
            for (name, named) in &counterpart.fields {
                let same = |field: &&Field| match named {
                    Some(named) => *named == field.name,
                    None => plain(name) == plain(&field.name),
                };
                if let Some(field) = structure.fields.iter().find(same) {
                    add(member(alias, &field.name), format!("{}::{name}", counterpart.rust));
                }
            }
            // A method may be called like a field and be about something else: an entry decides.
            for name in rust.methods.get(&counterpart.rust).into_iter().flatten() {
                let same = |field: &&Field| plain(name) == plain(&field.name);
                let field = structure.fields.iter().find(same);
                let item = field.map(|field| member(alias, &field.name));
                if let Some(item) = item.filter(|item| reason(library.unwrapped, item).is_none()) {
                    add(item, format!("{}::{name}", counterpart.rust));
                }
            }
        }
    }
    by_type(c, &mut wrapped);
    wrapped
}

/// `maxCta` and `max_cta` are one name.
fn plain(name: &str) -> String {
    name.replace('_', "").to_lowercase()
}

/// A field that holds a callback or a structure has that type's counterpart.
fn by_type(c: &CApi, wrapped: &mut BTreeMap<String, Vec<String>>) {
    for structure in &c.structs {
        for field in &structure.fields {
            let of = field
                .of
                .as_deref()
                .filter(|of| c.types.iter().any(|name| name == of) || c.structure(of).is_some());
            let rust = of.and_then(|of| wrapped.get(of)).cloned();
            if let Some(rust) = rust {
                wrapped.entry(member(&structure.name, &field.name)).or_insert(rust);
            }
        }
    }
}

/// Whether a hand-written entry is about an item: the item itself, a type for its members, or
/// `*::field` for that field of every structure.
fn is_about(entry: &Entry, item: &str) -> bool {
    let of_member = |(structure, field): (&str, &str)| {
        entry.item == structure || entry.item.strip_prefix("*::").is_some_and(|it| it == field)
    };
    entry.item == item || item.split_once("::").is_some_and(of_member)
}

/// An exact entry goes before one for a whole type, and that before one for a field everywhere.
fn reason(entries: &[Entry], item: &str) -> Option<&'static str> {
    let about = entries.iter().filter(|entry| is_about(entry, item));
    let rank = |entry: &&Entry| (entry.item != item, entry.item.starts_with("*::"));
    about.min_by_key(rank).map(|entry| entry.reason)
}

fn check_entry(
    entry: &Entry,
    items: &[String],
    wrapped: &BTreeMap<String, Vec<String>>,
    problems: &mut Vec<String>,
) {
    let file = "xtask/src/api_map/unwrapped.rs";
    let about: Vec<_> = items.iter().filter(|item| is_about(entry, item)).collect();
    if about.is_empty() {
        problems.push(format!("  `{}` in {file} is no C item (any more)", entry.item));
    }
    for item in about {
        if let Some(rust) = wrapped.get(item) {
            problems.push(format!(
                "  `{}` in {file} covers `{item}`, which is wrapped as `{}`: drop or narrow the \
                 entry",
                entry.item,
                rust.join("`, `")
            ));
        }
    }
}
