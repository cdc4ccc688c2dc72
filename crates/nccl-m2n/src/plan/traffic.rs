//! How many bytes go over which link, and how few could.

use super::Plan;

/// Bytes from one rank to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Link {
    /// The rank that sends.
    pub from: usize,
    /// The rank that receives.
    pub to: usize,
    /// Bytes, over all pieces.
    pub bytes: usize,
    /// Whether both lie in one domain.
    pub local: bool,
}

/// Bytes by link and by rank, over all hops of the expected transport. Sums that do not fit stay at
/// [`usize::MAX`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Traffic {
    /// By sender and then receiver.
    pub links: Vec<Link>,
    /// Bytes that each rank of the communicator sends.
    pub sent: Vec<usize>,
    /// Bytes that each rank of the communicator receives.
    pub received: Vec<usize>,
    /// Bytes that stay within domains.
    pub local_bytes: usize,
    /// Bytes that go from one domain to another.
    pub remote_bytes: usize,
}

impl Traffic {
    /// Bytes through the busiest rank, in its busier direction.
    #[must_use]
    pub fn busiest(&self) -> usize {
        self.sent.iter().chain(&self.received).copied().max().unwrap_or(0)
    }
}

/// What no plan can do with less, whatever its routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct LowerBound {
    /// Bytes that each destination rank takes in: its tile.
    pub received: usize,
    /// Bytes that some source rank puts out: the tensor leaves the source side at least once, and
    /// each shard lies on equally many ranks.
    pub sent: usize,
}

impl LowerBound {
    /// Bytes through the busiest rank.
    #[must_use]
    pub fn busiest(&self) -> usize {
        self.received.max(self.sent)
    }

    /// Seconds at so many bytes a second into and out of each rank.
    #[must_use]
    pub fn seconds(&self, bytes_per_second: f64) -> f64 {
        self.busiest() as f64 / bytes_per_second
    }
}

impl Plan {
    /// Bytes by link and rank.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let ranks = self.conditions.ranks;
        let domain = self.conditions.fabric.domain_size.max(1);
        let mut traffic = Traffic {
            links: Vec::with_capacity(self.transfer_count()),
            sent: vec![0; ranks],
            received: vec![0; ranks],
            local_bytes: 0,
            remote_bytes: 0,
        };
        self.each_hop(|hop| {
            let local = hop.from / domain == hop.to / domain;
            traffic.links.push(Link { from: hop.from, to: hop.to, bytes: hop.bytes, local });
            for (bytes, rank) in [(&mut traffic.sent, hop.from), (&mut traffic.received, hop.to)] {
                if let Some(bytes) = bytes.get_mut(rank) {
                    *bytes = bytes.saturating_add(hop.bytes);
                }
            }
            let total = if local { &mut traffic.local_bytes } else { &mut traffic.remote_bytes };
            *total = total.saturating_add(hop.bytes);
        });
        traffic.links.sort_unstable_by_key(|link| (link.from, link.to));
        traffic.links.dedup_by(|next, first| {
            let same = (next.from, next.to) == (first.from, first.to);
            first.bytes = first.bytes.saturating_add(if same { next.bytes } else { 0 });
            same
        });
        traffic
    }

    /// What no plan between these layouts can do with less.
    #[must_use]
    pub fn lower_bound(&self) -> LowerBound {
        let sources = self.source.mesh().size();
        LowerBound {
            received: self.destination.local_bytes(),
            sent: self.source.global_bytes().div_ceil(sources),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Placement::{Replicate, Shard};
    use crate::plan::{Conditions, Transport};
    use crate::{DataType, Layout, Mesh};

    #[test]
    fn links_add_up() {
        let mesh = |ranks, start| Mesh::new(&[ranks], start).unwrap();
        let source = Layout::new(mesh(2, 0), &[Shard(0)], &[2], DataType::Uint8).unwrap();
        let destination = source.on(mesh(6, 2), &[Replicate]).unwrap();
        // M2N vector H1: one put of each half, copies within domains, forwards between them.
        let plan = Plan::new(&source, &destination, &Conditions::domains(8, 2)).unwrap();
        let traffic = plan.traffic();
        assert_eq!(traffic.sent, [2, 2, 4, 4, 4, 4, 2, 2]);
        assert_eq!(traffic.received, [0, 0, 4, 4, 4, 4, 4, 4]);
        assert_eq!((traffic.local_bytes, traffic.remote_bytes), (12, 12));
        assert_eq!(traffic.links.len(), 12);
        assert_eq!(traffic.busiest(), 4);
        let bound = plan.lower_bound();
        assert_eq!((bound.received, bound.sent, bound.busiest()), (4, 2, 4));
        assert!((bound.seconds(2.0) - 2.0).abs() < 1e-9);

        let plan = Plan::new(&source, &destination, &Conditions::one_host(8)).unwrap();
        assert_eq!(plan.transport(), Transport::SingleDomain);
        let traffic = plan.traffic();
        assert_eq!(traffic.sent, [12, 12, 0, 0, 0, 0, 0, 0]);
        assert_eq!((traffic.local_bytes, traffic.remote_bytes), (24, 0));
    }
}
