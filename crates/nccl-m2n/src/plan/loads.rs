//! What a plan asks of the library's tables (M2N 1.2).

use std::collections::HashSet;

use super::{Plan, Transport};
use crate::rules::call::limits::PlanLoads;
use crate::settings::SMALLEST_REQUEST;

impl Plan {
    /// Most source shards that a destination rank reads from.
    #[must_use]
    pub fn most_sources(&self) -> usize {
        self.geometry.most_sources()
    }

    /// Most pieces that a source rank sends: one for each destination shard, and where it sends to
    /// every replica itself, for each of these.
    #[must_use]
    pub fn most_targets(&self) -> usize {
        let copies = match self.transport {
            Transport::SingleDomain | Transport::Direct => self.most_served(),
            Transport::Kernel | Transport::Pipe => 1,
        };
        self.geometry.most_targets() * copies
    }

    /// Most replicas that one source replica serves.
    fn most_served(&self) -> usize {
        let sources = 0..self.geometry.source.sharding.replicas;
        sources.map(|source| self.balance.served_by(source).len()).max().unwrap_or(0)
    }

    /// Most replicas of one destination shard in one domain that one source replica serves.
    #[must_use]
    pub fn most_replicas(&self) -> usize {
        let to = self.geometry.destination.sharding;
        // Mostly met at once; else every rank is looked at.
        let bound = self.most_served().min(self.balance.most_on_a_node());
        let mut most = 0;
        for source in 0..self.geometry.source.sharding.replicas {
            let served = self.balance.served_by(source);
            for shard in 0..to.shards {
                let mut count = 0;
                let mut last = None;
                if most >= bound {
                    return most;
                }
                for replica in served.clone() {
                    let node = Some(self.balance.node_of_rank(to.rank_of(shard, replica)));
                    count = if node == last { count + 1 } else { 1 };
                    last = node;
                    most = most.max(count);
                }
            }
        }
        most
    }

    /// Most ranks of other domains that one rank sends to.
    #[must_use]
    pub fn most_remote_peers(&self) -> usize {
        let domain = self.conditions.fabric.domain_size.max(1);
        let mut peers = HashSet::new();
        self.each_hop(|hop| {
            if hop.from / domain != hop.to / domain {
                peers.insert((hop.from, hop.to));
            }
        });
        let mut counts = vec![0_usize; self.conditions.ranks];
        for (from, _) in peers {
            if let Some(count) = counts.get_mut(from) {
                *count += 1;
            }
        }
        counts.into_iter().max().unwrap_or(0)
    }

    /// Bytes of staging that a rank needs: the larger of both sides' tiles.
    #[must_use]
    pub fn staging_bytes(&self) -> usize {
        let largest = self.source.local_bytes().max(self.destination.local_bytes());
        largest.max(SMALLEST_REQUEST)
    }
}

impl PlanLoads for Plan {
    fn staging_bytes(&self) -> usize {
        self.staging_bytes()
    }

    fn most_sources(&self) -> usize {
        self.most_sources()
    }

    fn most_targets(&self) -> usize {
        self.most_targets()
    }

    fn most_replicas(&self) -> usize {
        self.most_replicas()
    }

    fn most_remote_peers(&self) -> usize {
        self.most_remote_peers()
    }
}
