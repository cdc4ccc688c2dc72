//! Streams: queues of work, each with a thread that runs it in order.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Instant;

use nccl_ext_core::Error;
use nccl_ext_core::raw::{cudaStream_t, ncclResult_t};

use super::clock::{Actor, TaskId, VectorClock};
use super::event::Point;
use super::host::{self, Rank, RankId};
use super::{delay, running};
use crate::lock::lock;
use crate::refusal::{Outcome, panic_text};

/// `CU_STREAM_LEGACY`.
const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;
/// Handles of streams start here; they are only looked up.
const FIRST: u64 = 0x1000;

type Job = Box<dyn FnOnce() -> Outcome + Send>;

enum Entry {
    Run { call: &'static str, known: VectorClock, rank: Option<Arc<Rank>>, job: Job },
    Record(Arc<Point>),
    Wait { point: Arc<Point>, known: VectorClock },
    End,
}

/// A stream.
pub(crate) struct Stream {
    device: i32,
    owner: Option<Arc<Rank>>,
    name: Arc<str>,
    task: TaskId,
    queue: Mutex<Queue>,
    given: Condvar,
}

#[derive(Default)]
struct Queue {
    entries: VecDeque<Entry>,
    /// Entries that were given and not run yet.
    left: usize,
    failed: Option<Arc<Error>>,
}

/// Which default stream: ranks are processes on machines, so each has its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Implicit {
    OfRank(Option<RankId>, i32),
    OfThread(ThreadId, i32),
}

#[derive(Default)]
struct Streams {
    made: BTreeMap<usize, Arc<Stream>>,
    defaults: Vec<(Implicit, Arc<Stream>)>,
}

static STREAMS: LazyLock<Mutex<Streams>> = LazyLock::new(Mutex::default);

impl Stream {
    /// Starts a stream of the calling thread's rank.
    fn start(device: i32, owner: Option<Arc<Rank>>, what: &str) -> std::io::Result<Arc<Self>> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let of = owner.as_ref().map_or_else(|| format!("device {device}"), |r| r.words().into());
        let name: Arc<str> = format!("{what} {number} of {of}").into();
        let (task, queue, given) = (TaskId::new(), Mutex::default(), Condvar::new());
        let stream = Arc::new(Self { device, owner, name, task, queue, given });
        let worker = Arc::clone(&stream);
        let thread = thread::Builder::new().name(stream.name.to_string());
        thread.spawn(move || worker.work(number))?;
        Ok(stream)
    }

    fn give(&self, entry: Entry) {
        let mut queue = lock(&self.queue);
        queue.entries.push_back(entry);
        queue.left += 1;
        drop(queue);
        self.given.notify_all();
    }

    /// Why it runs nothing more.
    pub(crate) fn failed(&self) -> Option<Arc<Error>> {
        lock(&self.queue).failed.clone()
    }

    /// Gives it work, which runs after all that it was given before.
    pub(crate) fn run(
        &self,
        call: &'static str,
        rank: Option<Arc<Rank>>,
        job: impl FnOnce() -> Outcome + Send + 'static,
    ) {
        self.give(Entry::Run { call, known: host::known(), rank, job: Box::new(job) });
    }

    /// Marks the end of what it was given so far.
    pub(crate) fn record(&self, point: &Arc<Point>) {
        self.give(Entry::Record(Arc::clone(point)));
    }

    /// What it is given from now on waits for a point of some stream.
    pub(crate) fn wait_for(&self, point: &Arc<Point>) {
        self.give(Entry::Wait { point: Arc::clone(point), known: host::known() });
    }

    /// The calling thread waits for what it was given so far.
    pub(crate) fn wait(&self) -> Result<(), Arc<Error>> {
        let point = Arc::default();
        self.record(&point);
        point.wait_on_host()
    }

    /// Whether all that it was given has run.
    pub(crate) fn ask(&self) -> Result<bool, Arc<Error>> {
        if lock(&self.queue).left > 0 { Ok(false) } else { self.wait().map(|()| true) }
    }

    fn next(&self) -> Entry {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(entry) = queue.entries.pop_front() {
                return entry;
            }
            queue = self.given.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn work(&self, number: u64) {
        let mut clock = VectorClock::default();
        for index in 0.. {
            let entry = self.next();
            if matches!(entry, Entry::Run { .. }) {
                self.delay(number, index);
            }
            let failed = self.failed();
            match (entry, failed) {
                (Entry::End, _) => return,
                (Entry::Record(point), failed) => {
                    // Who sees the point reached sees the stream come past it.
                    lock(&self.queue).left -= 1;
                    point.reach(clock.clone(), failed);
                    continue;
                }
                (_, Some(_)) => {}
                (Entry::Wait { point, known }, None) => {
                    clock.join(&known);
                    match point.wait_on_stream() {
                        Ok(before) => clock.join(&before),
                        Err(error) => lock(&self.queue).failed = Some(error),
                    }
                }
                (Entry::Run { call, known, rank, job }, None) => {
                    clock.join(&known);
                    clock = self.run_job(call, rank, job, clock);
                }
            }
            lock(&self.queue).left -= 1;
        }
    }

    fn run_job(
        &self,
        call: &'static str,
        rank: Option<Arc<Rank>>,
        job: Job,
        clock: VectorClock,
    ) -> VectorClock {
        let actor = Actor { task: self.task, name: Arc::clone(&self.name), call };
        let (result, clock) = running::run(actor, clock, || catch_unwind(AssertUnwindSafe(job)));
        let error = match result {
            Ok(Ok(())) => return clock,
            Ok(Err(refusal)) => refusal.to_error(call),
            Err(payload) => Error::Native {
                call,
                code: ncclResult_t::ncclInternalError,
                detail: format!("the CPU backend panicked: {}", panic_text(&*payload)),
            },
        };
        lock(&self.queue).failed = Some(Arc::new(error.clone()));
        if let Some(rank) = rank.as_ref().or(self.owner.as_ref()) {
            rank.fail(&error);
        }
        clock
    }

    fn delay(&self, number: u64, index: u64) {
        let seed = self.owner.as_ref().map_or(0, |rank| rank.seed());
        let Some(delay) = delay::before(seed, number, index) else { return };
        let start = Instant::now();
        thread::sleep(delay);
        if let Some(rank) = &self.owner {
            rank.note_delay(start.elapsed().as_nanos() as u64);
        }
    }
}

