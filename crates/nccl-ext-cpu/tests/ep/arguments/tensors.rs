//! The version and allocated tensor descriptors.

use nccl_ext_core::raw::ncclDataType_t;

use super::*;

const BF16: ncclDataType_t = ncclDataType_t::ncclBfloat16;

fn alloc(config: *const ncclEpTensorAllocConfig_t) -> (ncclResult_t, *mut ncclEpTensor_t) {
    let (sizes, mut tensor) = ([2_usize, 3], null_mut());
    (raw_calls::alloc(&mut tensor, 2, BF16, sizes.as_ptr(), config), tensor)
}

/// EP vector A1.
#[test]
fn a_version_needs_a_place() {
    assert_refused(raw_calls::version(null_mut()), INVALID_ARGUMENT, FailureClass::Return);
}

/// EP vector A2.
#[test]
fn the_version_is_that_of_the_release() {
    let mut version = 0;
    assert_ok(raw_calls::version(&mut version));
    assert_eq!(version, 200);
}

/// EP vector A3.
#[test]
fn an_alloc_config_of_7_bytes_is_refused() {
    let config = ncclEpTensorAllocConfig_t { size: 7, ..VersionedStruct::init() };
    let (code, tensor) = alloc(&config);
    assert_refused(code, INVALID_ARGUMENT, FailureClass::Return);
    assert!(tensor.is_null());
}

/// EP vector A4.
#[test]
fn a_larger_alloc_config_is_accepted() {
    let config = [16, NCCL_EP_MAGIC, 0xDEAD_BEEF, 0xDEAD_BEEF];
    let (code, tensor) = alloc(config.as_ptr().cast());
    assert_ok(code);
    // SAFETY: the call succeeded: the descriptor is the library's until it is destroyed below.
    let made = unsafe { &*tensor };
    assert_eq!((made.ndim, made.datatype), (2, BF16));
    // SAFETY: the descriptor has `ndim` sizes, which live as long as it does, and that is 2.
    assert_eq!(unsafe { [*made.sizes, *made.sizes.add(1)] }, [2, 3]);
    assert!(made.data.is_null() && made.win_hdl.is_null() && made.win_offset == 0);
    assert_ok(raw_calls::destroy_tensor(tensor));
}

/// EP vector A5.
#[test]
fn an_alloc_config_of_another_magic_is_refused() {
    let magic = NCCL_EP_MAGIC ^ 1;
    let config = ncclEpTensorAllocConfig_t { magic, ..VersionedStruct::init() };
    let (code, tensor) = alloc(&config);
    assert_refused(code, INVALID_ARGUMENT, FailureClass::Return);
    assert!(tensor.is_null());
}

/// EP vector A6.
#[test]
fn a_tensor_without_extents_is_refused() {
    let (sizes, mut tensor) = ([1_usize], null_mut());
    let code = raw_calls::alloc(&mut tensor, 0, BF16, sizes.as_ptr(), null());
    assert_refused(code, INVALID_ARGUMENT, FailureClass::Return);
    let code = raw_calls::alloc(&mut tensor, 1, BF16, null(), null());
    assert_refused(code, INVALID_ARGUMENT, FailureClass::Return);
    assert!(tensor.is_null());
    let code = raw_calls::alloc(null_mut(), 1, BF16, sizes.as_ptr(), null());
    assert_refused(code, INVALID_ARGUMENT, FailureClass::Return);
}

/// EP vector A7.
#[test]
fn null_can_be_destroyed() {
    assert_ok(raw_calls::destroy_tensor(null_mut()));
}

/// EP vector A8.
#[test]
fn a_static_descriptor_is_not_destroyed() {
    let mut tensor = TestTensor::filled(&[2], 1_i32);
    assert_refused(
        raw_calls::destroy_tensor(tensor.descriptor()),
        INVALID_ARGUMENT,
        FailureClass::Return,
    );
    assert_eq!(tensor.data, [1, 1]);
}

/// EP vector A8.
#[test]
fn a_descriptor_that_only_claims_to_be_allocated_is_not_destroyed() {
    let mut tensor = TestTensor::filled(&[2], 1_i32);
    tensor.raw_mut().magic = 0xBEEF_BEEF;
    assert_refused(
        raw_calls::destroy_tensor(tensor.descriptor()),
        INVALID_ARGUMENT,
        FailureClass::Return,
    );
}

#[test]
fn a_tensor_is_destroyed_once() {
    let (code, tensor) = alloc(null());
    assert_ok(code);
    assert_ok(raw_calls::destroy_tensor(tensor));
    assert_refused(raw_calls::destroy_tensor(tensor), INVALID_ARGUMENT, FailureClass::Return);
}

/// EP vector A9.
#[test]
fn an_allocated_descriptor_with_other_sizes_is_refused_everywhere() {
    let (code, tensor) = alloc(null());
    assert_ok(code);
    let mut other = [4_usize, 1];
    // SAFETY: the descriptor lives, and nobody else uses it.
    let own = unsafe { std::mem::replace(&mut (*tensor).sizes, other.as_mut_ptr()) };
    assert_refused(raw_calls::destroy_tensor(tensor), INVALID_ARGUMENT, FailureClass::Return);
    let address = tensor.expose_provenance();
    every_rank(1, |comm| {
        let ht = HighThroughputRank::fresh(comm, ONE, FLAT, 0, |_| ());
        let tensor = std::ptr::with_exposed_provenance(address);
        let code = raw_calls::update(ht.handle.raw, tensor);
        assert_refused(code, INVALID_ARGUMENT, FailureClass::Assert);
    });
    // Nothing happened to it: with its own sizes it is whole again.
    // SAFETY: the refused destruction left the descriptor alive, and the rank has ended.
    unsafe { (*tensor).sizes = own };
    assert_ok(raw_calls::destroy_tensor(tensor));
}

#[test]
fn allocated_descriptors_are_tensors() {
    every_rank(1, |comm| {
        let ht = HighThroughputRank::fresh(comm, ONE, FLAT, 0, |_| ());
        let (mut tensor, sizes) = (null_mut(), [4_usize, 1]);
        let int64 = ncclDataType_t::ncclInt64;
        assert_ok(raw_calls::alloc(&mut tensor, 2, int64, sizes.as_ptr(), null()));
        let mut data = [0_i64, 1, 2, 3];
        // SAFETY: the call succeeded: the descriptor lives until it is destroyed below.
        unsafe { (*tensor).data = data.as_mut_ptr().cast() };
        assert_ok(raw_calls::update(ht.handle.raw, tensor));
        // A copy is not the allocated one.
        // SAFETY: as above.
        let copy = unsafe { *tensor };
        let code = raw_calls::update(ht.handle.raw, &copy);
        assert_refused(code, INVALID_ARGUMENT, FailureClass::Assert);
        assert_ok(raw_calls::destroy_tensor(tensor));
    });
}
