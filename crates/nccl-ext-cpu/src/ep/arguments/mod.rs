//! The arguments of dispatch and combine, as far as both algorithms check them alike.

mod combine;
mod dispatch;
mod recipe;
mod scales;

pub(super) use combine::{CombineArguments, output};
pub(super) use dispatch::{DispatchArguments, check_tokens, global_ids};
pub(super) use recipe::{recipe, recipe_tensors};
pub(super) use scales::{check_windows, data as scale_data};
