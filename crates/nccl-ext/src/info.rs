//! What is installed: this tool's version, backends, libraries.

use std::fmt::Write as _;

use nccl_ext_core::Backend;
use nccl_ext_core::loader::LoadOptions;
use serde::Serialize;

/// The crates behind the tool. They share one version.
const CRATES: [&str; 7] = [
    "nccl-ext",
    "nccl-ext-core",
    "nccl-ep-sys",
    "nccl-ep",
    "nccl-m2n-sys",
    "nccl-m2n",
    "nccl-ext-cpu",
];

/// Versions and backends.
#[derive(Debug, Clone, Serialize)]
pub struct Info {
    tool: &'static str,
    version: &'static str,
    crates: Vec<Crate>,
    /// What catches the C++ exceptions of the native libraries.
    exception_guard: &'static str,
    backends: Vec<BackendInfo>,
}

#[derive(Debug, Clone, Serialize)]
struct Crate {
    name: &'static str,
    version: &'static str,
}

/// A backend that there is, or why there is none.
#[derive(Debug, Clone, Serialize)]
struct BackendInfo {
    name: &'static str,
    available: bool,
    memory: Option<String>,
    libraries: Vec<Library>,
    error: Option<String>,
}

/// A library behind a backend.
#[derive(Debug, Clone, Serialize)]
pub struct Library {
    /// Its name.
    pub name: &'static str,
    /// The version it reports.
    pub version: String,
    /// The file that is mapped; none for code inside this program.
    pub path: Option<String>,
    /// The GNU build id of the mapped code, in hexadecimal.
    pub build_id: Option<String>,
    /// The CUDA major that it is built for, where that can be told.
    pub cuda_major: Option<u32>,
    /// Which step of the search found it.
    pub found_by: Option<String>,
}

impl Library {
    /// Those of a backend, NCCL first.
    #[must_use]
    pub fn all(backend: Backend) -> Vec<Self> {
        let library = |library: &nccl_ext_core::LibraryInfo| Self {
            name: library.name,
            version: library.version.to_string(),
            path: library.path.as_ref().map(|path| path.display().to_string()),
            build_id: library.build_id.clone(),
            cuda_major: library.cuda_major,
            found_by: library.origin.clone(),
        };
        backend.libraries().iter().map(library).collect()
    }
}

impl Library {
    /// In parentheses, what is known beyond name, version and file.
    fn details(&self) -> String {
        let known = [
            self.cuda_major.map(|major| format!("CUDA {major}")),
            self.build_id.as_ref().map(|id| format!("build {id}")),
            self.found_by.as_ref().map(|by| format!("found by: {by}")),
        ];
        let known: Vec<String> = known.into_iter().flatten().collect();
        if known.is_empty() { String::new() } else { format!(" ({})", known.join(", ")) }
    }
}

impl BackendInfo {
    fn new(name: &'static str, backend: nccl_ext_core::Result<Backend>) -> Self {
        match backend {
            Ok(backend) => Self {
                name,
                available: true,
                memory: Some(backend.memory().to_string()),
                libraries: Library::all(backend),
                error: None,
            },
            Err(error) => Self {
                name,
                available: false,
                memory: None,
                libraries: Vec::new(),
                error: Some(error.to_string()),
            },
        }
    }
}

/// Both libraries, or libnccl_ep alone where the other is not to be had.
fn native() -> nccl_ext_core::Result<Backend> {
    let both = [&nccl_ep_sys::SPEC, &nccl_m2n_sys::SPEC];
    Backend::load(&LoadOptions::new(), &both).or_else(|_| nccl_ep_sys::load())
}

impl Info {
    /// Asks every backend. The native one opens its libraries, which is all that happens to them.
    #[must_use]
    pub fn collect() -> Self {
        let version = nccl_ext_core::VERSION;
        Self {
            tool: "nccl-ext",
            version: env!("CARGO_PKG_VERSION"),
            crates: CRATES.map(|name| Crate { name, version }).to_vec(),
            exception_guard: nccl_ext_core::guard::kind(),
            backends: vec![
                BackendInfo::new("cpu", Ok(nccl_ext_cpu::backend())),
                BackendInfo::new("native", native()),
            ],
        }
    }

    /// One JSON object and a line break.
    #[must_use]
    pub fn json(&self) -> String {
        crate::output::json(self)
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        crate::output::text(|text| self.write(text))
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "{} {}", self.tool, self.version)?;
        for Crate { name, version } in &self.crates {
            writeln!(text, "  crate {name} {version}")?;
        }
        writeln!(text, "exception guard: {}", self.exception_guard)?;
        for backend in &self.backends {
            let BackendInfo { name, memory, error, .. } = backend;
            match (memory, error) {
                (Some(memory), _) => writeln!(text, "backend {name}: available, {memory}")?,
                (None, error) => {
                    let error = error.as_deref().unwrap_or_default();
                    writeln!(text, "backend {name}: not available: {error}")?;
                }
            }
            for library in &backend.libraries {
                let Library { name, version, path, .. } = library;
                let path = path.as_deref().unwrap_or("inside this program");
                writeln!(text, "  {name} {version}: {path}{}", library.details())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// That the crates share one version is the workspace's doing.
    #[test]
    fn every_crate_has_the_version_of_the_workspace() {
        for name in CRATES {
            let manifest = format!("{}/../{name}/Cargo.toml", env!("CARGO_MANIFEST_DIR"));
            let manifest = std::fs::read_to_string(manifest).unwrap();
            assert!(manifest.contains("\nversion.workspace = true\n"), "{name}");
        }
    }
}
