//! Rules of calls on a stream that is being captured into a graph (EP 4.15).

#[cfg(test)]
pub(super) mod walk;

use nccl_ext_core::rules;

/// The stream of a call.
pub(crate) struct StreamFacts {
    pub(crate) capturing: bool,
}

rules! {
    /// Checked by [`Group::create_handle`](crate::Group::create_handle): a captured graph replays
    /// addresses, and making a handle allocates.
    CREATE_HANDLE over plain StreamFacts {
        "handle.capture" on "stream": "handles are not made inside a graph capture"
            ("EP 4.15", Local)
            |f| f.capturing => ("a stream that is not being captured", "a capturing stream");
    }
}

rules! {
    /// Checked by an eager [`Step::dispatch`](crate::Step::dispatch).
    EAGER_DISPATCH over plain StreamFacts {
        "dispatch.eager-capture" on "stream":
            "an eager dispatch reads its count on the host, which a graph cannot"
            ("EP 4.10, 4.15", Local)
            |f| f.capturing
                => ("a stream that is not being captured, or a max_recv_tokens_per_rank",
                    "a capturing stream");
    }
}

rules! {
    /// Checked by [`Group::mask_update`](crate::Group::mask_update).
    MASK_UPDATE over plain StreamFacts {
        "mask.update-capture" on "stream":
            "a graph would copy from memory that is gone when it is replayed" ("EP 6.2", Local)
            |f| f.capturing => ("a stream that is not being captured", "a capturing stream");
    }
}
