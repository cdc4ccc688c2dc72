//! The proof that transfers fill every destination tile exactly once, with the right bytes.
//!
//! It does not trust the planner: it takes each transfer apart again, finds out which box of the
//! global tensor it reads and which it writes, and accounts for every byte of every tile.

use nccl_ext_core::{Error, Result};

use super::geometry::{Geometry, SideGeometry};
use super::transfer::Transfer;
use crate::layout::Layout;
use crate::shape::MAX_TENSOR_DIMS;

/// What was proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Proof {
    /// Transfers that were looked at.
    pub transfers: usize,
    /// Bytes written, over all destination ranks; each exactly once.
    pub bytes: usize,
}

type Point = [usize; MAX_TENSOR_DIMS];

/// A box of a tile, innermost dimension in bytes.
#[derive(Debug, Clone, Copy)]
struct TileBox {
    rank: usize,
    low: Point,
    size: Point,
}

impl TileBox {
    fn volume(&self) -> usize {
        self.size.iter().product()
    }
}

/// Proves that these transfers fill every tile of `destination` exactly once, each byte with the
/// byte of the same place in the global tensor. Their order does not matter.
///
/// # Errors
/// [`Error::Coverage`] naming the rank and what is wrong with its tile: bytes that nobody writes,
/// that are written twice, or that come from another place. Nothing moved where there are bytes to
/// move is an error too.
pub fn prove(
    source: &Layout,
    destination: &Layout,
    transfers: impl IntoIterator<Item = Transfer>,
) -> Result<Proof> {
    prove_many(source, destination, transfers, 0)
}

/// The same with room for so many transfers.
pub(super) fn prove_many(
    source: &Layout,
    destination: &Layout,
    transfers: impl IntoIterator<Item = Transfer>,
    count: usize,
) -> Result<Proof> {
    let geometry = Geometry::new(source, destination);
    let mut boxes = Vec::with_capacity(count);
    for transfer in transfers {
        boxes.push(box_written_by(&geometry, &transfer)?);
    }
    boxes.sort_unstable_by_key(|written| written.rank);
    let mut proof = Proof { transfers: boxes.len(), bytes: 0 };
    let mut rest = &mut boxes[..];
    for rank in destination.mesh().ranks() {
        let count = rest.iter().take_while(|written| written.rank == rank).count();
        let (own, others) = rest.split_at_mut(count);
        account_for_tile(&geometry.destination, rank, own)?;
        rest = others;
        proof.bytes = proof.bytes.saturating_add(geometry.destination.bytes());
    }
    match rest.first() {
        None => Ok(proof),
        Some(stray) => Err(coverage(stray.rank, "it holds none, but is written to")),
    }
}

fn coverage(rank: usize, problem: impl Into<String>) -> Error {
    Error::Coverage { rank, problem: problem.into() }
}

/// The box that a transfer writes, once it is clear that it reads the same box of the tensor.
fn box_written_by(geometry: &Geometry, transfer: &Transfer) -> Result<TileBox> {
    let rank = transfer.destination;
    let wrong = |what: &str| Err(coverage(rank, format!("{transfer:?}: {what}")));
    let (from, to) = (&geometry.source, &geometry.destination);
    let holds = |side: &SideGeometry, rank, shard| {
        side.sharding.held_by(rank).is_some_and(|(held, _)| held == shard)
    };
    if !holds(from, transfer.source, transfer.source_shard)
        || !holds(to, rank, transfer.destination_shard)
    {
        return wrong("a rank does not hold the shard that it is said to hold");
    }
    let sides = [(from, transfer.source_offset, 0), (to, transfer.destination_offset, 1)];
    let boxes = sides.map(|(side, offset, which)| {
        box_of_runs(side, transfer, offset, |level| {
            [level.source_stride, level.destination_stride][which]
        })
    });
    let [Some((from_low, from_size)), Some((low, size))] = boxes else {
        return wrong("its runs are no box of the tile");
    };
    let global = |side: &SideGeometry, shard, low: Point| -> Point {
        let start = side.start_of(shard);
        std::array::from_fn(|x| start[x] + low[x])
    };
    let read = global(from, transfer.source_shard, from_low);
    if read != global(to, transfer.destination_shard, low) || from_size != size {
        return wrong("it reads another part of the tensor than it writes");
    }
    Ok(TileBox { rank, low, size })
}

/// The box of a tile that runs cover; `None` when they are none, or leave the tile.
fn box_of_runs(
    side: &SideGeometry,
    transfer: &Transfer,
    offset: usize,
    stride: impl Fn(&super::Loop) -> usize,
) -> Option<(Point, Point)> {
    let (extents, strides) = (side.extents(), side.strides());
    let depth = transfer.loops().len();
    let mut size = extents;
    for (x, level) in transfer.loops().iter().enumerate() {
        size[x] = level.count;
        if stride(level) != strides[x] {
            return None;
        }
    }
    // A run is some rows of the outermost dimension that is not a loop, whole ones.
    size[depth] = transfer.run / strides[depth].max(1);
    let mut rest = offset;
    let low: Point = std::array::from_fn(|x| {
        let index = rest / strides[x].max(1);
        rest %= strides[x].max(1);
        index
    });
    let whole = transfer.run.is_multiple_of(strides[depth]);
    let inside = (0..MAX_TENSOR_DIMS).all(|x| low[x].saturating_add(size[x]) <= extents[x]);
    (whole && inside).then_some((low, size))
}

