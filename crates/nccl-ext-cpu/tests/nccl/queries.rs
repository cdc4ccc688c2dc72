//! Questions about the backend, communicators and errors.

use std::ffi::CStr;
use std::ptr::null_mut;

use nccl_ext_core::driver::CuResult;
use nccl_ext_core::raw::{NCCL_API_MAGIC, ncclCommProperties, ncclResult_t};
use nccl_ext_core::{Device, MemorySpace, Version};
use nccl_ext_cpu::{FailureClass, backend, last_refusal};
use nccl_ext_test::cpu::ep::{api, assert_ok, assert_refused};
use nccl_ext_test::cpu::*;

use super::rank_sum;

#[test]
fn the_backend_says_what_it_is() {
    let backend = backend();
    assert_eq!((backend.name(), backend.memory()), ("cpu", MemorySpace::Host));
    let version = |name| backend.library(name).map(|library| library.version);
    assert_eq!(version("libnccl.so.2"), Some(Version::new(2, 30, 7)));
    assert_eq!(version("libnccl_ep.so.0"), Some(Version::new(0, 2, 0)));
    assert!(backend.libraries().iter().all(|library| library.path.is_none()));
    assert_eq!(backend, nccl_ext_cpu::backend());
    let mut code = 0;
    // SAFETY: `code` can be written.
    assert_ok(unsafe { (backend.nccl().ncclGetVersion)(&mut code) });
    assert_eq!(code, 23007);
}

#[test]
fn questions_about_a_communicator() {
    every_rank(3, |comm| {
        let api = backend().nccl();
        let mut numbers = [-1; 3];
        let [count, rank, device] = &mut numbers;
        // SAFETY: the communicator is live, and the number can be written.
        assert_ok(unsafe { (api.ncclCommCount)(comm.as_raw(), count) });
        // SAFETY: the communicator is live, and the number can be written.
        assert_ok(unsafe { (api.ncclCommUserRank)(comm.as_raw(), rank) });
        // SAFETY: the communicator is live, and the number can be written.
        assert_ok(unsafe { (api.ncclCommCuDevice)(comm.as_raw(), device) });
        assert_eq!(numbers, [3, comm.rank() as i32, 0]);
        assert_refused(
            // SAFETY: the communicator is live, and the null pointer is refused.
            unsafe { (api.ncclCommCount)(comm.as_raw(), null_mut()) },
            INVALID_ARGUMENT,
            FailureClass::Return,
        );
        // SAFETY: the communicator is live.
        let team = unsafe { (api.ncclTeamLsa)(comm.as_raw()) };
        assert_eq!((team.nRanks, team.rank, team.stride), (3, comm.rank() as i32, 1));
        let mut state = ncclResult_t(99);
        // SAFETY: the communicator is live, and `state` can be written.
        assert_ok(unsafe { (api.ncclCommGetAsyncError)(comm.as_raw(), &mut state) });
        assert_eq!(state, SUCCESS);
        let mut properties = ncclCommProperties {
            size: size_of::<ncclCommProperties>(),
            magic: NCCL_API_MAGIC,
            ..Default::default()
        };
        // SAFETY: the communicator is live, and the structure begins with its true size.
        assert_ok(unsafe { (api.ncclCommQueryProperties)(comm.as_raw(), &mut properties) });
        assert_eq!((properties.nRanks, properties.rank), (3, comm.rank() as i32));
        assert_eq!((properties.nLsaTeams, properties.deviceApiSupport), (1, true));
        properties.magic = 0;
        // SAFETY: as above; the wrong magic is refused.
        let code = unsafe { (api.ncclCommQueryProperties)(comm.as_raw(), &mut properties) };
        assert_refused(code, INVALID_ARGUMENT, FailureClass::Return);
    });
}

#[test]
fn errors_have_a_text() {
    let api = backend().nccl();
    // SAFETY: the function takes any code and returns a string that is static.
    let text = |code| unsafe { CStr::from_ptr((api.ncclGetErrorString)(code)) }.to_str().unwrap();
    assert_eq!(text(SUCCESS), "no error");
    assert_eq!(text(ncclResult_t(1234)), "unknown result code");
    let mut size = 0;
    // SAFETY: the null communicator is refused.
    assert_eq!(unsafe { (api.ncclCommCount)(null_mut(), &mut size) }, INVALID_ARGUMENT);
    // SAFETY: the string lives until the thread's next error, which is after its last use.
    let last = unsafe { CStr::from_ptr((api.ncclGetLastError)(null_mut())) };
    assert!(last.to_str().unwrap().contains("`comm`"), "{last:?}");
}

#[test]
fn groups_of_calls_change_nothing_but_are_balanced() {
    let api = backend().nccl();
    // SAFETY: the function has no arguments.
    assert_ok(unsafe { (api.ncclGroupStart)() });
    // SAFETY: the function has no arguments.
    assert_ok(unsafe { (api.ncclGroupEnd)() });
    // SAFETY: the function has no arguments.
    assert_refused(unsafe { (api.ncclGroupEnd)() }, INVALID_USAGE, FailureClass::Return);
}

#[test]
fn the_driver_has_devices_of_132_sms() {
    let driver = backend().driver();
    let mut value = 0;
    // SAFETY: `value` can be written.
    assert_eq!(unsafe { driver.device_count.unwrap()(&mut value) }, CuResult::SUCCESS);
    assert!(value >= 1); // other tests' worlds may have more
    assert_eq!(Device::new(backend(), 0).sm_count().unwrap(), 132);
    let error = Device::new(backend(), 99).sm_count().unwrap_err().to_string();
    assert!(error.contains("cuDeviceGet"), "{error}");
    let (mut kind, byte) = (0_u32, 0_u8);
    let call = driver.pointer_attribute.unwrap();
    let address = (&raw const byte).addr() as u64;
    // SAFETY: attribute 2 is of 32 bits, as `kind` is, and the address is only looked at.
    assert_eq!(unsafe { call((&raw mut kind).cast(), 2, address) }, CuResult::SUCCESS);
    assert_eq!(kind, 1);
    assert!(driver.event_create.is_none());
}

#[test]
fn errors_are_taken_once_and_success_clears_them() {
    every_rank(1, |comm| {
        // SAFETY: a null pointer is refused before anything is written.
        let version_into_null = || unsafe { (api().ncclEpGetVersion)(null_mut()) };
        assert_eq!(version_into_null(), INVALID_ARGUMENT);
        let error = take_error().unwrap().to_string();
        assert!(error.contains("ncclEpGetVersion"), "{error}");
        assert!(take_error().is_none());
        assert_eq!(version_into_null(), INVALID_ARGUMENT);
        rank_sum(comm).unwrap();
        assert!(take_error().is_none());
        // The class stays that of the last refusal.
        assert_eq!(last_refusal(), Some(FailureClass::Return));
    });
}
