//! Models by name.

/// What a plan needs to know of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Elements of a token row.
    pub hidden: u32,
    /// Routed experts of a layer.
    pub experts: u32,
    /// Experts that a token goes to.
    pub topk: u32,
}

const fn shape(hidden: u32, experts: u32, topk: u32) -> Shape {
    Shape { hidden, experts, topk }
}

/// The models that `--model` knows.
pub const MODELS: [(&str, Shape); 8] = [
    ("deepseek-v3", shape(7168, 256, 8)),
    ("deepseek-v4-pro", shape(7168, 384, 6)),
    ("kimi-k2", shape(7168, 384, 8)),
    ("qwen3-235b", shape(4096, 128, 8)),
    ("qwen3-30b", shape(2048, 128, 8)),
    ("glm-4.5", shape(5120, 160, 8)),
    ("gpt-oss-120b", shape(2880, 128, 4)),
    ("mixtral", shape(4096, 8, 2)),
];
