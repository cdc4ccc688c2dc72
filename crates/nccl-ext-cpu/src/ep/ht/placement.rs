//! Which row goes where: the normative model of high throughput (EP 3.5.3, 4.12) as pure functions.
//!
//! Each rank sorts out its own tokens ([`Routes`]); from everybody's counts it then knows the slot
//! of each of its rows on the receiving ranks, and what it will receive ([`Placement`]). Nothing
//! but counts has to be compared across ranks, because slots follow (source rank, token).

use super::checksum::checksum;
use super::routes::Routes;
use crate::ep::settings::{EmMode, HandleSettings, Settings};
use crate::ep::slots::NOWHERE;

/// How rows are placed; equal on all ranks.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlacementRules {
    pub(super) expert_major: bool,
    /// Expert-major rows are received in the order of [`flat`](Placement::flat_slot) first, so
    /// that what does not fit there is lost for all its experts (EP 4.12).
    pub(super) permute: bool,
    /// Rows each expert's zone is a multiple of; 0 and 1 are none.
    pub(super) alignment: u64,
    /// Rows that a rank can receive.
    pub(super) budget: u64,
    /// Whether what exceeds the budget is dropped; otherwise it is an error.
    pub(super) drop: bool,
}

impl PlacementRules {
    /// The rules of a handle.
    pub(super) fn of(settings: &Settings, handle: &HandleSettings) -> Self {
        let expert_major = handle.is_expert_major();
        Self {
            expert_major,
            permute: expert_major && settings.em_mode == EmMode::LocalPermute,
            alignment: handle.alignment as u64,
            budget: settings.max_recv,
            drop: settings.drop,
        }
    }

    fn padded(&self, count: u64) -> u64 {
        if self.alignment <= 1 {
            return count;
        }
        count.checked_next_multiple_of(self.alignment).unwrap_or(u64::MAX)
    }
}

/// One zone of an expert-major receive buffer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Zone {
    /// First row, not clamped.
    pub(super) base: u64,
    /// Rows in use, not clamped.
    pub(super) count: u64,
    /// Rows with padding, not clamped.
    pub(super) padded: u64,
}

/// Where the rows of an update go, as one rank knows it.
#[derive(Debug, Default)]
pub(super) struct Placement {
    /// Of each of this rank's rows: its slot on the receiving rank, in the order of arrival.
    pub(super) flat_slot: Vec<u32>,
    /// Of each of this rank's copies: its slot on the receiving rank, expert-major.
    pub(super) copy_slot: Vec<u32>,
    /// Rows each rank would receive without a limit.
    pub(super) flat_totals: Vec<u64>,
    pub(super) zone_totals: Vec<u64>,
    /// Tokens that this rank receives for each of its experts, without those lost to FLAT
    /// overflow.
    pub(super) flat_counts: Vec<u64>,
    /// This rank's zones.
    pub(super) zones: Vec<Zone>,
    /// Most copies of one row of any rank.
    pub(super) widest: u32,
    /// Of everybody's counts: where it is equal, ranks agree on whose every slot is.
    pub(super) digest: u64,
    /// For `place`: next slot of each rank and of each expert.
    next_flat: Vec<u64>,
    next_copy: Vec<u64>,
}

impl Placement {
    /// Places rank `me`'s rows. `peers` are everybody's routes, by rank.
    pub(super) fn place(&mut self, me: usize, peers: &[&Routes], rules: &PlacementRules) {
        let (ranks, local) = (peers.len(), peers[me].local_experts);
        self.widest = peers.iter().map(|routes| routes.widest).max().unwrap_or(0);
        let counts = |routes: &&Routes| {
            let counts = routes.per_rank.iter().chain(&routes.per_expert);
            checksum(0, counts.map(|&count| u64::from(count)))
        };
        self.digest = checksum(rules.alignment, peers.iter().map(counts));
        let sum = |of: &dyn Fn(&Routes) -> u32, peers: &[&Routes]| {
            peers.iter().map(|routes| u64::from(of(routes))).sum::<u64>()
        };
        self.flat_totals.clear();
        self.next_flat.clear();
        for d in 0..ranks {
            self.flat_totals.push(sum(&|routes| routes.per_rank[d], peers));
            self.next_flat.push(sum(&|routes| routes.per_rank[d], &peers[..me]));
        }
        self.zone_totals.clear();
        self.zones.clear();
        self.next_copy.clear();
        for d in 0..ranks {
            let mut base = 0_u64;
            for expert in d * local..(d + 1) * local {
                let count = sum(&|routes| routes.per_expert[expert], peers);
                let padded = rules.padded(count);
                let before = sum(&|routes| routes.per_expert[expert], &peers[..me]);
                self.next_copy.push(base.saturating_add(before));
                if d == me {
                    self.zones.push(Zone { base, count, padded });
                }
                base = base.saturating_add(padded);
            }
            self.zone_totals.push(base);
        }
        self.place_own(peers[me], rules);
        self.count_flat(me, peers, rules);
    }

