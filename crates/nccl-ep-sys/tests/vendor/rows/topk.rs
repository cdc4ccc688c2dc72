//! Indices: what handle creation and update refuse before the group is used (EP 3.5, 3.6).

use core::ptr::{null, null_mut};

use nccl_ep_sys::{
    NCCL_EP_MAGIC, VersionedStruct, ncclEpHandleConfig_t, ncclEpLayout_t, ncclEpLayoutInfo_t,
    ncclEpTensor_t,
};
use nccl_ext_core::raw::ncclDataType_t;

use super::tensor::{INVALID, REQUIRED, UNBOUND, made};
use crate::fixture::{Arg, Fixture, Given, Tensor, name, untouched, with_out};
use crate::table::{Expected, Needs, Row, seen};

const FLAT: ncclEpLayout_t = ncclEpLayout_t::NCCL_EP_LAYOUT_FLAT;
const INFO_V1: usize = ncclEpLayoutInfo_t::V1_SIZE;
const CONFIG_V1: usize = ncclEpHandleConfig_t::V1_SIZE;

const HANDLE: &str = "`handle != nullptr'";
const TYPE: &str = "topk_idx must be ncclInt32 or ncclInt64";

type Change = fn(&mut ncclEpTensor_t);

/// Descriptors that no call takes, and the condition that they fail.
const INVALID_DESCRIPTORS: [(&str, &str, Change); 3] = [
    ("size_47", INVALID, |topk| topk.size = 47),
    ("magic_of_other_structures", INVALID, |topk| topk.magic = NCCL_EP_MAGIC),
    ("without_data", UNBOUND, |topk| topk.data = null_mut()),
];

pub(super) fn rows() -> Vec<Row> {
    let rows = [create(), update()].into_iter().flatten();
    rows.map(|row| row.needs(Needs::Objects)).collect()
}

fn create() -> Vec<Row> {
    let refused = || seen("ncclInvalidArgument, out untouched");
    let mut rows = vec![
        Row::new("create_handle::topk_null", Expected::Assert(REQUIRED), |f| {
            create_with(f, null(), Given::Null, Given::Null)
        }),
        Row::new("create_handle::null_out", Expected::Assert("`out_handle != nullptr'"), |f| {
            let topk = Tensor::topk();
            let info = Arg::<ncclEpLayoutInfo_t>::init(Given::BelowV1);
            // SAFETY: NULL is what is tried.
            name(unsafe {
                (f.api.ncclEpCreateHandle)(
                    null_mut(),
                    f.group,
                    FLAT,
                    &topk.raw,
                    info.as_ptr(),
                    null(),
                    null_mut(),
                )
            })
        }),
        Row::new("create_handle::topk_before_layout_info", Expected::Assert(REQUIRED), |f| {
            create_with(f, null(), Given::BelowV1, Given::Null)
        }),
        Row::new("create_handle::layout_info_before_config", refused(), |f| {
            create_with(f, &Tensor::topk().raw, Given::BelowV1, Given::BelowV1)
        })
        .saying(Given::BelowV1.complaint("layout_info", INFO_V1)),
        // An allocated descriptor is as good as a caller-made one, until its pointer is replaced.
        Row::new("create_handle::topk_allocated", refused(), |f| {
            let (mut data, topk) = ([0_i64, 1], made(f));
            // SAFETY: the descriptor is this row's.
            unsafe { (*topk).data = data.as_mut_ptr().cast() };
            create_with(f, topk, Given::BelowV1, Given::Null)
        })
        .saying(Given::BelowV1.complaint("layout_info", INFO_V1)),
        Row::new("create_handle::topk_allocated_without_data", Expected::Assert(UNBOUND), |f| {
            create_with(f, made(f), Given::BelowV1, Given::Null)
        }),
        Row::new("create_handle::topk_allocated_sizes_replaced", Expected::Assert(INVALID), |f| {
            let (mut data, mut sizes, topk) = ([0_i64, 1], [2, 1], made(f));
            // SAFETY: the descriptor is this row's.
            unsafe {
                (*topk).data = data.as_mut_ptr().cast();
                (*topk).sizes = sizes.as_mut_ptr();
            }
            create_with(f, topk, Given::BelowV1, Given::Null)
        }),
    ];
    rows.extend(INVALID_DESCRIPTORS.map(|(name, condition, change)| {
        Row::new(format!("create_handle::topk_{name}"), Expected::Assert(condition), move |f| {
            let mut topk = Tensor::topk();
            change(&mut topk.raw);
            create_with(f, &topk.raw, Given::BelowV1, Given::Null)
        })
    }));
    for given in Given::BAD {
        let name = format!("create_handle::layout_info_{}", given.name());
        let row = Row::new(name, refused(), move |f| {
            create_with(f, &Tensor::topk().raw, given, Given::Null)
        });
        rows.push(row.saying(given.complaint("layout_info", INFO_V1)));
        let name = format!("create_handle::config_{}", given.name());
        let row = Row::new(name, refused(), move |f| {
            create_with(f, &Tensor::topk().raw, Given::Null, given)
        });
        rows.push(row.saying(given.complaint("config", CONFIG_V1)));
    }
    rows
}

