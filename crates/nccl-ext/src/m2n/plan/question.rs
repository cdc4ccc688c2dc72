//! What is asked: a plan, once the layouts are two sides of one tensor.

use nccl_m2n::plan::{Conditions, Plan};
use nccl_m2n::{DataType, Error, Layout, Mesh, Settings};

use super::command::{COMMAND, too_many};
use super::side::Side;
use crate::failure::InputError;
use crate::rules;

/// Most ranks of a communicator: plans list what each of them does.
const MOST_RANKS: usize = 65_536;

/// Most transfers, for the same reason.
const MOST_TRANSFERS: usize = 1 << 20;

/// The arguments, read.
pub(super) struct Words {
    pub(super) shape: Vec<usize>,
    pub(super) data_type: DataType,
    pub(super) source: Side,
    pub(super) destination: Side,
    pub(super) ranks: Option<usize>,
    pub(super) domain: Option<usize>,
    pub(super) network: Option<bool>,
}

/// What is asked.
#[derive(Debug, Clone)]
pub struct Question {
    /// The plan; nothing is known of limits yet.
    pub plan: Plan,
    /// Whether the environment sets something that the library reads.
    pub from_environment: bool,
}

impl Question {
    pub(super) fn new(words: &Words) -> Result<Self, InputError> {
        let source = layout("--src", words, &words.source, 0)?;
        let next = source.mesh().ranks().end;
        let destination = layout("--dst", words, &words.destination, next)?;
        let needed = next.max(destination.mesh().ranks().end);
        let ranks = words.ranks.unwrap_or(needed);
        if ranks.max(needed) > MOST_RANKS {
            let rule = "a plan lists every rank of the communicator";
            return Err(too_many("--comm-size", rule, MOST_RANKS, ranks.max(needed)));
        }
        let domain = words.domain.unwrap_or(ranks);
        if domain > ranks {
            let rule = "an NVLink domain lies inside the communicator";
            return Err(too_many("--domain", rule, ranks, domain));
        }
        let settings = Settings::from_env();
        let mut conditions = Conditions::domains(ranks, domain).settings(settings);
        let network = words.network.unwrap_or(domain < ranks);
        (conditions.fabric.gin, conditions.fabric.rail_gin) = (network, network);
        let plan = Plan::new(&source, &destination, &conditions);
        let plan = plan.map_err(|error| refused("--dst", error))?;
        let transfers = plan.transfer_count();
        if transfers > MOST_TRANSFERS {
            return Err(too_many(
                "--dst",
                "a plan lists every transfer",
                MOST_TRANSFERS,
                transfers,
            ));
        }
        Ok(Self { plan, from_environment: settings != Settings::default() })
    }
}

fn layout(
    item: &'static str,
    words: &Words,
    side: &Side,
    start: usize,
) -> Result<Layout, InputError> {
    let made = Mesh::new(&side.dims, side.start.unwrap_or(start)).and_then(|mesh| {
        Layout::from_global(mesh, &side.placements, &words.shape, words.data_type)
    });
    made.map_err(|error| refused(item, error))
}

/// A layout or a pair of them that nothing could be planned for.
fn refused(side: &'static str, error: Error) -> InputError {
    match error {
        Error::Invalid { name, argument, rule, expected, found, .. } => {
            let item = match argument {
                "source" => "--src",
                "destination" => "--dst",
                "data_type" => "--dtype",
                "local_shape" => "--shape",
                _ => side,
            };
            let source = rules::named(name).map_or("", |info| info.source);
            InputError::new(COMMAND, item, rule, expected, format!("{found} ({name}, {source})"))
        }
        Error::Uneven { dim, size, parts } => {
            // The library's words end with what to do instead.
            let words = Error::Uneven { dim, size, parts }.to_string();
            let advice = words.split_once("; ").map_or("", |(_, advice)| advice);
            let rule = "a sharded dimension divides over its shards";
            let expected = format!("one that does ({advice})");
            let found = format!("dimension {dim} of {size} elements over {parts} shards");
            InputError::new(COMMAND, side, rule, expected, found)
        }
        error => {
            let rule = "two layouts that can be planned";
            InputError::new(COMMAND, side, rule, "no error", error.to_string())
        }
    }
}
