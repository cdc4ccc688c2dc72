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

/// Imports that lead through more imports than this lead nowhere.
const DEEPEST: usize = 32;

pub(super) fn arrows(parsed: &Crate) -> Arrows {
    let mut arrows = Arrows::new();
    for (index, module) in parsed.modules.iter().enumerate() {
        let imports = module.imports.iter().filter(|import| !import.re_export);
        for path in imports.map(|import| &import.path).chain(&module.mentions) {
            let Some(Target::Item(target)) = resolve(parsed, index, path, 0) else { continue };
            let (from, to) = (module.file, parsed.modules[target].file);
            if from != to {
                arrows.entry((from, to)).or_insert_with(|| path.join("::"));
            }
        }
    }
    arrows
}

/// What `path` names in a module; `None` where that is no part of this crate.
fn resolve(parsed: &Crate, module: usize, path: &[String], depth: usize) -> Option<Target> {
    if depth > DEEPEST {
        return None;
    }
    let (first, rest) = path.split_first()?;
    let mut target = match first.as_str() {
        "crate" => Target::Module(0),
        "self" => Target::Module(module),
        "super" => Target::Module(parsed.modules[module].parent?),
        name => lookup(parsed, module, name, depth)?,
    };
    for name in rest {
        let Target::Module(module) = target else { break };
        target = match name.as_str() {
            "super" => Target::Module(parsed.modules[module].parent?),
            // What the sources do not show is made by a macro there.
            name => lookup(parsed, module, name, depth).unwrap_or(Target::Item(module)),
        };
    }
    Some(target)
}

/// What a name means in a module: its own items and children, then what it imports.
fn lookup(parsed: &Crate, module: usize, name: &str, depth: usize) -> Option<Target> {
    let own = parsed.modules.get(module)?;
    if let Some(&child) = own.children.get(name) {
        return Some(Target::Module(child));
    }
    if own.items.contains(name) {
        return Some(Target::Item(module));
    }
    let named = own.imports.iter().find(|import| import.name.as_deref() == Some(name));
    if let Some(import) = named {
        // `use name;` and the import of another crate under its own name lead nowhere.
        let leads_on = import.path.len() > 1 || import.path.first().is_some_and(|p| p != name);
        return if leads_on { resolve(parsed, module, &import.path, depth + 1) } else { None };
    }
    own.imports.iter().filter(|import| import.name.is_none()).find_map(|import| {
        match resolve(parsed, module, &import.path, depth + 1)? {
            Target::Module(there) if there != module => lookup(parsed, there, name, depth + 1),
            _ => None,
        }
    })
}
