//! One case, in a process of its own.

use std::fmt::Debug;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::lab::Lab;

const CASE: &str = "VENDOR_CASE";
const PREFIX: &str = "vendor child: ";
/// Nothing here takes a second; what takes this long hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// Whether this process was started for one case.
pub fn is_one() -> bool {
    std::env::var_os(CASE).is_some()
}

/// The case that this process was started for.
///
/// # Panics
/// If it was started for none.
pub fn name() -> String {
    std::env::var(CASE).unwrap()
}

/// A file that the parent named.
///
/// # Panics
/// If it named none.
pub fn file(variable: &str) -> PathBuf {
    PathBuf::from(std::env::var_os(variable).unwrap())
}

/// Tells the parent what was seen.
pub fn report(line: &str) {
    // First on its line: what a library printed before may lack an end of line.
    println!("\n{PREFIX}{line}");
}

/// How a child ended and what it left.
#[derive(Debug)]
pub struct Ended {
    status: ExitStatus,
    stdout: String,
    /// What it printed on standard error.
    pub stderr: String,
}

/// Runs one case with these variables.
///
/// # Errors
/// If it cannot be started, or hangs.
///
/// # Panics
/// If its output cannot be written to files.
pub fn run(lab: &Lab, case: &str, variables: &[(&str, PathBuf)]) -> Result<Ended, String> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let [stdout, stderr] =
        ["out", "err"].map(|stream| lab.scratch().join(format!("child-{number}.{stream}")));
    let mut command = Command::new(std::env::current_exe().unwrap());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["NCCL", "CUDA", "NVCC"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    // In front of what is there: a machine with a GPU has a driver too.
    let mut path = lab.driver_stub().into_os_string();
    if let Some(rest) = std::env::var_os("LD_LIBRARY_PATH") {
        path.push(":");
        path.push(rest);
    }
    command.env("LD_LIBRARY_PATH", path).env(CASE, case).envs(variables.iter().cloned());
    // Where a core file of an aborted child goes away with the rest.
    command.current_dir(lab.scratch());
    command.stdout(File::create(&stdout).unwrap()).stderr(File::create(&stderr).unwrap());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            break Ok(status);
        }
        if start.elapsed() > LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            break Err(format!("still running after {LIMIT:?}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let (stdout, stderr) = (text(&stdout), text(&stderr));
    let status = status.map_err(|error| format!("{error}\n{stdout}{stderr}"))?;
    Ok(Ended { status, stdout, stderr })
}

fn text(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    let _ = std::fs::remove_file(path);
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Ended {
    /// What the child reported.
    ///
    /// # Errors
    /// If it did not live to the end.
    pub fn reports(&self) -> Result<Vec<&str>, String> {
        if !self.status.success() {
            return Err(self.fail("it should have returned"));
        }
        Ok(self.stdout.lines().filter_map(|line| line.strip_prefix(PREFIX)).collect())
    }

    /// The child lived to the end and reported this.
    ///
    /// # Errors
    /// If not.
    pub fn expect(&self, expected: &[impl AsRef<str> + Debug]) -> Result<(), String> {
        match self.reports()?.into_iter().eq(expected.iter().map(AsRef::as_ref)) {
            true => Ok(()),
            false => Err(self.fail(&format!("it should have reported {expected:?}"))),
        }
    }

    /// Whether the process was aborted.
    pub fn aborted(&self) -> bool {
        const SIGABRT: i32 = 6;
        self.status.signal() == Some(SIGABRT)
    }

    /// A failure with all that the child said.
    pub fn fail(&self, what: &str) -> String {
        let Self { status, stdout, stderr } = self;
        format!("{what}\n{status}\nstdout: {}\nstderr: {}", stdout.trim(), stderr.trim())
    }
}
