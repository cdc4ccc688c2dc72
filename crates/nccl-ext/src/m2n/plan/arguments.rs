//! The arguments of `m2n plan`, as they were typed.
//!
//! They are text until they are checked here, so that whatever is wrong with one is told in one
//! line.

use std::path::PathBuf;

use clap::Args;
use nccl_m2n::DataType;

use super::command::{COMMAND, whole};
use super::question::{Question, Words};
use super::side;
use crate::failure::InputError;

/// What to plan.
#[derive(Args, Debug, Clone, Default)]
pub struct Arguments {
    /// The whole tensor, in elements: 1024,4096. One to three dimensions.
    #[arg(long, value_name = "SIZES", allow_hyphen_values = true)]
    pub shape: Option<String>,
    /// Element type: bf16, fp16, fp32, fp64, fp8-e4m3, fp8-e5m2, int8, uint8, int32, uint32, int64
    /// or uint64. Default: bf16.
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub dtype: Option<String>,
    /// The side that is read: "mesh=4@0 place=S(0)" is four ranks from rank 0 on, each with a block
    /// of dimension 0. Without @ it begins at rank 0.
    #[arg(long, value_name = "SIDE", allow_hyphen_values = true)]
    pub src: Option<String>,
    /// The side that is written: "mesh=2x2@4 place=S(1),R" is a grid of two rows of two ranks; rows
    /// hold different blocks of dimension 1, ranks of a row the same. S(-1) cuts the last dimension.
    /// Without @ it begins after the source.
    #[arg(long, value_name = "SIDE", allow_hyphen_values = true)]
    pub dst: Option<String>,
    /// Ranks of the communicator. Default: as many as both sides need.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub comm_size: Option<String>,
    /// Consecutive ranks that form an NVLink domain. Default: all.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub domain: Option<String>,
    /// Whether kernels can use a network: gin or none. Default: gin between domains, none in one.
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub network: Option<String>,
    /// Print one JSON object, with exact bytes.
    #[arg(long)]
    pub json: bool,
    /// Draw both meshes and the traffic into this file, too.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

impl Arguments {
    /// The question that they ask.
    ///
    /// # Errors
    /// [`InputError`] for the first argument that is at fault.
    pub fn question(&self) -> Result<Question, InputError> {
        let words = Words {
            shape: sizes(required("--shape", "1024,4096", &self.shape)?)?,
            data_type: data_type(self.dtype.as_deref())?,
            source: side::parse("--src", required("--src", side::EXAMPLE, &self.src)?)?,
            destination: side::parse("--dst", required("--dst", side::EXAMPLE, &self.dst)?)?,
            ranks: count("--comm-size", self.comm_size.as_deref())?,
            domain: count("--domain", self.domain.as_deref())?,
            network: network(self.network.as_deref())?,
        };
        Question::new(&words)
    }
}

fn required<'a>(
    item: &'static str,
    example: &str,
    text: &'a Option<String>,
) -> Result<&'a str, InputError> {
    let rule = "this argument is needed";
    let missing = || InputError::new(COMMAND, item, rule, format!("such as {example:?}"), "none");
    text.as_deref().ok_or_else(missing)
}

fn sizes(text: &str) -> Result<Vec<usize>, InputError> {
    let sizes: Option<Vec<_>> = text.split(',').map(|size| whole(size.trim())).collect();
    let rule = "a shape is whole numbers with commas between";
    let bad =
        || InputError::new(COMMAND, "--shape", rule, "such as \"1024,4096\"", format!("{text:?}"));
    sizes.ok_or_else(bad)
}

fn data_type(name: Option<&str>) -> Result<DataType, InputError> {
    let Some(name) = name else { return Ok(DataType::Bfloat16) };
    let found = DataType::ALL.iter().find(|data_type| data_type.name() == name);
    let names: Vec<_> = DataType::ALL.iter().map(|data_type| data_type.name()).collect();
    let rule = "elements have a type that has a name here";
    let unknown =
        || InputError::new(COMMAND, "--dtype", rule, names.join(", "), format!("{name:?}"));
    found.copied().ok_or_else(unknown)
}

fn count(item: &'static str, text: Option<&str>) -> Result<Option<usize>, InputError> {
    let Some(text) = text else { return Ok(None) };
    let number = whole(text).filter(|number| *number > 0);
    let rule = "a number of ranks is whole, and at least 1";
    let bad = || InputError::new(COMMAND, item, rule, "such as 8", format!("{text:?}"));
    number.map(Some).ok_or_else(bad)
}

fn network(name: Option<&str>) -> Result<Option<bool>, InputError> {
    match name {
        None => Ok(None),
        Some("gin") => Ok(Some(true)),
        Some("none") => Ok(Some(false)),
        Some(other) => {
            let rule = "a network is one that kernels can use, or there is none";
            Err(InputError::new(COMMAND, "--network", rule, "gin or none", format!("{other:?}")))
        }
    }
}
