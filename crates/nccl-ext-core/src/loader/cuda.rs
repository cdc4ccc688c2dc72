//! Which CUDA major is wanted, and what does not go together.

use core::ffi::c_int;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{ExtensionSpec, LoadOptions, Opened};
use crate::driver::{CuResult, DriverApi};
use crate::env_value::os_variable;
use crate::error::{CudaSide, Error, Result};
use crate::jit::nvcc::{self, Nvcc};
use crate::rules;
use crate::rules::loader::{CUDA_MAJOR, ChoiceFacts};

const VARIABLE: &str = "NCCL_EXTENSIONS_CUDA";

/// The majors that the vendor builds for.
const MAJORS: [u32; 2] = [12, 13];

/// The default that a final binary was built with. Both at once do not compile.
const FEATURE: Option<(u32, &str)> = if cfg!(feature = "cu13") {
    Some((13, "the feature cu13"))
} else if cfg!(feature = "cu12") {
    Some((12, "the feature cu12"))
} else {
    None
};

/// What decides about the majors of libraries.
pub(super) struct Choice {
    wanted: Option<WantedMajor>,
    /// The compiler that an extension would start.
    nvcc: Option<Nvcc>,
    /// The newest major that the driver supports.
    driver: Option<(u32, PathBuf)>,
}

struct WantedMajor {
    major: u32,
    by: String,
    strength: Strength,
}

/// How much a wish counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Strength {
    /// Nothing else is taken.
    Asked,
    /// Nothing else is taken, but for a file that was named.
    Default,
    /// Among the libraries of a tree.
    Preferred,
}

impl Choice {
    pub(super) fn new(
        options: &LoadOptions,
        extensions: &[&ExtensionSpec],
        driver: Option<(u32, PathBuf)>,
    ) -> Result<Self> {
        let compiles = extensions.iter().find_map(|spec| spec.jit);
        let nvcc = compiles.and_then(|jit| nvcc::find(jit, &os_variable).ok());
        let preferred = nvcc.as_ref().and_then(|nvcc| {
            let by = nvcc.path.display().to_string();
            nvcc.cuda_major.map(|major| WantedMajor { major, by, strength: Strength::Preferred })
        });
        let wanted = match (options.cuda, asked(os_variable(VARIABLE))?, FEATURE) {
            (Some(major), ..) => {
                let by = "LoadOptions::cuda".into();
                Some(WantedMajor { major, by, strength: Strength::Asked })
            }
            (None, Some(major), _) => {
                Some(WantedMajor { major, by: VARIABLE.into(), strength: Strength::Asked })
            }
            (None, None, Some((major, by))) => {
                Some(WantedMajor { major, by: by.into(), strength: Strength::Default })
            }
            (None, None, None) => preferred,
        };
        Ok(Self { wanted, nvcc, driver })
    }

    /// The major to take of those that a tree holds; one that [`check`](Self::check) refuses when
    /// none will do, so that the reason is told.
    pub(super) fn pick(&self, held: &[u32]) -> Option<u32> {
        let wanted = self.wanted.as_ref().map(|wanted| wanted.major);
        if let Some(wanted) = wanted.filter(|wanted| held.contains(wanted)) {
            return Some(wanted);
        }
        let newest = self.driver.as_ref().map_or(u32::MAX, |(major, _)| *major);
        let fits = held.iter().filter(|major| **major <= newest).max();
        fits.or_else(|| held.iter().max()).copied()
    }

    /// Refuses NCCL, or an extension that starts no compiler.
    pub(super) fn check_driver(&self, library: &Path, major: Option<u32>) -> Result<()> {
        match (major, &self.driver) {
            (Some(built_for), Some((newest, path))) if built_for > *newest => {
                let against = CudaSide::Driver { path: path.clone() };
                Err(mismatch(library, built_for, against, *newest))
            }
            _ => Ok(()),
        }
    }

