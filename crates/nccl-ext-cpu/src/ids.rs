//! Expert ids, copied and looked at on a stream, as a kernel does it on a GPU.

use nccl_ext_core::ids::{IdCheck, IdCheckApi};
use nccl_ext_core::raw::{cudaStream_t, ncclComm_t, ncclResult_t};

use crate::entry::entry;
use crate::refusal::{FailureClass, Refusal};
use crate::{nccl, queue};

const NAME: &str = "ncclExtCheckIds";

pub(crate) const TABLE: IdCheckApi = IdCheckApi { ncclExtCheckIds: check_ids };

unsafe extern "C" fn check_ids(
    check: *const IdCheck,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> ncclResult_t {
    entry(NAME, |scope| {
        // SAFETY: the C contract.
        let member = unsafe { nccl::member(comm)? };
        scope.enter(&member);
        // SAFETY: the C contract: NULL or readable.
        let check = unsafe { check.as_ref() };
        let check = *check.ok_or_else(|| Refusal::null(FailureClass::Return, "check"))?;
        queue::submit(member.deferral(), stream, NAME, move || {
            let width = if check.wide == 0 { 4 } else { 8 };
            let bytes = check.tokens as usize * check.topk as usize * width;
            queue::read(check.from.cast(), bytes)?;
            queue::write(check.to.cast(), bytes)?;
            // SAFETY: the C contract: the memory stays until the stream has run this, and nothing
            // uses it meanwhile.
            unsafe { check.run() };
            Ok(())
        })
    })
}
