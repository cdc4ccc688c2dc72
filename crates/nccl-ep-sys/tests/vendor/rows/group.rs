//! The order of checks of `ncclEpCreateGroup`, as far as it goes without a GPU (EP 2.1, #1 to #7).

use core::ptr::null_mut;

use nccl_ep_sys::{VersionedStruct, ncclEpAlgorithm_t, ncclEpGroupConfig_t};
use nccl_ext_core::raw::ncclComm_t;

use crate::fixture::{Arg, Fixture, Given, name, untouched, with_out};
use crate::table::{Expected, Needs, Row, seen};

const V1: usize = ncclEpGroupConfig_t::V1_SIZE;
const COMM: &str = "`comm != nullptr && ncclCommCount(comm, &nRanks) == ncclSuccess && nRanks > 0'";
const ALGORITHM: &str = "invalid algorithm";
const EXPERTS: &str = "num_experts must be greater than 0";

type Change = fn(&mut ncclEpGroupConfig_t);

pub(super) fn rows() -> Vec<Row> {
    let refused = || seen("ncclInvalidArgument, out untouched");
    let mut rows = vec![
        Row::new("create_group::out_null", Expected::Assert("`out_ep_group != nullptr'"), |f| {
            let config = Arg::new(Given::Good, config());
            // SAFETY: NULL is what is tried.
            name(unsafe { (f.api.ncclEpCreateGroup)(null_mut(), f.comm, config.as_ptr()) })
        }),
        Row::new("create_group::comm_null", Expected::Assert(COMM), |f| {
            create(f, null_mut(), Given::Good, |_| {})
        }),
        Row::new("create_group::comm_null_before_config_null", Expected::Assert(COMM), |f| {
            create(f, null_mut(), Given::Null, |_| {})
        }),
        Row::new("create_group::comm_without_ranks", Expected::Assert(COMM), |f| {
            create(f, of_ranks(&0), Given::Good, |_| {})
        })
        .vendor_only(),
        Row::new("create_group::comm_count_fails", Expected::Assert(COMM), |f| {
            create(f, of_ranks(&-1), Given::Good, |_| {})
        })
        .vendor_only(),
        Row::new("create_group::config_null", refused(), |f| {
            create(f, f.comm, Given::Null, |_| {})
        })
        .saying(Given::Null.complaint("in_config", V1)),
        Row::new("create_group::bad_struct_before_bad_algorithm", refused(), |f| {
            create(f, f.comm, Given::BelowV1, |c| c.algorithm = ncclEpAlgorithm_t(2))
        })
        .saying(Given::BelowV1.complaint("in_config", V1)),
    ];
    rows.extend(Given::BAD.map(|given| {
        let name = format!("create_group::config_{}", given.name());
        let row = Row::new(name, refused(), move |f| create(f, f.comm, given, |_| {}));
        row.saying(given.complaint("in_config", V1))
    }));
    // That a size is accepted shows in the next check being reached.
    rows.extend(Given::ACCEPTED.map(|given| {
        let name = format!("create_group::config_{}_reaches_the_fields", given.name());
        Row::new(name, Expected::Assert(EXPERTS), move |f| {
            create(f, f.comm, given, |c| c.num_experts = 0)
        })
    }));
    let fields: [(&str, &str, Change); 5] = [
        ("algorithm_2", ALGORITHM, |c| c.algorithm = ncclEpAlgorithm_t(2)),
        ("algorithm_2_before_num_experts_0", ALGORITHM, |c| {
            c.algorithm = ncclEpAlgorithm_t(2);
            c.num_experts = 0;
        }),
        ("num_experts_0", EXPERTS, |c| c.num_experts = 0),
        ("num_experts_0_before_max_token_bytes_0", EXPERTS, |c| {
            c.num_experts = 0;
            c.max_token_bytes = 0;
        }),
        ("max_token_bytes_0", "max_token_bytes must be greater than 0", |c| c.max_token_bytes = 0),
    ];
    rows.extend(fields.map(|(name, condition, change)| {
        Row::new(format!("create_group::{name}"), Expected::Assert(condition), move |f| {
            create(f, f.comm, Given::Good, change)
        })
    }));
    // #7: from here on nothing goes without a device, and what is checked later is not reached.
    let later: [(&str, Change); 3] = [
        ("accepted_arguments", |_| {}),
        ("max_token_bytes_24", |c| c.max_token_bytes = 24),
        ("max_dispatch_tokens_0", |c| c.max_dispatch_tokens_per_rank = 0),
    ];
    rows.extend(later.map(|(name, change)| {
        let name = format!("create_group::{name}_end_at_the_missing_device");
        Row::new(name, Expected::Throw("CUDA driver version is insufficient"), move |f| {
            create(f, f.comm, Given::Good, change)
        })
        .vendor_only()
    }));
    rows.into_iter().map(|row| row.needs(Needs::Comm)).collect()
}

/// A communicator of the stand-in for NCCL.
fn of_ranks(ranks: &i32) -> ncclComm_t {
    (&raw const *ranks).cast_mut().cast()
}

/// High throughput for two ranks.
pub(crate) fn config() -> ncclEpGroupConfig_t {
    let mut config = ncclEpGroupConfig_t::init();
    config.algorithm = ncclEpAlgorithm_t::NCCL_EP_ALGO_HIGH_THROUGHPUT;
    config.num_experts = 4;
    config.max_dispatch_tokens_per_rank = 8;
    config.max_recv_tokens_per_rank = 64;
    config.max_token_bytes = 256;
    config
}

fn create(f: &Fixture<'_>, comm: ncclComm_t, given: Given, change: Change) -> String {
    let mut value = config();
    change(&mut value);
    let config = Arg::new(given, value);
    let mut out = untouched();
    // SAFETY: the communicator is NULL or the library's NCCL knows it; `config` has as many bytes
    // as it says.
    let code = unsafe { (f.api.ncclEpCreateGroup)(&mut out, comm, config.as_ptr()) };
    with_out(code, out)
}