    /// Refuses an extension. `named`: its file was asked for.
    pub(super) fn check(
        &self,
        library: &Path,
        major: Option<u32>,
        spec: &ExtensionSpec,
        named: bool,
    ) -> Result<()> {
        self.check_driver(library, major)?;
        let Some(built_for) = major else { return Ok(()) };
        if let Some(WantedMajor { major, by, strength }) = &self.wanted {
            let counts = match strength {
                Strength::Asked => true,
                Strength::Default => !named,
                Strength::Preferred => false,
            };
            if counts && *major != built_for {
                let against = CudaSide::Choice { by: by.clone() };
                return Err(mismatch(library, built_for, against, *major));
            }
        }
        let compiler = spec.jit.zip(self.nvcc.as_ref());
        match compiler.and_then(|(jit, nvcc)| Some((jit, nvcc, nvcc.cuda_major?))) {
            Some((jit, nvcc, found)) if found != built_for => {
                Err(mismatch(library, built_for, nvcc.as_cuda_side(jit), found))
            }
            _ => Ok(()),
        }
    }
}

fn mismatch(library: &Path, built_for: u32, against: CudaSide, found: u32) -> Error {
    Error::CudaMajorMismatch { library: library.into(), built_for, against, found }
}

/// The major that the variable chooses.
pub(crate) fn asked(value: Option<OsString>) -> Result<Option<u32>> {
    let Some(value) = value else { return Ok(None) };
    let facts = ChoiceFacts { value: &value.to_string_lossy(), majors: &MAJORS };
    rules::check(CUDA_MAJOR, |broken| broken(&facts))?;
    Ok(facts.major())
}

/// The newest CUDA major that the driver supports; `None` when it does not say.
pub(super) fn driver_major(api: &DriverApi, driver: &Opened) -> Option<(u32, PathBuf)> {
    let mut code: c_int = 0;
    // SAFETY: `code` outlives the call, which needs no initialised driver.
    let result = unsafe { (api.version?)(&mut code) };
    let major = u32::try_from(code).ok()? / 1000;
    let path = driver.file_of(driver.symbol(c"cuDriverGetVersion"));
    (result == CuResult::SUCCESS && major > 0).then_some((major, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(wanted: Option<(u32, Strength)>, driver: Option<u32>) -> Choice {
        let wanted =
            wanted.map(|(major, strength)| WantedMajor { major, by: "a test".into(), strength });
        Choice { wanted, nvcc: None, driver: driver.map(|major| (major, "libcuda.so.1".into())) }
    }

    #[test]
    fn a_variable_that_chooses_no_major_is_refused() {
        assert_eq!(asked(None).ok(), Some(None));
        assert_eq!(asked(Some(" 13 ".into())).ok(), Some(Some(13)));
        for value in ["11", "thirteen", "13,12"] {
            let error = asked(Some(value.into())).unwrap_err();
            assert!(CUDA_MAJOR.iter().any(|rule| rule.info.is_cause_of(&error)), "{error}");
            assert_eq!(
                error.to_string(),
                format!(
                    "`NCCL_EXTENSIONS_CUDA`: it chooses the CUDA major of the libraries to load; \
                     expected 12 or 13, or not to be set, found {value}"
                )
            );
        }
    }

    #[test]
    fn the_wanted_major_else_the_newest_that_the_driver_supports() {
        assert_eq!(choice(None, Some(12)).pick(&[12, 13]), Some(12));
        assert_eq!(choice(None, Some(14)).pick(&[12, 13]), Some(13));
        assert_eq!(choice(None, None).pick(&[13, 12]), Some(13));
        assert_eq!(choice(Some((12, Strength::Asked)), Some(13)).pick(&[12, 13]), Some(12));
        assert_eq!(choice(Some((12, Strength::Preferred)), None).pick(&[13]), Some(13));
        assert_eq!(choice(None, Some(12)).pick(&[13]), Some(13), "to be refused with its reason");
        assert_eq!(choice(None, None).pick(&[]), None);
    }
}
