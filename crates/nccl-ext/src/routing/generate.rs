//! Routing made by the program: any size, and the same on every machine.

use nccl_ext_core::bf16;

use super::recording::{MAX_EXPERTS, Routing, Sizes};
use crate::failure::InputError;

/// Most bytes of the tokens of all ranks.
const MAX_BYTES: u128 = 4 << 30;

/// What to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recipe {
    /// Tokens of each rank.
    pub tokens: usize,
    /// Elements of a token.
    pub hidden: usize,
    /// Experts that a token names.
    pub top_k: usize,
    /// Experts of the model.
    pub experts: usize,
    /// Another seed gives other tokens, experts and weights.
    pub seed: u64,
}

fn error(
    item: &'static str,
    rule: &'static str,
    expected: impl ToString,
    found: impl ToString,
) -> InputError {
    let (expected, found) = (expected.to_string(), found.to_string());
    InputError { file: "--generate".into(), item, rule, expected, found }
}

impl Recipe {
    /// Reads `tokens=128,hidden=7168,topk=8,experts=256[,seed=1]`.
    ///
    /// # Errors
    /// [`InputError`] for what is missing, unknown, given twice or no size, and for more choices
    /// than experts.
    pub fn parse(text: &str) -> Result<Self, InputError> {
        let mut values = [None::<&str>; KEYS.len()];
        for part in text.split(',') {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let Some(at) = KEYS.iter().position(|known| *known == key.trim()) else {
                let rule = "the recipe is a list of key=value";
                return Err(error("key", rule, KEYS.join(", "), format!("{part:?}")));
            };
            if values[at].replace(value.trim()).is_some() {
                return Err(error(KEYS[at], "a key is given once", "one", "two"));
            }
        }
        let size = |at: usize, most: usize| {
            let found = values[at].map_or_else(|| "none".into(), |text| format!("{text:?}"));
            let number = values[at].and_then(|text| text.parse::<usize>().ok());
            number.filter(|number| (1..=most).contains(number)).ok_or_else(|| {
                let rule = "a size is a whole number, and at least 1";
                error(KEYS[at], rule, format!("1 to {most}"), found)
            })
        };
        let most = u32::MAX as usize;
        let [tokens, hidden] = [size(0, most)?, size(1, most)?];
        let [top_k, experts] = [size(2, most)?, size(3, MAX_EXPERTS)?];
        if top_k > experts {
            let rule = "a token names different experts";
            return Err(error("topk", rule, format!("at most {experts}"), top_k));
        }
        let seed = values[4].unwrap_or("0");
        let seed = seed.parse().map_err(|_| {
            let expected = format!("0 to {}", u64::MAX);
            error("seed", "the seed is a whole number", expected, format!("{seed:?}"))
        })?;
        Ok(Self { tokens, hidden, top_k, experts, seed })
    }

    /// Makes the routing for this many ranks: tokens about normally distributed, experts chosen
    /// evenly, weights positive, descending and with a sum of one.
    ///
    /// # Errors
    /// [`InputError`] when experts do not divide over the ranks, or it would be too large.
    pub fn routing(&self, ranks: usize) -> Result<Routing, InputError> {
        let Self { tokens, hidden, top_k, experts, seed } = *self;
        if ranks == 0 || !experts.is_multiple_of(ranks) {
            let valid = (1..=experts).filter(|ranks| experts.is_multiple_of(*ranks));
            let valid: Vec<_> = valid.map(|ranks| ranks.to_string()).collect();
            let rule = "experts divide evenly over ranks";
            let found = format!("{ranks}, for {experts} experts");
            return Err(error("--ranks", rule, valid.join(", "), found));
        }
        // Of a token: elements of two bytes, and choices of twelve.
        let token = 2 * hidden as u128 + 12 * top_k as u128;
        let bytes = token.saturating_mul(ranks as u128).saturating_mul(tokens as u128);
        if bytes > MAX_BYTES {
            let rule = "the tokens of all ranks fit into memory";
            let expected = format!("at most {MAX_BYTES} bytes");
            let found = format!("{ranks} ranks x {tokens} tokens x {token} bytes = {bytes}");
            return Err(error("tokens", rule, expected, found));
        }
        let sizes = Sizes { ranks, tokens_per_rank: tokens, hidden, top_k, experts };
        let mut random = Random(seed);
        let mut routing = Routing {
            name: format!("generated, seed {seed}"),
            embedded: false,
            sizes,
            tokens: (0..sizes.tokens() * hidden).map(|_| random.normal()).collect(),
            topk_idx: Vec::with_capacity(sizes.tokens() * top_k),
            topk_weights: Vec::with_capacity(sizes.tokens() * top_k),
        };
        let mut deck: Vec<_> = (0..experts as i64).collect();
        for _ in 0..sizes.tokens() {
            for k in 0..top_k {
                deck.swap(k, k + random.below(experts - k));
            }
            routing.topk_idx.extend_from_slice(&deck[..top_k]);
            let mut weights: Vec<_> = (0..top_k).map(|_| random.weight()).collect();
            weights.sort_by(|a, b| b.total_cmp(a));
            let sum: f32 = weights.iter().sum();
            routing.topk_weights.extend(weights.iter().map(|weight| weight / sum));
        }
        Ok(routing)
    }
}

