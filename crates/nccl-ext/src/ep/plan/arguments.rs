//! The arguments of `ep plan`, as they were typed.
//!
//! They are text until they are checked here, so that whatever is wrong with one is told in one
//! line, like everything else that this tool refuses.

use clap::Args;
use nccl_ep::plan::HOPPER_SMS;
use nccl_ep::{Algorithm, DataType, Layout, Mode};

use super::command::refuse;
use super::models::{MODELS, Shape};
use super::question::Question;
use crate::failure::InputError;

/// What to plan for.
#[derive(Args, Debug, Clone, Default)]
pub struct Arguments {
    /// A model by name: deepseek-v3, deepseek-v4-pro, kimi-k2, qwen3-235b, qwen3-30b, glm-4.5,
    /// gpt-oss-120b, mixtral. Or give --hidden, --experts and --topk.
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub model: Option<String>,
    /// Elements of a token row.
    #[arg(long, value_name = "H", allow_hyphen_values = true)]
    pub hidden: Option<String>,
    /// Routed experts of the model.
    #[arg(long, value_name = "E", allow_hyphen_values = true)]
    pub experts: Option<String>,
    /// Experts that a token goes to.
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub topk: Option<String>,
    /// Ranks, over which the experts divide evenly. High throughput is planned for one NVLink
    /// domain of them.
    #[arg(long, value_name = "R", allow_hyphen_values = true)]
    pub ranks: Option<String>,
    /// Most tokens that a rank dispatches in one step.
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub tokens: Option<String>,
    /// ll (low latency) or ht (high throughput). Default: both.
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub algorithm: Option<String>,
    /// expert-major, rank-major (ll) or flat (ht). Default: each that the algorithm has.
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub layout: Option<String>,
    /// Element type of tokens: bf16, fp16 or fp32. Default: bf16.
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub dtype: Option<String>,
    /// High throughput: most rows that a rank receives in one step, or eager, which is what the
    /// library does by itself: sized for every possible routing. Default: eager.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub max_recv: Option<String>,
    /// Streaming multiprocessors of the device. Default: 132, an H100 or H200.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub sms: Option<String>,
    /// Print one JSON object, with exact bytes and the pieces of each buffer.
    #[arg(long)]
    pub json: bool,
}

impl Arguments {
    /// The question that they ask.
    ///
    /// # Errors
    /// [`InputError`] for the first argument that is at fault.
    pub fn question(&self) -> Result<Question, InputError> {
        let (model, shape) = self.shape()?;
        let data_type = self.data_type()?;
        let question = Question {
            model,
            shape,
            ranks: required("--ranks", &self.ranks)?,
            tokens: required("--tokens", &self.tokens)?,
            data_type,
            row_bytes: row_bytes(shape.hidden, data_type)?,
            max_recv: budget(self.max_recv.as_deref())?,
            sms: self.sms.as_deref().map_or(Ok(HOPPER_SMS), |sms| number("--sms", sms))?,
            algorithm: self.algorithm.as_deref().map(algorithm).transpose()?,
            layout: self.layout.as_deref().map(layout).transpose()?,
        };
        if shape.topk > shape.experts {
            let (most, found) = (format!("at most {}", shape.experts), shape.topk.to_string());
            return Err(refuse("--topk", "a token goes to at most all experts", most, found));
        }
        if question.modes().next().is_none() {
            let rule = "low latency has expert-major and rank-major, high throughput flat and \
                        expert-major";
            let expected = match question.algorithm {
                Some(Algorithm::LowLatency) => "expert-major or rank-major",
                _ => "expert-major or flat",
            };
            let found = self.layout.as_deref().unwrap_or_default();
            return Err(refuse("--layout", rule, expected, found));
        }
        let low = |mode: Mode| mode.algorithm() == Algorithm::LowLatency;
        if question.max_recv.is_some() && question.modes().all(low) {
            let rule = "only high throughput has a receive budget";
            let found = self.max_recv.as_deref().unwrap_or_default();
            return Err(refuse("--max-recv", rule, "no --max-recv with low latency", found));
        }
        Ok(question)
    }

    fn shape(&self) -> Result<(Option<&'static str>, Shape), InputError> {
        let rule = "a model is named, or its shape given";
        let either = "--model, or --hidden, --experts and --topk";
        let given = [&self.hidden, &self.experts, &self.topk];
        let Some(name) = &self.model else {
            if given.iter().all(|given| given.is_none()) {
                return Err(refuse("--model", rule, either, "neither"));
            }
            let shape = Shape {
                hidden: required("--hidden", &self.hidden)?,
                experts: required("--experts", &self.experts)?,
                topk: required("--topk", &self.topk)?,
            };
            return Ok((None, shape));
        };
        if given.iter().any(|given| given.is_some()) {
            return Err(refuse("--model", rule, either, "both"));
        }
        let known = MODELS.into_iter().find(|(known, _)| known == name);
        let (name, shape) = known.ok_or_else(|| {
            let names = MODELS.map(|(name, _)| name).join(", ");
            refuse("--model", "a model that this tool knows", names, name)
        })?;
        Ok((Some(name), shape))
    }

    fn data_type(&self) -> Result<DataType, InputError> {
        let types = [DataType::Bfloat16, DataType::Float16, DataType::Float32];
        let Some(name) = &self.dtype else { return Ok(DataType::Bfloat16) };
        let found = types.into_iter().find(|data_type| data_type.name() == name);
        let rule = "tokens are of a type that is moved as it is";
        found.ok_or_else(|| refuse("--dtype", rule, "bf16, fp16 or fp32", name))
    }
}

fn required(item: &'static str, text: &Option<String>) -> Result<u32, InputError> {
    let missing = || refuse(item, "this argument is needed", "a whole number", "none");
    number(item, text.as_deref().ok_or_else(missing)?)
}

fn number(item: &'static str, text: &str) -> Result<u32, InputError> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| digits && *number > 0);
    let rule = "a size is a whole number, and at least 1";
    number.ok_or_else(|| refuse(item, rule, format!("1 to {}", u32::MAX), format!("{text:?}")))
}

fn budget(text: Option<&str>) -> Result<Option<u32>, InputError> {
    match text {
        None | Some("eager") => Ok(None),
        Some(text) => number("--max-recv", text).map(Some),
    }
}

fn algorithm(name: &str) -> Result<Algorithm, InputError> {
    match name {
        "ll" => Ok(Algorithm::LowLatency),
        "ht" => Ok(Algorithm::HighThroughput),
        _ => Err(refuse("--algorithm", "an algorithm of the library", "ll or ht", name)),
    }
}

fn layout(name: &str) -> Result<Layout, InputError> {
    let layout = Layout::ALL.iter().find(|layout| layout.to_string() == name);
    let expected = "expert-major, rank-major or flat";
    layout.copied().ok_or_else(|| refuse("--layout", "a layout of the library", expected, name))
}

fn row_bytes(hidden: u32, data_type: DataType) -> Result<u32, InputError> {
    let bytes = hidden.checked_mul(data_type.size() as u32);
    let most = u32::MAX / data_type.size() as u32;
    bytes.ok_or_else(|| {
        let expected = format!("at most {most} elements of {data_type}");
        refuse(
            "--hidden",
            "the library counts bytes of a row in 32 bits",
            expected,
            hidden.to_string(),
        )
    })
}
