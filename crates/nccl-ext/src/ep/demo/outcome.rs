//! What one rank gives back of a mode.

use serde::{Deserialize, Serialize};

use super::rank::Round;

/// All that a rank saw of a mode.
#[derive(Debug, Clone, Default)]
pub(super) struct Outcome {
    /// Its rounds, those to warm up first.
    pub rounds: Vec<Round>,
    /// How long calls take, where that was asked for.
    pub speed: Option<Speed>,
    /// What else is worth telling.
    pub seen: Vec<String>,
}

/// Microseconds that calls take.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Speed {
    /// Of `Handle::update`.
    pub update: Time,
    /// Of `Step::dispatch`.
    pub dispatch: Time,
    /// Of `Step::combine`.
    pub combine: Time,
}

/// Microseconds that a call takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Time {
    /// Of the device: many calls enqueued one after the other, over their number.
    pub gpu: f64,
    /// Of the host: the median of the calls themselves.
    pub host: f64,
}

impl Speed {
    /// What both together wait for: of each time the larger.
    pub(super) fn slower(self, other: Self) -> Self {
        let slower = |a: Time, b: Time| Time { gpu: a.gpu.max(b.gpu), host: a.host.max(b.host) };
        Self {
            update: slower(self.update, other.update),
            dispatch: slower(self.dispatch, other.dispatch),
            combine: slower(self.combine, other.combine),
        }
    }

    /// The calls in the order in which a step makes them.
    pub(super) fn calls(&self) -> [Time; 3] {
        [self.update, self.dispatch, self.combine]
    }
}
