//! What an update leaves in the caller's handle memory, from which another handle can go on
//! without talking to anybody.
//!
//! An image is a row of 64-bit words: a header that says for which group, rank and step it is
//! good, and the routing of one rank in its smallest form. Slots are not stored: they follow from
//! the ids, and from where this rank's rows begin on each receiver.

use nccl_ext_core::raw::ncclDataType_t;

use super::checksum::checksum;
use super::learned::Learned;
use super::placement::{PlacementRules, Zone};
use crate::ep::settings::{HandleSettings, Settings};
use crate::ep::slots::NOWHERE;
use crate::refusal::{FailureClass, Outcome, Refusal, require};

const MAGIC: u64 = u64::from_le_bytes(*b"EProutes");
const VERSION: u64 = 1;

/// Words of the header: magic, version, length of the payload and checksum, then [`FIELDS`], then
/// the update's number, the digest of everybody's counts, and the most copies of a row.
pub(super) const HEADER: usize = 4 + FIELDS.len() + 3;
const LENGTH: usize = 2;
const CHECKSUM: usize = 3;

/// What the importer has to have in common with who prepared the memory.
const FIELDS: [&str; 13] = [
    "the layout",
    "the number of ranks",
    "num_experts",
    "max_dispatch_tokens_per_rank",
    "max_recv_tokens_per_rank",
    "an automatic max_recv_tokens_per_rank",
    "overflow_policy DROP",
    "the expert-major mode",
    "dispatch_output_per_expert_alignment",
    "the rank",
    "num_tokens",
    "num_topk",
    "the type of topk_idx",
];

/// The values of [`FIELDS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ImageFacts([u64; FIELDS.len()]);

impl ImageFacts {
    /// The facts of an update of `tokens` tokens, whose ids have a type of that C value.
    pub(crate) fn new(
        settings: &Settings,
        handle: &HandleSettings,
        rank: usize,
        tokens: usize,
        id_type: ncclDataType_t,
    ) -> Self {
        Self([
            u64::from(handle.layout.as_raw().0),
            settings.ranks as u64,
            settings.experts as u64,
            settings.max_tokens as u64,
            settings.max_recv,
            u64::from(settings.eager),
            u64::from(settings.drop),
            settings.em_mode as u64,
            handle.alignment.max(1) as u64,
            rank as u64,
            tokens as u64,
            handle.topk as u64,
            u64::from(id_type.0),
        ])
    }
}

/// Words of the payload for that many tokens.
fn payload(settings: &Settings, tokens: usize, topk: usize) -> usize {
    let ids = tokens.saturating_mul(topk).div_ceil(2);
    ids.saturating_add(3 * settings.ranks + settings.experts + 3 * settings.local_experts)
}

/// Bytes of the largest image of a group's handles.
pub(crate) fn bytes(settings: &Settings, topk: usize) -> usize {
    let words = payload(settings, settings.max_tokens, topk).saturating_add(HEADER);
    words.saturating_mul(size_of::<u64>())
}

fn sum_of(words: &[u64]) -> u64 {
    let others = words.iter().enumerate().filter(|&(i, _)| i != CHECKSUM);
    checksum(0, others.map(|(_, &word)| word))
}

/// Writes the image of a prepared handle into `words`. `ids` are those of its update.
pub(super) fn encode(
    words: &mut Vec<u64>,
    facts: &ImageFacts,
    state: &Learned,
    ids: impl Iterator<Item = i64>,
) {
    let Learned { update, routes, placement, .. } = state;
    words.clear();
    words.extend([MAGIC, VERSION, 0, 0]);
    words.extend(facts.0);
    words.extend([*update, placement.digest, u64::from(placement.widest)]);
    words.extend(&placement.flat_totals);
    words.extend(&placement.zone_totals);
    words.extend(placement.rows_before(routes));
    words.extend(placement.copies_before(routes));
    words.extend(placement.zones.iter().flat_map(|zone| [zone.base, zone.count, zone.padded]));
    let mut half = None;
    for id in ids {
        let id = u64::from(u32::try_from(id).unwrap_or(NOWHERE));
        match half.take() {
            None => half = Some(id),
            Some(low) => words.push(low | id << 32),
        }
    }
    words.extend(half);
    words[LENGTH] = (words.len() - HEADER) as u64;
    words[CHECKSUM] = sum_of(words);
}

