//! Rows of M2N 8.2 to 8.4: what is called, and the code and words that come of it.
//!
//! The table asks any `M2nApi`: the CPU backend's and the vendor's library.
//! Words are only those that both texts have: names of fields and numbers.

#![allow(missing_docs, reason = "fields repeat the C names")]

mod bounds;
mod call;
mod descriptors;
mod group_calls;
mod groups;
mod lifecycle;
mod order;
mod transports;

use std::ffi::CStr;

use nccl_ext_core::raw::{ncclComm_t, ncclDataType_t, ncclResult_t};
use nccl_m2n_sys::*;

pub use call::{Comm, Data, Handle, ReshardCall};

/// Who can decide a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decided {
    /// It is decided before the first CUDA call: any library agrees, GPUs or not.
    Host,
    /// The vendor's library agrees, but needs GPUs to come that far.
    Device,
    /// The vendor's library does not look, or leaves some ranks hanging; the CPU backend refuses.
    Unchecked,
}

/// One call.
pub enum Action {
    Start,
    End,
    Abort,
    Reshard(fn(&mut ReshardCall)),
    WithWindow(fn(&mut ReshardCall)),
    /// Makes a handle and keeps it in a slot.
    Init(usize, fn(&mut ncclM2nConfig_t)),
    InitWithoutConfig(usize),
    /// With NULL for the handle.
    InitNowhere,
    Finalize(Handle),
}

pub struct Step {
    pub action: Action,
    pub code: ncclResult_t,
    /// In the error text, all of them.
    pub words: &'static [&'static str],
    /// Not in it.
    pub without: &'static [&'static str],
}

pub struct Row {
    /// The vector of the specification; more than one row may have it.
    pub id: &'static str,
    pub name: &'static str,
    /// Ranks of the communicator, and the one whose results these are.
    pub ranks: usize,
    pub rank: usize,
    /// Variables, without `NCCL_RESHARD_`, of an epoch that begins with the row.
    pub environment: &'static [(&'static str, &'static str)],
    pub decided: Decided,
    pub steps: Vec<Step>,
}

/// What a step gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepResult {
    pub code: ncclResult_t,
    pub text: String,
}

pub fn rows() -> Vec<Row> {
    let singles = [descriptors::rows(), bounds::rows(), order::rows()];
    let others = [transports::rows(), lifecycle::rows(), group_calls::rows(), groups::rows()];
    singles.into_iter().chain(others).flatten().collect()
}

impl Row {
    fn new(id: &'static str, name: &'static str, steps: Vec<Step>) -> Self {
        let (environment, decided) = (&[][..], Decided::Host);
        Self { id, name, ranks: 2, rank: 0, environment, decided, steps }
    }

    fn ranks(mut self, ranks: usize) -> Self {
        self.ranks = ranks;
        self
    }

    fn rank(mut self, rank: usize) -> Self {
        self.rank = rank;
        self
    }

    fn under(mut self, environment: &'static [(&'static str, &'static str)]) -> Self {
        self.environment = environment;
        self
    }

    fn on_device(mut self) -> Self {
        self.decided = Decided::Device;
        self
    }

    fn unchecked(mut self) -> Self {
        self.decided = Decided::Unchecked;
        self
    }

    /// The last step's text does not have these words.
    fn ends_without(mut self, words: &'static [&'static str]) -> Self {
        self.steps.last_mut().unwrap().without = words;
        self
    }

    /// Makes the calls of one rank.
    pub fn run(&self, api: &M2nApi, comm: ncclComm_t) -> Vec<StepResult> {
        let mut memory = vec![0_u8; call::MEMORY];
        let mut handles = [core::ptr::null_mut(); 4];
        let mut seen = Vec::new();
        for (i, step) in self.steps.iter().enumerate() {
            let code = step.run(api, comm, i, &mut memory, &mut handles);
            // SAFETY: the function returns a string that lives until the thread's next call.
            let text = unsafe { CStr::from_ptr((api.ncclM2nGetLastError)()) };
            seen.push(StepResult { code, text: text.to_string_lossy().into_owned() });
        }
        seen
    }

    /// What `rank` has seen is what the table says.
    pub fn check(&self, seen: &[StepResult]) {
        let Self { id, name, .. } = self;
        assert_eq!(seen.len(), self.steps.len(), "{id} {name}");
        for (i, (StepResult { code, text }, step)) in seen.iter().zip(&self.steps).enumerate() {
            assert_eq!(*code, step.code, "{id} {name}, step {i}: {text}");
            assert_eq!(text.is_empty(), *code == ncclResult_t::ncclSuccess, "{id} {name}: {text}");
            for word in step.words {
                assert!(text.contains(word), "{id} {name}, step {i}: no `{word}` in `{text}`");
            }
            for word in step.without {
                assert!(!text.contains(word), "{id} {name}, step {i}: `{word}` in `{text}`");
            }
        }
    }
}

