//! Starting the ranks, and ending all of them when one fails or time is up.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// Lines of a rank that are kept.
const LINES: usize = 20;
/// Between two looks at the ranks.
const PAUSE: Duration = Duration::from_millis(10);
/// How long the others may take to fail as well, and output to arrive, after the first failure: the
/// first to end is not always the one where it began.
const GRACE: Duration = Duration::from_millis(500);

/// Runs the commands until all have succeeded.
///
/// Their standard input stays open as long as this process lives: a rank that sees its end has lost
/// its parent.
pub(super) fn run(commands: Vec<Command>, timeout: Duration) -> Result<(), Failure> {
    let start = Instant::now();
    let mut ranks = Vec::new();
    for (rank, command) in commands.into_iter().enumerate() {
        // Those that run already are ended when dropped.
        ranks.push(Rank::start(command).map_err(|error| Failure::Ranks {
            message: format!("rank {rank} could not be started: {error}"),
            output: Vec::new(),
            exit_code: 1,
        })?);
    }
    let mut failed = None;
    loop {
        let states: Vec<_> = ranks.iter_mut().map(Rank::state).collect();
        if states.iter().all(|state| *state == State::Succeeded) {
            return Ok(());
        }
        let worst = states.iter().enumerate().max_by_key(|(rank, state)| {
            (state.weight(), std::cmp::Reverse(*rank)) // the lowest of equals
        });
        if let Some((rank, state @ State::Failed { .. })) = worst {
            let since = *failed.get_or_insert_with(Instant::now);
            if since.elapsed() > GRACE {
                return Err(ranks[rank].failure(rank, state));
            }
        } else if start.elapsed() > timeout {
            let late = states.iter().enumerate().filter(|(_, state)| **state == State::Runs);
            let late: Vec<_> = late.map(|(rank, _)| rank).collect();
            let names = late.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
            return Err(Failure::Ranks {
                message: format!(
                    "`--timeout`: the ranks finish in time; expected at most {} s, still running: \
                     {names}",
                    timeout.as_secs()
                ),
                output: late.into_iter().flat_map(|rank| ranks[rank].output(rank)).collect(),
                exit_code: 1,
            });
        }
        thread::sleep(PAUSE);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Succeeded,
    Runs,
    Failed { code: Option<i32>, signal: Option<i32> },
}

impl State {
    /// A rank that was killed says more than one that noticed.
    fn weight(self) -> u8 {
        match self {
            Self::Succeeded | Self::Runs => 0,
            Self::Failed { code: Some(2), .. } => 2,
            Self::Failed { code: Some(_), .. } => 1,
            Self::Failed { code: None, .. } => 3,
        }
    }
}

/// A process and its last lines. Ended when dropped.
struct Rank {
    child: Child,
    lines: Arc<Mutex<VecDeque<String>>>,
    reader: JoinHandle<()>,
}

impl Rank {
    fn start(mut command: Command) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        command.stdin(Stdio::piped()).stdout(writer.try_clone()?).stderr(writer);
        let child = command.spawn()?;
        // The command holds the writing end: the reader would never see the end of it.
        drop(command);
        let lines = Arc::new(Mutex::new(VecDeque::new()));
        let kept = Arc::clone(&lines);
        let reader = thread::spawn(move || keep_last(BufReader::new(reader), &kept));
        Ok(Self { child, lines, reader })
    }

    fn state(&mut self) -> State {
        match self.child.try_wait() {
            Ok(None) => State::Runs,
            Ok(Some(status)) if status.success() => State::Succeeded,
            Ok(Some(status)) => State::Failed { code: status.code(), signal: signal(status) },
            Err(_) => State::Failed { code: None, signal: None },
        }
    }

    /// Its last lines. The end of them may still be on the way; a child of its own may keep the
    /// pipe open for ever.
    fn output(&self, rank: usize) -> Vec<String> {
        let start = Instant::now();
        while !self.reader.is_finished() && start.elapsed() < GRACE {
            thread::sleep(PAUSE);
        }
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(|line| format!("rank {rank} | {line}")).collect()
    }

    /// What it said itself when it ended in good order, else how it ended.
    fn failure(&self, rank: usize, state: &State) -> Failure {
        let output = self.output(rank);
        let State::Failed { code, signal } = *state else {
            return Failure::Ranks { message: String::new(), output, exit_code: 1 };
        };
        let own = format!("rank {rank} | {}", crate::output::PREFIX);
        let said = output.iter().rev().find_map(|line| line.strip_prefix(&own));
        if let (Some(code @ (1 | 2)), Some(said)) = (code, said) {
            let message = format!("rank {rank}: {said}");
            return Failure::Ranks {
                message,
                output: Vec::new(),
                exit_code: code.unsigned_abs() as u8,
            };
        }
        let how = match (code, signal) {
            (Some(code), _) => format!("ended with exit code {code}"),
            (None, Some(signal)) => format!("was ended by signal {signal}{}", name(signal)),
            (None, None) => "ended, nobody knows how".into(),
        };
        let last = if output.is_empty() { "; it wrote nothing" } else { "; its last lines follow" };
        Failure::Ranks { message: format!("rank {rank} {how}{last}"), output, exit_code: 1 }
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        // Both fail only for a child that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines until the end, and keeps the last ones.
fn keep_last(mut reader: impl BufRead, kept: &Mutex<VecDeque<String>>) {
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        let text = String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == LINES {
            kept.pop_front();
        }
        kept.push_back(text);
        line.clear();
    }
}

#[cfg(unix)]
fn signal(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
fn signal(_status: ExitStatus) -> Option<i32> {
    None
}

/// The names of signals that a library dies of.
fn name(signal: i32) -> &'static str {
    match signal {
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        15 => " (SIGTERM)",
        _ => "",
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(script);
        command
    }

    fn failure(scripts: &[&str], timeout: Duration) -> (String, Vec<String>, u8) {
        let commands = scripts.iter().map(|script| shell(script)).collect();
        match run(commands, timeout) {
            Err(Failure::Ranks { message, output, exit_code }) => (message, output, exit_code),
            other => panic!("{other:?}"),
        }
    }

    const LONG: Duration = Duration::from_secs(100);

    #[test]
    fn all_succeed() {
        run(vec![shell("exit 0"), shell("echo noise; sleep 0.1")], LONG).unwrap();
    }

    #[test]
    fn a_rank_that_dies_is_reported_with_its_last_lines_and_the_others_are_ended() {
        let start = Instant::now();
        let (message, output, code) = failure(
            &["sleep 60", "for i in $(seq 30); do echo line $i; done >&2; kill -ABRT $$"],
            LONG,
        );
        assert_eq!(message, "rank 1 was ended by signal 6 (SIGABRT); its last lines follow");
        assert_eq!((output.len(), code), (LINES, 1));
        assert_eq!(output.last().unwrap(), "rank 1 | line 30");
        let (message, output, _) = failure(&["exit 3", "sleep 60"], LONG);
        assert_eq!(message, "rank 0 ended with exit code 3; it wrote nothing");
        assert_eq!(output, [""; 0]);
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn where_it_began_counts_more_than_who_noticed_first() {
        let (message, ..) = failure(&["exit 1", "sleep 0.1; kill -SEGV $$"], LONG);
        assert_eq!(message, "rank 1 was ended by signal 11 (SIGSEGV); it wrote nothing");
        let (message, ..) = failure(&["exit 1", "exit 1"], LONG);
        assert_eq!(message, "rank 0 ended with exit code 1; it wrote nothing");
    }

    #[test]
    fn a_rank_that_says_what_is_wrong_is_quoted() {
        let script = "echo noise; echo 'nccl-ext: f: `x`: wrong'; echo more noise; exit 2";
        let (message, output, code) = failure(&["sleep 60", script], LONG);
        assert_eq!((&*message, output.len(), code), ("rank 1: f: `x`: wrong", 0, 2));
    }

    #[test]
    fn time_is_limited() {
        let (message, output, code) =
            failure(&["echo here; sleep 60", "exit 0", "sleep 60"], Duration::from_secs(1));
        assert_eq!(
            message,
            "`--timeout`: the ranks finish in time; expected at most 1 s, still running: 0, 2"
        );
        assert_eq!((output, code), (vec!["rank 0 | here".to_owned()], 1));
    }

    #[test]
    fn a_program_that_is_not_there() {
        let Err(error) = run(vec![Command::new("/nonexistent/program")], LONG) else { panic!() };
        assert!(error.to_string().starts_with("rank 0 could not be started: No such file"));
    }

    /// A rank sees the end of its standard input when its parent is gone, and not before.
    #[test]
    fn standard_input_stays_open() {
        run(vec![shell("timeout 0.3 cat; test $? = 124")], LONG).unwrap();
    }
}