/// How many words the image has of which `header` is the beginning.
pub(super) fn length(header: &[u64; HEADER], room: usize) -> Outcome<usize> {
    let rule = "the memory was prepared by an update of this backend";
    require_equal(rule, "the image's mark", MAGIC, header[0])?;
    require_equal(rule, "the image's version", VERSION, header[1])?;
    let length = usize::try_from(header[LENGTH]).ok().and_then(|l| l.checked_add(HEADER));
    length.filter(|&length| length <= room).ok_or_else(|| {
        let expected = format_args!("at most {room} words").to_string();
        let found = format_args!("{} after the header", header[LENGTH]).to_string();
        refusal("the memory holds the whole image", expected, found)
    })
}

fn refusal(rule: &str, expected: String, found: String) -> Refusal {
    Refusal::argument(FailureClass::Return, "handle_mem", rule, expected, found)
}

fn require_equal(rule: &str, what: &str, expected: u64, found: u64) -> Outcome {
    require(expected == found, || {
        let expected = format_args!("{expected} for {what}").to_string();
        refusal(rule, expected, found.to_string())
    })
}

/// Reads a whole image for an importer with these facts.
pub(super) fn decode(
    words: &[u64],
    facts: &ImageFacts,
    settings: &Settings,
    rules: &PlacementRules,
) -> Outcome<Learned> {
    let rule = "the memory is as the update left it";
    require_equal(rule, "the checksum", sum_of(words), words[CHECKSUM])?;
    let mut rest = Words(words);
    rest.take(4);
    let rule = "the memory was prepared for the same group, rank and step";
    for ((name, &expected), &found) in FIELDS.iter().zip(&facts.0).zip(rest.take(FIELDS.len())) {
        require_equal(rule, name, expected, found)?;
    }
    let [.., rank, tokens, topk, _] = facts.0.map(|fact| fact as usize);
    let Settings { ranks, experts, local_experts, max_tokens, .. } = *settings;
    let whole = words.len() == HEADER + payload(settings, tokens, topk);
    require_sound(whole && tokens <= max_tokens, "its length is that of its tokens")?;
    let mut state = Learned::default();
    let Learned { update, routes, placement, .. } = &mut state;
    let widest;
    [*update, placement.digest, widest] = rest.take_array();
    placement.widest = u32::try_from(widest).unwrap_or(u32::MAX);
    require_sound(*update != 0, "it has an update")?;
    placement.flat_totals.extend_from_slice(rest.take(ranks));
    placement.zone_totals.extend_from_slice(rest.take(ranks));
    let (rows, copies) = (rest.take(ranks), rest.take(experts));
    for _ in 0..local_experts {
        let [base, count, padded] = rest.take_array();
        placement.zones.push(Zone { base, count, padded });
    }
    check_zones(&placement.zones, placement.zone_totals[rank], rules)?;
    let ids = Ids { packed: rest.0, len: tokens * topk };
    let known = |id: i64| id < 0 || (id as u64) < experts as u64;
    require_sound((0..ids.len).all(|i| known(ids.get(i))), "its ids are experts")?;
    routes.build((0..ids.len).map(|i| ids.get(i)), topk, ranks, local_experts);
    placement.resume(routes, rows, copies, rules);
    require_sound(placement.is_inside(routes, rules), "its slots are inside the receivers' rows")?;
    Ok(state)
}

/// A property that every image with a right checksum has, unless somebody made it up.
fn require_sound(holds: bool, what: &str) -> Outcome {
    require(holds, || {
        let rule = "the memory is as the update left it";
        refusal(rule, what.to_owned(), "that it is not so".to_owned())
    })
}

fn check_zones(zones: &[Zone], total: u64, rules: &PlacementRules) -> Outcome {
    let inside = |zone: &Zone| {
        let end = zone.base.checked_add(zone.padded);
        zone.count <= zone.padded && end.is_some_and(|end| end <= total)
    };
    // Nothing is written between zones when their rows are cleared as a whole.
    let cleared = rules.permute && rules.drop;
    require_sound(cleared || zones.iter().all(inside), "its zones are inside the rows received")
}

/// Ids of 32 bits, two a word.
struct Ids<'a> {
    packed: &'a [u64],
    len: usize,
}

impl Ids<'_> {
    fn get(&self, i: usize) -> i64 {
        match (self.packed[i / 2] >> (32 * (i % 2))) as u32 {
            NOWHERE => -1,
            id => i64::from(id),
        }
    }
}

struct Words<'a>(&'a [u64]);

impl<'a> Words<'a> {
    fn take(&mut self, count: usize) -> &'a [u64] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn take_array<const N: usize>(&mut self) -> [u64; N] {
        core::array::from_fn(|_| self.take(1)[0])
    }
}
