//! What one rank does.

use std::time::{Duration, Instant};

use nccl_ext_core::{OwnedStream, Reduction};
use nccl_m2n::{Buffer, Comm, Config, DistTensor, DistTensorMut, Result, Runtime};

use super::cases::Work;
use super::slices;
use super::tile::{self, Tile};

/// How reshards are issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Issue {
    /// A call for each tensor.
    Calls,
    /// All in one group.
    Group,
}

/// Rounds. Ranks compare what they ask for in the first, and the last is timed.
pub(super) const ROUNDS: usize = 2;

/// A byte that is not what the file says.
#[derive(Debug, Clone)]
pub(super) struct Wrong {
    pub(super) tensor: String,
    pub(super) byte: usize,
    pub(super) expected: u8,
    pub(super) found: u8,
}

/// What a rank saw.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Of the last round.
    pub(super) time: Duration,
    /// Bytes compared, of all rounds.
    pub(super) compared: usize,
    /// Those that are wrong.
    pub(super) wrong: usize,
    /// The first of them.
    pub(super) first: Option<Wrong>,
}

/// A tensor's tiles on this rank.
struct Tiles {
    source: Option<Box<dyn Tile>>,
    destination: Option<Box<dyn Tile>>,
    /// What must arrive.
    expected: Vec<u8>,
}

/// `corrupt` inverts the first byte that this rank received, before it is compared.
///
/// # Errors
/// What the calls report.
pub(super) fn run(comm: Comm, works: &[Work<'_>], issue: Issue, corrupt: bool) -> Result<Outcome> {
    let outcome = {
        let stream = OwnedStream::new(&comm)?;
        let runtime = Runtime::new(comm.backend(), &Config::new())?;
        let mut all = works.iter().map(|work| tiles(&comm, work)).collect::<Result<Vec<_>>>()?;
        let mut outcome = Outcome::default();
        for _ in 0..ROUNDS {
            for tiles in &mut all {
                // Every byte differs from what must arrive, so that one which nobody writes shows.
                let wrong: Vec<u8> = tiles.expected.iter().map(|byte| !byte).collect();
                if let Some(destination) = &mut tiles.destination {
                    destination.write(&wrong, stream.stream())?;
                }
            }
            meet(&comm, &stream)?;
            let start = Instant::now();
            match issue {
                Issue::Calls => calls(&runtime, &comm, &stream, works, &mut all)?,
                Issue::Group => group(&runtime, &comm, &stream, works, &mut all)?,
            }
            stream.stream().synchronize(&comm)?;
            outcome.time = start.elapsed();
            let mut corrupt = corrupt;
            for (work, tiles) in works.iter().zip(&all) {
                let Some(destination) = &tiles.destination else { continue };
                let mut found = destination.read(stream.stream())?;
                if let (true, Some(byte)) = (std::mem::take(&mut corrupt), found.first_mut()) {
                    *byte = !*byte;
                }
                outcome.compare(&work.tensor.name, &tiles.expected, &found);
            }
        }
        drop(all);
        runtime.finalize()?;
        outcome
    };
    comm.destroy()?;
    Ok(outcome)
}

fn tiles(comm: &Comm, work: &Work<'_>) -> Result<Tiles> {
    let (tensor, rank) = (work.tensor, comm.rank());
    let part = |side: &super::cases::Side| {
        let holds = side.layout.contains(rank);
        holds.then(|| slices::tile(&tensor.shape, &tensor.data, side.cut(rank)))
    };
    let made = |bytes: &Vec<u8>| tile::of(comm, work.source.layout.data_type(), bytes);
    let expected = part(&work.destination);
    Ok(Tiles {
        source: part(&work.source).as_ref().map(made).transpose()?,
        destination: expected.as_ref().map(made).transpose()?,
        expected: expected.unwrap_or_default(),
    })
}

/// Waits for all ranks.
fn meet(comm: &Comm, stream: &OwnedStream) -> Result<()> {
    let one = Buffer::from_slice(comm, &[1_i32])?;
    let mut sum = Buffer::<i32>::zeroed(comm, 1)?;
    comm.all_reduce(&one, &mut sum, Reduction::Sum, stream.stream())?;
    stream.stream().synchronize(comm)
}

/// Both sides of a tensor, with the memory that this rank has.
fn sides<'a>(work: &Work<'_>, tiles: &'a mut Tiles) -> (DistTensor<'a>, DistTensorMut<'a>) {
    let source = tiles.source.as_ref().map(|tile| tile.device());
    let destination = tiles.destination.as_mut().map(|tile| tile.device_mut());
    (
        DistTensor::optional(source, &work.source.layout),
        DistTensorMut::optional(destination, &work.destination.layout),
    )
}

fn calls(
    runtime: &Runtime,
    comm: &Comm,
    stream: &OwnedStream,
    works: &[Work<'_>],
    all: &mut [Tiles],
) -> Result<()> {
    for (work, tiles) in works.iter().zip(all) {
        let (source, mut destination) = sides(work, tiles);
        runtime.reshard(comm, &source, &mut destination, stream.stream())?;
    }
    Ok(())
}

fn group<'env>(
    runtime: &'env Runtime,
    comm: &Comm,
    stream: &'env OwnedStream,
    works: &[Work<'_>],
    all: &'env mut [Tiles],
) -> Result<()> {
    runtime.group(|group| {
        for (work, tiles) in works.iter().zip(all) {
            let (source, destination) = sides(work, tiles);
            group.reshard(comm, source, destination, stream.stream())?;
        }
        Ok(())
    })
}

impl Outcome {
    fn compare(&mut self, tensor: &str, expected: &[u8], found: &[u8]) {
        self.compared += expected.len();
        // A tile of another size has bytes too many or too few.
        self.wrong += expected.len().abs_diff(found.len());
        let differ = expected.iter().zip(found).enumerate().filter(|(_, (a, b))| a != b);
        for (byte, (expected, found)) in differ {
            self.wrong += 1;
            self.first.get_or_insert_with(|| Wrong {
                tensor: tensor.into(),
                byte,
                expected: *expected,
                found: *found,
            });
        }
    }
}
