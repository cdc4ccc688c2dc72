//! The library's settings that decide how a reshard travels and what is accepted.

mod buckets;

use nccl_ext_core::env_value;

pub use buckets::Buckets;
pub(crate) use buckets::SMALLEST_REQUEST;

use crate::config::Config;

/// How the library copies (M2N 3.6, 3.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum CopyAlgorithm {
    /// Packs pieces into staging slots.
    #[default]
    Pack,
    /// Point to point through staging.
    Direct,
    /// Along rings of replicas, in chunks.
    Pipe,
}

/// How destination replicas are shared out among source replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum LoadBalance {
    /// In blocks of equal size.
    Uniform,
    /// By the domain of the destination: each domain is served by one source replica.
    NodeAware,
}

/// The settings that decide results, limits and transports, as the library reads them from its
/// environment when its first runtime is made (M2N 5). Every rank must have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[non_exhaustive]
pub struct Settings {
    /// `NCCL_RESHARD_COPY_ALGORITHM`.
    pub copy_algorithm: CopyAlgorithm,
    /// `NCCL_RESHARD_LB_MODE`; `None` adapts to the call.
    pub load_balance: Option<LoadBalance>,
    /// `NCCL_RESHARD_AUTO_UNIFORM_BCAST`; `None` adapts to the communicator.
    pub uniform_broadcast: Option<bool>,
    /// `NCCL_RESHARD_SPLIT_COMM`; `None` adapts to the call.
    pub split_comm: Option<bool>,
    /// `NCCL_RESHARD_SPLIT_AUTO_PARENT_THRESHOLD`: above so many ranks a communicator is large.
    pub split_threshold: usize,
    /// `NCCL_RESHARD_DST_DOMAIN_SIZE`: ranks of a destination's domain, instead of what the
    /// communicator says.
    pub destination_domain: Option<usize>,
    /// `NCCL_RESHARD_PACK_BUFFSIZES`: sizes of staging slots.
    pub buckets: Buckets,
    /// `NCCL_RESHARD_NUM_CTAS`, else at most `Config::max_cta`: thread blocks of the kernel.
    pub ctas: usize,
    /// `NCCL_RESHARD_PIPE_GIN_PEERS_PER_SLOT`: most ranks of other domains that a rank sends to
    /// with PIPE.
    pub pipe_peers: usize,
}

/// Thread blocks of the kernel, unless something says otherwise.
const CTAS: usize = 8;

impl Default for Settings {
    fn default() -> Self {
        Self {
            copy_algorithm: CopyAlgorithm::Pack,
            load_balance: None,
            uniform_broadcast: None,
            split_comm: None,
            split_threshold: 200,
            destination_domain: None,
            buckets: Buckets::default(),
            ctas: CTAS,
            pipe_peers: 16,
        }
    }
}

impl Settings {
    /// What the process environment says, read with the library's rules: values that it would
    /// ignore count as unset.
    #[must_use]
    pub fn from_env() -> Self {
        Self::from_env_over(&Config::new())
    }

    /// The same with a configuration below it.
    pub(crate) fn from_env_over(config: &Config) -> Self {
        Self::read(config, env_value::variable)
    }

