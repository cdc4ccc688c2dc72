//! Waiting that ends.

use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// As long as it takes to wake a thread: shorter waits do not sleep.
const AWAKE: Duration = Duration::from_micros(50);
const SHORTEST_SLEEP: Duration = Duration::from_micros(20);
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// Asks `done` again and again until it says so, or for no longer than `limit`.
pub(crate) fn poll(
    phase: &'static str,
    limit: Option<Duration>,
    mut done: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let start = Instant::now();
    let mut sleep = SHORTEST_SLEEP;
    while !done()? {
        let waited = start.elapsed();
        let left = limit.map_or(LONGEST_SLEEP, |limit| limit.saturating_sub(waited));
        if left.is_zero() {
            return Err(Error::Timeout { phase, ranks: Vec::new(), waited });
        }
        if waited < AWAKE {
            std::thread::yield_now();
        } else {
            std::thread::sleep(sleep.min(left));
            sleep = (sleep * 2).min(LONGEST_SLEEP);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_is_not_waited_for() {
        assert!(poll("a test", Some(Duration::ZERO), || Ok(true)).is_ok());
        let mut asked = 0;
        let third = || {
            asked += 1;
            Ok(asked == 3)
        };
        assert!(poll("a test", None, third).is_ok());
        assert_eq!(asked, 3);
    }

    #[test]
    fn past_the_limit_it_ends_and_says_how_long_it_waited() {
        let limit = Duration::from_micros(200);
        let error = poll("a test", Some(limit), || Ok(false)).unwrap_err();
        let Error::Timeout { phase: "a test", ranks, waited } = &error else { panic!("{error:?}") };
        assert!(ranks.is_empty() && *waited >= limit);
        let failed = || Err(Error::RankGone { reason: "it left".into() });
        assert!(matches!(poll("a test", None, failed), Err(Error::RankGone { .. })));
    }
}
