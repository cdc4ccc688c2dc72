//! How a runtime is made.

use core::ffi::c_int;

use nccl_ext_core::binding::BindingStruct;
use nccl_ext_core::binding_struct;
use nccl_m2n_sys::ncclM2nConfig_t;

/// When ranks make sure, by an exchange of their own, that they ask for the same and that none of
/// them has failed on its own.
///
/// The library compares nothing between ranks: other metadata, another order, or an error on one
/// rank alone let its peers hang or deliver wrong bytes (M2N 2.6, 2.7). Every rank chooses the
/// same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Agreement {
    /// Never. An error of one rank reaches its peers only where the backend tells them.
    Off,
    /// Before the first call with each pair of layouts, and before the first group with each list
    /// of them, parted alike among runtimes and streams. Later ones cost nothing; what goes wrong
    /// on one rank alone then reaches its peers as with [`Off`](Agreement::Off).
    #[default]
    PerShape,
    /// Before every call and group: one all-gather each, which waits for the device.
    EveryCall,
}

impl Agreement {
    /// Whether ranks compare what they have agreed on before (`known`), or have not.
    pub(crate) fn compares(self, known: bool) -> bool {
        match self {
            Self::Off => false,
            Self::PerShape => !known,
            Self::EveryCall => true,
        }
    }
}

binding_struct! {
    /// What a runtime is made with. Every rank gives the same values.
    ///
    /// The first runtime of a process configures the library until the last one is finalised, and
    /// the library's environment variables win over it (M2N 4.1).
    #[doc(alias = "ncclM2nConfig_t")]
    pub struct Config => ncclM2nConfig_t {
        /// Most thread blocks of the reshard kernel; can only lower the library's 8. Positive, or
        /// none for the library's choice.
        pub max_cta: Option<u32> = None,
        /// When ranks compare what they ask for.
        pub agreement: Agreement = Agreement::PerShape,
    }
}

impl Config {
    /// The C structure with every field.
    pub(crate) fn to_c(&self) -> ncclM2nConfig_t {
        let mut raw = self.to_raw();
        if let Some(max) = self.max_cta {
            raw.maxCta = c_int::try_from(max).unwrap_or(c_int::MAX);
        }
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_fields_stay_the_librarys() {
        let raw = Config::new().to_c();
        assert_eq!((raw.size, raw.magic, raw.version, raw.maxCta), (24, 0x4d32_4e32, 2, i32::MIN));
        assert_eq!(Config::new().max_cta(Some(3)).to_c().maxCta, 3);
    }
}
