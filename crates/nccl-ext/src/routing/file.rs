//! The bytes of a safetensors file.

use std::fs;
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::Metadata;

use crate::failure::InputError;

/// Largest file: it is read into memory.
const MAX_BYTES: u64 = 4 << 30;

/// Reads a whole file.
pub(super) fn bytes(name: &str, path: &Path) -> Result<Vec<u8>, InputError> {
    let refused = |found: String| InputError {
        file: name.into(),
        item: "--input",
        rule: "routing comes from a regular file that can be read",
        expected: format!("a safetensors file of at most {MAX_BYTES} bytes"),
        found,
    };
    let about = fs::metadata(path).map_err(|error| refused(error.to_string()))?;
    // Asked first: reading a pipe or device could go on for ever.
    if about.is_dir() {
        return Err(refused("a directory".into()));
    }
    if !about.is_file() {
        return Err(refused("a pipe, socket or device".into()));
    }
    if about.len() > MAX_BYTES {
        return Err(refused(format!("{} bytes", about.len())));
    }
    fs::read(path).map_err(|error| refused(error.to_string()))
}

/// A file with a valid header.
pub(super) struct File<'a> {
    name: &'a str,
    header: Metadata,
    data: &'a [u8],
}

impl<'a> File<'a> {
    /// Checks the format: eight bytes that give the header's length, the header, the tensors.
    pub(super) fn parse(name: &'a str, bytes: &'a [u8]) -> Result<Self, InputError> {
        let refused = |expected: &str, found: String| InputError {
            file: name.into(),
            item: "header",
            rule: "the file is in the safetensors format",
            expected: expected.into(),
            found,
        };
        let short = || {
            let found = format!("{} bytes in all", bytes.len());
            refused("a header as long as its first eight bytes say", found)
        };
        let (length, rest) = bytes.split_first_chunk::<8>().ok_or_else(short)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok();
        let split = length.and_then(|length| rest.split_at_checked(length));
        let (header, data) = split.ok_or_else(short)?;
        let header: Metadata = serde_json::from_slice(header)
            .map_err(|error| refused("a JSON object of tensors side by side", error.to_string()))?;
        if header.data_len() != data.len() {
            let expected = format!("{} bytes of tensors", header.data_len());
            return Err(refused(&expected, data.len().to_string()));
        }
        Ok(Self { name, header, data })
    }

    pub(super) fn error(
        &self,
        item: &'static str,
        rule: &'static str,
        expected: impl ToString,
        found: impl ToString,
    ) -> InputError {
        InputError {
            file: self.name.into(),
            item,
            rule,
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }

    /// An entry of the metadata.
    pub(super) fn metadata(&self, key: &str) -> Option<&str> {
        self.header.metadata().as_ref()?.get(key).map(String::as_str)
    }

    /// A tensor of this name, shape and type.
    pub(super) fn tensor<T: Stored, const N: usize>(
        &self,
        name: &'static str,
        shape: [usize; 2],
        from_bytes: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<T>, InputError> {
        let Some(info) = self.header.info(name) else {
            let mut names = self.header.offset_keys();
            names.sort();
            let found = if names.is_empty() { "no tensor".into() } else { names.join(", ") };
            let rule = "the file has tokens, topk_idx and topk_weights";
            return Err(self.error(name, rule, format!("a tensor `{name}`"), found));
        };
        if info.dtype != T::DTYPE {
            let rule = "tokens are BF16, expert ids I64, weights F32";
            return Err(self.error(name, rule, T::DTYPE, info.dtype));
        }
        if info.shape != shape {
            let rule = "shapes are ranks x tokens_per_rank rows of hidden or top_k, as the \
                        metadata says";
            let (expected, found) = (format!("{shape:?}"), format!("{:?}", info.shape));
            return Err(self.error(name, rule, expected, found));
        }
        // Inside the data: the header's tensors lie side by side and end where it ends.
        let (start, end) = info.data_offsets;
        let bytes = self.data.get(start..end).unwrap_or_default();
        Ok(bytes.as_chunks::<N>().0.iter().map(|bytes| from_bytes(*bytes)).collect())
    }
}

/// Element types that a file may hold.
pub(super) trait Stored {
    const DTYPE: Dtype;
}

impl Stored for nccl_ext_core::bf16 {
    const DTYPE: Dtype = Dtype::BF16;
}

impl Stored for i64 {
    const DTYPE: Dtype = Dtype::I64;
}

impl Stored for f32 {
    const DTYPE: Dtype = Dtype::F32;
}
