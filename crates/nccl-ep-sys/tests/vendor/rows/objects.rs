//! Versions, and what NULL objects do.

use core::ptr::{null, null_mut};

use crate::fixture::name;
use crate::table::{Expected, Needs, Row, seen};

pub(super) fn rows() -> Vec<Row> {
    vec![
        Row::new("version::null", seen("ncclInvalidArgument"), |f| {
            // SAFETY: NULL is what is tried.
            name(unsafe { (f.api.ncclEpGetVersion)(null_mut()) })
        }),
        Row::new("version::code", seen("ncclSuccess, 200"), |f| {
            let mut code = -1;
            // SAFETY: `code` outlives the call.
            let result = unsafe { (f.api.ncclEpGetVersion)(&mut code) };
            format!("{}, {code}", name(result))
        }),
        Row::new("group_destroy::null", seen("ncclSuccess"), |f| {
            // SAFETY: NULL is allowed.
            name(unsafe { (f.api.ncclEpGroupDestroy)(null_mut()) })
        }),
        Row::new("handle_destroy::null", seen("ncclSuccess"), |f| {
            // SAFETY: NULL is allowed.
            name(unsafe { (f.api.ncclEpHandleDestroy)(null_mut()) })
        }),
        Row::new("mask_query::null_group", Expected::Throw("'ep_group != nullptr'"), |f| {
            // SAFETY: NULL is what is tried.
            name(unsafe { (f.api.ncclEpMaskQuery)(null_mut(), &mut 0, null_mut()) })
        }),
        Row::new("mask_update::null_group", Expected::Throw("'ep_group != nullptr'"), |f| {
            // SAFETY: NULL is what is tried.
            name(unsafe { (f.api.ncclEpMaskUpdate)(null_mut(), &1, null_mut()) })
        }),
        Row::new("mask_clean::null_group", Expected::Throw("'ep_group != nullptr'"), |f| {
            // SAFETY: NULL is what is tried.
            name(unsafe { (f.api.ncclEpMaskClean)(null_mut(), null_mut()) })
        }),
        Row::new("get_async_error::null_group", Expected::Throw("'ep_group != nullptr'"), |f| {
            // SAFETY: NULL is what is tried.
            name(unsafe { (f.api.ncclEpGetAsyncError)(null_mut(), &mut 0) })
        }),
        Row::new("error_clear::null_group", Expected::Throw("'ep_group != nullptr'"), |f| {
            // SAFETY: NULL is what is tried.
            name(unsafe { (f.api.ncclEpErrorClear)(null_mut()) })
        }),
        // Without a mask no pointer is looked at (EP 6.2).
        Row::new("mask_query::without_mask", seen("ncclInvalidUsage"), |f| {
            // SAFETY: NULL is what is tried.
            name(unsafe { (f.api.ncclEpMaskQuery)(f.low_latency, null_mut(), null_mut()) })
        })
        .needs(Needs::Objects),
        Row::new("mask_update::without_mask", seen("ncclInvalidUsage"), |f| {
            // SAFETY: NULL is what is tried.
            name(unsafe { (f.api.ncclEpMaskUpdate)(f.low_latency, null(), null_mut()) })
        })
        .needs(Needs::Objects),
        Row::new("mask_clean::without_mask", seen("ncclInvalidUsage"), |f| {
            // SAFETY: the group has no mask.
            name(unsafe { (f.api.ncclEpMaskClean)(f.low_latency, null_mut()) })
        })
        .needs(Needs::Objects),
        Row::new("get_async_error::without_mask", seen("ncclInvalidUsage"), |f| {
            // SAFETY: NULL is what is tried.
            name(unsafe { (f.api.ncclEpGetAsyncError)(f.low_latency, null_mut()) })
        })
        .needs(Needs::Objects),
        Row::new("error_clear::without_mask", seen("ncclInvalidUsage"), |f| {
            // SAFETY: the group has no mask.
            name(unsafe { (f.api.ncclEpErrorClear)(f.low_latency) })
        })
        .needs(Needs::Objects),
    ]
}
