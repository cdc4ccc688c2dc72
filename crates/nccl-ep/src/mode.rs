//! Algorithm with layout.

use std::fmt;

use crate::enums::{Algorithm, Layout};

/// An algorithm with a layout that it has: how tokens travel and how received rows lie.
///
/// A group has the [`Algorithm`], a handle of it the [`Layout`]; which tensors a call takes follows
/// from both.
///
/// ```
/// use nccl_ep::{Algorithm, Layout, Mode};
///
/// let mode = Mode::new(Algorithm::HighThroughput, Layout::Flat);
/// assert_eq!(mode, Some(Mode::HighThroughputFlat));
/// assert_eq!(Mode::HighThroughputFlat.to_string(), "HT flat");
/// assert_eq!(Mode::new(Algorithm::LowLatency, Layout::Flat), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Mode {
    /// Low latency, received rows grouped by local expert.
    #[default]
    LowLatencyExpertMajor,
    /// Low latency, received rows grouped by source rank.
    LowLatencyRankMajor,
    /// High throughput, one received row per token.
    HighThroughputFlat,
    /// High throughput, received rows in one zone per local expert.
    HighThroughputExpertMajor,
}

impl Mode {
    /// Every mode that the library has.
    pub const ALL: &'static [Self] = &[
        Self::LowLatencyExpertMajor,
        Self::LowLatencyRankMajor,
        Self::HighThroughputFlat,
        Self::HighThroughputExpertMajor,
    ];

    /// The mode of an algorithm with a layout; `None` if the algorithm does not have the layout.
    #[must_use]
    pub const fn new(algorithm: Algorithm, layout: Layout) -> Option<Self> {
        match (algorithm, layout) {
            (Algorithm::LowLatency, Layout::ExpertMajor) => Some(Self::LowLatencyExpertMajor),
            (Algorithm::LowLatency, Layout::RankMajor) => Some(Self::LowLatencyRankMajor),
            (Algorithm::HighThroughput, Layout::Flat) => Some(Self::HighThroughputFlat),
            (Algorithm::HighThroughput, Layout::ExpertMajor) => {
                Some(Self::HighThroughputExpertMajor)
            }
            (Algorithm::LowLatency, Layout::Flat)
            | (Algorithm::HighThroughput, Layout::RankMajor) => None,
        }
    }

    /// How tokens travel.
    #[must_use]
    pub const fn algorithm(self) -> Algorithm {
        match self {
            Self::LowLatencyExpertMajor | Self::LowLatencyRankMajor => Algorithm::LowLatency,
            Self::HighThroughputFlat | Self::HighThroughputExpertMajor => Algorithm::HighThroughput,
        }
    }

    /// How received rows lie.
    #[must_use]
    pub const fn layout(self) -> Layout {
        match self {
            Self::LowLatencyExpertMajor | Self::HighThroughputExpertMajor => Layout::ExpertMajor,
            Self::LowLatencyRankMajor => Layout::RankMajor,
            Self::HighThroughputFlat => Layout::Flat,
        }
    }

    pub(crate) const fn is_high_throughput(self) -> bool {
        matches!(self.algorithm(), Algorithm::HighThroughput)
    }

    pub(crate) const fn is_low_latency(self) -> bool {
        !self.is_high_throughput()
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::LowLatencyExpertMajor => "LL expert-major",
            Self::LowLatencyRankMajor => "LL rank-major",
            Self::HighThroughputFlat => "HT flat",
            Self::HighThroughputExpertMajor => "HT expert-major",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_its_algorithm_with_its_layout() {
        for &mode in Mode::ALL {
            assert_eq!(Mode::new(mode.algorithm(), mode.layout()), Some(mode));
        }
        let pairs = Algorithm::ALL
            .iter()
            .flat_map(|algorithm| Layout::ALL.iter().map(move |layout| (*algorithm, *layout)));
        let modes: Vec<_> =
            pairs.filter_map(|(algorithm, layout)| Mode::new(algorithm, layout)).collect();
        assert_eq!(modes.len(), Mode::ALL.len());
    }
}
