//! Circles among files, and among rooms.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use super::names::{self, Arrows};
use super::source::Crate;

/// The shortest circle of those that hang together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Circle {
    /// Where it is: the module whose children it joins; `None` for circles of files.
    room: Option<String>,
    /// In the order of the arrows; the last leads to the first.
    pub(super) members: Vec<String>,
    /// How many more are joined to them in both directions.
    others: usize,
    /// For each arrow one that names a file and what it names.
    arrows: Vec<String>,
}

impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.room.as_deref() {
            None => f.write_str("a circle of files: ")?,
            Some("") => f.write_str("a circle of rooms: ")?,
            Some(room) => write!(f, "a circle of rooms in {room}: ")?,
        }
        for member in &self.members {
            write!(f, "{member} -> ")?;
        }
        f.write_str(self.members.first().map_or("", String::as_str))?;
        if self.others > 0 {
            write!(f, ", and {} more that hang together with them", self.others)?;
        }
        for arrow in &self.arrows {
            write!(f, "\n    {arrow}")?;
        }
        Ok(())
    }
}

/// Circles of files.
pub(super) fn of_files(parsed: &Crate) -> Vec<Circle> {
    let arrows = names::arrows(parsed);
    let name = |file: usize| parsed.files[file].display().to_string();
    let nodes: Vec<_> = (0..parsed.files.len()).collect();
    find(parsed, &arrows, nodes.len(), |file| nodes.get(file).copied())
        .into_iter()
        .map(|found| found.into_circle(None, name))
        .collect()
}

/// Circles of what lies below one module, at every level.
pub(super) fn of_rooms(parsed: &Crate) -> Vec<Circle> {
    let arrows = names::arrows(parsed);
    let mut circles = Vec::new();
    for (index, module) in parsed.modules.iter().enumerate() {
        // Whose file is this module's or one below it: the child that leads there, or itself.
        let children: Vec<_> = module.children.keys().collect();
        let mut owner = BTreeMap::new();
        for (inner, other) in parsed.modules.iter().enumerate() {
            if inner == index {
                owner.entry(other.file).or_insert(0);
            } else if let Some(child) = ancestor_below(parsed, index, inner) {
                let at = children.iter().position(|name| **name == parsed.modules[child].name);
                owner.entry(other.file).or_insert(at.map_or(0, |at| at + 1));
            }
        }
        let name = |node: usize| match node.checked_sub(1).and_then(|at| children.get(at)) {
            Some(name) => (*name).clone(),
            None => parsed.files[module.file].display().to_string(),
        };
        let found = find(parsed, &arrows, children.len() + 1, |file| owner.get(&file).copied());
        let room = parsed.name_of(index);
        circles.extend(found.into_iter().map(|found| found.into_circle(Some(room.clone()), name)));
    }
    circles
}

/// The child of `room` that `module` is or lies below.
fn ancestor_below(parsed: &Crate, room: usize, mut module: usize) -> Option<usize> {
    loop {
        match parsed.modules[module].parent? {
            parent if parent == room => return Some(module),
            parent => module = parent,
        }
    }
}

struct Found {
    circle: Vec<usize>,
    others: usize,
    arrows: Vec<String>,
}

impl Found {
    fn into_circle(self, room: Option<String>, name: impl Fn(usize) -> String) -> Circle {
        let members = self.circle.into_iter().map(name).collect();
        Circle { room, members, others: self.others, arrows: self.arrows }
    }
}

/// One circle for each set of nodes that reach each other. `node` says where a file belongs.
fn find(
    parsed: &Crate,
    arrows: &Arrows,
    nodes: usize,
    node: impl Fn(usize) -> Option<usize>,
) -> Vec<Found> {
    let mut examples: BTreeMap<(usize, usize), String> = BTreeMap::new();
    let mut next = vec![BTreeSet::new(); nodes];
    for (&(from, to), path) in arrows {
        let (Some(a), Some(b)) = (node(from), node(to)) else { continue };
        if a != b {
            next[a].insert(b);
            let show = |file: usize| parsed.files[file].display();
            let text = || format!("{} names `{path}` of {}", show(from), show(to));
            examples.entry((a, b)).or_insert_with(text);
        }
    }
    let ways: Vec<Vec<Option<usize>>> = (0..nodes).map(|start| search(&next, start)).collect();
    let reaches = |a: usize, b: usize| ways[a][b].is_some();
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for start in 0..nodes {
        let group: Vec<_> =
            (0..nodes).filter(|&other| reaches(start, other) && reaches(other, start)).collect();
        if group.is_empty() || !seen.insert(group.clone()) {
            continue;
        }
        let circles = group.iter().map(|&node| walk_back(&ways[node], node));
        let Some(circle) = circles.min_by_key(Vec::len) else { continue };
        let ends = circle.iter().skip(1).chain(circle.first());
        let arrows = circle.iter().zip(ends).filter_map(|(&a, &b)| examples.get(&(a, b)).cloned());
        let (arrows, others) = (arrows.collect(), group.len() - circle.len());
        all.push(Found { circle, others, arrows });
    }
    all
}

/// For every node that `start` reaches in one step or more, the node before it on a shortest way.
fn search(next: &[BTreeSet<usize>], start: usize) -> Vec<Option<usize>> {
    let mut before = vec![None; next.len()];
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        for &there in &next[node] {
            if before[there].is_none() {
                before[there] = Some(node);
                if there != start {
                    queue.push_back(there);
                }
            }
        }
    }
    before
}

/// The shortest way from `start` back to it.
fn walk_back(before: &[Option<usize>], start: usize) -> Vec<usize> {
    let mut circle = Vec::new();
    let mut node = start;
    while let Some(previous) = before[node] {
        circle.push(previous);
        if previous == start {
            break;
        }
        node = previous;
    }
    circle.reverse();
    circle
}
