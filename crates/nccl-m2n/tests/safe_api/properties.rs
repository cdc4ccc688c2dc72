//! Random meshes of up to twelve ranks, tensors of one to three dimensions, all placements.

use nccl_ext_test::worlds::on_ranks;
use nccl_m2n::plan::{Conditions, Digest, Grouping, LoadBalance, Plan, Transport};
use nccl_m2n::{
    Config, CopyAlgorithm, DataType, Fabric, Layout, Mesh, Placement, Runtime, Settings,
};
use proptest::prelude::*;

use crate::common::{elements, layout, reshard, tile};

const MOST_RANKS: usize = 12;
const TYPES: [DataType; 4] =
    [DataType::Uint8, DataType::Bfloat16, DataType::Float32, DataType::Int64];

/// A mesh of one or two dimensions, and which of them shards what.
#[derive(Debug, Clone)]
struct Side {
    dims: Vec<usize>,
    placements: Vec<Placement>,
}

impl Side {
    fn ranks(&self) -> usize {
        self.dims.iter().product()
    }

    /// How often each dimension of the tensor is cut.
    fn parts(&self, dim: usize) -> usize {
        let cut = self.dims.iter().zip(&self.placements);
        let mut cut = cut.filter(|(_, p)| **p == Placement::Shard(i32::try_from(dim).unwrap()));
        cut.next().map_or(1, |(ranks, _)| *ranks)
    }
}

fn side(ndims: usize) -> impl Strategy<Value = Side> {
    let dims = prop_oneof![
        (1..=6_usize).prop_map(|ranks| vec![ranks]),
        (1..=6_usize, 1..=6_usize)
            .prop_filter("at most six ranks", |(a, b)| a * b <= MOST_RANKS / 2)
            .prop_map(|(a, b)| vec![a, b]),
    ];
    dims.prop_flat_map(move |dims| {
        let axes = dims.len();
        // Which axis shards, if any, and which dimension.
        (Just(dims), prop::option::weighted(0.8, (0..axes, 0..ndims))).prop_map(
            move |(dims, sharded)| {
                let mut placements = vec![Placement::Replicate; dims.len()];
                if let Some((axis, dim)) = sharded {
                    placements[axis] = Placement::Shard(i32::try_from(dim).unwrap());
                }
                Side { dims, placements }
            },
        )
    })
}

/// A reshard inside a communicator: layouts, ranks, ranks of a domain.
#[derive(Debug, Clone)]
struct Case {
    source: Layout,
    destination: Layout,
    ranks: usize,
    domain: usize,
}

impl Case {
    fn conditions(&self) -> Conditions {
        Conditions::new(self.ranks, Fabric::domains_of(self.domain))
    }

    fn plan(&self) -> Plan {
        Plan::new(&self.source, &self.destination, &self.conditions()).unwrap()
    }
}

fn lcm(a: usize, b: usize) -> usize {
    let gcd = |mut a: usize, mut b: usize| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    a / gcd(a, b) * b
}

