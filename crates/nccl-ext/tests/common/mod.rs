//! Recordings to write, and the built program to run on them.

#![allow(dead_code, reason = "each test file uses its part")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Map, Value, json};

/// A tensor of a file: name, type, shape, bytes.
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dtype: String,
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: Vec<u8>,
}

/// A recording to be bent out of shape.
pub(crate) struct Recording {
    pub(crate) metadata: Vec<(&'static str, String)>,
    pub(crate) tensors: Vec<Tensor>,
}

impl Recording {
    /// Sizes in the order ranks, tokens a rank, hidden, top-k, experts; `ids` gives the expert of
    /// a token's choice.
    pub(crate) fn new(sizes: [u64; 5], ids: impl Fn(u64, u64) -> i64) -> Self {
        let [ranks, tokens, hidden, top_k, experts] = sizes;
        let rows = ranks * tokens;
        let each = |width: u64| (0..rows).flat_map(move |row| (0..width).map(move |at| (row, at)));
        let bf16 = |(row, h): (u64, u64)| {
            let value = (row * 131 + h * 7) % 251;
            let sign = if value % 3 == 0 { -1.0 } else { 1.0 };
            (sign * (1.0 + value as f32 / 64.0)).to_bits().to_be_bytes()
        };
        let upper_half = |bytes: [u8; 4]| [bytes[1], bytes[0]];
        let tensor = |name: &str, dtype: &str, width, bytes: Vec<u8>| Tensor {
            name: name.into(),
            dtype: dtype.into(),
            shape: vec![rows, width],
            bytes,
        };
        let tokens_bytes = each(hidden).flat_map(|at| upper_half(bf16(at))).collect();
        let ids_bytes = each(top_k).flat_map(|(row, k)| ids(row, k).to_le_bytes()).collect();
        let weight = |(row, k): (u64, u64)| 0.125 + ((row * 5 + k * 3) % 11) as f32 / 13.0;
        let weights_bytes = each(top_k).flat_map(|at| weight(at).to_le_bytes()).collect();
        let names = ["ranks", "tokens_per_rank", "hidden", "top_k", "experts"];
        Self {
            metadata: names
                .into_iter()
                .zip([ranks, tokens, hidden, top_k, experts])
                .map(|(name, size)| (name, size.to_string()))
                .collect(),
            tensors: vec![
                tensor("tokens", "BF16", hidden, tokens_bytes),
                tensor("topk_idx", "I64", top_k, ids_bytes),
                tensor("topk_weights", "F32", top_k, weights_bytes),
            ],
        }
    }

    /// Two ranks of 4 tokens, hidden 512, top-2 of 4 experts: small and without fault.
    pub(crate) fn small() -> Self {
        Self::new([2, 4, 512, 2, 4], |row, k| ((row + k) % 4) as i64)
    }

    /// Replaces a metadata entry.
    pub(crate) fn with(mut self, key: &'static str, value: impl ToString) -> Self {
        self.metadata.retain(|(name, _)| *name != key);
        self.metadata.push((key, value.to_string()));
        self
    }

    /// Removes a metadata entry.
    pub(crate) fn without(mut self, key: &str) -> Self {
        self.metadata.retain(|(name, _)| *name != key);
        self
    }

    pub(crate) fn tensor(&mut self, name: &str) -> &mut Tensor {
        self.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap()
    }

    /// Overwrites one element of a tensor.
    pub(crate) fn set<const N: usize>(mut self, name: &str, index: usize, bytes: [u8; N]) -> Self {
        self.tensor(name).bytes[index * N..][..N].copy_from_slice(&bytes);
        self
    }

    /// Overwrites one expert id.
    pub(crate) fn id(self, index: usize, id: i64) -> Self {
        self.set("topk_idx", index, id.to_le_bytes())
    }

    /// The file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut header = Map::new();
        if !self.metadata.is_empty() {
            let text = |(key, value): &(&str, String)| (key.to_string(), json!(value));
            let metadata: Map<String, Value> = self.metadata.iter().map(text).collect();
            header.insert("__metadata__".into(), metadata.into());
        }
        let mut end = 0;
        for Tensor { name, dtype, shape, bytes } in &self.tensors {
            let start = end;
            end += bytes.len();
            let info = json!({ "dtype": dtype, "shape": shape, "data_offsets": [start, end] });
            header.insert(name.clone(), info);
        }
        let data: Vec<_> = self.tensors.iter().flat_map(|tensor| tensor.bytes.clone()).collect();
        with_header(&Value::from(header).to_string(), &data)
    }
}

/// A file with this header and data.
pub(crate) fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

/// Writes a file for this test alone.
pub(crate) fn write(name: &str, bytes: &[u8]) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// How a run ended.
#[derive(Debug, PartialEq)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nccl-ext"));
    command.args(args).stdin(Stdio::null());
    // Modes of the library that change results are not for these tests.
    for variable in ["NCCL_EP_HT_EM_LOCAL_DUP", "NCCL_EP_HT_EM_NVLINK_DUP", "NCCL_EP_COMM_SMS"] {
        command.env_remove(variable);
    }
    command
}

pub(crate) fn run(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Runs the demo on a file.
pub(crate) fn demo(path: &str, flags: &[&str]) -> Ended {
    run(program(&["demo", "--input", path]).args(flags))
}
