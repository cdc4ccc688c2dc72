//! Routing, recorded or generated: the tokens of all ranks, the experts that each goes to, and their
//! weights.

mod file;
mod fold;
mod generate;
mod read;
mod recording;
mod rules;

pub use generate::Recipe;
pub use recording::{Routing, Sizes};

#[cfg(test)]
pub(crate) mod tests {
    use nccl_ext_core::bf16;

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