/// Accounts for every byte of one tile.
fn account_for_tile(side: &SideGeometry, rank: usize, boxes: &mut [TileBox]) -> Result<()> {
    let total = side.bytes();
    let written = boxes.iter().map(TileBox::volume).fold(0, usize::saturating_add);
    if written != total {
        let problem = format!("{written} of {total} bytes are written");
        return Err(coverage(rank, problem));
    }
    if total == 0 {
        return Ok(());
    }
    // Boxes that differ along one dimension only, as the planner makes them, need no more than to
    // be put in order.
    let extents = side.extents();
    let whole = |x: usize| boxes.iter().all(|written| written.size[x] == extents[x]);
    let partial: Vec<usize> = (0..MAX_TENSOR_DIMS).filter(|x| !whole(*x)).collect();
    let mut spans: Vec<(usize, usize)> = match partial[..] {
        [] | [_] => {
            let x = partial.first().copied().unwrap_or(0);
            let unit = total / extents[x];
            let span = |b: &TileBox| (b.low[x] * unit, (b.low[x] + b.size[x]) * unit);
            boxes.iter().map(span).collect()
        }
        _ => boxes.iter().flat_map(|written| runs_of(side, written)).collect(),
    };
    spans.sort_unstable();
    let mut end = 0;
    for (low, high) in spans {
        if low != end {
            let what = if low < end { "is written twice" } else { "is not written" };
            return Err(coverage(rank, format!("byte {} {what}", low.min(end))));
        }
        end = high;
    }
    Ok(())
}

/// The runs of a box in its tile.
fn runs_of<'a>(
    side: &'a SideGeometry,
    written: &'a TileBox,
) -> impl Iterator<Item = (usize, usize)> + 'a {
    let strides = side.strides();
    (0..written.size[0]).flat_map(move |i| {
        (0..written.size[1]).map(move |j| {
            let start = (written.low[0] + i) * strides[0] + (written.low[1] + j) * strides[1];
            let start = start + written.low[2] * strides[2];
            (start, start + written.size[2])
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Placement::{Replicate, Shard};
    use crate::plan::{Conditions, Plan};
    use crate::{DataType, Mesh};

    fn plan() -> Plan {
        let mesh = |start| Mesh::new(&[2], start).unwrap();
        let source = Layout::from_global(mesh(0), &[Shard(0)], &[4, 4], DataType::Uint8).unwrap();
        let destination = source.on(mesh(2), &[Shard(1)]).unwrap();
        Plan::new(&source, &destination, &Conditions::one_host(4)).unwrap()
    }

    fn problem(change: impl Fn(&mut Vec<Transfer>)) -> String {
        let plan = plan();
        let mut transfers: Vec<_> = plan.transfers().collect();
        change(&mut transfers);
        let proved = prove(plan.source(), plan.destination(), transfers);
        proved.map_or_else(|error| error.to_string(), |proof| format!("{proof:?}"))
    }

    #[test]
    fn a_plan_is_proved_in_any_order() {
        assert_eq!(problem(|_| ()), "Proof { transfers: 4, bytes: 16 }");
        assert_eq!(problem(|list| list.reverse()), "Proof { transfers: 4, bytes: 16 }");
    }

    /// Case M8.
    #[test]
    fn a_plan_that_moves_nothing_is_refused() {
        let message = problem(Vec::clear);
        assert_eq!(message, "the plan does not fill the tile of rank 2: 0 of 8 bytes are written");
    }

    #[test]
    fn wrong_plans_are_refused_with_the_place() {
        let message = problem(|list| list.truncate(3));
        assert!(message.contains("rank 3: 4 of 8 bytes are written"), "{message}");
        let message = problem(|list| list[1] = list[0]);
        assert!(message.contains("rank 2: byte 0 is written twice"), "{message}");
        let message = problem(|list| list[0].source_offset = 1);
        assert!(message.contains("rank 2") && message.contains("another part"), "{message}");
        let message = problem(|list| list[0].run = 3);
        assert!(message.contains("another part") || message.contains("no box"), "{message}");
        let message = problem(|list| list[0].source = 3);
        assert!(message.contains("does not hold the shard"), "{message}");
        let message = problem(|list| list[0].destination = 0);
        assert!(message.contains("does not hold the shard"), "{message}");
    }

    #[test]
    fn boxes_that_differ_along_two_dimensions_are_accounted_for_byte_by_byte() {
        let side = Geometry::new(plan().source(), plan().destination()).destination;
        // A tile of 4 x 2 bytes in four boxes of 2 x 1.
        let quarter = |i: usize, j: usize| TileBox { rank: 2, low: [i, j, 0], size: [2, 1, 1] };
        let mut boxes = [quarter(2, 1), quarter(0, 0), quarter(0, 1), quarter(2, 0)];
        assert!(account_for_tile(&side, 2, &mut boxes).is_ok());
        let mut boxes = [quarter(2, 1), quarter(0, 0), quarter(0, 1), quarter(1, 0)];
        let message = account_for_tile(&side, 2, &mut boxes).unwrap_err().to_string();
        assert!(message.contains("byte 2 is written twice"), "{message}");
    }

    #[test]
    fn empty_tensors_need_no_transfers() {
        let mesh = |start| Mesh::new(&[1], start).unwrap();
        let source = Layout::new(mesh(0), &[Replicate], &[0, 3], DataType::Int8).unwrap();
        let destination = source.on(mesh(1), &[Shard(0)]).unwrap();
        let proof = prove(&source, &destination, []).unwrap();
        assert_eq!((proof.transfers, proof.bytes), (0, 0));
    }
}
