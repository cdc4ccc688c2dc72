//! Descriptors that the library allocates (EP vectors A3 to A9).

use nccl_ep_sys::{VersionedStruct, ncclEpTensor_t, ncclEpTensorAllocConfig_t};
use nccl_ext_core::raw::ncclDataType_t;

use crate::fixture::{Arg, Fixture, Given, Tensor, name, untouched, with_out};
use crate::table::{Row, seen};

/// Conditions of the vendor's checks of descriptors.
pub(super) const REQUIRED: &str = "required tensor field is NULL";
pub(super) const INVALID: &str = "ncclEpTensor_t not initialised";
pub(super) const UNBOUND: &str = "ncclEpTensor_t has no storage binding";

const REFUSED: &str = "ncclInvalidArgument, out untouched";
const MADE: &str = "ncclSuccess, out set; ncclSuccess";

pub(super) fn rows() -> Vec<Row> {
    let mut rows = vec![
        Row::new("tensor_alloc::config_null", seen(MADE), |f| alloc(f, Given::Null)),
        Row::new("tensor_alloc::ndim_0", seen(REFUSED), |f| alloc_of(f, 0, true)),
        Row::new("tensor_alloc::sizes_null", seen(REFUSED), |f| alloc_of(f, 2, false)),
        Row::new("tensor_alloc::out_null", seen("ncclInvalidArgument"), |f| {
            let sizes = [2, 3];
            let (config, datatype) = (core::ptr::null(), ncclDataType_t::ncclInt64);
            // SAFETY: `sizes` has two extents.
            name(unsafe {
                (f.api.ncclEpTensorAlloc)(
                    core::ptr::null_mut(),
                    2,
                    datatype,
                    sizes.as_ptr(),
                    config,
                )
            })
        }),
        Row::new(
            "tensor_alloc::descriptor",
            seen("size 48, magic 0xbeefbeef, type 9, [2, 3] copied, no data, no window, offset 0"),
            descriptor,
        ),
        Row::new(
            "tensor_alloc::unknown_datatype",
            seen("ncclSuccess, type 999; ncclSuccess"),
            unknown_datatype,
        ),
        Row::new("tensor_destroy::null", seen("ncclSuccess"), |f| {
            // SAFETY: NULL is allowed.
            name(unsafe { (f.api.ncclEpTensorDestroy)(core::ptr::null_mut()) })
        }),
        Row::new("tensor_destroy::stack_descriptor", seen("ncclInvalidArgument"), |f| {
            // SAFETY: a whole descriptor, which is not an allocated one.
            name(unsafe { (f.api.ncclEpTensorDestroy)(Tensor::topk().as_mut_ptr()) })
        }),
        Row::new("tensor_destroy::zeroed_descriptor", seen("ncclInvalidArgument"), |f| {
            let mut tensor = ncclEpTensor_t::default();
            // SAFETY: as above.
            name(unsafe { (f.api.ncclEpTensorDestroy)(&mut tensor) })
        }),
        Row::new("tensor_destroy::sizes_replaced", seen("ncclInvalidArgument; ncclSuccess"), |f| {
            let mut other = [2, 3];
            destroy_changed(f, |tensor| tensor.sizes = other.as_mut_ptr())
        }),
        Row::new("tensor_destroy::size_47", seen("ncclInvalidArgument; ncclSuccess"), |f| {
            destroy_changed(f, |tensor| tensor.size = 47)
        }),
        Row::new("tensor_destroy::static_magic", seen("ncclInvalidArgument; ncclSuccess"), |f| {
            destroy_changed(f, |tensor| tensor.magic = ncclEpTensor_t::init().magic)
        }),
        Row::new("tensor_destroy::extents_and_data_changed", seen("ncclSuccess"), |f| {
            let tensor = made(f);
            // SAFETY: the descriptor is this row's, with two extents.
            unsafe {
                *(*tensor).sizes = 77;
                (*tensor).data = untouched();
            }
            // SAFETY: as above; `data` is never followed.
            name(unsafe { (f.api.ncclEpTensorDestroy)(tensor) })
        }),
    ];
    rows.extend(Given::BAD.map(|given| {
        let name = format!("tensor_alloc::config_{}", given.name());
        let row = Row::new(name, seen(REFUSED), move |f| alloc(f, given));
        row.saying(given.complaint("config", ncclEpTensorAllocConfig_t::V1_SIZE))
    }));
    rows.extend(Given::ACCEPTED.map(|given| {
        let name = format!("tensor_alloc::config_{}", given.name());
        Row::new(name, seen(MADE), move |f| alloc(f, given))
    }));
    rows
}

