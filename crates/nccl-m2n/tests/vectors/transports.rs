//! What the transports can carry (M2N 2.3, 2.4, 8.2), by the plan.

use libtest_mimic::Trial;
use nccl_ext_test::rows::trial;
use nccl_m2n::plan::{Conditions, Plan};
use nccl_m2n::{Buckets, CopyAlgorithm, Fabric, Layout, Scope, Settings};

use crate::common::layout;

/// A plan, and what it is refused with; `None` if it is accepted.
struct Row {
    name: &'static str,
    conditions: Conditions,
    source: String,
    destination: String,
    refusal: Option<&'static str>,
}

fn row(
    name: &'static str,
    conditions: Conditions,
    sides: (impl Into<String>, impl Into<String>),
    refusal: Option<&'static str>,
) -> Row {
    Row { name, conditions, source: sides.0.into(), destination: sides.1.into(), refusal }
}

/// Ranks of one domain with a network.
fn near(ranks: usize) -> Conditions {
    Conditions::new(ranks, Fabric::domains_of(ranks))
}

fn by(algorithm: CopyAlgorithm, ranks: usize) -> Conditions {
    let mut settings = Settings::default();
    settings.copy_algorithm = algorithm;
    near(ranks).settings(settings)
}

/// Buckets of 4096 bytes at the most.
fn small_buckets() -> Conditions {
    let mut settings = Settings::default();
    settings.buckets = Buckets::parse("4096:1").unwrap();
    Conditions::one_host(2).settings(settings)
}

/// From rank 0 to rank 1.
fn plain(bytes: usize) -> (String, String) {
    (format!("{{1}}@0 [R] {bytes} uint8"), format!("{{1}}@1 [R] {bytes} uint8"))
}

/// The kernel path: the source lies above the destination.
fn kernel_fan_in(sources: usize) -> (String, String) {
    (format!("{{{sources}}}@1 [S0] 2 uint8"), format!("{{1}}@0 [R] {} uint8", sources * 2))
}

/// The single-domain path.
fn fan_in(sources: usize) -> (String, String) {
    (format!("{{{sources}}}@0 [S0] 2 uint8"), format!("{{1}}@{sources} [R] {} uint8", sources * 2))
}

fn fan_out(targets: usize) -> (String, String) {
    (format!("{{1}}@0 [R] {targets} uint8"), format!("{{{targets}}}@1 [S0] 1 uint8"))
}

fn replicas(count: usize) -> (String, String) {
    (plain(4).0, format!("{{{count}}}@1 [R] 4 uint8"))
}

fn rows() -> Vec<Row> {
    let (pipe, direct) = (CopyAlgorithm::Pipe, CopyAlgorithm::Direct);
    let unequal = (plain(4).0, plain(3).1);
    let below = ("{2}@2 [S0] 4 uint8", "{2}@0 [S0] 4 uint8");
    let no_network = "without a network that kernels can use (GIN)";
    vec![
        // M2N vector E41.
        row("tile_of_the_largest_bucket", small_buckets(), plain(4096), None),
        row(
            "tile_above_the_largest_bucket",
            small_buckets(),
            plain(4097),
            Some("expected at most 4096 bytes (the largest), found 4097"),
        ),
        // M2N vector E44.
        row(
            "direct_of_unequal_shapes",
            by(direct, 2),
            unequal.clone(),
            Some("expected [4], as the source, found [3]"),
        ),
        row(
            "pipe_of_unequal_shapes",
            by(pipe, 2),
            unequal,
            Some("expected [4], as the source, found [3]"),
        ),
        // M2N vector E45.
        row("direct_of_nothing", by(direct, 2), plain(0), Some("extents of at least 1")),
        row("pipe_of_nothing", by(pipe, 2), plain(0), Some("extents of at least 1")),
        // M2N vector E46.
        row(
            "pipe_to_the_same_rank",
            by(pipe, 1),
            (plain(4).0, plain(4).0),
            Some("PIPE copies to other ranks only"),
        ),
        // M2N vector E47.
        row("kernel_from_16_sources", near(17), kernel_fan_in(16), None),
        // M2N vector E48.
        row(
            "kernel_from_17_sources",
            near(18),
            kernel_fan_in(17),
            Some("expected at most 16 sources for kernel PACK, found 17"),
        ),
        // M2N vector E49, also without a network.
        row("one_domain_from_17_sources", Conditions::one_host(18), fan_in(17), None),
        row("one_domain_from_32_sources", Conditions::one_host(33), fan_in(32), None),
        row(
            "one_domain_from_33_sources",
            Conditions::one_host(34),
            fan_in(33),
            Some("expected at most 32 sources, found 33"),
        ),
        // M2N vector E50.
        row("to_64_targets", near(65), fan_out(64), None),
        row(
            "to_65_targets",
            near(66),
            fan_out(65),
            Some("at most 64 targets for kernel PACK, found 65"),
        ),
        // M2N vector E51.
        row("to_129_replicas", near(131), replicas(129), None),
        row("to_130_replicas", near(132), replicas(130), Some("expected at most 129, found 130")),
        // Case M4: refused before anything is sent, with what to do.
        row("to_lower_ranks_without_a_network", Conditions::one_host(4), below, Some(no_network)),
        row(
            "to_lower_ranks_without_a_network_says_what_to_do",
            Conditions::one_host(4),
            below,
            Some("give the source mesh the lower ranks"),
        ),
        row("to_lower_ranks_with_a_network", Conditions::domains(4, 4), below, None),
    ]
}

pub(crate) fn trials() -> Vec<Trial> {
    let rows = rows().into_iter();
    rows.map(|row| trial(format!("transports::{}", row.name), move || check(&row))).collect()
}

fn check(row: &Row) {
    let (source, destination): (Layout, Layout) = (layout(&row.source), layout(&row.destination));
    let plan = Plan::new(&source, &destination, &row.conditions);
    match (plan.and_then(|plan| plan.accepted()), row.refusal) {
        (Ok(_), None) => {}
        (Err(error), Some(says)) => {
            assert_eq!(error.scope(), Scope::Uniform, "{error}");
            assert!(error.to_string().contains(says), "{error}");
        }
        (found, expected) => panic!("expected {expected:?}, found {:?}", found.map(drop)),
    }
}
