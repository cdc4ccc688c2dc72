//! Rules of single tensors: presence, shape and element type of each, by call and mode
//! (EP 3.5.2, 4.2, 4.3, 4.4.1, 4.5, 4.8.1, 4.17). What a rank hands over only that rank knows, so
//! all of them are errors of one rank. The same rows give [`RecvSpec`](crate::RecvSpec).

pub(crate) mod extents;
pub(crate) mod modes;
#[cfg(test)]
pub(super) mod walk;

use std::fmt::Write as _;

use nccl_ext_core::Result;

use self::extents::{Dim, Sizes, Types};
use super::{RuleInfo, Violation, combine, dispatch, update};
use crate::enums::{DispatchQuantizationRecipe as Recipe, PassDir};
use crate::mode::Mode;
use crate::tensor::View;

/// A call that takes tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Update,
    Dispatch(PassDir),
    Combine(PassDir),
}

/// A tensor of a call. `Li` is the layout information.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    TopkIdx,
    InTokens,
    InWeights,
    OutTokens,
    OutWeights,
    OutIdx,
    RoutingWeights,
    LiExpertCounters,
    LiSrcRankCounters,
    LiExpertOffsets,
    LiRecvTotal,
    InScales,
    OutScales,
}

/// Whether a call must be given a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Required,
    Optional,
    Forbidden,
}

/// One row: what one tensor of one call must be in some modes.
pub(crate) struct TensorRule {
    pub(crate) info: RuleInfo,
    pub(crate) call: Call,
    pub(crate) modes: &'static [Mode],
    pub(crate) slot: Slot,
    pub(crate) need: Need,
    pub(crate) dims: &'static [Dim],
    pub(crate) types: Types,
    /// The recipe it is for; `None` for all.
    pub(crate) recipe: Option<Recipe>,
}

impl TensorRule {
    pub(crate) fn is_for(&self, call: Call, mode: Mode, recipe: Recipe) -> bool {
        self.call == call
            && self.modes.contains(&mode)
            && self.recipe.is_none_or(|own| own == recipe)
    }

    fn fits(&self, view: &View, sizes: &Sizes<'_>) -> bool {
        self.types.accepted(sizes).contains(&view.data_type())
            && view.shape.len() == self.dims.len()
            && self.dims.iter().zip(view.shape.iter()).all(|(dim, given)| match *dim {
                Dim::Is(extent) => *given as u64 == sizes.extent(extent),
                Dim::AtLeast(extent) => *given as u64 >= sizes.extent(extent),
                Dim::Hidden | Dim::Scales => true,
            })
    }

    /// How a tensor, or its absence, breaks the rule.
    fn broken(&self, view: Option<&View>, sizes: &Sizes<'_>) -> Option<Violation> {
        let found = |view: &View| format!("{:?} of {}", view.shape, view.data_type());
        match (self.need, view) {
            (Need::Required, None) => Some(Violation::new(self.expected(sizes), "none")),
            (Need::Forbidden, Some(view)) => Some(Violation::new("none", found(view))),
            (_, Some(view)) if !self.fits(view, sizes) => {
                Some(Violation::new(self.expected(sizes), found(view)))
            }
            _ => None,
        }
    }

    fn expected(&self, sizes: &Sizes<'_>) -> String {
        let mut text = String::from("[");
        for (i, dim) in self.dims.iter().enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            let _ = match *dim {
                Dim::Is(extent) => write!(text, "{separator}{}", sizes.extent(extent)),
                Dim::AtLeast(extent) => write!(text, "{separator}>={}", sizes.extent(extent)),
                Dim::Hidden => write!(text, "{separator}hidden"),
                Dim::Scales => write!(text, "{separator}scales"),
            };
        }
        text.push_str("] of ");
        for (i, data_type) in self.types.accepted(sizes).iter().enumerate() {
            let _ = write!(text, "{}{data_type}", if i == 0 { "" } else { " or " });
        }
        text
    }
}

/// The rows of a call, and of its other passes.
fn table(call: Call) -> &'static [TensorRule] {
    match call {
        Call::Update => update::tensors::TABLE,
        Call::Dispatch(_) => dispatch::tensors::TABLE,
        Call::Combine(_) => combine::tensors::TABLE,
    }
}

/// Every row, call after call.
pub(crate) fn all() -> impl Iterator<Item = &'static TensorRule> {
    let dispatch = dispatch::tensors::TABLE.iter().chain(combine::tensors::TABLE);
    update::tensors::TABLE.iter().chain(dispatch)
}

/// The rows of a call in a mode, with a recipe.
pub(crate) fn rows(
    call: Call,
    mode: Mode,
    recipe: Recipe,
) -> impl Iterator<Item = &'static TensorRule> {
    table(call).iter().filter(move |rule| rule.is_for(call, mode, recipe))
}

/// The row of one tensor.
pub(crate) fn row(
    call: Call,
    mode: Mode,
    recipe: Recipe,
    slot: Slot,
) -> Option<&'static TensorRule> {
    rows(call, mode, recipe).find(|rule| rule.slot == slot)
}

/// The tensors of a call.
pub(crate) struct TensorFacts<'a, 'v> {
    pub(crate) call: Call,
    pub(crate) mode: Mode,
    pub(crate) recipe: Recipe,
    pub(crate) sizes: &'a Sizes<'a>,
    pub(crate) tensor: &'a dyn Fn(Slot) -> Option<&'v View>,
}

/// Checks every tensor of a call: each that may be there first by `memory`, which gets its
/// argument's name, then by its row.
pub(crate) fn check(
    facts: &TensorFacts<'_, '_>,
    memory: impl Fn(&'static str, &View) -> Result<()>,
) -> Result<()> {
    for rule in rows(facts.call, facts.mode, facts.recipe) {
        let view = (facts.tensor)(rule.slot);
        if let Some(view) = view.filter(|_| rule.need != Need::Forbidden) {
            memory(rule.info.argument, view)?;
        }
        if let Some(violation) = rule.broken(view, facts.sizes) {
            return Err(rule.info.broken(violation));
        }
    }
    Ok(())
}

/// Writes rows tersely: name, argument, call, modes, slot, whether it must be there, extents,
/// element types, the rule in words and its source, and the recipe that it is for. All of them are
/// found broken by one rank.
macro_rules! tensors {
    (@recipe) => { None };
    (@recipe $recipe:ident) => { Some($crate::enums::DispatchQuantizationRecipe::$recipe) };
    ($(#[$meta:meta])* $table:ident {$(
        $name:literal on $argument:literal in $call:expr, $modes:ident:
            $slot:ident $need:ident [$($dim:expr),*] $types:ident,
            $rule:literal ($source:literal) $(when $recipe:ident)?;
    )+}) => {
        $(#[$meta])*
        pub(in crate::rules) static $table: &[$crate::rules::tensors::TensorRule] = &[$(
            $crate::rules::tensors::TensorRule {
                info: $crate::rules::RuleInfo::new(
                    $name, $argument, $rule, $source, nccl_ext_core::Scope::Local,
                ),
                call: $call,
                modes: $crate::rules::tensors::modes::$modes,
                slot: $crate::rules::tensors::Slot::$slot,
                need: $crate::rules::tensors::Need::$need,
                dims: &[$($dim),*],
                types: $crate::rules::tensors::extents::Types::$types,
                recipe: $crate::rules::tensors::tensors!(@recipe $($recipe)?),
            },
        )+];
    };
}
pub(in crate::rules) use tensors;
