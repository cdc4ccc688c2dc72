//! C items without a Rust counterpart, and why.
//!
//! An entry names an item, a type (then it is also about the type's members), or `*::field`: that
//! field of every structure. Once an item is wrapped, the map does not work out until its entry is
//! gone.

/// One entry.
pub(super) struct Entry {
    pub(super) item: &'static str,
    /// Follows "not wrapped: ".
    pub(super) reason: &'static str,
}

const fn entry(item: &'static str, reason: &'static str) -> Entry {
    Entry { item, reason }
}

/// What the binding does by itself.
const BY_THE_BINDING: &str = "the binding writes it";

// What is still to come.
const NO_WINDOWS: &str = "not wrapped yet: tensors are plain memory, without a window";
const NO_FP8: &str = "not wrapped yet: rows that the library itself quantises";
const NO_QUANTIZED_COMBINE: &str = "not wrapped yet: combine moves rows as they are";

pub(super) const EP: &[Entry] = &[
    entry("*::size", BY_THE_BINDING),
    entry("*::magic", BY_THE_BINDING),
    entry("*::version", BY_THE_BINDING),
    entry("*::padding_v2", "reserved, and always zero"),
    entry("ncclEpTensorAlloc", "descriptors are made on the stack of the call that uses them"),
    entry("ncclEpTensorDestroy", "descriptors are made on the stack of the call that uses them"),
    entry("ncclEpTensorAllocConfig_t", "for `ncclEpTensorAlloc`, which is not called"),
    entry("ncclEpTensor_t::ndim", "the length of `Tensor::shape`"),
    entry("ncclEpTensor_t::data", "the pointer of the buffer that a tensor is made over"),
    entry("ncclEpTensor_t::sizes", "`Tensor::shape`"),
    entry("ncclEpTensor_t::win_hdl", NO_WINDOWS),
    entry("ncclEpTensor_t::win_offset", NO_WINDOWS),
    entry("ncclEpAllocConfig_t::context", "finds the allocator again, so the binding writes it"),
    entry("ncclEpCompleteConfig_t", "has no settings; the library's default is passed"),
    entry("NCCL_EP_LAYOUT_UNSET", "no call accepts it"),
    entry("NCCL_EP_DISP_QUANT_DS_FP8E3M4", NO_FP8),
    entry("ncclEpDispatchConfig_t::send_only", "set by `Step::staged_dispatch`"),
    entry("ncclEpDispatchConfig_t::round_scales", NO_FP8),
    entry("ncclEpCombineConfig_t::send_only", "set by `Step::staged_combine`"),
    entry("ncclEpCombineInputs_t::scales", NO_QUANTIZED_COMBINE),
    entry("ncclEpCombineConfig_t::quant_recipe", NO_QUANTIZED_COMBINE),
    entry("ncclEpCombQuant_t", NO_QUANTIZED_COMBINE),
    entry("NCCL_EP_COMB_QUANT_NONE", NO_QUANTIZED_COMBINE),
    entry("NCCL_EP_COMB_QUANT_NVFP4", NO_QUANTIZED_COMBINE),
];

pub(super) const M2N: &[Entry] = &[
    entry("*::size", BY_THE_BINDING),
    entry("*::magic", BY_THE_BINDING),
    entry("*::version", BY_THE_BINDING),
    entry("ncclDistTensor_t::dataPtr", "the pointer of the buffer that a side is made over"),
    entry("ncclDistTensor_t::localShape", "`Layout::local_shape` of this rank"),
    entry("ncclDistTensor_t::ndims", "the length of `Layout::local_shape`"),
    entry("ncclDistTensor_t::dtype", "`Layout::data_type`"),
    entry("ncclDistTensor_t::mesh", "`Layout::mesh`"),
    entry("ncclDistTensor_t::placements", "`Layout::placements`"),
];
