//! Staging from sources made here: good ones with libraries linked by `cc`, and broken ones.

mod folders;
mod interrupted;
mod wheel;

use super::*;
use crate::fixture::{Bench, Files, snapshot};

/// A folder with a source to come and a target that already holds a tree.
struct Case {
    bench: Bench,
}

impl Case {
    fn new() -> Self {
        let bench = Bench::new();
        bench.sh.write_file(bench.path("native/ep/previous"), "kept").unwrap();
        Self { bench }
    }

    fn native(&self) -> PathBuf {
        self.bench.path("native")
    }

    fn stage(&self, from: Source, cuda: &[u32], with_nccl: bool) -> Result<()> {
        let prefix = Some(self.native());
        let args = Args { from, with_nccl, prefix, cuda: cuda.to_vec(), arch: None };
        run(&args, &self.bench.sh, &self.bench.path(""))
    }

    /// The message of a run that must fail and leave the target as it was.
    fn failure(&self, from: Source, cuda: &[u32]) -> String {
        let before = snapshot(&self.native());
        let message = format!("{:#}", self.stage(from, cuda, false).unwrap_err());
        assert_eq!(snapshot(&self.native()), before, "{message}");
        let left = std::fs::read_dir(self.native()).unwrap().count();
        assert_eq!(left, 1, "no staging folder is left");
        message
    }

    fn manifest(&self) -> Manifest {
        Manifest::read(&self.native()).unwrap()
    }

    /// The staged files by name.
    fn paths(&self) -> Vec<String> {
        self.manifest().files.into_iter().map(|file| file.path).collect()
    }
}
