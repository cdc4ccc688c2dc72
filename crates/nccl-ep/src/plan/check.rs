//! The rules that a configuration must keep, in the order in which the calls would check them.

use std::fmt::Display;

use nccl_ext_core::rules::{RuleInfo, Violation};
use nccl_ext_core::{DataType, Error, MemorySpace, RawBuffer, Result, Scope};

use super::Setup;
use crate::enums::{Algorithm, DispatchQuantizationRecipe, Layout, PassDir};
use crate::geometry::Geometry;
use crate::mode::Mode;
use crate::recv_spec::row;
use crate::rules::group::{Environment, Facts};
use crate::rules::tensors::{Call, Sizes, Slot};
use crate::rules::{self, call, handle};
use crate::tensor::{Shape, View};

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
    let facts = Facts {
        config: &setup.group,
        ranks: setup.ranks.into(),
        lsa: setup.team_ranks.into(),
        device_sms: setup.device_sms.into(),
        environment,
    };
    rules::check(rules::group::RULES, |broken| broken(&facts))?;
    library(setup)?;
    let geometry = Geometry::new(&facts);
    let (mode, topk) = handle::checked(&geometry, setup.layout, &setup.handle, setup.topk)?;
    let padded = mode == Mode::HighThroughputExpertMajor;
    let alignment = setup.handle.dispatch_output_per_expert_alignment as u64;
    let alignment = if padded { alignment.max(1) } else { 1 };
    let checked = Checked { geometry, mode, topk, alignment };
    rows(setup, &checked)?;
    Ok(checked)
}

fn invalid(
    name: &'static str,
    argument: &'static str,
    rule: &'static str,
    expected: impl Display,
    found: impl Display,
) -> Error {
    let info = RuleInfo::new(name, argument, rule, "EP 2.4", Scope::Uniform);
    info.broken(Violation::new(expected, found))
}

/// What a communicator and a device would vouch for.
fn machine(setup: &Setup) -> Result<()> {
    let Setup { ranks, team_ranks, device_sms, hidden, .. } = *setup;
    if !(1..=i32::MAX.unsigned_abs()).contains(&ranks) {
        let rule = "a communicator has between one and 2^31 - 1 ranks";
        return Err(invalid("plan.ranks", "ranks", rule, "1 to 2147483647", ranks));
    }
    if team_ranks == 0 || !ranks.is_multiple_of(team_ranks) {
        let rule = "load/store teams are of equal size";
        let expected = format!("a divisor of {ranks} ranks");
        return Err(invalid("plan.team", "team_ranks", rule, expected, team_ranks));
    }
    if device_sms == 0 {
        let rule = "a device has streaming multiprocessors";
        return Err(invalid("plan.sms", "device_sms", rule, "at least 1", device_sms));
    }
    if hidden == 0 {
        return Err(invalid("plan.hidden", "hidden", "a token has elements", "at least 1", hidden));
    }
    Ok(())
}

/// What depends on the library, or on how much of it is specified.
fn library(setup: &Setup) -> Result<()> {
    let tokens = setup.group.max_dispatch_tokens_per_rank;
    if let Some(cap) = setup.token_cap.filter(|cap| tokens > *cap) {
        let rule = "the library has a cap of tokens a rank (EP 8)";
        let expected = format!("at most {cap} tokens a rank");
        return Err(invalid(
            "plan.token-cap",
            "max_dispatch_tokens_per_rank",
            rule,
            expected,
            tokens,
        ));
    }
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
        geometry,
        topk,
        tokens: geometry.max_tokens,
        hidden: setup.hidden.into(),
        token_type: setup.data_type,
        scale_width: 0,
        scale_type: DataType::Float32,
        out_rows: rows,
        step_rows: rows,
    }
}

/// The rows that dispatch and combine would be given.
fn rows(setup: &Setup, checked: &Checked) -> Result<()> {
    let Checked { geometry, mode, topk, .. } = checked;
    let data_type = setup.data_type;
    if let Some(rule) = row(Call::Dispatch(PassDir::Fwd), *mode, Slot::InTokens) {
        let accepted = rule.types.accepted(&sizes(setup, geometry, *topk, 0));
        if !accepted.contains(&data_type) {
            let names: Vec<_> = accepted.iter().map(|accepted| accepted.name()).collect();
            let broken = rules::violation(names.join(" or "), data_type);
            return broken.map_or(Ok(()), |broken| Err(rule.info.broken(broken)));
        }
    }
    let extents = [geometry.max_tokens as usize, setup.hidden as usize];
    let view = View {
        buffer: RawBuffer {
            ptr: core::ptr::null_mut(),
            bytes: 0,
            data_type,
            memory: MemorySpace::Host,
            backend: None,
        },
        shape: Shape::new(&extents).unwrap_or_default(),
    };
    let facts = call::Facts {
        geometry,
        mode: *mode,
        pass: PassDir::Fwd,
        topk: *topk,
        rows: Some(&view),
        out_tokens: None,
        out_weights: None,
        out_idx: None,
        in_weights: None,
        counters: [None; 3],
        recipe: DispatchQuantizationRecipe::None,
        scales: [None; 2],
    };
    rules::check(call::DISPATCH, |broken| broken(&facts))?;
    rules::check(call::COMBINE, |broken| broken(&facts))
}
