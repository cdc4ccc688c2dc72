//! The rules that a configuration must keep, in the order in which the calls would check them.

use nccl_ext_core::rules::Violation;
use nccl_ext_core::{Error, RawBuffer, Result};

use super::setup::Setup;
use crate::enums::{Algorithm, DispatchQuantizationRecipe as Recipe, Layout, PassDir};
use crate::environment::Environment;
use crate::geometry::{Geometry, GroupFacts};
use crate::mode::Mode;
use crate::rules::combine::{self, CombineFacts};
use crate::rules::dispatch::{self, DispatchFacts};
use crate::rules::plan::{self, MachineFacts, TokenCapFacts};
use crate::rules::tensor_row::extents::Sizes;
use crate::rules::tensor_row::{Call, Slot};
use crate::rules::tensors;
use crate::rules::{self, handle};
use crate::view::{Shape, View};

/// A configuration that passed, in numbers.
pub(super) struct Checked {
    pub(super) geometry: Geometry,
    pub(super) mode: Mode,
    pub(super) topk: u64,
    /// Rows of a zone are padded to a multiple of it; 1 does not pad.
    pub(super) alignment: u64,
}

impl Checked {
    pub(super) fn expert_major(&self) -> bool {
        self.mode.layout() == Layout::ExpertMajor
    }

    /// HT: most rows that the caller receives.
    pub(super) fn received_rows(&self) -> Option<u128> {
        let geometry = &self.geometry;
        if !geometry.eager {
            return Some(geometry.max_recv.into());
        }
        let sent = u128::from(geometry.ranks).checked_mul(geometry.max_tokens.into())?;
        if !self.expert_major() {
            return Some(sent);
        }
        let copies = self.topk.min(geometry.local_experts);
        let padding = u128::from(geometry.local_experts) * u128::from(self.alignment - 1);
        sent.checked_mul(copies.into())?.checked_add(padding)
    }
}

pub(super) fn check(setup: &Setup) -> Result<Checked> {
    machine(setup)?;
    let environment = Environment {
        local_dup: setup.local_dup,
        nvlink_dup: setup.nvlink_dup,
        ..Environment::default()
    };
    let facts = GroupFacts {
        config: &setup.group,
        ranks: setup.ranks.into(),
        lsa: setup.team_ranks.into(),
        device_sms: setup.device_sms.into(),
        environment,
    };
    rules::check(rules::group::RULES, |broken| broken(&facts))?;
    library(setup)?;
    let geometry = Geometry::new(&facts);
    let (mode, topk) = handle::mode_and_topk(&geometry, setup.layout, &setup.handle, setup.topk)?;
    let padded = mode == Mode::HighThroughputExpertMajor;
    let alignment = setup.handle.dispatch_output_per_expert_alignment as u64;
    let alignment = if padded { alignment.max(1) } else { 1 };
    let checked = Checked { geometry, mode, topk, alignment };
    rows(setup, &checked)?;
    Ok(checked)
}

/// What a communicator and a device would vouch for.
fn machine(setup: &Setup) -> Result<()> {
    let Setup { ranks, team_ranks, device_sms, hidden, .. } = *setup;
    let facts = MachineFacts { ranks, team_ranks, device_sms, hidden };
    rules::check(plan::MACHINE, |broken| broken(&facts))
}

/// What depends on the library, or on how much of it is specified.
fn library(setup: &Setup) -> Result<()> {
    let tokens = setup.group.max_dispatch_tokens_per_rank;
    let facts = TokenCapFacts { tokens, cap: setup.token_cap };
    rules::check(plan::TOKEN_CAP, |broken| broken(&facts))?;
    let high = setup.group.algorithm == Algorithm::HighThroughput;
    if high && setup.team_ranks < setup.ranks {
        let Setup { ranks, team_ranks, .. } = setup;
        return Err(Error::Unsupported {
            feature: "a memory plan of high throughput over several load/store teams",
            library: "this planner".into(),
            found: format!("{ranks} ranks in teams of {team_ranks}"),
            needs: "all ranks in one team: only its buffers are specified (EP 2.4)".into(),
        });
    }
    Ok(())
}

/// A step in which a rank dispatches as many tokens as it may and receives `rows`.
pub(super) fn sizes<'a>(setup: &Setup, geometry: &'a Geometry, topk: u64, rows: u64) -> Sizes<'a> {
    Sizes {
        tokens: geometry.max_tokens,
        hidden: setup.hidden.into(),
        token_type: setup.data_type,
        out_rows: rows,
        step_rows: rows,
        ..Sizes::new(geometry, topk)
    }
}

/// The rows that dispatch and combine would be given.
fn rows(setup: &Setup, checked: &Checked) -> Result<()> {
    let Checked { geometry, mode, topk, .. } = checked;
    let (mode, topk, data_type) = (*mode, *topk, setup.data_type);
    let (pass, recipe) = (PassDir::Fwd, Recipe::None);
    if let Some(rule) = tensors::row(Call::Dispatch(pass), mode, recipe, Slot::InTokens) {
        let accepted = rule.types.accepted(&sizes(setup, geometry, topk, 0));
        if !accepted.contains(&data_type) {
            let names: Vec<_> = accepted.iter().map(|accepted| accepted.name()).collect();
            return Err(rule.info.broken(Violation::new(names.join(" or "), data_type)));
        }
    }
    let extents = [geometry.max_tokens as usize, setup.hidden as usize];
    let tokens = &View {
        buffer: RawBuffer::host(core::ptr::null_mut(), 0, data_type),
        shape: Shape::new(&extents).unwrap_or_default(),
    };
    let facts = DispatchFacts {
        geometry,
        mode,
        pass,
        topk,
        recipe,
        tokens,
        out_tokens: None,
        out_weights: None,
        out_idx: None,
        scales: [None; 2],
    };
    rules::check(dispatch::RULES, |broken| broken(&facts))?;
    let facts = CombineFacts { geometry, mode, pass, tokens, in_weights: None };
    rules::check(combine::RULES, |broken| broken(&facts))
}