    /// Rows that a rank receives, clamped to the budget when dropping.
    pub(super) fn received(&self, rank: usize, expert_major: bool, settings: &Settings) -> u64 {
        let totals = if expert_major { &self.zone_totals } else { &self.flat_totals };
        totals[rank].min(if settings.drop { settings.max_recv } else { u64::MAX })
    }

    /// Where this rank's rows begin on each rank.
    pub(super) fn rows_before<'a>(&'a self, own: &'a Routes) -> impl Iterator<Item = u64> + 'a {
        let own = own.per_rank.iter();
        self.next_flat.iter().zip(own).map(|(next, &count)| next.wrapping_sub(count.into()))
    }

    /// Where this rank's copies begin for each expert.
    pub(super) fn copies_before<'a>(&'a self, own: &'a Routes) -> impl Iterator<Item = u64> + 'a {
        let own = own.per_expert.iter();
        self.next_copy.iter().zip(own).map(|(next, &count)| next.wrapping_sub(count.into()))
    }

    /// Places rank's own rows again, from where they begin.
    pub(super) fn resume(
        &mut self,
        own: &Routes,
        rows: &[u64],
        copies: &[u64],
        rules: &PlacementRules,
    ) {
        self.next_flat.clear();
        self.next_flat.extend_from_slice(rows);
        self.next_copy.clear();
        self.next_copy.extend_from_slice(copies);
        self.place_own(own, rules);
    }

    /// Whether every slot is inside what its receiver has in all.
    pub(super) fn is_inside(&self, own: &Routes, rules: &PlacementRules) -> bool {
        let inside = |slot: u32, total: u64| slot == NOWHERE || u64::from(slot) < total;
        own.rows.iter().zip(&self.flat_slot).all(|(row, &slot)| {
            let rank = row.rank as usize;
            let copies = &self.copy_slot[row.first as usize..][..row.count as usize];
            inside(slot, self.flat_totals[rank])
                && (!rules.expert_major
                    || copies.iter().all(|&slot| inside(slot, self.zone_totals[rank])))
        })
    }

    fn place_own(&mut self, routes: &Routes, rules: &PlacementRules) {
        let limit = if rules.drop { rules.budget } else { u64::MAX };
        let slot = |slot: u64| u32::try_from(slot).ok().filter(|_| slot < limit);
        self.flat_slot.clear();
        self.copy_slot.clear();
        for row in &routes.rows {
            let next = &mut self.next_flat[row.rank as usize];
            let flat = slot(*next).unwrap_or(NOWHERE);
            *next = next.saturating_add(1);
            self.flat_slot.push(flat);
            let lost = rules.permute && flat == NOWHERE;
            for copy in routes.copies_of(*row) {
                let next = &mut self.next_copy[copy.expert as usize];
                let place = slot(*next).filter(|_| !lost).unwrap_or(NOWHERE);
                *next = next.saturating_add(1);
                self.copy_slot.push(place);
            }
        }
    }

