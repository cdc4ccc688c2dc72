//! A1 to A9: the version and allocated tensor descriptors.

use nccl_ext_core::raw::ncclDataType_t;

use super::*;

const BF16: ncclDataType_t = ncclDataType_t::ncclBfloat16;

fn alloc(config: *const ncclEpTensorAllocConfig_t) -> (ncclResult_t, *mut ncclEpTensor_t) {
    let (sizes, mut tensor) = ([2_usize, 3], null_mut());
    (raw::alloc(&mut tensor, 2, BF16, sizes.as_ptr(), config), tensor)
}

#[test]
fn a01_version_into_null() {
    refused(raw::version(null_mut()), ARGUMENT, FailureClass::Return);
}

#[test]
fn a02_version_is_that_of_the_release() {
    let mut version = 0;
    ok(raw::version(&mut version));
    assert_eq!(version, 200);
}

#[test]
fn a03_tensor_alloc_with_a_config_of_7_bytes() {
    let config = ncclEpTensorAllocConfig_t { size: 7, ..VersionedStruct::init() };
    let (code, tensor) = alloc(&config);
    refused(code, ARGUMENT, FailureClass::Return);
    assert!(tensor.is_null());
}

#[test]
fn a04_tensor_alloc_with_a_larger_config() {
    let config = [16, NCCL_EP_MAGIC, 0xDEAD_BEEF, 0xDEAD_BEEF];
    let (code, tensor) = alloc(config.as_ptr().cast());
    ok(code);
    // SAFETY: the call succeeded: the descriptor is the library's until it is destroyed below.
    let made = unsafe { &*tensor };
    assert_eq!((made.ndim, made.datatype), (2, BF16));
    // SAFETY: the descriptor has `ndim` sizes, which live as long as it does, and that is 2.
    assert_eq!(unsafe { [*made.sizes, *made.sizes.add(1)] }, [2, 3]);
    assert!(made.data.is_null() && made.win_hdl.is_null() && made.win_offset == 0);
    ok(raw::destroy_tensor(tensor));
}

#[test]
fn a05_tensor_alloc_config_with_wrong_magic() {
    let magic = NCCL_EP_MAGIC ^ 1;
    let config = ncclEpTensorAllocConfig_t { magic, ..VersionedStruct::init() };
    let (code, tensor) = alloc(&config);
    refused(code, ARGUMENT, FailureClass::Return);
    assert!(tensor.is_null());
}

#[test]
fn a06_tensor_alloc_without_extents() {
    let (sizes, mut tensor) = ([1_usize], null_mut());
    let code = raw::alloc(&mut tensor, 0, BF16, sizes.as_ptr(), null());
    refused(code, ARGUMENT, FailureClass::Return);
    let code = raw::alloc(&mut tensor, 1, BF16, null(), null());
    refused(code, ARGUMENT, FailureClass::Return);
    assert!(tensor.is_null());
    let code = raw::alloc(null_mut(), 1, BF16, sizes.as_ptr(), null());
    refused(code, ARGUMENT, FailureClass::Return);
}

#[test]
fn a07_tensor_destroy_of_null() {
    ok(raw::destroy_tensor(null_mut()));
}

#[test]
fn a08_tensor_destroy_of_a_static_descriptor() {
    let mut tensor = Ten::filled(&[2], 1_i32);
    refused(raw::destroy_tensor(tensor.d()), ARGUMENT, FailureClass::Return);
    assert_eq!(tensor.data, [1, 1]);
}

#[test]
fn a08_tensor_destroy_of_a_descriptor_that_only_claims_to_be_allocated() {
    let mut tensor = Ten::filled(&[2], 1_i32);
    tensor.raw().magic = 0xBEEF_BEEF;
    refused(raw::destroy_tensor(tensor.d()), ARGUMENT, FailureClass::Return);
}

#[test]
fn a08_tensor_destroy_twice() {
    let (code, tensor) = alloc(null());
    ok(code);
    ok(raw::destroy_tensor(tensor));
    refused(raw::destroy_tensor(tensor), ARGUMENT, FailureClass::Return);
}

#[test]
fn a09_allocated_descriptor_with_other_sizes() {
    let (code, tensor) = alloc(null());
    ok(code);
    let mut other = [4_usize, 1];
    // SAFETY: the descriptor lives, and nobody else uses it.
    let own = unsafe { std::mem::replace(&mut (*tensor).sizes, other.as_mut_ptr()) };
    refused(raw::destroy_tensor(tensor), ARGUMENT, FailureClass::Return);
    let address = tensor.expose_provenance();
    ranks(1, |comm| {
        let ht = Ht::fresh(comm, ONE, FLAT, 0, |_| ());
        let tensor = std::ptr::with_exposed_provenance(address);
        let code = raw::update(ht.handle.raw, tensor);
        refused(code, ARGUMENT, FailureClass::Assert);
    });
    // Nothing happened to it: with its own sizes it is whole again.
    // SAFETY: the refused destruction left the descriptor alive, and the rank has ended.
    unsafe { (*tensor).sizes = own };
    ok(raw::destroy_tensor(tensor));
}

#[test]
fn a09_allocated_descriptors_are_tensors() {
    ranks(1, |comm| {
        let ht = Ht::fresh(comm, ONE, FLAT, 0, |_| ());
        let (mut tensor, sizes) = (null_mut(), [4_usize, 1]);
        let int64 = ncclDataType_t::ncclInt64;
        ok(raw::alloc(&mut tensor, 2, int64, sizes.as_ptr(), null()));
        let mut data = [0_i64, 1, 2, 3];
        // SAFETY: the call succeeded: the descriptor lives until it is destroyed below.
        unsafe { (*tensor).data = data.as_mut_ptr().cast() };
        ok(raw::update(ht.handle.raw, tensor));
        // A copy is not the allocated one.
        // SAFETY: as above.
        let copy = unsafe { *tensor };
        let code = raw::update(ht.handle.raw, &copy);
        refused(code, ARGUMENT, FailureClass::Assert);
        ok(raw::destroy_tensor(tensor));
    });
}
