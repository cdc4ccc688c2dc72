//! What a row about one tensor is: the call, the modes, presence, extents, element types.

pub(crate) mod extents;
pub(in crate::rules) mod modes;

use std::fmt::Write as _;

use nccl_ext_core::rules::{RuleInfo, Violation};

use self::extents::{Dim, Sizes, Types};
use crate::enums::{DispatchQuantizationRecipe as Recipe, PassDir};
use crate::mode::Mode;
use crate::view::View;

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
    pub(in crate::rules) fn broken(
        &self,
        view: Option<&View>,
        sizes: &Sizes<'_>,
    ) -> Option<Violation> {
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
        pub(in crate::rules) static $table: &[$crate::rules::tensor_row::TensorRule] = &[$(
            $crate::rules::tensor_row::TensorRule {
                info: nccl_ext_core::rules::RuleInfo::new(
                    $name, $argument, $rule, $source, nccl_ext_core::Scope::Local,
                ),
                call: $call,
                modes: $crate::rules::tensor_row::modes::$modes,
                slot: $crate::rules::tensor_row::Slot::$slot,
                need: $crate::rules::tensor_row::Need::$need,
                dims: &[$($dim),*],
                types: $crate::rules::tensor_row::extents::Types::$types,
                recipe: $crate::rules::tensor_row::tensors!(@recipe $($recipe)?),
            },
        )+];
    };
}
pub(in crate::rules) use tensors;
