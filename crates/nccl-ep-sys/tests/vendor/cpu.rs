//! The rows on the CPU backend, over real objects of a world of one rank.

use core::ptr::{null, null_mut};

use nccl_ep_sys::{EpApi, ncclEpAlgorithm_t, ncclEpGroup_t, ncclEpGroupConfig_t, ncclEpLayout_t};
use nccl_ext_core::Error;
use nccl_ext_core::raw::ncclComm_t;
use nccl_ext_cpu::{CpuConfig, backend, last_refusal, run_ranks};
use nccl_ext_test::vendor::case;

use crate::fixture::{Fixture, Tensor};
use crate::rows::config;
use crate::table::{Needs, Row};

/// Runs a row in a child.
pub(crate) fn run_in_child(row: &Row) {
    let api = backend().extension::<EpApi>().unwrap();
    let results = run_ranks(1, &CpuConfig::new(), |comm| {
        let comm = comm.as_raw();
        let mut fixture =
            Fixture { api, comm, group: null_mut(), handle: null_mut(), low_latency: null_mut() };
        if row.needs == Needs::Objects {
            make(&mut fixture);
        }
        let seen = (row.call)(&fixture);
        let take_error = backend().hooks().unwrap().take_error;
        let class = match (last_refusal(), take_error()) {
            (Some(class), _) => format!("{class:?}"),
            (None, Some(error)) => error.to_string(),
            (None, None) => "no refusal".to_owned(),
        };
        Ok::<_, Error>((seen, class))
    });
    for result in results {
        let (seen, class) = result.unwrap();
        case::report(&seen);
        case::report(&class);
    }
}

/// Objects that stay until the process ends.
fn make(fixture: &mut Fixture<'_>) {
    let api = fixture.api;
    fixture.group = group(api, fixture.comm, &config());
    let mut low_latency = config();
    low_latency.algorithm = ncclEpAlgorithm_t::NCCL_EP_ALGO_LOW_LATENCY;
    low_latency.max_token_bytes = 1024;
    fixture.low_latency = group(api, fixture.comm, &low_latency);
    let topk = Tensor::topk();
    let layout = ncclEpLayout_t::NCCL_EP_LAYOUT_FLAT;
    // SAFETY: a live group; the indices are read before the call returns.
    let code = unsafe {
        (api.ncclEpCreateHandle)(
            &mut fixture.handle,
            fixture.group,
            layout,
            &topk.raw,
            null(),
            null(),
            null_mut(),
        )
    };
    assert!(code.is_success());
}

fn group(api: &EpApi, comm: ncclComm_t, config: &ncclEpGroupConfig_t) -> ncclEpGroup_t {
    let mut group = null_mut();
    // SAFETY: a live communicator.
    let code = unsafe { (api.ncclEpCreateGroup)(&mut group, comm, config) };
    assert!(code.is_success());
    group
}
