//! From names to the files that define them.

use std::collections::BTreeMap;

use super::source::Crate;

/// Arrows between files, each with one of the paths that make it.
pub(super) type Arrows = BTreeMap<(usize, usize), String>;

/// What a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Module(usize),
    /// Something that this module defines.
    Item(usize),
}

/// Names that are being looked up, each in a module. An import that leads back to one of them leads
/// nowhere.
type Open = Vec<(usize, String)>;

pub(super) fn arrows(parsed: &Crate) -> Arrows {
    let mut arrows = Arrows::new();
    for (index, module) in parsed.modules.iter().enumerate() {
        let imports = module.imports.iter().filter(|import| !import.re_export);
        for path in imports.map(|import| &import.path).chain(&module.mentions) {
            let Some(Target::Item(target)) = resolve(parsed, index, path, &mut Open::new()) else {
                continue;
            };
            let (from, to) = (module.file, parsed.modules[target].file);
            if from != to {
                arrows.entry((from, to)).or_insert_with(|| path.join("::"));
            }
        }
    }
    arrows
}

/// What `path` names in a module; `None` where that is no part of this crate.
fn resolve(parsed: &Crate, module: usize, path: &[String], open: &mut Open) -> Option<Target> {
    let (first, rest) = path.split_first()?;
    let mut target = match first.as_str() {
        "crate" => Target::Module(0),
        "self" => Target::Module(module),
        "super" => Target::Module(parsed.modules[module].parent?),
        name => lookup(parsed, module, name, open)?,
    };
    for name in rest {
        let Target::Module(module) = target else { break };
        target = match name.as_str() {
            "super" => Target::Module(parsed.modules[module].parent?),
            // What the sources do not show is made by a macro there.
            name => lookup(parsed, module, name, open).unwrap_or(Target::Item(module)),
        };
    }
    Some(target)
}

/// What a name means in a module: its own items and children, then what it imports.
fn lookup(parsed: &Crate, module: usize, name: &str, open: &mut Open) -> Option<Target> {
    let own = parsed.modules.get(module)?;
    if let Some(&child) = own.children.get(name) {
        return Some(Target::Module(child));
    }
    if own.items.contains(name) {
        return Some(Target::Item(module));
    }
    let query = (module, name.to_owned());
    if open.contains(&query) {
        return None;
    }
    open.push(query);
    let found = import(parsed, module, name, open);
    open.pop();
    found
}

/// What a name means that a module may import.
fn import(parsed: &Crate, module: usize, name: &str, open: &mut Open) -> Option<Target> {
    let imports = &parsed.modules[module].imports;
    if let Some(import) = imports.iter().find(|import| import.name.as_deref() == Some(name)) {
        return resolve(parsed, module, &import.path, open);
    }
    // What another crate brings in as a whole is none of this crate's names.
    let is_own = |word: &String| {
        matches!(word.as_str(), "crate" | "self" | "super")
            || parsed.modules[module].children.contains_key(word)
            || imports.iter().any(|import| import.name.as_ref() == Some(word))
    };
    let all_of = imports.iter().filter(|import| import.name.is_none());
    all_of.filter(|import| import.path.first().is_some_and(is_own)).find_map(
        |import| match resolve(parsed, module, &import.path, open)? {
            Target::Module(there) if there != module => lookup(parsed, there, name, open),
            _ => None,
        },
    )
}
