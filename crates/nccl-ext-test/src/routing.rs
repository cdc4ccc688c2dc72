//! Routing: which experts the tokens go to.

use nccl_ext_core::bf16;

/// EP fixture G2: two ranks, four experts, top-2, four tokens per rank.
#[derive(Debug)]
pub struct G2;

impl G2 {
    /// Expert ids of each rank.
    pub const IDS: [[i64; 8]; 2] = [[0, 2, 3, 1, 1, 0, -1, -1], [2, -1, 3, 3, 0, 1, 2, 3]];

    /// The same without the duplicate in rank 1's second row, which low-latency expert-major cannot
    /// take.
    pub const UNIQUE_IDS: [[i64; 8]; 2] = [Self::IDS[0], [2, -1, 3, -1, 0, 1, 2, 3]];

    /// EP vector L3: what a low-latency expert-major round with [`UNIQUE_IDS`](Self::UNIQUE_IDS) and
    /// [`weights`](Self::weights) combines to. 6 x 6 for the row whose duplicate is left out; 99.75
    /// rounds to even.
    pub const WEIGHTED: [[f32; 4]; 2] = [[2.25, 8.5, 18.75, 0.0], [25.0, 36.0, 100.0, 130.0]];

    /// What a round without weights combines to, once for each rank that a token went to.
    pub const SUMMED: [[f32; 4]; 2] = [[2.0, 4.0, 3.0, 0.0], [5.0, 6.0, 7.0, 8.0]];

    /// The value of a token.
    pub fn value(rank: usize, token: usize) -> f32 {
        (rank * 4 + token + 1) as f32
    }

    /// A rank's tokens, `hidden` times the value each.
    pub fn tokens(rank: usize, hidden: usize) -> Vec<bf16> {
        let rows = (0..4).flat_map(|token| std::iter::repeat_n(Self::value(rank, token), hidden));
        rows.map(bf16::from_f32).collect()
    }

    /// A rank's weights: the value of the token, and a quarter more for its second choice.
    pub fn weights(rank: usize) -> Vec<f32> {
        (0..8).map(|i| Self::value(rank, i / 2) + (i % 2) as f32 / 4.0).collect()
    }
}

/// The recorded routing of real text: 512 tokens with 8 of 128 experts each, of which some get no
/// token and one gets 184.
pub fn recorded() -> Vec<i64> {
    // What lies between the safetensors header and the weights.
    let file = include_bytes!("../../nccl-ext/data/moe_text_4x128.safetensors");
    let header = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let ids = &file[8 + header..][..512 * 8 * 8];
    ids.chunks_exact(8).map(|id| i64::from_le_bytes(id.try_into().unwrap())).collect()
}

/// Routing of `tokens` tokens to `topk` different experts each; `draw` gives the expert of a number
/// that is uniform in `0..1`. The same on every run.
pub fn drawn(tokens: usize, topk: usize, draw: impl Fn(f64) -> usize) -> Vec<i64> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut ids = Vec::new();
    for _ in 0..tokens {
        let mut row = Vec::new();
        while row.len() < topk {
            let id = draw(next()) as i64;
            if !row.contains(&id) {
                row.push(id);
            }
        }
        ids.extend(row);
    }
    ids
}
