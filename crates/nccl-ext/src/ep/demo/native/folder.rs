//! Files through which processes of one machine meet.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// A folder made for one run: nothing in it can be of an earlier one. Removed when dropped.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes a folder below the system's for temporary files that only this user can enter.
    ///
    /// # Errors
    /// What the system reports.
    pub(super) fn create() -> io::Result<Self> {
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        loop {
            let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
            let name = format!("nccl-ext-{}-{now}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match builder.create(&path) {
                // Somebody else's, or of a process that had this number before.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => return made.map(|()| Self(path)),
            }
        }
    }

    /// Where it is.
    #[must_use]
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left in a folder for temporary files goes away with the others.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes a file that others see whole or not at all. A name is used once.
pub(super) fn publish(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let (path, unfinished) = (folder.join(name), folder.join(format!("{name}.unfinished")));
    if path.exists() {
        let text = format!("{} is there already", path.display());
        return Err(io::Error::new(ErrorKind::AlreadyExists, text));
    }
    fs::write(&unfinished, bytes)?;
    fs::rename(unfinished, path)
}

/// Waits for a file and reads it.
pub(super) fn await_file(folder: &Path, name: &str, timeout: Duration) -> io::Result<Vec<u8>> {
    let path = folder.join(name);
    let start = Instant::now();
    loop {
        match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            read => return read,
        }
        if start.elapsed() > timeout {
            let text = format!("{} did not come within {timeout:?}", path.display());
            return Err(io::Error::new(ErrorKind::TimedOut, text));
        }
        thread::sleep(Duration::from_millis(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_has_a_folder_of_its_own_that_goes_away() {
        let (a, b) = (Folder::create().unwrap(), Folder::create().unwrap());
        assert_ne!(a.path(), b.path());
        publish(a.path(), "id", b"1").unwrap();
        let path = a.path().to_owned();
        drop(a);
        assert!(!path.exists() && b.path().exists());
    }

    #[test]
    fn a_file_is_seen_whole_once_and_by_who_waits() {
        let folder = Folder::create().unwrap();
        let wait = || await_file(folder.path(), "id", Duration::from_secs(60));
        let bytes = vec![7; 1 << 20];
        thread::scope(|scope| {
            let waiting = [scope.spawn(wait), scope.spawn(wait)];
            thread::sleep(Duration::from_millis(20));
            publish(folder.path(), "id", &bytes).unwrap();
            for thread in waiting {
                assert_eq!(thread.join().unwrap().unwrap(), bytes);
            }
        });
        assert_eq!(publish(folder.path(), "id", b"").unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn waiting_ends() {
        let folder = Folder::create().unwrap();
        let error = await_file(folder.path(), "id", Duration::from_millis(10)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(error.to_string().ends_with("/id did not come within 10ms"), "{error}");
    }
}
