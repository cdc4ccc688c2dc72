//! Staging buckets: the sizes of the slots that packed pieces travel through.

use std::fmt;

use nccl_ext_core::env_value::{self, SizeListLimits};
use nccl_ext_core::rules::check;

use crate::rules::settings::{self, BucketProfileFacts};

/// Most sizes of a profile.
const MOST: usize = 8;
/// Most slots of all sizes together.
const MOST_SLOTS: u64 = 64;
/// The smallest request, and so the least that the largest size must hold.
pub(crate) const SMALLEST_REQUEST: usize = 2048;
/// 2 GiB in four slots.
const IMPLICIT: (usize, usize) = (1 << 31, 4);

/// The staging slots of PACK: each call takes one that holds the larger of both sides' tiles
/// (M2N 2.3 #4). Written as in `NCCL_RESHARD_PACK_BUFFSIZES`: `8k:2,1m`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
pub struct Buckets {
    /// Bytes and slots, ascending.
    sizes: [(usize, usize); MOST],
    len: usize,
}

impl Buckets {
    /// Reads the library's notation (M2N 5): up to eight comma-separated `size[:slots]`, a size in
    /// bytes or with `k` or `m`, sizes distinct, at most 64 slots, the largest size at least 2048.
    /// `None` for anything else; the library warns then and keeps its built-in 2 GiB.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let limits = SizeListLimits {
            sizes: MOST,
            counts: MOST_SLOTS,
            largest_at_least: SMALLEST_REQUEST as u64,
        };
        let list = env_value::size_list(text, limits)?;
        let mut buckets = Self { sizes: [(0, 0); MOST], len: list.len() };
        for (bucket, (size, slots)) in buckets.sizes.iter_mut().zip(list) {
            *bucket = (usize::try_from(size).ok()?, usize::try_from(slots).ok()?);
        }
        Some(buckets)
    }

    /// Bytes and number of slots of each size, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.sizes.iter().copied().take(self.len)
    }

    /// The largest size: no tile may be larger, on either side.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.iter().last().map_or(0, |(size, _)| size)
    }

    /// The size whose slots hold `bytes`; the largest where none does.
    pub(crate) fn budget(&self, bytes: usize) -> usize {
        let fits = self.iter().map(|(size, _)| size).find(|size| *size >= bytes);
        fits.unwrap_or_else(|| self.largest())
    }

    /// Whether this is the library's built-in profile.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for Buckets {
    fn default() -> Self {
        let mut sizes = [(0, 0); MOST];
        sizes[0] = IMPLICIT;
        Self { sizes, len: 1 }
    }
}

impl fmt::Display for Buckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (size, slots)) in self.iter().enumerate() {
            write!(f, "{}{size}:{slots}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Buckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buckets({self})")
    }
}

impl From<Buckets> for String {
    fn from(buckets: Buckets) -> Self {
        buckets.to_string()
    }
}

impl TryFrom<String> for Buckets {
    type Error = nccl_ext_core::Error;

    fn try_from(text: String) -> nccl_ext_core::Result<Self> {
        let profile = Self::parse(&text);
        let facts = BucketProfileFacts { text: &text, is_profile: profile.is_some() };
        check(settings::BUCKET_PROFILE, |broken| broken(&facts))?;
        Ok(profile.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::Buckets;

    fn parsed(text: &str) -> Option<String> {
        Buckets::parse(text).map(|buckets| buckets.to_string())
    }

    /// M2N vector L11.
    #[test]
    fn sizes_scale_and_sort() {
        assert_eq!(parsed("8k:2,1m").as_deref(), Some("8192:2,1048576:1"));
        assert_eq!(parsed("1m,8K:2").as_deref(), Some("8192:2,1048576:1"));
    }

    /// M2N vector L12.
    #[test]
    fn what_the_library_refuses_is_refused() {
        let nine = "2048,2049,2050,2051,2052,2053,2054,2055,2056";
        for text in [
            "1k", "2k:65", "4k,4096", "4k,", "4kb", "4g", "", "4k:0", nine, "+4k", "4k:+2", "k",
            "4 k",
        ] {
            assert_eq!(parsed(text), None, "{text:?}");
        }
        assert_eq!(parsed("2k:40,4k:25"), None);
    }

    /// M2N vector L13.
    #[test]
    fn what_the_library_accepts_is_accepted() {
        assert_eq!(parsed(" 4k : 2 , 8k").as_deref(), Some("4096:2,8192:1"));
        assert_eq!(parsed("2048").as_deref(), Some("2048:1"));
        assert!(parsed("1k,2k,3k,4k,5k,6k,7k,8k").is_some());
        assert!(parsed("1,2048").is_some());
    }

    #[test]
    fn the_built_in_profile_is_four_slots_of_2_gib() {
        let buckets = Buckets::default();
        assert!(buckets.is_default() && !Buckets::parse("4k").unwrap().is_default());
        assert_eq!((buckets.to_string().as_str(), buckets.largest()), ("2147483648:4", 1 << 31));
        let two = Buckets::parse("4k,8k").unwrap();
        assert_eq!((two.budget(1), two.budget(4097), two.budget(9000)), (4096, 8192, 8192));
    }
}
