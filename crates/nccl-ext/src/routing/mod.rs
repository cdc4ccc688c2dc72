//! Routing, recorded or generated: the tokens of all ranks, the experts that each goes to, and their
//! weights.

mod file;
mod fold;
mod generate;
mod rules;

use std::path::Path;

use nccl_ext_core::bf16;

use crate::failure::InputError;

pub use generate::Recipe;

const RECORDED: &[u8] = include_bytes!("../../data/moe_text_4x128.safetensors");
const RECORDED_NAME: &str = "moe_text_4x128";

/// Most experts. Low latency carries their ids in 16 bits, and the demo marks rows with these.
const MAX_EXPERTS: usize = 65535;

/// The sizes of a recording. Each is at least 1, and the experts divide evenly over the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Ranks that dispatch and own experts.
    pub ranks: usize,
    /// Tokens of each rank.
    pub tokens_per_rank: usize,
    /// Elements of a token.
    pub hidden: usize,
    /// Experts that a token names, -1 counted.
    pub top_k: usize,
    /// Experts of the model.
    pub experts: usize,
}

impl Sizes {
    /// Tokens of all ranks.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.ranks * self.tokens_per_rank
    }

    /// Experts of each rank: rank `r` owns the `r`-th block.
    #[must_use]
    pub fn local_experts(&self) -> usize {
        self.experts / self.ranks
    }
}

/// A recording that keeps every rule of its file.
#[derive(Debug, Clone)]
pub struct Routing {
    /// The file as the user named it, or the name of the recording inside the program.
    pub name: String,
    /// Whether it is the recording inside the program.
    pub embedded: bool,
    /// Its sizes.
    pub sizes: Sizes,
    /// `[tokens, hidden]`, rank by rank.
    pub tokens: Vec<bf16>,
    /// `[tokens, top_k]`: experts of the whole model, -1 for none, no expert twice in a row.
    pub topk_idx: Vec<i64>,
    /// `[tokens, top_k]`: weight of each choice.
    pub topk_weights: Vec<f32>,
}

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

    /// One token's row; tokens count over all ranks.
    #[must_use]
    pub fn row(&self, token: usize) -> &[bf16] {
        part(&self.tokens, token, self.sizes.hidden)
    }

    /// One token's experts, -1 for none.
    #[must_use]
    pub fn ids(&self, token: usize) -> &[i64] {
        part(&self.topk_idx, token, self.sizes.top_k)
    }

    /// The weights of one token's choices.
    #[must_use]
    pub fn weights(&self, token: usize) -> &[f32] {
        part(&self.topk_weights, token, self.sizes.top_k)
    }

    /// The tokens, ids and weights of one rank.
    #[must_use]
    pub fn of_rank(&self, rank: usize) -> (&[bf16], &[i64], &[f32]) {
        let Sizes { tokens_per_rank, hidden, top_k, .. } = self.sizes;
        (
            part(&self.tokens, rank, tokens_per_rank * hidden),
            part(&self.topk_idx, rank, tokens_per_rank * top_k),
            part(&self.topk_weights, rank, tokens_per_rank * top_k),
        )
    }

    /// The first rank that receives anything, if any does.
    #[must_use]
    pub fn first_receiver(&self) -> Option<usize> {
        let experts = self.topk_idx.iter().filter_map(|id| usize::try_from(*id).ok());
        experts.min().map(|expert| expert / self.sizes.local_experts())
    }

    /// How many tokens name each expert.
    #[must_use]
    pub fn loads(&self) -> Vec<usize> {
        let mut loads = vec![0; self.sizes.experts];
        for id in &self.topk_idx {
            if let Some(load) = usize::try_from(*id).ok().and_then(|id| loads.get_mut(id)) {
                *load += 1;
            }
        }
        loads
    }
}

fn part<T>(all: &[T], index: usize, length: usize) -> &[T] {
    &all[index * length..][..length]
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// EP fixture G2. One row names an expert twice, which a
    /// file may not.
    pub(crate) fn g2(hidden: usize) -> Routing {
        let ids = [
            [0, 2],
            [3, 1],
            [1, 0],
            [-1, -1], // rank 0
            [2, -1],
            [3, 3],
            [0, 1],
            [2, 3], // rank 1
        ];
        let values = || (1..=8_u8).map(f32::from);
        Routing {
            name: "G2".into(),
            embedded: false,
            sizes: Sizes { ranks: 2, tokens_per_rank: 4, hidden, top_k: 2, experts: 4 },
            tokens: values().flat_map(|value| vec![bf16::from_f32(value); hidden]).collect(),
            topk_idx: ids.concat(),
            topk_weights: values().flat_map(|value| [value, value + 0.25]).collect(),
        }
    }

    #[test]
    fn the_recording_is_what_its_readme_says() {
        let routing = Routing::recorded().unwrap();
        let sizes = Sizes { ranks: 4, tokens_per_rank: 128, hidden: 2048, top_k: 8, experts: 128 };
        assert_eq!(routing.sizes, sizes);
        let loads = routing.loads();
        assert_eq!((loads.iter().min(), loads.iter().max()), (Some(&0), Some(&184)));
        assert_eq!(loads.iter().sum::<usize>(), 512 * 8);
        assert_eq!(loads.iter().filter(|load| **load == 0).count(), 4);
        for token in 0..512 {
            let sum: f32 = routing.weights(token).iter().sum();
            assert!((sum - 1.0).abs() < 1e-5, "token {token}: {sum}");
        }
    }
}