/// Makes a stream; its handle.
pub(crate) fn create(device: i32) -> Option<cudaStream_t> {
    static NEXT: AtomicU64 = AtomicU64::new(FIRST);
    let stream = Stream::start(device, host::mine(), "stream").ok()?;
    let handle = NEXT.fetch_add(1, Ordering::Relaxed) as usize;
    lock(&STREAMS).made.insert(handle, stream);
    Some(core::ptr::without_provenance_mut(handle))
}

/// Ends a stream once its work is done.
pub(crate) fn destroy(stream: cudaStream_t) -> bool {
    let ended = lock(&STREAMS).made.remove(&stream.addr());
    ended.map(|stream| stream.give(Entry::End)).is_some()
}

/// The stream behind a handle. The default stream is that of the rank that the call belongs to, or the
/// calling thread.
pub(crate) fn find(
    stream: cudaStream_t,
    rank: Option<&Arc<Rank>>,
    device: i32,
) -> Option<Arc<Stream>> {
    let rank = rank.cloned().or_else(host::mine);
    let device = rank.as_ref().map_or(device, |rank| rank.device());
    let key = match stream.addr() {
        0 | LEGACY => Implicit::OfRank(rank.as_ref().map(|rank| rank.id()), device),
        PER_THREAD => Implicit::OfThread(thread::current().id(), device),
        handle => return lock(&STREAMS).made.get(&handle).cloned(),
    };
    let mut streams = lock(&STREAMS);
    if let Some((_, found)) = streams.defaults.iter().find(|(other, _)| *other == key) {
        return Some(Arc::clone(found));
    }
    let made = Stream::start(device, rank, "the default stream").ok()?;
    streams.defaults.push((key, Arc::clone(&made)));
    Some(made)
}

/// Every stream of a rank, or of a device's threads that belong to none.
fn streams_of(rank: Option<&Arc<Rank>>, device: i32) -> Vec<Arc<Stream>> {
    let streams = lock(&STREAMS);
    let all = streams.made.values().chain(streams.defaults.iter().map(|(_, stream)| stream));
    let wanted = rank.map(|rank| rank.id());
    let owned = |stream: &&Arc<Stream>| {
        stream.device == device && stream.owner.as_ref().map(|rank| rank.id()) == wanted
    };
    all.filter(owned).cloned().collect()
}

/// Waits on the calling thread for every stream of a rank.
pub(crate) fn wait_for_all(rank: Option<&Arc<Rank>>, device: i32) -> Result<(), Arc<Error>> {
    let mut ended = Ok(());
    for stream in streams_of(rank, device) {
        ended = ended.and(stream.wait()); // of each, also after a failure
    }
    ended
}

/// A rank is gone: its default streams end with their work.
pub(crate) fn end_defaults(rank: RankId) {
    lock(&STREAMS).defaults.retain(|(key, stream)| {
        let theirs = matches!(key, Implicit::OfRank(Some(id), _) if *id == rank);
        if theirs {
            stream.give(Entry::End);
        }
        !theirs
    });
}
