//! Settings of a world of ranks, carried by its unique id.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nccl_ext_core::UniqueId;
use nccl_ext_core::raw::ncclUniqueId;

/// Settings of a world of ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuConfig {
    /// How long a rank waits for its peers in a collective call before it gives up with
    /// [`Error::Timeout`](nccl_ext_core::Error::Timeout), which fails the world for all of them.
    /// Default: 300 s.
    pub timeout: Duration,
    /// Devices of the world: rank `r` is on device `r % devices`. Default: 1, which 0 means, too.
    ///
    /// They are host memory all the same. What tells them apart is that a buffer, stream or event
    /// of one is refused by a rank on another, as on a machine with several GPUs.
    pub devices: u32,
    /// A seed where calls return before their work is done, as on a GPU; the communicators are then
    /// [`deferred_backend`](crate::deferred_backend)'s. Default: `None`.
    pub deferred: Option<u64>,
}

impl Default for CpuConfig {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(300), devices: 1, deferred: None }
    }
}

impl CpuConfig {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`timeout`](Self::timeout).
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets [`devices`](Self::devices).
    #[must_use]
    pub fn devices(mut self, devices: u32) -> Self {
        self.devices = devices;
        self
    }

    /// Sets [`deferred`](Self::deferred): the seed decides how long streams wait between two pieces of
    /// their work. Which races are found does not depend on it; what a program without an order reads,
    /// may.
    #[must_use]
    pub fn deferred(mut self, seed: u64) -> Self {
        self.deferred = Some(seed);
        self
    }
}

/// A unique id whose world has these settings; without it, worlds have the defaults.
///
/// It is good for one world of this process.
#[must_use]
pub fn unique_id(config: &CpuConfig) -> UniqueId {
    UniqueId::from_bytes(encode(config))
}

pub(crate) const ID_BYTES: usize = UniqueId::BYTES;
const MARK: &[u8; 16] = b"nccl-ext-cpu id\0";

/// The settings travel inside the id, so nothing must be remembered for ids that nobody uses.
pub(crate) fn encode(config: &CpuConfig) -> [u8; ID_BYTES] {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let serial = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut bytes = [0; ID_BYTES];
    bytes[..16].copy_from_slice(MARK);
    bytes[16..24].copy_from_slice(&serial.to_le_bytes());
    bytes[24..32].copy_from_slice(&config.timeout.as_secs().to_le_bytes());
    bytes[32..36].copy_from_slice(&config.timeout.subsec_nanos().to_le_bytes());
    bytes[36..40].copy_from_slice(&config.devices.to_le_bytes());
    bytes[40] = u8::from(config.deferred.is_some());
    bytes[41..49].copy_from_slice(&config.deferred.unwrap_or(0).to_le_bytes());
    bytes
}

/// The settings in an id; `None` when this backend did not make it.
pub(crate) fn decode(bytes: &[u8; ID_BYTES]) -> Option<CpuConfig> {
    let (mark, rest) = bytes.split_first_chunk::<16>()?;
    let (_serial, rest) = rest.split_first_chunk::<8>()?;
    let (secs, rest) = rest.split_first_chunk::<8>()?;
    let (nanos, rest) = rest.split_first_chunk::<4>()?;
    let (devices, rest) = rest.split_first_chunk::<4>()?;
    let ([is_deferred], rest) = rest.split_first_chunk::<1>()?;
    let (seed, _) = rest.split_first_chunk::<8>()?;
    let (secs, nanos) = (u64::from_le_bytes(*secs), u32::from_le_bytes(*nanos));
    (mark == MARK && nanos < 1_000_000_000).then(|| CpuConfig {
        timeout: Duration::new(secs, nanos),
        devices: u32::from_le_bytes(*devices),
        deferred: (*is_deferred != 0).then_some(u64::from_le_bytes(*seed)),
    })
}

pub(crate) fn to_raw(bytes: [u8; ID_BYTES]) -> ncclUniqueId {
    ncclUniqueId { internal: bytes.map(|byte| byte as core::ffi::c_char) }
}

pub(crate) fn from_raw(id: &ncclUniqueId) -> [u8; ID_BYTES] {
    id.internal.map(|byte| byte as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_the_id_and_every_id_is_new() {
        let config =
            CpuConfig::new().timeout(Duration::new(7, 250_000_001)).devices(3).deferred(1 << 60);
        let [a, b] = [(); 2].map(|()| encode(&config));
        assert_ne!(a, b);
        assert_eq!(decode(&a), Some(config));
        assert_eq!(from_raw(&to_raw(a)), a);
    }

    #[test]
    fn foreign_ids_are_not_ours() {
        assert_eq!(decode(&[7; ID_BYTES]), None);
    }
}
