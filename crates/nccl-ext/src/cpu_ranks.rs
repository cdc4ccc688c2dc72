//! Ranks as threads of this process, on the CPU backend.

use nccl_ext_core::{Comm, Error};
use nccl_ext_cpu::{CpuConfig, RankFailure, run_ranks};

use crate::failure::Failure;

/// Runs `rank` on so many ranks, and gives what each of them gave. `file` is the input and `what`
/// the part of the demo that messages name.
///
/// # Errors
/// [`Failure::Call`] or [`Failure::Panic`], of the rank where it began.
pub(crate) fn run<T: Send>(
    ranks: usize,
    file: &str,
    what: &str,
    config: &CpuConfig,
    rank: impl Fn(Comm) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Failure> {
    let (mut outcomes, mut failures) = (Vec::new(), Vec::new());
    for result in run_ranks(ranks, config, rank) {
        match result {
            Ok(outcome) => outcomes.push(outcome),
            Err(failure) => failures.push(failure),
        }
    }
    // Most ranks only know that another failed: take one that knows why.
    let is_echo = |failure: &RankFailure<Error>| {
        matches!(failure, RankFailure::Error(Error::PeerFailed { .. }))
    };
    failures.sort_by_key(is_echo);
    match failures.into_iter().next() {
        None => Ok(outcomes),
        Some(RankFailure::Error(error)) => Err(Failure::call(file, what, cause(error))),
        Some(RankFailure::Panic(message)) => Err(Failure::Panic { what: what.into(), message }),
    }
}

/// The error of the rank where it began.
fn cause(error: Error) -> Error {
    match error {
        Error::PeerFailed { error, .. } => cause(Error::clone(&error)),
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use nccl_ext_core::{Buffer, OwnedStream, Reduction};

    use super::*;

    /// A sum over all ranks; `before` comes first.
    fn sum(comm: &Comm, before: impl FnOnce() -> Result<(), Error>) -> Result<i32, Error> {
        let stream = OwnedStream::new(comm)?;
        let one = Buffer::from_slice(comm, &[1_i32])?;
        let mut total = Buffer::<i32>::zeroed(comm, 1)?;
        before()?;
        comm.all_reduce(&one, &mut total, Reduction::Sum, stream.stream())?;
        Ok(total.to_vec(stream.stream())?[0])
    }

    #[test]
    fn every_rank_gives_its_outcome_in_order() {
        let outcomes = run(3, "f", "a case", &CpuConfig::new(), |comm| {
            Ok((comm.rank(), sum(&comm, || Ok(()))?))
        });
        assert_eq!(outcomes.unwrap(), [(0, 3), (1, 3), (2, 3)]);
    }

    #[test]
    fn of_all_failures_the_one_where_it_began_is_told() {
        for culprit in 0..3 {
            let failure = run(3, "f", "a case", &CpuConfig::new(), |comm| {
                let gone = || Err(Error::RankGone { reason: format!("rank {culprit} left") });
                sum(&comm, || if comm.rank() == culprit { gone() } else { Ok(()) })
            });
            let message = failure.unwrap_err().to_string();
            assert!(message.starts_with("f: a case: "), "{message}");
            assert!(message.ends_with(&format!("rank {culprit} left")), "{message}");
        }
    }

    #[test]
    fn a_panic_is_told_with_its_message() {
        let failure = run(2, "f", "a case", &CpuConfig::new(), |comm| {
            sum(&comm, || {
                assert_ne!(comm.rank(), 1, "a bug");
                Ok(())
            })
        });
        let message = failure.unwrap_err().to_string();
        assert!(message.starts_with("a case: a rank panicked: "), "{message}");
        assert!(message.contains("a bug"), "{message}");
    }
}
