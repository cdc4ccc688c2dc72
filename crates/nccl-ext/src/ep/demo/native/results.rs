//! What a rank found out, as a file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nccl_ep::bf16;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};

use super::folder;
use crate::ep::demo::outcome::{Outcome, Speed};
use crate::ep::demo::rank::Round;
use crate::ep::demo::received::Received;
use crate::failure::Failure;

/// The key of everything but the combined tokens.
const KEY: &str = "outcome";

#[derive(Serialize, Deserialize)]
struct Stored {
    rounds: Vec<StoredRound>,
    speed: Option<Speed>,
    seen: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct StoredRound {
    rows: usize,
    counters: Vec<i64>,
    /// The tensor with the combined tokens; rounds of equal bits share one.
    combined: String,
    received: Option<Received>,
    dispatch: Duration,
    combine: Duration,
}

fn name(rank: usize, pair: usize) -> String {
    format!("pair-{pair}.rank-{rank}.safetensors")
}

/// Writes what a rank saw of a mode.
pub(super) fn write(
    folder: &Path,
    rank: usize,
    pair: usize,
    outcome: &Outcome,
) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::folder("written to", error);
    let bytes = encode(outcome).map_err(|error| failed(&error))?;
    folder::publish(folder, &name(rank, pair), &bytes).map_err(|error| failed(&error))
}

/// Reads it.
pub(super) fn read(folder: &Path, rank: usize, pair: usize) -> Result<Outcome, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::folder("read", error);
    let bytes = fs::read(folder.join(name(rank, pair))).map_err(|error| failed(&error))?;
    decode(&bytes).ok_or_else(|| failed(&format!("{} is damaged", name(rank, pair))))
}

fn encode(outcome: &Outcome) -> Result<Vec<u8>, safetensors::SafeTensorError> {
    let mut tensors: Vec<(String, &Arc<Vec<bf16>>)> = Vec::new();
    let rounds = outcome.rounds.iter().map(|round| {
        let known = tensors.iter().find(|(_, known)| Arc::ptr_eq(known, &round.combined));
        let combined = known.map(|(name, _)| name.clone()).unwrap_or_else(|| {
            let name = format!("combined-{}", tensors.len());
            tensors.push((name.clone(), &round.combined));
            name
        });
        StoredRound {
            rows: round.rows,
            counters: round.counters.clone(),
            combined,
            received: round.received.clone(),
            dispatch: round.dispatch,
            combine: round.combine,
        }
    });
    let rounds = rounds.collect();
    let stored = Stored { rounds, speed: outcome.speed, seen: outcome.seen.clone() };
    let bytes: BTreeMap<_, Vec<u8>> = tensors
        .iter()
        .map(|(name, values)| (name, values.iter().flat_map(|value| value.to_le_bytes()).collect()))
        .collect();
    let views: Result<Vec<_>, _> = bytes
        .iter()
        .map(|(name, bytes)| {
            TensorView::new(Dtype::BF16, vec![bytes.len() / 2], bytes).map(|view| (*name, view))
        })
        .collect();
    let stored = (KEY.to_owned(), crate::output::json(&stored));
    safetensors::serialize(views?, Some([stored].into_iter().collect()))
}

fn decode(bytes: &[u8]) -> Option<Outcome> {
    let (_, header) = SafeTensors::read_metadata(bytes).ok()?;
    let stored: Stored = serde_json::from_str(header.metadata().as_ref()?.get(KEY)?).ok()?;
    let file = SafeTensors::deserialize(bytes).ok()?;
    let mut tensors: BTreeMap<String, Arc<Vec<bf16>>> = BTreeMap::new();
    for (name, view) in file.tensors() {
        let values = view.data().as_chunks::<2>().0.iter().map(|bytes| bf16::from_le_bytes(*bytes));
        tensors.insert(name, Arc::new(values.collect()));
    }
    let round = |round: StoredRound| {
        Some(Round {
            rows: round.rows,
            counters: round.counters,
            combined: Arc::clone(tensors.get(&round.combined)?),
            received: round.received,
            dispatch: round.dispatch,
            combine: round.combine,
        })
    };
    let rounds = stored.rounds.into_iter().map(round).collect::<Option<_>>()?;
    Some(Outcome { rounds, speed: stored.speed, seen: stored.seen })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ep::demo::native::folder::Folder;
    use crate::ep::demo::outcome::Time;

    #[test]
    fn what_is_written_is_read_again() {
        let values = [0x3F80, 0x7FFF, 0x8000, 0x0001].map(bf16::from_bits).to_vec();
        let (one, other) = (Arc::new(values), Arc::new(vec![bf16::ONE; 4]));
        let round = |rows, combined: &Arc<Vec<bf16>>, received| Round {
            rows,
            counters: vec![3, -1],
            combined: Arc::clone(combined),
            received,
            dispatch: Duration::from_nanos(1234),
            combine: Duration::from_secs(5),
        };
        let received = Received { zones: vec![vec![u64::MAX, 0], vec![]] };
        let time = Time { gpu: 0.1, host: 7.25 };
        let outcome = Outcome {
            rounds: vec![
                round(1, &one, Some(received.clone())),
                round(2, &one, None),
                round(3, &other, None),
            ],
            speed: Some(Speed { update: time, dispatch: time, combine: time }),
            seen: vec!["a \"line\"".into()],
        };
        let folder = Folder::create().unwrap();
        write(folder.path(), 1, 2, &outcome).unwrap();
        let read = read(folder.path(), 1, 2).unwrap();
        assert_eq!((read.speed, &read.seen), (outcome.speed, &outcome.seen));
        assert_eq!(read.rounds[0].received, Some(received));
        for (read, written) in read.rounds.iter().zip(&outcome.rounds) {
            assert_eq!((read.rows, &read.counters), (written.rows, &written.counters));
            assert_eq!((read.dispatch, read.combine), (written.dispatch, written.combine));
            let bits =
                |round: &Round| round.combined.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(read), bits(written));
        }
        // Equal rounds share their tokens.
        assert!(Arc::ptr_eq(&read.rounds[0].combined, &read.rounds[1].combined));
    }

    #[test]
    fn files_that_are_cut_are_not_taken() {
        let folder = Folder::create().unwrap();
        let bytes = encode(&Outcome::default()).unwrap();
        folder::publish(folder.path(), &name(0, 0), &bytes[..bytes.len() - 1]).unwrap();
        let error = read(folder.path(), 0, 0).unwrap_err().to_string();
        assert!(error.ends_with("pair-0.rank-0.safetensors is damaged"), "{error}");
        assert!(read(folder.path(), 0, 1).is_err());
    }
}
