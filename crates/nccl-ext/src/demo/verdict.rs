//! Comparing what the ranks got with what the oracle says.

use nccl_ep::bf16;

use super::rank::Round;
use crate::oracle::Counts;
use crate::routing::{Routing, Sizes};

/// Everything that differs; nothing when the pair passes.
pub(super) fn problems(
    routing: &Routing,
    rounds: &[Vec<Round>],
    combined: &[bf16],
    counts: &Counts,
) -> Vec<String> {
    let mut problems = Vec::new();
    let Sizes { tokens_per_rank, hidden, .. } = routing.sizes;
    let mut values = Differences { hidden, ..Differences::default() };
    let per_rank = tokens_per_rank * hidden;
    for (rank, rounds) in rounds.iter().enumerate() {
        let combined = &combined[rank * per_rank..][..per_rank];
        for (number, round) in rounds.iter().enumerate() {
            let found = (round.rows, &round.counters);
            let expected = (counts.rows[rank], &counts.counters[rank]);
            if found != expected {
                problems.push(count_problem(rank, number, round, counts));
            }
            values.compare(rank, number, &round.combined, combined);
        }
    }
    problems.extend(values.problem());
    problems
}

fn count_problem(rank: usize, number: usize, round: &Round, counts: &Counts) -> String {
    let (expected, found) = (&counts.counters[rank], &round.counters);
    if let Some(at) = (0..expected.len()).find(|at| expected.get(*at) != found.get(*at)) {
        let (expected, found) = (expected.get(at), found.get(at));
        return format!(
            "rank {rank}, round {number}: counter {at} is {}; the routing gives {}",
            text(found),
            text(expected)
        );
    }
    let (expected, found) = (counts.rows[rank], round.rows);
    format!("rank {rank}, round {number}: {found} rows received; the routing sends {expected}")
}

fn text(count: Option<&i64>) -> String {
    count.map_or_else(|| "missing".into(), i64::to_string)
}

/// Values whose bits differ, and where the first is.
#[derive(Default)]
struct Differences {
    hidden: usize,
    compared: usize,
    different: usize,
    first: Option<String>,
}

impl Differences {
    fn compare(&mut self, rank: usize, round: usize, found: &[bf16], expected: &[bf16]) {
        self.compared += expected.len();
        for (at, expected) in expected.iter().enumerate() {
            let bits = found.get(at).map(|found| found.to_bits());
            if bits == Some(expected.to_bits()) {
                continue;
            }
            self.different += 1;
            self.first.get_or_insert_with(|| {
                let bits = bits.map_or_else(|| "nothing".into(), |bits| format!("{bits:#06x}"));
                format!(
                    "rank {rank}, round {round}, token {}, element {}: {bits} instead of {:#06x}",
                    at / self.hidden,
                    at % self.hidden,
                    expected.to_bits()
                )
            });
        }
    }

    fn problem(self) -> Option<String> {
        let Self { compared, different, first, .. } = self;
        first.map(|first| format!("{different} of {compared} values differ; first {first}"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::routing::tests::g2;

    fn round(rows: usize, counters: &[i64], combined: &[f32]) -> Round {
        Round {
            rows,
            counters: counters.to_vec(),
            combined: combined.iter().copied().map(bf16::from_f32).collect(),
            dispatch: Duration::ZERO,
            combine: Duration::ZERO,
        }
    }

    fn found(round_of_rank_1: Round) -> Vec<String> {
        let counts = Counts { rows: vec![1, 2], counters: vec![vec![1, 0], vec![1, 1]] };
        let combined = [1.0, 2.0, 0.0, 4.0].map(bf16::from_f32);
        let rank_0 = round(1, &[1, 0], &[1.0, 2.0]);
        let mut routing = g2(1);
        routing.sizes.tokens_per_rank = 2;
        problems(&routing, &[vec![rank_0], vec![round_of_rank_1]], &combined, &counts)
    }

    #[test]
    fn every_bit_counts() {
        assert_eq!(found(round(2, &[1, 1], &[0.0, 4.0])), [""; 0]);
        assert_eq!(
            found(round(2, &[1, 1], &[-0.0, 4.0])),
            [
                "1 of 4 values differ; first rank 1, round 0, token 0, element 0: 0x8000 instead of 0x0000"
            ]
        );
        assert_eq!(
            found(round(2, &[1, 1], &[0.0])),
            [
                "1 of 4 values differ; first rank 1, round 0, token 1, element 0: nothing instead of 0x4080"
            ]
        );
    }

    #[test]
    fn rows_and_counters_count() {
        assert_eq!(
            found(round(3, &[1, 1], &[0.0, 4.0])),
            ["rank 1, round 0: 3 rows received; the routing sends 2"]
        );
        assert_eq!(
            found(round(2, &[1, 2], &[0.0, 4.0])),
            ["rank 1, round 0: counter 1 is 2; the routing gives 1"]
        );
        assert_eq!(
            found(round(2, &[1], &[0.0, 4.0])),
            ["rank 1, round 0: counter 1 is missing; the routing gives 1"]
        );
    }
}
