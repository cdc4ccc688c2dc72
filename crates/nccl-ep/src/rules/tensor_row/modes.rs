//! Sets of modes that rows are for.

use crate::mode::Mode;

pub(in crate::rules) const LL_EM: &[Mode] = &[Mode::LowLatencyExpertMajor];
pub(in crate::rules) const LL_RM: &[Mode] = &[Mode::LowLatencyRankMajor];
pub(in crate::rules) const LL: &[Mode] = &[Mode::LowLatencyExpertMajor, Mode::LowLatencyRankMajor];
pub(in crate::rules) const FLAT: &[Mode] = &[Mode::HighThroughputFlat];
pub(in crate::rules) const HT_EM: &[Mode] = &[Mode::HighThroughputExpertMajor];
pub(in crate::rules) const HT: &[Mode] =
    &[Mode::HighThroughputFlat, Mode::HighThroughputExpertMajor];
pub(in crate::rules) const ALL: &[Mode] = Mode::ALL;
/// All but low-latency expert-major.
pub(in crate::rules) const WEIGHTED: &[Mode] =
    &[Mode::LowLatencyRankMajor, Mode::HighThroughputFlat, Mode::HighThroughputExpertMajor];
