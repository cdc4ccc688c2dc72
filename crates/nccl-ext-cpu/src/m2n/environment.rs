//! Environment variables that change what a call accepts or which replica it reads, read when an
//! epoch starts (M2N 5). Those that tune a GPU, or describe several domains, are not read.

use nccl_ext_core::env_value::{self, SizeListLimits};

/// What `NCCL_RESHARD_COPY_ALGORITHM` chooses between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyAlgorithm {
    Pack,
    Direct,
    Pipe,
}

/// Which source replicas feed which destination replicas (M2N 3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadBalance {
    /// Evenly, in blocks.
    Uniform,
    /// By the node of the destination. Here all ranks are one node, which the first replica feeds.
    NodeAware,
}

/// Sizes of PACK's staging buffers, ascending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Buckets {
    pub(super) sizes: Vec<u64>,
    /// Nobody chose them.
    pub(super) implicit: bool,
}

impl Buckets {
    fn built_in() -> Self {
        Self { sizes: vec![2 << 30], implicit: true }
    }

    pub(super) fn largest(&self) -> u64 {
        self.sizes.last().copied().unwrap_or(0)
    }

    /// The smallest that holds a request.
    pub(super) fn holding(&self, request: u64) -> Option<u64> {
        self.sizes.iter().copied().find(|&size| size >= request)
    }
}

/// Settings of an epoch.
#[derive(Debug, Clone)]
pub(super) struct Environment {
    pub(super) algorithm: CopyAlgorithm,
    pub(super) balance: Option<LoadBalance>,
    pub(super) uniform_broadcast: Option<bool>,
    pub(super) split_comm: Option<bool>,
    /// Communicators with more ranks count as large.
    pub(super) large_above: usize,
    pub(super) buckets: Buckets,
}

impl Default for Environment {
    fn default() -> Self {
        Self {
            algorithm: CopyAlgorithm::Pack,
            balance: None,
            uniform_broadcast: None,
            split_comm: None,
            large_above: 200,
            buckets: Buckets::built_in(),
        }
    }
}

impl Environment {
    pub(super) fn read() -> Self {
        Self::from(|name| env_value::variable(&format!("NCCL_RESHARD_{name}")))
    }

    /// What cannot be read as the variable wants it leaves the default.
    fn from(variable: impl Fn(&str) -> Option<String>) -> Self {
        let default = Self::default();
        let word = |name, words: &[&str]| env_value::word(&variable(name)?, words);
        let flag = |name| env_value::flag_or_yes_no(&variable(name)?);
        Self {
            algorithm: match word("COPY_ALGORITHM", &["PACK", "DIRECT", "PIPE"]) {
                Some(1) => CopyAlgorithm::Direct,
                Some(2) => CopyAlgorithm::Pipe,
                _ => CopyAlgorithm::Pack,
            },
            balance: word("LB_MODE", &["UNIFORM", "NODE_AWARE"])
                .map(|word| [LoadBalance::Uniform, LoadBalance::NodeAware][word]),
            uniform_broadcast: flag("AUTO_UNIFORM_BCAST"),
            split_comm: flag("SPLIT_COMM"),
            large_above: variable("SPLIT_AUTO_PARENT_THRESHOLD")
                .and_then(|text| env_value::positive_int(&text))
                .map_or(default.large_above, |number| number.unsigned_abs() as usize),
            buckets: variable("PACK_BUFFSIZES")
                .and_then(|text| buckets(&text))
                .unwrap_or(default.buckets),
        }
    }
}

/// Every PACK call reserves as much.
pub(super) const SMALLEST_REQUEST: u64 = 2048;
const BUCKETS: SizeListLimits =
    SizeListLimits { sizes: 8, counts: 64, largest_at_least: SMALLEST_REQUEST };

/// `size[:slots]`, separated by commas.
fn buckets(text: &str) -> Option<Buckets> {
    let list = env_value::size_list(text, BUCKETS)?;
    let sizes = list.into_iter().map(|(size, _)| size).collect();
    Some(Buckets { sizes, implicit: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str) -> Option<Vec<u64>> {
        buckets(text).map(|buckets| buckets.sizes)
    }

    /// M2N vectors L11 and L13.
    #[test]
    fn bucket_lists_that_are_accepted() {
        assert_eq!(sizes("8k:2,1m"), Some(vec![8192, 1 << 20]));
        assert_eq!(sizes(" 4k : 2 , 8k"), Some(vec![4096, 8192]));
        assert_eq!(sizes("2048"), Some(vec![2048]));
        assert_eq!(sizes("1k,2k,3k,4k,5k,6k,7k,8k").map(|sizes| sizes.len()), Some(8));
        assert_eq!(sizes("1M,1k:63"), Some(vec![1024, 1 << 20]));
        let found = buckets("8k:2,1m").unwrap();
        assert_eq!(found.holding(8192), Some(8192));
        assert_eq!(found.holding(8193), Some(1 << 20));
        assert_eq!(found.holding((1 << 20) + 1), None);
        assert!(!found.implicit);
    }

    /// M2N vector L12.
    #[test]
    fn bucket_lists_that_are_not() {
        let nine = ["3k"; 9].join(",");
        let bad = [
            "1k",
            "2k:65",
            "4k,4096",
            "4k,",
            "4kb",
            "4g",
            "",
            "4k:0",
            &nine,
            "-4k",
            "4k:",
            "4k:2:2",
            ":2",
            "99999999999999999999",
            "0,4k",
            "k",
            "2k:63,4k:2",
        ];
        for text in bad {
            assert_eq!(sizes(text), None, "{text}");
        }
    }

    /// M2N vector L14 among others.
    #[test]
    fn words_that_are_not_known_leave_the_default() {
        let read = |name: &'static str, value: &'static str| {
            Environment::from(move |asked| (asked == name).then(|| value.to_owned()))
        };
        for (value, algorithm) in [
            ("direct", CopyAlgorithm::Direct),
            ("PIPE", CopyAlgorithm::Pipe),
            ("Pack", CopyAlgorithm::Pack),
            ("foo", CopyAlgorithm::Pack),
            ("", CopyAlgorithm::Pack),
        ] {
            assert_eq!(read("COPY_ALGORITHM", value).algorithm, algorithm, "{value}");
        }
        assert_eq!(read("LB_MODE", "node_aware").balance, Some(LoadBalance::NodeAware));
        assert_eq!(read("LB_MODE", "uniform ").balance, None);
        assert_eq!(read("SPLIT_COMM", "Yes").split_comm, Some(true));
        assert_eq!(read("SPLIT_COMM", "off").split_comm, Some(false));
        assert_eq!(read("SPLIT_COMM", "2").split_comm, None);
        for (value, large_above) in
            [(" +64", 64), ("0", 200), ("-1", 200), ("64 ", 200), ("2147483648", 200)]
        {
            let read = read("SPLIT_AUTO_PARENT_THRESHOLD", value);
            assert_eq!(read.large_above, large_above, "{value}");
        }
        assert!(read("PACK_BUFFSIZES", "1k").buckets.implicit);
    }
}
