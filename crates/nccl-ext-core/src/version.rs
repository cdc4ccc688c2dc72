//! Versions of libraries, and this crate's own.

use std::fmt;

/// The version of these crates, as Cargo knows it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A `major.minor.patch` version as NCCL and its extensions encode it in one integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Version {
    /// Major version.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
    /// Patch level.
    pub patch: u32,
}

impl Version {
    /// The oldest NCCL that these crates load. An extension may need a newer one.
    pub const NCCL_FLOOR: Self = Self::new(2, 30, 4);

    /// Makes a version from its three numbers.
    #[must_use]
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// Decodes what `ncclGetVersion` stores: `major * 10000 + minor * 100 + patch`, or with 1000
    /// for the major up to 2.8. Negative codes give 0.0.0.
    #[must_use]
    pub const fn from_nccl_code(code: i32) -> Self {
        let code = if code < 0 { 0 } else { code.unsigned_abs() };
        let unit = if code < 10_000 { 1_000 } else { 10_000 };
        Self::new(code / unit, code % unit / 100, code % 100)
    }

    /// Decodes what the extensions' version functions store: `major * 10000 + minor * 100 + patch`.
    #[must_use]
    pub const fn from_extension_code(code: i32) -> Self {
        let code = if code < 0 { 0 } else { code.unsigned_abs() };
        Self::new(code / 10_000, code % 10_000 / 100, code % 100)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::Version;

    #[test]
    fn nccl_codes_of_both_encodings() {
        assert_eq!(Version::from_nccl_code(23007), Version::new(2, 30, 7));
        assert_eq!(Version::from_nccl_code(2708), Version::new(2, 7, 8));
        assert_eq!(Version::from_nccl_code(-1), Version::new(0, 0, 0));
        assert_eq!(Version::from_nccl_code(0).to_string(), "0.0.0");
    }

    #[test]
    fn extension_codes() {
        assert_eq!(Version::from_extension_code(200), Version::new(0, 2, 0));
        assert_eq!(Version::from_extension_code(10_203), Version::new(1, 2, 3));
        assert!(Version::new(2, 30, 4) <= Version::new(2, 30, 7));
        assert!(Version::new(2, 28, 9) < Version::NCCL_FLOOR);
    }
}