/// Allocates, and destroys what was allocated.
fn alloc(f: &Fixture<'_>, given: Given) -> String {
    let config = Arg::<ncclEpTensorAllocConfig_t>::init(given);
    let (mut out, sizes) = (untouched(), [2, 3]);
    let datatype = ncclDataType_t::ncclInt64;
    // SAFETY: `sizes` has two extents, and `config` as many bytes as it says.
    let code = unsafe {
        (f.api.ncclEpTensorAlloc)(&mut out, 2, datatype, sizes.as_ptr(), config.as_ptr())
    };
    let seen = with_out(code, out);
    if !code.is_success() {
        return seen;
    }
    // SAFETY: just allocated.
    format!("{seen}; {}", name(unsafe { (f.api.ncclEpTensorDestroy)(out) }))
}

fn alloc_of(f: &Fixture<'_>, ndim: u32, with_sizes: bool) -> String {
    let (mut out, sizes) = (untouched(), [2, 3]);
    let sizes = if with_sizes { sizes.as_ptr() } else { core::ptr::null() };
    let datatype = ncclDataType_t::ncclInt64;
    // SAFETY: NULL and 0 are what is tried; the array has two extents.
    let code =
        unsafe { (f.api.ncclEpTensorAlloc)(&mut out, ndim, datatype, sizes, core::ptr::null()) };
    with_out(code, out)
}

fn made_of(f: &Fixture<'_>, datatype: ncclDataType_t, sizes: &[usize; 2]) -> *mut ncclEpTensor_t {
    let mut out = core::ptr::null_mut();
    let config = core::ptr::null();
    // SAFETY: two extents.
    let code = unsafe { (f.api.ncclEpTensorAlloc)(&mut out, 2, datatype, sizes.as_ptr(), config) };
    assert!(code.is_success() && !out.is_null());
    out
}

/// An allocated descriptor of two extents.
pub(super) fn made(f: &Fixture<'_>) -> *mut ncclEpTensor_t {
    made_of(f, ncclDataType_t::ncclInt64, &[2, 1])
}

fn descriptor(f: &Fixture<'_>) -> String {
    let sizes = [2, 3];
    let out = made_of(f, ncclDataType_t::ncclBfloat16, &sizes);
    // SAFETY: just allocated, with two extents.
    let (tensor, extents) = unsafe { (*out, core::slice::from_raw_parts((*out).sizes, 2)) };
    let copied = if tensor.sizes.cast_const() == sizes.as_ptr() { "borrowed" } else { "copied" };
    format!(
        "size {}, magic {:#x}, type {}, {extents:?} {copied}, {}, {}, offset {}",
        tensor.size,
        tensor.magic,
        tensor.datatype.0,
        if tensor.data.is_null() { "no data" } else { "data" },
        if tensor.win_hdl.is_null() { "no window" } else { "a window" },
        tensor.win_offset
    )
}

fn unknown_datatype(f: &Fixture<'_>) -> String {
    let out = made_of(f, ncclDataType_t(999), &[2, 3]);
    // SAFETY: just allocated.
    let datatype = unsafe { (*out).datatype.0 };
    // SAFETY: as above.
    let destroyed = name(unsafe { (f.api.ncclEpTensorDestroy)(out) });
    format!("ncclSuccess, type {datatype}; {destroyed}")
}

/// Destroys an allocated descriptor after `change`, and again after undoing it.
fn destroy_changed(f: &Fixture<'_>, change: impl FnOnce(&mut ncclEpTensor_t)) -> String {
    let tensor = made(f);
    // SAFETY: the descriptor is this row's.
    let kept = unsafe { *tensor };
    // SAFETY: as above.
    change(unsafe { &mut *tensor });
    // SAFETY: the memory in front of an allocated descriptor may be read; it is refused.
    let refused = name(unsafe { (f.api.ncclEpTensorDestroy)(tensor) });
    if refused != "ncclInvalidArgument" {
        return refused;
    }
    // SAFETY: it was refused, so it lives.
    unsafe { *tensor = kept };
    // SAFETY: as it was allocated.
    format!("{refused}; {}", name(unsafe { (f.api.ncclEpTensorDestroy)(tensor) }))
}
