//! The C functions that the project binds, by name.
//!
//! One list serves two readers: `codegen` builds the function tables from it, and `stage-native`
//! refuses a library that lacks one of them.

/// The part of NCCL that the crates use, in table order.
pub(crate) const NCCL: &[&str] = &[
    "ncclGetVersion",
    "ncclGetUniqueId",
    "ncclCommInitRank",
    "ncclCommInitRankConfig",
    "ncclCommSplit",
    "ncclCommCount",
    "ncclCommUserRank",
    "ncclCommCuDevice",
    "ncclCommFinalize",
    "ncclCommDestroy",
    "ncclCommAbort",
    "ncclCommGetAsyncError",
    "ncclGetLastError",
    "ncclGetErrorString",
    "ncclGroupStart",
    "ncclGroupEnd",
    "ncclAllGather",
    "ncclAllReduce",
    "ncclBroadcast",
    "ncclSend",
    "ncclRecv",
    "ncclCommQueryProperties",
    "ncclTeamLsa",
    "ncclCommWindowRegister",
    "ncclCommWindowDeregister",
    "ncclWinGetUserPtr",
    "ncclMemAlloc",
    "ncclMemFree",
];

/// Everything that `nccl_ep.h` declares, in the header's order.
pub(crate) const EP: &[&str] = &[
    "ncclEpGetVersion",
    "ncclEpTensorAlloc",
    "ncclEpTensorDestroy",
    "ncclEpCreateGroup",
    "ncclEpGroupDestroy",
    "ncclEpHandleMemSize",
    "ncclEpInitHandle",
    "ncclEpUpdateHandle",
    "ncclEpCreateHandle",
    "ncclEpHandleDestroy",
    "ncclEpDispatch",
    "ncclEpCombine",
    "ncclEpComplete",
    "ncclEpMaskQuery",
    "ncclEpMaskUpdate",
    "ncclEpMaskClean",
    "ncclEpGetAsyncError",
    "ncclEpErrorClear",
];

/// Everything that `nccl_m2n.h` declares, in the header's order.
pub(crate) const M2N: &[&str] = &[
    "ncclM2nInit",
    "ncclM2nFinalize",
    "ncclM2nGetLastError",
    "ncclM2nGroupStart",
    "ncclM2nGroupEnd",
    "ncclM2nGroupAbort",
    "ncclReshardWithWindow",
    "ncclReshard",
];