fn case() -> impl Strategy<Value = Case> {
    (1..=3_usize)
        .prop_flat_map(|ndims| {
            let sizes = prop::collection::vec(1..=3_usize, ndims);
            (
                side(ndims),
                side(ndims),
                sizes,
                0..TYPES.len(),
                0..=1_usize,
                0..=1_usize,
                any::<bool>(),
                1..=MOST_RANKS,
            )
        })
        .prop_map(|(from, to, sizes, data_type, before, between, reversed, domain)| {
            let shape: Vec<usize> = sizes
                .iter()
                .enumerate()
                .map(|(dim, size)| size * lcm(from.parts(dim), to.parts(dim)))
                .collect();
            let (first, second) =
                if reversed { (to.ranks(), from.ranks()) } else { (from.ranks(), to.ranks()) };
            let second_start = before + first + between;
            let (source_start, destination_start) =
                if reversed { (second_start, before) } else { (before, second_start) };
            let mesh = |side: &Side, start| Mesh::new(&side.dims, start).unwrap();
            let source = Layout::from_global(
                mesh(&from, source_start),
                &from.placements,
                &shape,
                TYPES[data_type],
            );
            let source = source.unwrap();
            let destination = source.on(mesh(&to, destination_start), &to.placements).unwrap();
            Case { source, destination, ranks: second_start + second + 1, domain }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every destination byte is covered once: by the proof, and by counting.
    #[test]
    fn plans_cover_every_byte_once(case in case()) {
        let plan = case.plan();
        let proof = plan.prove().unwrap();
        prop_assert_eq!(proof.bytes, case.destination.local_bytes() * case.destination.mesh().size());
        prop_assert_eq!(proof.transfers, plan.transfer_count());
        for rank in case.destination.mesh().ranks() {
            let mut written = vec![0; case.destination.local_bytes()];
            for transfer in plan.receives(rank) {
                for (_, to) in transfer.runs() {
                    written[to..to + transfer.run].iter_mut().for_each(|count| *count += 1);
                }
            }
            prop_assert!(written.iter().all(|count| *count == 1), "r{rank}: {written:?}");
        }
    }

    /// Executing the plan gives the slices of a global array.
    #[test]
    fn executed_plans_equal_slices(case in case()) {
        let plan = case.plan();
        for rank in case.destination.mesh().ranks() {
            let mut received = vec![0xEE; case.destination.local_bytes()];
            for transfer in plan.receives(rank) {
                transfer.copy(&tile(&case.source, transfer.source), &mut received).unwrap();
            }
            prop_assert_eq!(&received, &tile(&case.destination, rank));
        }
    }

    /// Senders and receivers mean the same transfers, and every hop is one arrival.
    #[test]
    fn both_ends_agree(case in case(), fused in any::<bool>(), pipe in any::<bool>()) {
        let mut conditions = case.conditions();
        if fused {
            conditions = conditions.grouping(Grouping::Fused);
        }
        if pipe {
            let mut settings = Settings::default();
            settings.copy_algorithm = CopyAlgorithm::Pipe;
            settings.load_balance = Some(LoadBalance::NodeAware);
            conditions = conditions.settings(settings);
        }
        let plan = Plan::new(&case.source, &case.destination, &conditions).unwrap();
        let mut sent: Vec<_> = (0..case.ranks).flat_map(|rank| plan.sends(rank)).collect();
        sent.sort_by_key(|t| (t.destination, t.source_shard));
        prop_assert_eq!(&sent, &plan.transfers().collect::<Vec<_>>());
        // A replica has a piece before it passes it on.
        let hops = plan.hops();
        let mut arrived: Vec<_> = hops.iter().map(|hop| (hop.to, hop.source_shard)).collect();
        arrived.sort_unstable();
        let mut expected: Vec<_> = sent.iter().map(|t| (t.destination, t.source_shard)).collect();
        expected.sort_unstable();
        prop_assert_eq!(arrived, expected);
        let mut holders: Vec<(usize, usize)> = vec![];
        for hop in &hops {
            let from_source = case.source.contains(hop.from);
            prop_assert!(from_source || holders.contains(&(hop.from, hop.source_shard)));
            holders.push((hop.to, hop.source_shard));
        }
        let traffic = plan.traffic();
        let delivered = case.destination.local_bytes() * case.destination.mesh().size();
        prop_assert_eq!(traffic.links.iter().map(|link| link.bytes).sum::<usize>(), delivered);
        prop_assert_eq!(traffic.local_bytes + traffic.remote_bytes, delivered);
        prop_assert!(traffic.busiest() >= plan.lower_bound().busiest());
        if plan.transport() == Transport::SingleDomain {
            prop_assert!(case.domain >= case.ranks);
        }
    }

    /// Digests are equal for equal inputs, and differ when anything does.
    #[test]
    fn digests_tell_plans_apart(a in case(), b in case()) {
        let digest = a.plan().digest();
        prop_assert_eq!(digest, a.plan().digest());
        let same = (a.source, a.destination, a.ranks, a.domain) == (b.source, b.destination, b.ranks, b.domain);
        prop_assert_eq!(digest == b.plan().digest(), same);
        prop_assert_eq!(a.plan().first_difference(&b.plan()).is_none(), same);
        for change in 0..8 {
            let mut conditions = a.conditions();
            let settings = &mut conditions.settings;
            match change {
                0 => settings.ctas += 1,
                1 => settings.split_comm = Some(false),
                2 => settings.load_balance = Some(LoadBalance::Uniform),
                3 => settings.uniform_broadcast = Some(true),
                4 => settings.split_threshold += 1,
                5 => settings.buckets = nccl_m2n::Buckets::parse("1m:2,8m").unwrap(),
                6 => conditions.ranks += 1,
                _ => conditions.fabric.gin = false,
            }
            let other = Plan::new(&a.source, &a.destination, &conditions).unwrap();
            prop_assert_ne!(other.digest(), digest, "{}", change);
            prop_assert!(other.first_difference(&a.plan()).is_some());
        }
        let list = [a.plan().digest(), b.plan().digest()];
        if !same {
            prop_assert_ne!(Digest::of_all(list), Digest::of_all([list[1], list[0]]));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// The CPU backend delivers what slicing gives, also into what was there before.
    #[test]
    fn the_cpu_backend_equals_slices(case in case()) {
        let received = on_ranks(case.ranks, |comm| {
            let runtime = Runtime::new(comm.backend(), &Config::new())?;
            let own = tile(&case.source, comm.rank());
            let mut room = vec![0xEE; elements(&case.destination, comm.rank()).len() * case.destination.data_type().size()];
            reshard(&runtime, &comm, (&own, &case.source), (&mut room, &case.destination))?;
            runtime.finalize()?;
            comm.destroy()?;
            Ok(room)
        });
        for (rank, room) in received.iter().enumerate() {
            prop_assert_eq!(room, &tile(&case.destination, rank), "r{}", rank);
        }
    }
}

/// The digest of one plan, as any platform gives it. It changes only with the words that
/// `Plan::digest` documents.
#[test]
fn a_digest_is_the_same_everywhere() {
    let source = layout("{2}@0 [S0] 4x8 bf16");
    let destination = layout("{2,2}@2 [R,S1] 8x4 bf16");
    let plan = Plan::new(&source, &destination, &Conditions::one_host(8)).unwrap();
    assert_eq!(plan.digest().to_string(), "5c9e3639939d86552070d7622e713f11");
}
