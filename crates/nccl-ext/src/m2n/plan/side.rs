//! One side of a reshard, as it is typed: `mesh=2x2@4 place=S(1),R`.

use nccl_m2n::Placement;

use super::command::{COMMAND, whole};
use crate::failure::InputError;

/// What a message shows for a side.
pub(super) const EXAMPLE: &str = "mesh=2x2@4 place=S(1),R";

/// A side without the tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Side {
    /// Extents of the mesh.
    pub(super) dims: Vec<usize>,
    /// Its first rank, where one is named.
    pub(super) start: Option<usize>,
    /// One for each dimension of the mesh.
    pub(super) placements: Vec<Placement>,
}

/// # Errors
/// [`InputError`] with the word that is wrong.
pub(super) fn parse(item: &'static str, text: &str) -> Result<Side, InputError> {
    let refused = |rule, found: &str| {
        InputError::new(COMMAND, item, rule, format!("such as {EXAMPLE:?}"), format!("{found:?}"))
    };
    let (mut given_mesh, mut given_placements) = (None, None);
    for word in text.split_whitespace() {
        let twice = match word.split_once('=') {
            Some(("mesh", value)) => {
                let rule = "a mesh is one or two sizes with x between, and @ with its first rank";
                given_mesh.replace(mesh(value).ok_or_else(|| refused(rule, value))?).is_some()
            }
            Some(("place", value)) => {
                let rule = "placements are S(dimension) and R, with commas and no blanks between";
                let value = placements(value).ok_or_else(|| refused(rule, value))?;
                given_placements.replace(value).is_some()
            }
            _ => return Err(refused("a side is mesh= and place= with a blank between", word)),
        };
        if twice {
            return Err(refused("a side has one mesh= and one place=", text));
        }
    }
    let (Some((dims, start)), Some(placements)) = (given_mesh, given_placements) else {
        return Err(refused("a side has one mesh= and one place=", text));
    };
    Ok(Side { dims, start, placements })
}

fn mesh(text: &str) -> Option<(Vec<usize>, Option<usize>)> {
    let (dims, start) = match text.split_once('@') {
        Some((dims, start)) => (dims, Some(whole(start)?)),
        None => (text, None),
    };
    Some((dims.split('x').map(whole).collect::<Option<_>>()?, start))
}

fn placements(text: &str) -> Option<Vec<Placement>> {
    text.split(',').map(placement).collect()
}

/// `S(1)`, the vendor's `Shard(1)`, or `S1` as in its test tables; `R` or `Replicate`.
fn placement(text: &str) -> Option<Placement> {
    if matches!(text, "R" | "Replicate") {
        return Some(Placement::Replicate);
    }
    let bare = text.strip_prefix("Shard").or_else(|| text.strip_prefix('S'))?;
    let dim = match bare.strip_prefix('(') {
        Some(rest) => rest.strip_suffix(')')?,
        None => bare,
    };
    whole(dim.strip_prefix('-').unwrap_or(dim))?;
    dim.parse().ok().map(Placement::Shard)
}

#[cfg(test)]
mod tests {
    use nccl_m2n::Placement::{Replicate, Shard};

    use super::*;

    #[test]
    fn ways_to_write_a_side() {
        let side = |dims: &[usize], start, placements: &[Placement]| Side {
            dims: dims.to_vec(),
            start,
            placements: placements.to_vec(),
        };
        for (text, expected) in [
            ("mesh=4@0 place=S(0)", side(&[4], Some(0), &[Shard(0)])),
            (" place=S1,R  mesh=2x3", side(&[2, 3], None, &[Shard(1), Replicate])),
            (
                "mesh=1x8@16 place=Replicate,Shard(-1)",
                side(&[1, 8], Some(16), &[Replicate, Shard(-1)]),
            ),
        ] {
            assert_eq!(parse("--src", text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn words_that_are_wrong_are_quoted() {
        for (text, quoted) in [
            ("", "\"\""),
            ("4@0", "\"4@0\""),
            ("mesh=4", "\"mesh=4\""),
            ("mesh=4 mesh=4 place=R", "\"mesh=4 mesh=4 place=R\""),
            ("mesh=4x place=R", "\"4x\""),
            ("mesh=-4 place=R", "\"-4\""),
            ("mesh=4@ place=R", "\"4@\""),
            ("mesh=4 place=S", "\"S\""),
            ("mesh=4 place=S(0", "\"S(0\""),
            ("mesh=4 place=S(+1)", "\"S(+1)\""),
            ("mesh=4 place=S(99999999999)", "\"S(99999999999)\""),
            ("mesh=4 place=R,", "\"R,\""),
            ("mesh=4 place=P", "\"P\""),
        ] {
            let message = parse("--dst", text).unwrap_err().to_string();
            assert!(message.ends_with(&format!(", found {quoted}")), "{text}: {message}");
        }
    }
}
