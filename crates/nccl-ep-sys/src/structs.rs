//! How each versioned structure starts.

use nccl_ext_core::guard::Word;

use crate::bindings::*;

nccl_ext_core::versioned_structs! {
    ncclEpTensor_t from NCCL_EP_TENSOR_V1_SIZE, magic: NCCL_EP_TENSOR_MAGIC;
    ncclEpTensorAllocConfig_t from NCCL_EP_TENSOR_ALLOC_CONFIG_V1_SIZE, magic: NCCL_EP_MAGIC;
    ncclEpGroupConfig_t from NCCL_EP_GROUP_CONFIG_V1_SIZE,
        magic: NCCL_EP_MAGIC, version: NCCL_EP_API_VERSION;
    ncclEpLayoutInfo_t from NCCL_EP_LAYOUT_INFO_V1_SIZE, magic: NCCL_EP_MAGIC;
    ncclEpDispatchInputs_t from NCCL_EP_DISPATCH_INPUTS_V1_SIZE, magic: NCCL_EP_MAGIC;
    ncclEpDispatchOutputs_t from NCCL_EP_DISPATCH_OUTPUTS_V1_SIZE, magic: NCCL_EP_MAGIC;
    ncclEpCombineInputs_t from NCCL_EP_COMBINE_INPUTS_V1_SIZE, magic: NCCL_EP_MAGIC;
    ncclEpCombineOutputs_t from NCCL_EP_COMBINE_OUTPUTS_V1_SIZE, magic: NCCL_EP_MAGIC;
    ncclEpHandleConfig_t from NCCL_EP_HANDLE_CONFIG_V1_SIZE, magic: NCCL_EP_MAGIC;
    ncclEpDispatchConfig_t from NCCL_EP_DISPATCH_CONFIG_V1_SIZE, magic: NCCL_EP_MAGIC;
    ncclEpCombineConfig_t from NCCL_EP_COMBINE_CONFIG_V1_SIZE, magic: NCCL_EP_MAGIC;
    ncclEpCompleteConfig_t from NCCL_EP_COMPLETE_CONFIG_V1_SIZE, magic: NCCL_EP_MAGIC;
}

// SAFETY: transparent over a C enumeration, which is 32 bits wide.
unsafe impl Word for ncclEpLayout_t {}

/// Published sizes never change: a later header may only append (EP 1.3).
macro_rules! frozen {
    ($($ty:ident.$last:ident ends at $size:literal;)+) => {$(
        const _: () = {
            let field = core::mem::offset_of!($ty, $last);
            let width = {
                const fn width<T, F>(_: fn(&T) -> &F) -> usize { size_of::<F>() }
                width(|value: &$ty| &value.$last)
            };
            assert!(field + width == $size);
        };
    )+};
}

frozen! {
    ncclEpTensor_t.sizes ends at 48;
    ncclEpGroupConfig_t.timeout_ns ends at 96;
    ncclEpGroupConfig_t.padding_v2 ends at 112;
    ncclEpLayoutInfo_t.recv_total_counter ends at 40;
    ncclEpLayoutInfo_t.padding_v2 ends at 48;
    ncclEpDispatchInputs_t.scales ends at 32;
    ncclEpDispatchOutputs_t.topk_idx ends at 40;
    ncclEpCombineInputs_t.topk_weights ends at 24;
    ncclEpCombineInputs_t.scales ends at 32;
    ncclEpCombineOutputs_t.topk_weights ends at 24;
    ncclEpHandleConfig_t.dispatch_output_per_expert_alignment ends at 16;
    ncclEpDispatchConfig_t.pass_direction ends at 20;
    ncclEpDispatchConfig_t.quant_recipe ends at 24;
    ncclEpCombineConfig_t.pass_direction ends at 16;
    ncclEpCombineConfig_t.quant_recipe ends at 20;
    ncclEpCompleteConfig_t.magic ends at 8;
}

#[cfg(test)]
mod tests {
    use nccl_ext_core::binding::VersionedStruct as _;

    use super::*;

    #[test]
    fn init_writes_size_magic_and_version_and_nothing_else() {
        let config = ncclEpGroupConfig_t::init();
        assert_eq!((config.size, config.magic, config.version), (112, 0xC00F_FFEE, 2));
        assert_eq!((config.num_experts, config.timeout_ns, config.num_topk), (0, 0, 0));
        let tensor = ncclEpTensor_t::init();
        assert_eq!((tensor.size, tensor.magic, tensor.ndim), (48, 0xCAFE_CAFE, 0));
        assert!(tensor.data.is_null() && tensor.sizes.is_null());
        assert_eq!(ncclEpCombineConfig_t::init().size, 20);
        assert_eq!(ncclEpDispatchConfig_t::init().size, 24);
        assert_eq!(ncclEpLayoutInfo_t::V1_SIZE, 40);
    }
}
