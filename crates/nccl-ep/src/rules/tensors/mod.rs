//! Rules of single tensors: presence, shape and element type of each, by call and mode
//! (EP 3.5.2, 4.2, 4.3, 4.4.1, 4.5, 4.8.1, 4.17). What a rank hands over only that rank knows, so
//! all of them are errors of one rank. The same rows give [`RecvSpec`](crate::RecvSpec).

#[cfg(test)]
pub(super) mod walk;

use nccl_ext_core::Result;

use super::tensor_row::extents::Sizes;
use super::tensor_row::{Call, Need, Slot, TensorRule};
use super::{combine, dispatch, update};
use crate::enums::DispatchQuantizationRecipe as Recipe;
use crate::mode::Mode;
use crate::view::View;

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
