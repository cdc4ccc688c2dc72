//! Handle memory and creation: what is refused before the group is used (EP 3.1, 3.2).

use core::ptr::{null, null_mut};

use nccl_ep_sys::{
    VersionedStruct, ncclEpGroup_t, ncclEpHandleConfig_t, ncclEpLayout_t, ncclEpTensor_t,
};

use super::tensor::INVALID;
use crate::fixture::{Arg, Fixture, Given, Tensor, name, untouched, with_out};
use crate::table::{Expected, Needs, Row, seen};

const V1: usize = ncclEpHandleConfig_t::V1_SIZE;
const TOPK: &str = "num_topk > 0";

const RANK_MAJOR: ncclEpLayout_t = ncclEpLayout_t::NCCL_EP_LAYOUT_RANK_MAJOR;
const FLAT: ncclEpLayout_t = ncclEpLayout_t::NCCL_EP_LAYOUT_FLAT;
const UNSET: ncclEpLayout_t = ncclEpLayout_t::NCCL_EP_LAYOUT_UNSET;

pub(super) fn rows() -> Vec<Row> {
    let rows = [mem_size(), init()].into_iter().flatten();
    rows.map(|row| row.needs(Needs::Objects)).collect()
}

fn mem_size() -> Vec<Row> {
    let mut rows = vec![
        Row::new(
            "handle_mem_size::null_group",
            Expected::Assert("`ep_group != nullptr && size_out != nullptr'"),
            |f| size_of(f, null_mut(), FLAT, Given::Null, 1),
        ),
        Row::new(
            "handle_mem_size::null_group_before_bad_config",
            Expected::Assert("`ep_group != nullptr && size_out != nullptr'"),
            |f| size_of(f, null_mut(), FLAT, Given::BelowV1, 1),
        ),
        Row::new(
            "handle_mem_size::null_out",
            Expected::Assert("`ep_group != nullptr && size_out != nullptr'"),
            |f| {
                // SAFETY: NULL is what is tried.
                name(unsafe { (f.api.ncclEpHandleMemSize)(f.group, FLAT, null(), null_mut(), 1) })
            },
        ),
        Row::new(
            "handle_mem_size::layout_unset",
            Expected::Throw("ncclEpHandleMemSize: layout must be set explicitly"),
            |f| size_of(f, f.group, UNSET, Given::Null, 1),
        ),
        Row::new("handle_mem_size::num_topk_0", Expected::Assert(TOPK), |f| {
            size_of(f, f.low_latency, RANK_MAJOR, Given::Null, 0)
        }),
        Row::new("handle_mem_size::num_topk_auto", Expected::Assert(TOPK), |f| {
            size_of(f, f.low_latency, RANK_MAJOR, Given::Null, -1)
        }),
        Row::new(
            "handle_mem_size::bad_config_before_layout_unset",
            seen("ncclInvalidArgument, size untouched"),
            |f| size_of(f, f.group, UNSET, Given::OtherMagic, 1),
        )
        .saying(Given::OtherMagic.complaint("config", V1)),
    ];
    rows.extend(Given::BAD.map(|given| {
        let name = format!("handle_mem_size::config_{}", given.name());
        Row::new(name, seen("ncclInvalidArgument, size untouched"), move |f| {
            size_of(f, f.group, FLAT, given, 1)
        })
        .saying(given.complaint("config", V1))
    }));
    rows.extend(Given::ACCEPTED.map(|given| {
        let name = format!("handle_mem_size::config_{}_reaches_the_layout", given.name());
        let expected = Expected::Throw("ncclEpHandleMemSize: layout must be set explicitly");
        Row::new(name, expected, move |f| size_of(f, f.group, UNSET, given, 1))
    }));
    rows
}

fn size_of(
    f: &Fixture<'_>,
    group: ncclEpGroup_t,
    layout: ncclEpLayout_t,
    given: Given,
    num_topk: i32,
) -> String {
    let config = Arg::<ncclEpHandleConfig_t>::init(given);
    let mut size = usize::MAX;
    // SAFETY: what is refused is refused before the group is used.
    let code =
        unsafe { (f.api.ncclEpHandleMemSize)(group, layout, config.as_ptr(), &mut size, num_topk) };
    let state = if size == usize::MAX { "untouched" } else { "set" };
    format!("{}, size {state}", name(code))
}

fn init() -> Vec<Row> {
    let mut rows = vec![
        Row::new(
            "init_handle::null_out",
            Expected::Assert("`ep_group != nullptr && out_handle != nullptr'"),
            |f| {
                // SAFETY: NULL is what is tried.
                name(unsafe {
                    (f.api.ncclEpInitHandle)(null_mut(), f.group, FLAT, null(), 1, null())
                })
            },
        ),
        Row::new(
            "init_handle::null_group",
            Expected::Assert("`ep_group != nullptr && out_handle != nullptr'"),
            |f| init_with(f, null_mut(), FLAT, Given::Null, None),
        ),
        Row::new(
            "init_handle::layout_unset",
            Expected::Throw("ncclEpInitHandle: layout must be set explicitly"),
            |f| init_with(f, f.group, UNSET, Given::Null, None),
        ),
        Row::new("init_handle::handle_mem_size_47", Expected::Assert(INVALID), |f| {
            init_with(f, f.group, UNSET, Given::Null, Some(|mem| mem.size = 47))
        }),
        Row::new(
            "init_handle::bad_config_before_handle_mem",
            seen("ncclInvalidArgument, out untouched"),
            |f| init_with(f, f.group, UNSET, Given::BelowV1, Some(|mem| mem.size = 47)),
        )
        .saying(Given::BelowV1.complaint("config", V1)),
    ];
    rows.extend(Given::BAD.map(|given| {
        let name = format!("init_handle::config_{}", given.name());
        Row::new(name, seen("ncclInvalidArgument, out untouched"), move |f| {
            init_with(f, f.group, FLAT, given, None)
        })
        .saying(given.complaint("config", V1))
    }));
    rows.extend(Given::ACCEPTED.map(|given| {
        let name = format!("init_handle::config_{}_reaches_handle_mem", given.name());
        Row::new(name, Expected::Assert(INVALID), move |f| {
            init_with(f, f.group, FLAT, given, Some(|mem| mem.size = 47))
        })
    }));
    rows
}

fn init_with(
    f: &Fixture<'_>,
    group: ncclEpGroup_t,
    layout: ncclEpLayout_t,
    given: Given,
    handle_mem: Option<fn(&mut ncclEpTensor_t)>,
) -> String {
    let config = Arg::<ncclEpHandleConfig_t>::init(given);
    let mut memory = Tensor::topk();
    let memory = handle_mem.map_or(null(), |change| {
        change(&mut memory.raw);
        &raw const memory.raw
    });
    let mut out = untouched();
    // SAFETY: what is refused is refused before the group is used.
    let code =
        unsafe { (f.api.ncclEpInitHandle)(&mut out, group, layout, config.as_ptr(), 1, memory) };
    with_out(code, out)
}
