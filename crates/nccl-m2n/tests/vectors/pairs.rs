//! Pairs of layouts that cannot be, and memory that is missing, on two ranks of the CPU backend
//! (M2N 8.2). Whatever is refused, every rank hears of it, and the runtime goes on.

use libtest_mimic::Trial;
use nccl_ext_test::rows::trial;
use nccl_ext_test::worlds::{STREAM, errors, failed_peer};
use nccl_m2n::{Agreement, Config, DistTensor, DistTensorMut, Runtime, Scope};

use crate::common::{layout, reshard};

const SOURCE: &str = "{1}@0 [R] 4 uint8";
const DESTINATION: &str = "{1}@1 [R] 4 uint8";

/// Name, source, destination, and what the refusal says.
type Pair = (&'static str, &'static str, &'static str, &'static str);

const PAIRS: &[Pair] = &[
    // M2N vector E21.
    (
        "different_dimensions",
        SOURCE,
        "{1}@1 [R] 4x4 uint8",
        "equally many dimensions; expected 1, found 2",
    ),
    // M2N vector E22.
    ("different_types", SOURCE, "{1}@1 [R] 4 int8", "expected uint8, found int8"),
    // M2N vector E29.
    (
        "source_ranks_outside_of_the_communicator",
        "{3}@0 [R] 4 uint8",
        DESTINATION,
        "expected ranks below 2, found 0..3",
    ),
    // M2N vector E30.
    (
        "destination_ranks_outside_of_the_communicator",
        SOURCE,
        "{2}@1 [R] 4 uint8",
        "expected ranks below 2, found 1..3",
    ),
    // M2N vector E31.
    ("the_same_mesh", SOURCE, SOURCE, "ranks outside of 0..1, found 0..1"),
    // M2N vector E32.
    ("overlapping_meshes", "{2}@0 [R] 4 uint8", DESTINATION, "ranks outside of 0..2, found 1..2"),
    // M2N vector E42, case M1: where the library delivers stale bytes.
    ("a_larger_destination", SOURCE, "{1}@1 [R] 6 uint8", "expected [4], as the source, found [6]"),
    // M2N vector E43, case M1: where the library delivers the front of the tensor.
    (
        "a_smaller_destination",
        "{1}@0 [R] 6 uint8",
        DESTINATION,
        "expected [6], as the source, found [4]",
    ),
];

/// A rank lacks its tile of one side.
#[derive(Debug, Clone, Copy)]
struct Missing {
    name: &'static str,
    source: &'static str,
    destination: &'static str,
    rank: usize,
    side: &'static str,
}

const MISSING: &[Missing] = &[
    // M2N vector E33.
    Missing {
        name: "no_source_tile",
        source: SOURCE,
        destination: DESTINATION,
        rank: 0,
        side: "source",
    },
    // M2N vector E34.
    Missing {
        name: "no_destination_tile",
        source: SOURCE,
        destination: DESTINATION,
        rank: 1,
        side: "destination",
    },
    // M2N vector E36.
    Missing {
        name: "no_source_tile_of_an_empty_tensor",
        source: "{1}@0 [R] 0 uint8",
        destination: "{1}@1 [R] 0 uint8",
        rank: 0,
        side: "source",
    },
];

pub(crate) fn trials() -> Vec<Trial> {
    let pairs = PAIRS.iter().map(|pair| {
        trial(format!("refused_pairs::{}", pair.0), || is_refused_on_both_ranks(*pair))
    });
    let missing = MISSING.iter().map(|row| {
        trial(format!("missing_memory::{}", row.name), || is_told_to_the_other_rank(*row))
    });
    pairs.chain(missing).collect()
}

fn is_refused_on_both_ranks((_, source, destination, says): Pair) {
    let (source, destination) = (layout(source), layout(destination));
    let errors = errors(2, |comm| {
        let runtime = Runtime::new(comm.backend(), &Config::new())?;
        let (own, mut room) = (vec![7; 64], vec![0xEE; 64]);
        let refused = reshard(&runtime, &comm, (&own, &source), (&mut room, &destination));
        assert_eq!(room, [0xEE; 64]);
        // All ranks know: a right call works.
        let (from, to) = (layout(SOURCE), layout(DESTINATION));
        reshard(&runtime, &comm, (&own, &from), (&mut room, &to))?;
        assert_eq!(room[..4], if comm.rank() == 1 { [7; 4] } else { [0xEE; 4] });
        runtime.finalize()?;
        comm.destroy()?;
        refused
    });
    assert_eq!(errors[0].to_string(), errors[1].to_string());
    assert!(errors[0].to_string().contains(says), "{}", errors[0]);
    assert_eq!(errors[0].scope(), Scope::Uniform);
}

/// With ranks that compare: one fails, the other hears of it, both go on.
fn is_told_to_the_other_rank(row: Missing) {
    let (source, destination) = (layout(row.source), layout(row.destination));
    let errors = errors(2, |comm| {
        let config = Config::new().agreement(Agreement::EveryCall);
        let runtime = Runtime::new(comm.backend(), &config)?;
        let (own, mut room) = ([1_u8, 2, 3, 4], [0_u8; 4]);
        let lacks = |side| comm.rank() == row.rank && row.side == side;
        let mut to = match lacks("destination") {
            true => DistTensorMut::inactive(&destination),
            false => DistTensorMut::new(&mut room, &destination),
        };
        let from = match lacks("source") {
            true => DistTensor::inactive(&source),
            false => DistTensor::new(&own, &source),
        };
        let refused = runtime.reshard(&comm, &from, &mut to, STREAM);
        reshard(&runtime, &comm, (&own, &layout(SOURCE)), (&mut room, &layout(DESTINATION)))?;
        assert_eq!(room, if comm.rank() == 1 { own } else { [0; 4] });
        runtime.finalize()?;
        comm.destroy()?;
        refused
    });
    let words = format!("a rank of the {} mesh passes its tile", row.side);
    let own = errors[row.rank].to_string();
    assert!(own.contains(&words), "{own}");
    let (rank, heard) = failed_peer(&errors[1 - row.rank]);
    assert_eq!(rank, row.rank);
    assert!(heard.contains(&words), "{heard}");
}
