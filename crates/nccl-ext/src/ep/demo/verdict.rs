//! Comparing what the ranks got with what the oracle says, and with the CPU backend.

use nccl_ep::bf16;

use super::expected::Expected;
use super::outcome::Outcome;
use super::rank::Round;
use crate::oracle::Counts;
use crate::routing::{Routing, Sizes};

/// Everything that differs; nothing when the mode passes.
pub(super) fn problems(
    routing: &Routing,
    outcomes: &[Outcome],
    expected: &Expected,
) -> Vec<String> {
    let mut problems = Vec::new();
    let Expected { combined, counts, received, ordered } = expected;
    let Sizes { tokens_per_rank, hidden, .. } = routing.sizes;
    let mut values = Differences { hidden, ..Differences::default() };
    let per_rank = tokens_per_rank * hidden;
    for (rank, outcome) in outcomes.iter().enumerate() {
        let first = outcome.rounds.first().and_then(|round| round.received.as_ref());
        let difference = first.map_or_else(
            || Some("what was received is not known".into()),
            |found| found.difference(&received[rank], *ordered),
        );
        problems.extend(difference.map(|difference| {
            format!("rank {rank}: received rows are not those that the routing sends: {difference}")
        }));
        let combined = &combined[rank * per_rank..][..per_rank];
        for (number, round) in outcome.rounds.iter().enumerate() {
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

/// Where the ranks differ from those of the CPU backend: in received rows, byte for byte and in
/// order where the library promises one, and in combined bytes.
pub(super) fn cpu_problems(outcomes: &[Outcome], cpu: &[Outcome], ordered: bool) -> Vec<String> {
    let mut problems = Vec::new();
    for (rank, (found, cpu)) in outcomes.iter().zip(cpu).enumerate() {
        let (Some(found), Some(cpu)) = (found.rounds.first(), cpu.rounds.first()) else {
            problems.push(format!("rank {rank}: no round to compare with the CPU backend's"));
            continue;
        };
        let received = match (&found.received, &cpu.received) {
            (Some(found), Some(cpu)) => found.difference(cpu, ordered),
            _ => Some("what was received is not known".into()),
        };
        problems.extend(received.map(|difference| {
            format!("rank {rank}: received rows differ from the CPU backend's: {difference}")
        }));
        let bits = |values: &[bf16]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        if bits(&found.combined) != bits(&cpu.combined) {
            problems.push(format!("rank {rank}: combined bytes differ from the CPU backend's"));
        }
    }
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
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::ep::demo::received::Received;
    use crate::routing::tests::g2;

    fn round(rows: usize, counters: &[i64], combined: &[f32]) -> Round {
        Round {
            rows,
            counters: counters.to_vec(),
            combined: Arc::new(combined.iter().copied().map(bf16::from_f32).collect()),
            received: Some(received()),
            dispatch: Duration::ZERO,
            combine: Duration::ZERO,
        }
    }

    fn outcome(round: Round) -> Outcome {
        Outcome { rounds: vec![round], ..Outcome::default() }
    }

    fn found(round_of_rank_1: Round) -> Vec<String> {
        let expected = Expected {
            combined: [1.0, 2.0, 0.0, 4.0].map(bf16::from_f32).to_vec(),
            counts: Counts { rows: vec![1, 2], counters: vec![vec![1, 0], vec![1, 1]] },
            received: vec![received(); 2],
            ordered: true,
        };
        let rank_0 = round(1, &[1, 0], &[1.0, 2.0]);
        let mut routing = g2(1);
        routing.sizes.tokens_per_rank = 2;
        problems(&routing, &[outcome(rank_0), outcome(round_of_rank_1)], &expected)
    }

    fn received() -> Received {
        Received { zones: vec![vec![1, 2], vec![3]] }
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

    #[test]
    fn received_rows_count() {
        let mut other = round(2, &[1, 1], &[0.0, 4.0]);
        other.received = Some(Received { zones: vec![vec![1, 2], vec![4]] });
        assert_eq!(
            found(other.clone()),
            ["rank 1: received rows are not those that the routing sends: zone 1: 1 of 1 rows \
              differ; the first is row 0"]
        );
        other.received = None;
        assert_eq!(
            found(other),
            ["rank 1: received rows are not those that the routing sends: what was received is \
              not known"]
        );
    }

    #[test]
    fn the_cpu_backend_has_the_same_rows_and_bytes() {
        let cpu = [outcome(round(2, &[1, 1], &[0.0, 4.0]))];
        assert_eq!(cpu_problems(&cpu, &cpu, true), [""; 0]);
        let mut other = cpu.clone();
        other[0].rounds[0].received = Some(Received { zones: vec![vec![2, 1], vec![3]] });
        assert_eq!(cpu_problems(&other, &cpu, false), [""; 0]);
        assert_eq!(
            cpu_problems(&other, &cpu, true),
            ["rank 0: received rows differ from the CPU backend's: zone 0: 2 of 2 rows differ; \
              the first is row 0"]
        );
        let other = [outcome(round(2, &[1, 1], &[-0.0, 4.0]))];
        assert_eq!(
            cpu_problems(&other, &cpu, true),
            ["rank 0: combined bytes differ from the CPU backend's"]
        );
        assert_eq!(
            cpu_problems(&[Outcome::default()], &cpu, true),
            ["rank 0: no round to compare with the CPU backend's"]
        );
    }
}