fn create_with(f: &Fixture<'_>, topk: *const ncclEpTensor_t, info: Given, config: Given) -> String {
    let info = Arg::<ncclEpLayoutInfo_t>::init(info);
    let config = Arg::<ncclEpHandleConfig_t>::init(config);
    let mut out = untouched();
    // SAFETY: what is refused is refused before the group is used.
    let code = unsafe {
        (f.api.ncclEpCreateHandle)(
            &mut out,
            f.group,
            FLAT,
            topk,
            info.as_ptr(),
            config.as_ptr(),
            null_mut(),
        )
    };
    with_out(code, out)
}

fn update() -> Vec<Row> {
    let mut rows = vec![
        Row::new("update_handle::no_handle_before_layout_info", Expected::Assert(HANDLE), |f| {
            let topk = Tensor::topk();
            let info = Arg::<ncclEpLayoutInfo_t>::init(Given::BelowV1);
            // SAFETY: NULL is what is tried.
            name(unsafe {
                (f.api.ncclEpUpdateHandle)(null_mut(), &topk.raw, info.as_ptr(), null_mut())
            })
        }),
        Row::new("update_handle::topk_null", Expected::Assert(REQUIRED), |f| {
            update_with(f, null(), Given::Null)
        }),
        Row::new("update_handle::topk_1d", Expected::Assert("ndim == 2"), |f| {
            update_with(f, &Tensor::new(ncclDataType_t::ncclInt64, &[2]).raw, Given::Null)
        }),
        Row::new("update_handle::topk_float32", Expected::Assert(TYPE), |f| {
            update_with(f, &Tensor::new(ncclDataType_t::ncclFloat32, &[2, 1]).raw, Given::Null)
        }),
    ];
    rows.extend(INVALID_DESCRIPTORS.map(|(name, condition, change)| {
        Row::new(format!("update_handle::topk_{name}"), Expected::Assert(condition), move |f| {
            let mut topk = Tensor::topk();
            change(&mut topk.raw);
            update_with(f, &topk.raw, Given::Null)
        })
    }));
    rows.extend(Given::BAD.map(|given| {
        let name = format!("update_handle::layout_info_{}_before_topk", given.name());
        let row =
            Row::new(name, seen("ncclInvalidArgument"), move |f| update_with(f, null(), given));
        row.saying(given.complaint("layout_info", INFO_V1))
    }));
    rows.extend(Given::ACCEPTED.map(|given| {
        let name = format!("update_handle::layout_info_{}_reaches_the_topk", given.name());
        Row::new(name, Expected::Assert(REQUIRED), move |f| update_with(f, null(), given))
    }));
    rows
}

fn update_with(f: &Fixture<'_>, topk: *const ncclEpTensor_t, info: Given) -> String {
    let info = Arg::<ncclEpLayoutInfo_t>::init(info);
    // SAFETY: what is refused is refused before the handle's memory is used.
    name(unsafe { (f.api.ncclEpUpdateHandle)(f.handle, topk, info.as_ptr(), null_mut()) })
}
