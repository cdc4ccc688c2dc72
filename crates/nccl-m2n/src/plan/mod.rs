//! Plans: what a reshard will move, before a byte does.
//!
//! Pure functions of two [`Layout`]s and the [`Conditions`] they meet: no library, communicator or
//! GPU is asked. Every rank computes the same plan; equal [digests](Plan::digest) say that they
//! mean the same, and [`first_difference`] where they do not.
//!
//! ```
//! use nccl_m2n::plan::{Conditions, Plan, Transport};
//! use nccl_m2n::{DataType, Layout, Mesh, Placement::Shard};
//!
//! let rows = Layout::from_global(Mesh::new(&[2], 0)?, &[Shard(0)], &[4, 4], DataType::Uint8)?;
//! let columns = rows.on(Mesh::new(&[2], 2)?, &[Shard(1)])?;
//! let plan = Plan::new(&rows, &columns, &Conditions::one_host(4))?;
//!
//! assert_eq!(plan.transport(), Transport::SingleDomain);
//! plan.accepted()?; // the library will take it
//! assert_eq!(plan.prove()?.bytes, 16); // and every byte arrives once
//!
//! // Rank 2 holds the two left columns; it gets two rows of them from each source.
//! let from: Vec<_> = plan.receives(2).map(|t| (t.source, t.destination_offset, t.bytes())).collect();
//! assert_eq!(from, [(0, 0, 4), (1, 4, 4)]);
//! assert_eq!(plan.traffic().busiest(), plan.lower_bound().busiest());
//! # Ok::<(), nccl_m2n::Error>(())
//! ```

mod balance;
mod conditions;
mod coverage;
mod difference;
mod digest;
pub(crate) mod fusion;
mod geometry;
mod hops;
mod loads;
#[cfg(feature = "serde")]
mod serialized;
mod traffic;
mod transfer;
mod transfers_of_plan;
pub(crate) mod transport;

use nccl_ext_core::Result;
use nccl_ext_core::rules::check;

pub use conditions::{Conditions, Grouping};
pub use coverage::{Proof, prove};
pub use difference::{Difference, first_difference};
pub use digest::Digest;
pub use geometry::Loop;
pub use hops::{Hop, HopKind};
pub use traffic::{Link, LowerBound, Traffic};
pub use transfer::Transfer;
pub use transport::{Obstacle, Transport};

pub use crate::settings::LoadBalance;

pub(crate) use balance::Balance;
pub(crate) use difference::difference_of_calls;
pub(crate) use digest::{
    CONDITION_WORDS, Hasher, LAYOUT_WORDS, condition_difference, condition_words, layout_words,
};

use crate::layout::Layout;
use crate::rules::call::limits::{self, LimitFacts};
use crate::rules::call::pair::{self, PairFacts};
use geometry::Geometry;

/// How a tensor gets from one layout to another.
///
/// A plan is a few hundred bytes of numbers, whatever the size of the meshes: transfers are
/// computed as they are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    source: Layout,
    destination: Layout,
    conditions: Conditions,
    geometry: Geometry,
    balance: Balance,
    transport: Transport,
    obstacle: Option<Obstacle>,
}

impl Plan {
    /// Plans a reshard.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) when the two layouts do not describe one tensor
    /// on disjoint meshes inside the communicator. What the library's limits say is a question for
    /// [`accepted`](Self::accepted).
    pub fn new(source: &Layout, destination: &Layout, conditions: &Conditions) -> Result<Self> {
        let plan = Self::unchecked(source, destination, conditions);
        let facts = PairFacts {
            ranks: conditions.ranks,
            source,
            destination,
            copy_algorithm: conditions.settings.copy_algorithm,
        };
        check(pair::RULES, |broken| broken(&facts))?;
        Ok(plan)
    }

    /// The plan of layouts that nobody has compared yet: good for checking, not for moving bytes.
    pub(crate) fn unchecked(
        source: &Layout,
        destination: &Layout,
        conditions: &Conditions,
    ) -> Self {
        let (transport, obstacle) = transport::expected(source, destination, conditions);
        let (from, to) = (source.sharding(), destination.sharding());
        let (domain, anchor) = match transport {
            // All ranks are one domain.
            Transport::SingleDomain => (conditions.ranks, 0),
            _ => {
                let given = conditions.settings.destination_domain;
                let domain = given.unwrap_or(conditions.fabric.domain_size);
                let split = balance::splits(conditions) && domain < conditions.ranks;
                (domain, if split { to.start_rank } else { 0 })
            }
        };
        let mode = balance::effective(source, destination, conditions);
        Self {
            source: *source,
            destination: *destination,
            conditions: *conditions,
            geometry: Geometry::new(source, destination),
            balance: Balance::new(mode, &from, &to, domain, anchor),
            transport,
            obstacle,
        }
    }

    /// The source side.
    #[must_use]
    pub fn source(&self) -> &Layout {
        &self.source
    }

    /// The destination side.
    #[must_use]
    pub fn destination(&self) -> &Layout {
        &self.destination
    }

    /// What it was planned under.
    #[must_use]
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// The path that the library is expected to take.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// What keeps it from the single-domain path, where something does.
    #[must_use]
    pub fn obstacle(&self) -> Option<Obstacle> {
        self.obstacle
    }

    /// How destination replicas are shared out among source replicas.
    #[must_use]
    pub fn load_balance(&self) -> LoadBalance {
        self.balance.mode()
    }

    /// Whether the library takes it: peer counts, staging, and what the expected path needs.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) naming the limit, and what would help.
    pub fn accepted(&self) -> Result<()> {
        let facts = LimitFacts {
            source: &self.source,
            destination: &self.destination,
            settings: &self.conditions.settings,
            fabric: &self.conditions.fabric,
            transport: self.transport,
            obstacle: self.obstacle,
            loads: self,
        };
        check(limits::RULES, |broken| broken(&facts))
    }

    /// Proves that every destination byte is written once, with the right one.
    ///
    /// Takes time and memory linear in the number of transfers.
    ///
    /// # Errors
    /// [`Error::Coverage`](crate::Error::Coverage); a plan that this crate made passes.
    pub fn prove(&self) -> Result<Proof> {
        let count = self.transfer_count();
        coverage::prove_many(&self.source, &self.destination, self.transfers(), count)
    }

    /// The digest of everything that the plan depends on; ranks that agree on it plan the same.
    ///
    /// Words, in this order: the [`Conditions`] (ranks, grouping, then the settings and the fabric
    /// in the order of their fields; options as 0 or one more than their value, but the domain size
    /// of destinations as 0 and 0, or 1 and its value; versions as major, minor and patch; buckets
    /// last, as their number and then sizes and slots of eight), and of each side
    /// the number of mesh dimensions, both dimensions padded with 1, the start rank, both
    /// placements plus 1 (0 is `Replicate`), the number of tensor dimensions, three extents padded
    /// with 1, and the C value of the type.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut hasher = Hasher::new();
        hasher.words(&condition_words(&self.conditions));
        hasher.words(&layout_words(&self.source));
        hasher.words(&layout_words(&self.destination));
        hasher.finish()
    }
}
