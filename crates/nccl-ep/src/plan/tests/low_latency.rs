//! Low latency by hand.

use super::*;

/// EP vectors A24 to A27: R = 2, E = 4, M = 4, K = 2, rows of 1024 bytes.
#[test]
fn low_latency_vectors() {
    let config = model(512, 4, 2).max_dispatch_tokens_per_rank(4);
    let setup = Setup::new(config.clone(), 2, 512);
    let planned = memory(&setup).unwrap();
    assert_eq!(bytes(&planned, "handle memory"), 512); // EP vector A24
    assert_eq!(bytes(&planned, "communication buffer"), 50176); // EP vector A25
    let planned = memory(&setup.clone().layout(Layout::RankMajor)).unwrap();
    assert_eq!(bytes(&planned, "communication buffer"), 33536); // EP vector A26

    let with = |size| Setup { group: config.clone().rdma_buffer_size(size), ..setup.clone() };
    assert_eq!(
        refusal(&with(50175)),
        "`rdma_buffer_size`: an explicit buffer holds what the handle needs; expected 0 or at \
         least 50176, found 50175"
    );
    let planned = memory(&with(50176 + 1000)).unwrap();
    let buffer = planned.buffer("communication buffer").unwrap();
    assert_eq!(buffer.bytes, 51176);
    assert_eq!(buffer.pieces.last().map(|piece| (piece.name, piece.bytes)), Some(("spare", 1000)));

    let config = GroupConfig::new().num_experts(4).num_topk(1).max_token_bytes(512);
    let a27 = Setup::new(config.max_dispatch_tokens_per_rank(1), 1, 256);
    assert!(refusal(&a27).contains("520"), "{}", refusal(&a27));
}

/// The regions of one bank, by hand: EP 3.4 with the numbers of EP vector A25.
#[test]
fn a_bank_holds_dispatch_or_combine() {
    let config = model(512, 4, 2).max_dispatch_tokens_per_rank(4);
    let planned = memory(&Setup::new(config, 2, 512)).unwrap();
    let buffer = planned.buffer("communication buffer").unwrap();
    let regions: Vec<_> = buffer.bank.iter().map(|region| region.bytes).collect();
    let row = 1024 + 4 * 4;
    assert_eq!(regions, [4 * (16 + 1024), 2 * 4 * (16 + 1024), 4 * 4 * row, 4 * row * 2]);
    let pieces: Vec<_> = buffer.pieces.iter().map(|piece| piece.bytes).collect();
    assert_eq!(pieces, [2 * (regions[2] + regions[3]), 2 * 128]);
}
