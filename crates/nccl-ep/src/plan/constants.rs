//! Numbers of the library that plans are made of.

/// SMs of an H100 or H200, what [`Setup`](super::Setup) plans for unless told otherwise.
pub const HOPPER_SMS: u32 = 132;

/// Bytes of the workspace of every group (EP 2.1 #29, 2.4).
pub const WORKSPACE_BYTES: u64 = 32 << 20;

/// Bytes of the block of counters of a high-throughput group (EP 2.1 #29).
pub const COUNTER_BLOCK_BYTES: u64 = 32;

/// Every piece of handle memory takes a multiple of this many bytes (EP 3.1).
pub const HANDLE_PIECE_UNIT: u64 = 256;

/// Most tokens per rank that the vendor once named as supported. Release 0.2.0 enforces no such
/// cap (EP 8); for a library that does, see [`Setup::token_cap`](super::Setup::token_cap).
pub const TOKENS_ONCE_SUPPORTED: u32 = 8192;

/// Low latency counts arrivals with a tag of this size. More tokens per rank were exact where
/// tried, but nothing promises it (EP 4.1).
pub const LL_COUNTER_TAG: u32 = 16384;
