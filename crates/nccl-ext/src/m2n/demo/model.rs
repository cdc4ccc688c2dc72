//! The tensors of a safetensors file.

use std::fs;
use std::path::Path;

use nccl_m2n::DataType;
use safetensors::{Dtype, SafeTensors};

use crate::failure::InputError;

/// Largest file: it is read into memory, and its tensors some times more.
const MAX_BYTES: u64 = 1 << 30;

/// A tensor with its bytes.
pub(super) struct Tensor {
    pub(super) name: String,
    /// Its type, if the library has that.
    pub(super) data_type: Option<DataType>,
    /// The file's name of it.
    pub(super) file_type: String,
    pub(super) shape: Vec<usize>,
    pub(super) data: Vec<u8>,
}

/// All tensors, by name.
pub(super) struct Model {
    pub(super) file: String,
    pub(super) tensors: Vec<Tensor>,
}

impl Model {
    /// # Errors
    /// [`InputError`] when the file cannot be read, is no safetensors file or holds no tensor.
    pub(super) fn read(path: &Path) -> Result<Self, InputError> {
        let file = path.display().to_string();
        let bytes = bytes(&file, path)?;
        let tensors = SafeTensors::deserialize(&bytes).map_err(|error| {
            let rule = "the file is in the safetensors format";
            InputError::new(
                &file,
                "--input",
                rule,
                "a valid header and its tensors",
                error.to_string(),
            )
        })?;
        let tensor = |(name, view): (&str, safetensors::tensor::TensorView<'_>)| Tensor {
            name: name.into(),
            data_type: data_type(view.dtype()),
            file_type: format!("{:?}", view.dtype()),
            shape: view.shape().to_vec(),
            data: view.data().to_vec(),
        };
        let mut tensors: Vec<_> = tensors.iter().map(tensor).collect();
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        if tensors.is_empty() {
            let rule = "there is something to reshard";
            return Err(InputError::new(&file, "--input", rule, "at least one tensor", "none"));
        }
        Ok(Self { file, tensors })
    }

    pub(super) fn bytes(&self) -> usize {
        self.tensors.iter().map(|tensor| tensor.data.len()).sum()
    }
}

fn bytes(file: &str, path: &Path) -> Result<Vec<u8>, InputError> {
    let refused = |found: String| {
        let expected = format!("a safetensors file of at most {MAX_BYTES} bytes");
        let rule = "tensors come from a regular file that can be read";
        InputError::new(file, "--input", rule, expected, found)
    };
    let about = fs::metadata(path).map_err(|error| refused(error.to_string()))?;
    // Asked first: reading a pipe or device could go on for ever.
    if !about.is_file() {
        return Err(refused("no regular file".into()));
    }
    if about.len() > MAX_BYTES {
        return Err(refused(format!("{} bytes", about.len())));
    }
    fs::read(path).map_err(|error| refused(error.to_string()))
}

fn data_type(dtype: Dtype) -> Option<DataType> {
    Some(match dtype {
        Dtype::I8 => DataType::Int8,
        Dtype::U8 => DataType::Uint8,
        Dtype::I32 => DataType::Int32,
        Dtype::U32 => DataType::Uint32,
        Dtype::I64 => DataType::Int64,
        Dtype::U64 => DataType::Uint64,
        Dtype::F16 => DataType::Float16,
        Dtype::BF16 => DataType::Bfloat16,
        Dtype::F32 => DataType::Float32,
        Dtype::F64 => DataType::Float64,
        Dtype::F8_E4M3 => DataType::Float8E4m3,
        Dtype::F8_E5M2 => DataType::Float8E5m2,
        _ => return None,
    })
}
