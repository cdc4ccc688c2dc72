//! Groups and handles of one rank, destroyed when they are dropped.

use std::ptr::{null, null_mut};

use nccl_ep_sys::{
    VersionedStruct, ncclEpAlgorithm_t, ncclEpGroup_t, ncclEpGroupConfig_t, ncclEpHandle_t,
    ncclEpHandleConfig_t, ncclEpLayout_t, ncclEpLayoutInfo_t,
};
use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_core::{Comm, Element};
use nccl_ext_cpu::FailureClass;

use super::{TestTensor, api, assert_ok, assert_refused};
use crate::cpu::stream::has_failed;
use crate::cpu::{done, stream};

/// The defaults with an algorithm.
pub fn group_config(algorithm: ncclEpAlgorithm_t) -> ncclEpGroupConfig_t {
    ncclEpGroupConfig_t { algorithm, ..VersionedStruct::init() }
}

/// A group of one rank.
#[derive(Debug)]
pub struct TestGroup {
    pub raw: ncclEpGroup_t,
}

impl TestGroup {
    #[track_caller]
    pub fn new(comm: &Comm, config: &ncclEpGroupConfig_t) -> Self {
        let (code, raw) = Self::try_new(comm, config);
        assert_ok(code);
        Self { raw }
    }

    /// The call's code, and what it left in the group's place; nothing destroys that.
    pub fn try_new(comm: &Comm, config: &ncclEpGroupConfig_t) -> (ncclResult_t, ncclEpGroup_t) {
        let mut raw = null_mut();
        let create = api().ncclEpCreateGroup;
        // SAFETY: the communicator is live; `raw` and the config outlive the call, which refuses a
        // config of a wrong size or magic.
        let code = unsafe { create(&mut raw, comm.as_raw(), config) };
        (code, raw)
    }

    /// The call's code, and what it left in the handle's place; nothing destroys that.
    pub fn try_handle(
        &self,
        layout: ncclEpLayout_t,
        topk: i32,
        alignment: usize,
    ) -> (ncclResult_t, ncclEpHandle_t) {
        let mut config = ncclEpHandleConfig_t::init();
        config.dispatch_output_per_expert_alignment = alignment;
        let mut handle = null_mut();
        let init = api().ncclEpInitHandle;
        // SAFETY: the group is live; `handle` and the config outlive the call.
        let code = unsafe { init(&mut handle, self.raw, layout, &config, topk, null()) };
        (code, handle)
    }

    /// Creating the handle is refused so, and leaves a half-built one, which can be destroyed.
    ///
    /// # Panics
    /// If not.
    #[track_caller]
    pub fn assert_handle_refused(
        &self,
        (layout, topk, alignment): (ncclEpLayout_t, i32, usize),
        code: ncclResult_t,
        class: FailureClass,
    ) {
        let (found, handle) = self.try_handle(layout, topk, alignment);
        assert_refused(found, code, class);
        assert!(!handle.is_null());
        // SAFETY: the handle is the refused call's, and this is its only use.
        assert_ok(unsafe { (api().ncclEpHandleDestroy)(handle) });
    }

    #[track_caller]
    pub fn handle(&self, layout: ncclEpLayout_t, topk: usize, alignment: usize) -> TestHandle {
        let (code, raw) = self.try_handle(layout, topk as i32, alignment);
        assert_ok(code);
        TestHandle { raw, layout, topk }
    }
}

impl Drop for TestGroup {
    fn drop(&mut self) {
        // Destroying a low-latency group is a collective; a panicking rank leaves it.
        if !std::thread::panicking() {
            // SAFETY: the group is live, and this is its last use.
            let code = unsafe { (api().ncclEpGroupDestroy)(self.raw) };
            // It waits for the device first, which gives the failure of earlier work again.
            if !has_failed() {
                assert_ok(code);
            }
        }
    }
}

/// A handle, and what it was made with.
#[derive(Debug)]
pub struct TestHandle {
    pub raw: ncclEpHandle_t,
    pub layout: ncclEpLayout_t,
    pub topk: usize,
}

impl Drop for TestHandle {
    fn drop(&mut self) {
        // SAFETY: the handle is live, and this is its last use.
        assert_ok(unsafe { (api().ncclEpHandleDestroy)(self.raw) });
    }
}

/// Updates a handle with rows of expert ids.
pub fn update_handle<T: Element>(
    handle: &TestHandle,
    ids: &mut TestTensor<T>,
    info: Option<&ncclEpLayoutInfo_t>,
) -> ncclResult_t {
    let info = info.map_or(null(), |info| &raw const *info);
    // SAFETY: the handle is live, the ids and `info`, which may be null, are borrowed.
    done(unsafe { (api().ncclEpUpdateHandle)(handle.raw, ids.descriptor(), info, stream()) })
}

/// Completes what a handle has staged.
pub fn complete(handle: &TestHandle) -> ncclResult_t {
    // SAFETY: the handle is live; no configuration and the null stream.
    done(unsafe { (api().ncclEpComplete)(handle.raw, null(), null_mut()) })
}