    fn count_flat(&mut self, me: usize, peers: &[&Routes], rules: &PlacementRules) {
        let local = peers[me].local_experts;
        self.flat_counts.clear();
        self.flat_counts.resize(local, 0);
        let mut room = if rules.drop { rules.budget } else { u64::MAX };
        for routes in peers {
            let rows = u64::from(routes.per_rank[me]);
            if rows <= room {
                let mine = &routes.per_expert[me * local..][..local];
                for (total, &count) in self.flat_counts.iter_mut().zip(mine) {
                    *total += u64::from(count);
                }
            } else {
                let mine = routes.rows.iter().filter(|row| row.rank as usize == me);
                for row in mine.take(usize::try_from(room).unwrap_or(usize::MAX)) {
                    for copy in routes.copies_of(*row) {
                        self.flat_counts[copy.expert as usize - me * local] += 1;
                    }
                }
            }
            room = room.saturating_sub(rows);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(ids: &[[i64; 2]], ranks: usize, local: usize) -> Routes {
        let mut routes = Routes::default();
        routes.build(ids.as_flattened().iter().copied(), 2, ranks, local);
        routes
    }

    const FREE: PlacementRules =
        PlacementRules { expert_major: true, permute: true, alignment: 0, budget: 16, drop: false };

    /// EP fixture G2.
    fn g2() -> [Routes; 2] {
        [
            routes(&[[0, 2], [3, 1], [1, 0], [-1, -1]], 2, 2),
            routes(&[[2, -1], [3, 3], [0, 1], [2, 3]], 2, 2),
        ]
    }

    fn place(me: usize, routes: &[Routes], rules: &PlacementRules) -> Placement {
        let mut placement = Placement::default();
        placement.place(me, &routes.iter().collect::<Vec<_>>(), rules);
        placement
    }

    #[test]
    fn g2_flat_slots_follow_source_and_token() {
        let routes = g2();
        let from_0 = place(0, &routes, &FREE);
        assert_eq!(from_0.flat_totals, [4, 5]);
        // Tokens 1, 2, 3 of rank 0: to ranks 0 and 1, 0 and 1, 0.
        assert_eq!(from_0.flat_slot, [0, 0, 1, 1, 2]);
        let from_1 = place(1, &routes, &FREE);
        assert_eq!(from_1.flat_slot, [2, 3, 3, 4]);
        assert_eq!(from_1.flat_counts, [3, 3]);
    }

    #[test]
    fn g2_zones_with_alignment_4() {
        let rules = PlacementRules { alignment: 4, ..FREE };
        let placement = place(0, &g2(), &rules);
        assert_eq!(placement.zone_totals, [8, 8]);
        let zone = |base| Zone { base, count: 3, padded: 4 };
        assert_eq!(placement.zones, [zone(0), zone(4)]);
    }

    #[test]
    fn an_empty_expert_reserves_nothing() {
        let all = [routes(&[[0, 2], [0, -1]], 1, 3)];
        let placement = place(0, &all, &PlacementRules { alignment: 4, ..FREE });
        let bases: Vec<_> = placement.zones.iter().map(|zone| (zone.base, zone.padded)).collect();
        assert_eq!(bases, [(0, 4), (4, 0), (4, 4)]);
    }

    #[test]
    fn flat_overflow_loses_the_end_of_the_order_and_its_counts() {
        let all = [routes(&[[0, 1], [0, -1]], 1, 4), routes(&[[1, 0]; 0], 1, 4)];
        let one = [&all[0]];
        let mut placement = Placement::default();
        let rules = PlacementRules { budget: 1, drop: true, expert_major: false, ..FREE };
        placement.place(0, &one, &rules);
        assert_eq!(placement.flat_slot, [0, NOWHERE]);
        assert_eq!(placement.flat_counts, [1, 1, 0, 0]);
        assert_eq!(placement.flat_totals, [2]);
    }

    #[test]
    fn permute_loses_a_token_for_all_experts_and_dup_only_copies() {
        let all = [routes(&[[0, 1], [0, 1]], 1, 2)];
        let rules = PlacementRules { budget: 3, drop: true, ..FREE };
        assert_eq!(place(0, &all, &rules).copy_slot, [0, 2, 1, NOWHERE]);
        let rules = PlacementRules { budget: 1, drop: true, ..FREE };
        assert_eq!(place(0, &all, &rules).copy_slot, [0, NOWHERE, NOWHERE, NOWHERE]);
        let rules = PlacementRules { budget: 2, drop: true, permute: false, ..FREE };
        assert_eq!(place(0, &all, &rules).copy_slot, [0, NOWHERE, 1, NOWHERE]);
    }
}
