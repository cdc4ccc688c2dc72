use nccl_ext_core::RawBuffer;
use nccl_ext_test::stub::ep as stub;

use crate::geometry::EmMode;
use crate::rules::RuleInfo;
use crate::rules::walk_support::{StubGroup, assert_names, ht, ll};
use crate::*;

pub(in crate::rules) fn walk(rule: &RuleInfo) -> bool {
    let plain = HandleConfig::new();
    let aligned = HandleConfig::new().dispatch_output_per_expert_alignment(4);
    let (em, flat) = (Layout::ExpertMajor, Layout::Flat);
    let dup = Some(EmMode::NvlinkDup);
    let (config, ranks, mode, layout, options, topk) = match rule.name {
        "handle.automatic-topk" => (ll(), 4, None, em, plain, TopK::Auto),
        "handle.layout" => (ll(), 4, None, flat, plain, TopK::N(2)),
        "handle.alignment" => {
            let odd = HandleConfig::new().dispatch_output_per_expert_alignment(3);
            (ht(), 4, None, em, odd, TopK::N(2))
        }
        "handle.topk" => (ht(), 4, None, flat, plain, TopK::N(9)),
        "handle.ll-topk" => (ll().num_experts(64), 4, None, em, plain, TopK::N(32)),
        "handle.ht-topk" => (ht().num_topk(2), 4, None, flat, plain, TopK::N(3)),
        "handle.eager-topk" => (ht().max_recv_tokens_per_rank(0), 4, None, em, plain, TopK::N(2)),
        "handle.em-topk" => (ht().num_experts(64), 4, None, em, plain, TopK::N(33)),
        "handle.em-local-experts" => (ht().num_experts(1028), 4, None, em, plain, TopK::N(2)),
        "handle.alignment-room" => {
            let wide = HandleConfig::new().dispatch_output_per_expert_alignment(1 << 31);
            (ht(), 4, None, em, wide, TopK::N(2))
        }
        "handle.em-dup-crowd" => {
            let config = ht().num_experts(64).max_recv_tokens_per_rank(1024);
            (config, 4, Some(EmMode::LocalDup), em, plain, TopK::N(9))
        }
        "handle.em-dup-experts" => (ht().num_experts(24), 4, dup, em, plain, TopK::N(2)),
        "handle.em-dup-team" => (ht().num_experts(256), 256, dup, em, plain, TopK::N(2)),
        "handle.em-dup-budget" => (ht(), 4, dup, em, plain, TopK::N(2)),
        "handle.em-dup-drop" => {
            let config = ht().max_recv_tokens_per_rank(33);
            (config.overflow_policy(OverflowPolicy::Drop), 4, dup, em, aligned, TopK::N(2))
        }
        "handle.ll-buffer-units" => {
            let config = ll().num_experts(4).max_token_bytes(512);
            (config.max_dispatch_tokens_per_rank(1), 1, None, em, plain, TopK::N(1))
        }
        "handle.ll-buffer-size" => {
            let config = ll().num_experts(4).max_token_bytes(1024);
            (config.rdma_buffer_size(50175), 2, None, em, plain, TopK::N(2))
        }
        "handle.em-team" => (ht().num_experts(1028), 1028, None, em, plain, TopK::N(2)),
        "handle.em-dup-slots" => {
            let config = ht().max_recv_tokens_per_rank(1 << 22);
            (config, 4, dup, em, plain, TopK::N(2))
        }
        "handle.memory" => {
            walk_memory(rule);
            return true;
        }
        _ => return false,
    };
    let calls = match mode {
        Some(mode) => StubGroup::in_em_mode(ranks, &config, layout, mode),
        None => StubGroup::new(ranks, &config, layout),
    };
    let group = calls.group;
    stub::take_calls();
    let made = group.init_handle(layout, &options, topk, None);
    assert_names(rule, made.map(drop));
    assert_names(rule, group.handle_mem_size(layout, &options, topk).map(drop));
    true
}

/// Memory that is too small, and memory that begins inside a unit.
fn walk_memory(rule: &RuleInfo) {
    let calls = StubGroup::new(4, &ht(), Layout::Flat);
    let group = &calls.group;
    let options = HandleConfig::new();
    let needed = group.handle_mem_size(Layout::Flat, &options, TopK::N(2)).unwrap();
    let attempt = |memory: HandleMemory| {
        let made = group.init_handle(Layout::Flat, &options, TopK::N(2), Some(memory));
        // The size is asked for, no handle is made.
        assert!(!stub::take_calls().contains(&"ncclEpInitHandle"));
        assert_names(rule, made.map(drop));
    };
    attempt(Box::new(Aligned { bytes: needed - 1, displacement: 0 }));
    attempt(Box::new(Aligned { bytes: needed, displacement: 128 }));
}

/// Memory at a multiple of 256 bytes, or behind one. Its address is only looked at.
struct Aligned {
    bytes: usize,
    displacement: usize,
}

// SAFETY: the memory is never touched: the walk sees that nothing is made in it.
unsafe impl DeviceBuffer for Aligned {
    fn raw(&self) -> RawBuffer {
        let ptr = core::ptr::without_provenance_mut(4096 + self.displacement);
        RawBuffer::host(ptr, self.bytes, DataType::Uint8)
    }
}

// SAFETY: as above.
unsafe impl DeviceBufferMut for Aligned {
    fn raw_mut(&mut self) -> RawBuffer {
        self.raw()
    }
}