const KEYS: [&str; 5] = ["tokens", "hidden", "topk", "experts", "seed"];

/// SplitMix64: a counter, well mixed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `count`.
    fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.next()) * count as u128) >> 64) as usize
    }

    /// The sum of four even numbers is close to normal; its mean is 0, its deviation 1.
    fn normal(&mut self) -> bf16 {
        let bits = self.next();
        let sum: u32 = (0..4).map(|part| (bits >> (16 * part)) as u32 & 0xFFFF).sum();
        bf16::from_f32((sum as f32 - 131_070.0) / 37_837.0)
    }

    /// Positive, and now and then much larger than usual, as weights from a softmax are. Made of
    /// exact operations only: an exponential function is not the same on every machine.
    fn weight(&mut self) -> f32 {
        let even = (self.next() >> 40) as f32 / (1 << 24) as f32;
        let square = even * even;
        1.0 / 32.0 + square * square
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_the_rules_of_a_recording_and_repeats() {
        let recipe = Recipe::parse("tokens=33, hidden=64,topk=8,experts=16,seed=7").unwrap();
        let routing = recipe.routing(4).unwrap();
        crate::routing::rules::values(&routing).unwrap();
        assert_eq!(routing.sizes.tokens(), 132);
        assert_eq!(routing.topk_idx, recipe.routing(4).unwrap().topk_idx);
        assert_ne!(routing.topk_idx, Recipe { seed: 8, ..recipe }.routing(4).unwrap().topk_idx);
        assert!(routing.loads().iter().all(|load| (40..90).contains(load)));
        for token in 0..132 {
            let weights = routing.weights(token);
            assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-5);
            assert!(weights.is_sorted_by(|a, b| a >= b) && weights[7] > 0.0);
        }
        let values = routing.tokens.iter().map(|value| value.to_f64());
        let count = routing.tokens.len() as f64;
        let mean = values.clone().sum::<f64>() / count;
        let deviation = (values.map(|value| value * value).sum::<f64>() / count).sqrt();
        assert!(mean.abs() < 0.05 && (deviation - 1.0).abs() < 0.05, "{mean} {deviation}");
    }

    /// The numbers are part of what a result can be compared by.
    #[test]
    fn the_first_numbers_are_fixed() {
        let routing =
            Recipe::parse("tokens=1,hidden=4,topk=3,experts=8").unwrap().routing(1).unwrap();
        let bits: Vec<_> = routing.tokens.iter().map(|value| value.to_bits()).collect();
        assert_eq!((bits, routing.topk_idx), (vec![16311, 15886, 49082, 16271], vec![0, 3, 1]));
    }

    #[test]
    fn recipes_that_are_none() {
        for (text, line) in [
            (
                "",
                "`key`: the recipe is a list of key=value; expected tokens, hidden, topk, experts, seed, found \"\"",
            ),
            (
                "tokens=1,width=3",
                "`key`: the recipe is a list of key=value; expected tokens, hidden, topk, experts, seed, found \"width=3\"",
            ),
            ("tokens=1,tokens=1", "`tokens`: a key is given once; expected one, found two"),
            (
                "tokens=1,hidden=1,topk=1",
                "`experts`: a size is a whole number, and at least 1; expected 1 to 65535, found none",
            ),
            (
                "tokens=0,hidden=1,topk=1,experts=1",
                "`tokens`: a size is a whole number, and at least 1; expected 1 to 4294967295, found \"0\"",
            ),
            (
                "tokens=1,hidden=99999999999999999999999,topk=1,experts=1",
                "`hidden`: a size is a whole number, and at least 1; expected 1 to 4294967295, found \"99999999999999999999999\"",
            ),
            (
                "tokens=1,hidden=-1,topk=1,experts=1",
                "`hidden`: a size is a whole number, and at least 1; expected 1 to 4294967295, found \"-1\"",
            ),
            (
                "tokens,hidden=1,topk=1,experts=1",
                "`tokens`: a size is a whole number, and at least 1; expected 1 to 4294967295, found \"\"",
            ),
            (
                "tokens=1,hidden=1,topk=9,experts=8",
                "`topk`: a token names different experts; expected at most 8, found 9",
            ),
            (
                "tokens=1,hidden=1,topk=1,experts=65536",
                "`experts`: a size is a whole number, and at least 1; expected 1 to 65535, found \"65536\"",
            ),
            (
                "tokens=1,hidden=1,topk=1,experts=1,seed=x",
                "`seed`: the seed is a whole number; expected 0 to 18446744073709551615, found \"x\"",
            ),
        ] {
            assert_eq!(Recipe::parse(text).unwrap_err().to_string(), format!("--generate: {line}"));
        }
        let recipe = Recipe::parse("tokens=4294967295,hidden=4294967295,topk=1,experts=6").unwrap();
        assert_eq!(
            recipe.routing(4).unwrap_err().to_string(),
            "--generate: `--ranks`: experts divide evenly over ranks; expected 1, 2, 3, 6, found 4, for 6 experts"
        );
        assert_eq!(
            recipe.routing(3).unwrap_err().to_string(),
            "--generate: `tokens`: the tokens of all ranks fit into memory; expected at most 4294967296 bytes, found 3 ranks x 4294967295 tokens x 8589934602 bytes = 110680464545336524770"
        );
    }
}