    /// The same for any environment.
    fn read(config: &Config, variable: impl Fn(&str) -> Option<String>) -> Self {
        let plain = Self::default();
        let get = |name: &str| variable(&format!("NCCL_RESHARD_{name}"));
        // A C int: one that does not fit is ignored (M2N 5).
        let positive = |name: &str| {
            get(name).and_then(|text| env_value::positive_int(&text)).map(|n| n as usize)
        };
        let switch = |name: &str| get(name).and_then(|text| env_value::flag_or_yes_no(&text));
        let word =
            |name: &str, words: &[&str]| get(name).and_then(|text| env_value::word(&text, words));
        let most = config.max_cta.and_then(|max| usize::try_from(max).ok());
        Self {
            copy_algorithm: match word("COPY_ALGORITHM", &["DIRECT", "PIPE"]) {
                Some(0) => CopyAlgorithm::Direct,
                Some(_) => CopyAlgorithm::Pipe,
                None => CopyAlgorithm::Pack,
            },
            load_balance: match word("LB_MODE", &["UNIFORM", "NODE_AWARE"]) {
                Some(0) => Some(LoadBalance::Uniform),
                Some(_) => Some(LoadBalance::NodeAware),
                None => None,
            },
            uniform_broadcast: switch("AUTO_UNIFORM_BCAST"),
            split_comm: switch("SPLIT_COMM"),
            split_threshold: positive("SPLIT_AUTO_PARENT_THRESHOLD")
                .unwrap_or(plain.split_threshold),
            destination_domain: positive("DST_DOMAIN_SIZE"),
            buckets: get("PACK_BUFFSIZES")
                .and_then(|text| Buckets::parse(&text))
                .unwrap_or_default(),
            ctas: positive("NUM_CTAS").unwrap_or_else(|| most.map_or(CTAS, |max| max.min(CTAS))),
            pipe_peers: positive("PIPE_GIN_PEERS_PER_SLOT").unwrap_or(plain.pipe_peers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Settings {
        Settings::read(&Config::new(), |name| {
            let found = variables.iter().find(|(key, _)| name == format!("NCCL_RESHARD_{key}"));
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn words_and_numbers_are_read_as_the_library_does() {
        assert_eq!(read(&[]), Settings::default());
        let settings = read(&[
            ("COPY_ALGORITHM", "pipe"),
            ("LB_MODE", "Node_Aware"),
            ("AUTO_UNIFORM_BCAST", "off"),
            ("SPLIT_COMM", "YES"),
            ("SPLIT_AUTO_PARENT_THRESHOLD", " +7"),
            ("DST_DOMAIN_SIZE", "4"),
            ("PACK_BUFFSIZES", "4k"),
            ("NUM_CTAS", "32"),
            ("PIPE_GIN_PEERS_PER_SLOT", "3"),
        ]);
        assert_eq!(settings.copy_algorithm, CopyAlgorithm::Pipe);
        assert_eq!(settings.load_balance, Some(LoadBalance::NodeAware));
        assert_eq!((settings.uniform_broadcast, settings.split_comm), (Some(false), Some(true)));
        assert_eq!((settings.split_threshold, settings.destination_domain), (7, Some(4)));
        assert_eq!(settings.buckets.largest(), 4096);
        assert_eq!((settings.ctas, settings.pipe_peers), (32, 3));
    }

    /// M2N 5, M2N vector L14: what the library ignores is ignored here.
    #[test]
    fn what_cannot_be_read_counts_as_unset() {
        let settings = read(&[
            ("COPY_ALGORITHM", "foo"),
            ("LB_MODE", ""),
            ("AUTO_UNIFORM_BCAST", "2"),
            ("SPLIT_AUTO_PARENT_THRESHOLD", "0"),
            ("DST_DOMAIN_SIZE", "4x"),
            ("NUM_CTAS", "-1"),
            ("PIPE_GIN_PEERS_PER_SLOT", "99999999999999999999999"),
        ]);
        assert_eq!(settings, Settings::default());
        let names = [
            "SPLIT_AUTO_PARENT_THRESHOLD",
            "DST_DOMAIN_SIZE",
            "NUM_CTAS",
            "PIPE_GIN_PEERS_PER_SLOT",
        ];
        for name in names {
            assert_eq!(read(&[(name, "2147483648")]), Settings::default(), "{name}");
            assert_ne!(read(&[(name, "2147483647")]), Settings::default(), "{name}");
        }
    }

    #[test]
    fn the_configuration_can_only_lower_the_thread_blocks() {
        let ctas = |max: Option<u32>| Settings::read(&Config::new().max_cta(max), |_| None).ctas;
        assert_eq!((ctas(None), ctas(Some(2)), ctas(Some(64))), (8, 2, 8));
    }
}
