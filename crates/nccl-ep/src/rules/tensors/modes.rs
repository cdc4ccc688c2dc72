//! Sets of modes that rows are for.

use crate::mode::Mode;

pub(crate) const LL_EM: &[Mode] = &[Mode::LowLatencyExpertMajor];
pub(crate) const LL_RM: &[Mode] = &[Mode::LowLatencyRankMajor];
pub(crate) const LL: &[Mode] = &[Mode::LowLatencyExpertMajor, Mode::LowLatencyRankMajor];
pub(crate) const FLAT: &[Mode] = &[Mode::HighThroughputFlat];
pub(crate) const HT_EM: &[Mode] = &[Mode::HighThroughputExpertMajor];
pub(crate) const HT: &[Mode] = &[Mode::HighThroughputFlat, Mode::HighThroughputExpertMajor];
pub(crate) const ALL: &[Mode] = Mode::ALL;
/// All but low-latency expert-major.
pub(crate) const WEIGHTED: &[Mode] =
    &[Mode::LowLatencyRankMajor, Mode::HighThroughputFlat, Mode::HighThroughputExpertMajor];
