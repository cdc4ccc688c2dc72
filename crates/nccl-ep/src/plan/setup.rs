//! What a plan is for.

use nccl_ext_core::DataType;

use super::constants::HOPPER_SMS;
use crate::config::{GroupConfig, HandleConfig};
use crate::enums::{Layout, TopK};

/// A configuration on a machine, and the tokens that it moves.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Setup {
    /// The group's configuration, as [`Group::create`](crate::Group::create) gets it.
    pub group: GroupConfig,
    /// Ranks of the communicator.
    pub ranks: u32,
    /// Elements of a token row.
    pub hidden: u32,
    /// Element type of a token row.
    pub data_type: DataType,
    /// The handle's layout.
    pub layout: Layout,
    /// The handle's top-k.
    pub topk: TopK,
    /// The handle's configuration.
    pub handle: HandleConfig,
    /// Ranks that reach each other's memory by load and store (an NVLink domain). As many as there
    /// are ranks unless set.
    pub team_ranks: u32,
    /// Streaming multiprocessors of the device.
    pub device_sms: u32,
    /// HT: the mode that `NCCL_EP_HT_EM_LOCAL_DUP` forces.
    pub local_dup: bool,
    /// HT: the mode that `NCCL_EP_HT_EM_NVLINK_DUP` forces.
    pub nvlink_dup: bool,
    /// Most tokens a rank that the library takes, for a library that has such a cap, as
    /// [`TOKENS_ONCE_SUPPORTED`](super::TOKENS_ONCE_SUPPORTED). Release 0.2.0 has none.
    pub token_cap: Option<u32>,
}

impl Setup {
    /// Rows of `hidden` bf16 elements on `ranks` ranks of one load/store team, expert-major with
    /// the group's top-k and no padding, on devices with [`HOPPER_SMS`] SMs.
    #[must_use]
    pub fn new(group: GroupConfig, ranks: u32, hidden: u32) -> Self {
        Self {
            group,
            ranks,
            hidden,
            data_type: DataType::Bfloat16,
            layout: Layout::ExpertMajor,
            topk: TopK::Auto,
            handle: HandleConfig::new(),
            team_ranks: ranks,
            device_sms: HOPPER_SMS,
            local_dup: false,
            nvlink_dup: false,
            token_cap: None,
        }
    }

    /// Sets [`data_type`](Self::data_type).
    #[must_use]
    pub fn data_type(mut self, data_type: DataType) -> Self {
        self.data_type = data_type;
        self
    }

    /// Sets [`layout`](Self::layout).
    #[must_use]
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// Sets [`topk`](Self::topk).
    #[must_use]
    pub fn topk(mut self, topk: TopK) -> Self {
        self.topk = topk;
        self
    }

    /// Sets [`handle`](Self::handle).
    #[must_use]
    pub fn handle(mut self, handle: HandleConfig) -> Self {
        self.handle = handle;
        self
    }

    /// Sets [`team_ranks`](Self::team_ranks).
    #[must_use]
    pub fn team_ranks(mut self, team_ranks: u32) -> Self {
        self.team_ranks = team_ranks;
        self
    }

    /// Sets [`device_sms`](Self::device_sms).
    #[must_use]
    pub fn device_sms(mut self, device_sms: u32) -> Self {
        self.device_sms = device_sms;
        self
    }

    /// Sets [`local_dup`](Self::local_dup).
    #[must_use]
    pub fn local_dup(mut self, on: bool) -> Self {
        self.local_dup = on;
        self
    }

    /// Sets [`nvlink_dup`](Self::nvlink_dup).
    #[must_use]
    pub fn nvlink_dup(mut self, on: bool) -> Self {
        self.nvlink_dup = on;
        self
    }

    /// Sets [`token_cap`](Self::token_cap).
    #[must_use]
    pub fn token_cap(mut self, tokens: u32) -> Self {
        self.token_cap = Some(tokens);
        self
    }
}
