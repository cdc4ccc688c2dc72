use nccl_ext_test::stub::ep as stub;

use crate::rules::RuleInfo;
use crate::rules::walk_support::assert_names;
use crate::*;

pub(in crate::rules) fn walk(rule: &RuleInfo) -> bool {
    let null = core::ptr::null();
    let data = [0.0_f32; 12];
    let tensor = |shape: &[usize]| Tensor::new(&data, shape);
    stub::take_calls();
    let result = match rule.name {
        "tensor.dimensions" => {
            assert_names(rule, tensor(&[]).map(drop));
            tensor(&[1; 5])
        }
        "tensor.inside" => {
            assert_names(rule, tensor(&[usize::MAX, 2]).map(drop));
            tensor(&[13])
        }
        // SAFETY: the tensor is only looked at.
        "tensor.memory" => unsafe {
            Tensor::from_raw(null, DataType::Float32, &[1, 8], MemorySpace::Host)
        },
        "tensor.data-type" => tensor(&[12]).unwrap().with_data_type(DataType::Uint8),
        _ => return false,
    };
    assert_names(rule, result.map(drop));
    true
}
