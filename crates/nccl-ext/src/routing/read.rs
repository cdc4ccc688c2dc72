//! A recording, from a file or from inside the program.

use std::path::Path;

use nccl_ext_core::bf16;

use super::recording::Routing;
use super::{file, rules};
use crate::failure::InputError;

const RECORDED: &[u8] = include_bytes!("../../data/moe_text_4x128.safetensors");
const RECORDED_NAME: &str = "moe_text_4x128";

impl Routing {
    /// The recording inside the program.
    ///
    /// # Errors
    /// None: a test reads it.
    pub fn recorded() -> Result<Self, InputError> {
        let routing = Self::parse(RECORDED_NAME, RECORDED)?;
        Ok(Self { embedded: true, ..routing })
    }

    /// Reads a safetensors file.
    ///
    /// # Errors
    /// [`InputError`] when it cannot be read or breaks a rule.
    pub fn read(path: &Path) -> Result<Self, InputError> {
        let name = path.display().to_string();
        let bytes = file::bytes(&name, path)?;
        Self::parse(&name, &bytes)
    }

    /// Takes the bytes of a safetensors file; `name` is what errors call it.
    ///
    /// # Errors
    /// [`InputError`] for the first rule that it breaks.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self, InputError> {
        let file = file::File::parse(name, bytes)?;
        let sizes = rules::sizes(&file)?;
        let rows = sizes.tokens();
        let routing = Self {
            name: name.into(),
            embedded: false,
            sizes,
            tokens: file.tensor("tokens", [rows, sizes.hidden], bf16::from_le_bytes)?,
            topk_idx: file.tensor("topk_idx", [rows, sizes.top_k], i64::from_le_bytes)?,
            topk_weights: file.tensor("topk_weights", [rows, sizes.top_k], f32::from_le_bytes)?,
        };
        rules::values(&routing)?;
        Ok(routing)
    }
}