impl Step {
    fn run(
        &self,
        api: &M2nApi,
        comm: ncclComm_t,
        index: usize,
        memory: &mut [u8],
        handles: &mut [ncclM2nHandle_t; 4],
    ) -> ncclResult_t {
        let call = |change: fn(&mut ReshardCall)| {
            let mut call = ReshardCall::new(index);
            change(&mut call);
            call
        };
        match self.action {
            // SAFETY: the function has no arguments.
            Action::Start => unsafe { (api.ncclM2nGroupStart)() },
            // SAFETY: the function has no arguments; buffers of queued calls are in `memory`, which
            // the row keeps.
            Action::End => unsafe { (api.ncclM2nGroupEnd)() },
            // SAFETY: the function has no arguments.
            Action::Abort => unsafe { (api.ncclM2nGroupAbort)() },
            Action::Reshard(change) => call(change).run(api, comm, memory, handles, false),
            Action::WithWindow(change) => call(change).run(api, comm, memory, handles, true),
            Action::Init(slot, change) => {
                let mut config = ncclM2nConfig_t::init();
                change(&mut config);
                // A refused call clears it.
                handles[slot] = core::ptr::without_provenance_mut(0xbad);
                // SAFETY: slot and config are this frame's or the caller's; a wrong config is
                // refused.
                let code = unsafe { (api.ncclM2nInit)(&mut handles[slot], &config) };
                assert_eq!(handles[slot].is_null(), code != ncclResult_t::ncclSuccess);
                code
            }
            // SAFETY: the slot can be written, and no config is a valid one.
            Action::InitWithoutConfig(slot) => unsafe {
                (api.ncclM2nInit)(&mut handles[slot], core::ptr::null())
            },
            // SAFETY: the null pointer is refused before it is written.
            Action::InitNowhere => unsafe {
                (api.ncclM2nInit)(core::ptr::null_mut(), core::ptr::null())
            },
            // SAFETY: a handle is a token: the library looks it up, and refuses what it does not
            // know.
            Action::Finalize(handle) => unsafe { (api.ncclM2nFinalize)(handle.raw(handles)) },
        }
    }
}

fn ok(action: Action) -> Step {
    Step { action, code: ncclResult_t::ncclSuccess, words: &[], without: &[] }
}

/// `ncclInvalidArgument`.
fn bad(action: Action, words: &'static [&'static str]) -> Step {
    Step { action, code: ncclResult_t::ncclInvalidArgument, words, without: &[] }
}

/// `ncclInvalidUsage`.
fn usage(action: Action, words: &'static [&'static str]) -> Step {
    Step { code: ncclResult_t::ncclInvalidUsage, ..bad(action, words) }
}

/// A call that is refused for its arguments.
fn reshard_refused(
    id: &'static str,
    name: &'static str,
    change: fn(&mut ReshardCall),
    words: &'static [&'static str],
) -> Row {
    Row::new(id, name, vec![bad(Action::Reshard(change), words)])
}

/// A call that succeeds, for which the vendor's library needs GPUs.
fn reshard_passes(id: &'static str, name: &'static str, change: fn(&mut ReshardCall)) -> Row {
    Row::new(id, name, vec![ok(Action::Reshard(change))]).on_device()
}

const FLOAT: ncclDataType_t = ncclDataType_t::ncclFloat32;
