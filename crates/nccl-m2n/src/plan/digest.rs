//! Digests: one number that says whether ranks mean the same.

use std::fmt;

use super::conditions::{Conditions, Grouping};
use crate::layout::Layout;
use crate::settings::{CopyAlgorithm, LoadBalance};

/// 128 bits over everything that a plan depends on.
///
/// The same on every platform and in every run: MurmurHash3 (x64, 128 bits, seed 0) of the words
/// that [`Plan::digest`](super::Plan::digest) lists, as little-endian 64-bit integers. It tells
/// mistakes apart; it is no defence against somebody who looks for collisions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub(crate) [u64; 2]);

impl Digest {
    /// The digest of several plans in their order, such as those of a model.
    pub fn of_all(digests: impl IntoIterator<Item = Self>) -> Self {
        let mut hasher = Hasher::new();
        for Self(words) in digests {
            hasher.words(&words);
        }
        hasher.finish()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.0[0], self.0[1])
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl std::str::FromStr for Digest {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // 32 digits; anything else does not parse.
        let (high, low) = text.split_at_checked(16).unwrap_or(("", text));
        Ok(Self([u64::from_str_radix(high, 16)?, u64::from_str_radix(low, 16)?]))
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// MurmurHash3_x64_128 of 64-bit words.
#[derive(Debug, Clone)]
pub(crate) struct Hasher {
    state: [u64; 2],
    /// The first word of a block that is not full.
    pending: Option<u64>,
    words: u64,
}

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

fn mix(word: u64, first: u64, rotate: u32, second: u64) -> u64 {
    word.wrapping_mul(first).rotate_left(rotate).wrapping_mul(second)
}

fn avalanche(mut word: u64) -> u64 {
    word = (word ^ (word >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    word = (word ^ (word >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ (word >> 33)
}

impl Hasher {
    pub(crate) fn new() -> Self {
        Self { state: [0; 2], pending: None, words: 0 }
    }

    pub(crate) fn word(&mut self, word: u64) {
        self.words += 1;
        let Some(first) = self.pending.take() else {
            self.pending = Some(word);
            return;
        };
        let [mut h1, mut h2] = self.state;
        h1 ^= mix(first, C1, 31, C2);
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 ^= mix(word, C2, 33, C1);
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
        self.state = [h1, h2];
    }

    pub(crate) fn words(&mut self, words: &[u64]) {
        words.iter().for_each(|word| self.word(*word));
    }

    pub(crate) fn finish(mut self) -> Digest {
        if let Some(tail) = self.pending.take() {
            self.state[0] ^= mix(tail, C1, 31, C2);
        }
        let bytes = self.words * 8;
        let [mut h1, mut h2] = self.state.map(|half| half ^ bytes);
        h1 = h1.wrapping_add(h2);
        h2 = h2.wrapping_add(h1);
        (h1, h2) = (avalanche(h1), avalanche(h2));
        h1 = h1.wrapping_add(h2);
        h2 = h2.wrapping_add(h1);
        Digest([h1, h2])
    }
}

/// Words of one layout.
pub(crate) const LAYOUT_WORDS: usize = 11;

pub(crate) fn layout_words(layout: &Layout) -> [u64; LAYOUT_WORDS] {
    let mesh = layout.mesh();
    let [d0, d1] = mesh.padded_dims();
    let shape = layout.local_shape();
    let [s0, s1, s2] = shape.padded();
    let placement = |axis: usize| {
        let raw = layout.placements().get(axis).map_or(-1, |placement| placement.as_raw());
        (raw + 1).unsigned_abs() as usize
    };
    let data_type = layout.data_type() as usize;
    [
        mesh.ndims(),
        d0,
        d1,
        mesh.start_rank(),
        placement(0),
        placement(1),
        shape.len(),
        s0,
        s1,
        s2,
        data_type,
    ]
    .map(|word| word as u64)
}

/// Words of the conditions.
pub(crate) const CONDITION_WORDS: usize = 39;

/// Their names, in the order of the words.
const CONDITION_NAMES: [&str; CONDITION_WORDS - 16] = [
    "ranks of the communicator",
    "grouping",
    "NCCL_RESHARD_COPY_ALGORITHM",
    "NCCL_RESHARD_LB_MODE",
    "NCCL_RESHARD_AUTO_UNIFORM_BCAST",
    "NCCL_RESHARD_SPLIT_COMM",
    "NCCL_RESHARD_SPLIT_AUTO_PARENT_THRESHOLD",
    "whether NCCL_RESHARD_DST_DOMAIN_SIZE is set",
    "NCCL_RESHARD_DST_DOMAIN_SIZE",
    "NCCL_RESHARD_NUM_CTAS or max_cta",
    "NCCL_RESHARD_PIPE_GIN_PEERS_PER_SLOT",
    "ranks of a domain",
    "device API support",
    "host RMA support",
    "GIN support",
    "railed GIN support",
    "major version of NCCL",
    "minor version of NCCL",
    "patch level of NCCL",
    "major CUDA version of the driver",
    "minor CUDA version of the driver",
    "CUDA patch level of the driver",
    "sizes of NCCL_RESHARD_PACK_BUFFSIZES",
];

/// 0 for unset, else one more than the value, which is small.
fn optional(value: Option<u8>) -> usize {
    value.map_or(0, |value| usize::from(value) + 1)
}

pub(crate) fn condition_words(conditions: &Conditions) -> [u64; CONDITION_WORDS] {
    let Conditions { ranks, fabric, settings, grouping } = conditions;
    let grouping = match grouping {
        Grouping::Alone => 0,
        Grouping::Only => 1,
        Grouping::Fused => 2,
    };
    let algorithm = match settings.copy_algorithm {
        CopyAlgorithm::Pack => 0,
        CopyAlgorithm::Direct => 1,
        CopyAlgorithm::Pipe => 2,
    };
    let balance = settings.load_balance.map(|mode| match mode {
        LoadBalance::Uniform => 0,
        LoadBalance::NodeAware => 1,
    });
    let head = [
        *ranks,
        grouping,
        algorithm,
        optional(balance),
        optional(settings.uniform_broadcast.map(u8::from)),
        optional(settings.split_comm.map(u8::from)),
        settings.split_threshold,
        settings.destination_domain.is_some().into(),
        settings.destination_domain.unwrap_or(0),
        settings.ctas,
        settings.pipe_peers,
        fabric.domain_size,
        fabric.device_api.into(),
        fabric.host_rma.into(),
        fabric.gin.into(),
        fabric.rail_gin.into(),
        fabric.nccl.major as usize,
        fabric.nccl.minor as usize,
        fabric.nccl.patch as usize,
        fabric.driver.major as usize,
        fabric.driver.minor as usize,
        fabric.driver.patch as usize,
        settings.buckets.iter().count(),
    ];
    let mut words = [0; CONDITION_WORDS];
    let buckets = settings.buckets.iter().flat_map(|(size, slots)| [size, slots]);
    for (to, from) in words.iter_mut().zip(head.into_iter().chain(buckets)) {
        *to = from as u64;
    }
    words
}

/// The first word of the conditions that differs, by name.
pub(crate) fn condition_difference(
    ours: &[u64],
    theirs: &[u64],
) -> Option<(&'static str, u64, u64)> {
    let pairs = ours.iter().zip(theirs).enumerate();
    let (i, (a, b)) = pairs.into_iter().find(|(_, (a, b))| a != b)?;
    Some((CONDITION_NAMES.get(i).copied().unwrap_or("NCCL_RESHARD_PACK_BUFFSIZES"), *a, *b))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference values: `mmh3.hash64(bytes, seed=0, x64arch=True, signed=False)`.
    #[test]
    fn the_hash_is_murmur3() {
        let hash = |words: &[u64]| {
            let mut hasher = Hasher::new();
            hasher.words(words);
            hasher.finish().0
        };
        assert_eq!(hash(&[]), [0, 0]);
        let text = b"The quick brown fox jumps over the lazy dog.!!!!";
        let words: Vec<u64> = text
            .chunks_exact(8)
            .map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap()))
            .collect();
        assert_eq!(words.len(), 6);
        assert_eq!(hash(&words), REFERENCE_48);
        assert_eq!(hash(&words[..5]), REFERENCE_40);
    }

    const REFERENCE_48: [u64; 2] = [0x95f9_c1e2_bc58_ff24, 0x00c5_9a5c_a704_4144];
    const REFERENCE_40: [u64; 2] = [0xe246_36e0_f1bd_d992, 0xdc29_7343_3fbb_4be5];

    #[test]
    fn digests_print_and_parse() {
        let digest = Digest([1, u64::MAX]);
        assert_eq!(digest.to_string(), "0000000000000001ffffffffffffffff");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert!("12".parse::<Digest>().is_err() && "é".repeat(16).parse::<Digest>().is_err());
        let (a, b) = (Digest([1, 2]), Digest([3, 4]));
        assert_ne!(Digest::of_all([a, b]), Digest::of_all([b, a]));
    }
}
