//! The loop that says what the kernel does.

use super::{IdCheck, MOST_OF_A_RANK, Repeated};

impl IdCheck {
    /// Copies and looks at the ids now, on this thread, and reports what is wrong.
    ///
    /// # Safety
    /// `from` holds `tokens * topk` readable integers and `to` has room for as many, both in memory
    /// of the host that nothing else uses meanwhile; they are the same memory or do not overlap.
    /// `report` is live.
    pub unsafe fn run(&self) {
        let (mut count, mut first) = (0_u64, u64::MAX);
        for token in 0..self.tokens {
            // SAFETY: this function's contract.
            unsafe { self.row(token, &mut count, &mut first) };
        }
        if count > 0 {
            // SAFETY: this function's contract.
            unsafe { (*self.report).publish(count, first) };
        }
    }

    /// # Safety
    /// As for [`run`](Self::run), with a token below `tokens`.
    unsafe fn row(&self, token: u64, count: &mut u64, first: &mut u64) {
        let begin = token * u64::from(self.topk);
        for choice in 0..u64::from(self.topk) {
            let index = begin + choice;
            // SAFETY: the caller's contract.
            let id = unsafe { self.load(self.from.cast(), index) };
            let earlier = begin..index;
            // SAFETY: the caller's contract; what stands earlier in the row was stored before.
            let copied = |at: u64| unsafe { self.load(self.to.cast(), at) };
            let same = |at: u64, id: i64| copied(at) == id;
            let (wrong, kept) = if id < 0 {
                (false, -1)
            } else if id.unsigned_abs() >= self.experts {
                (true, -1)
            } else if earlier.clone().any(|at| same(at, id)) {
                let wrong = self.repeated != Repeated::Allowed as u32;
                (wrong, if self.repeated == Repeated::Dropped as u32 { -1 } else { id })
            } else if self.rank_experts > 0 {
                let rank_of = |id: i64| id / i64::from(self.rank_experts);
                let of_this_rank = earlier.filter(|&at| {
                    let other = copied(at);
                    let new = (begin..at).all(|before| !same(before, other));
                    other >= 0 && rank_of(other) == rank_of(id) && new
                });
                let full = of_this_rank.count() >= MOST_OF_A_RANK as usize;
                (full, if full { -1 } else { id })
            } else {
                (false, id)
            };
            if wrong {
                *count += 1;
                *first = index.min(*first);
            }
            // SAFETY: the caller's contract.
            unsafe { self.store(index, kept) };
        }
    }

    /// # Safety
    /// `ids` holds more than `index` integers of this copy's width.
    unsafe fn load(&self, ids: *const u8, index: u64) -> i64 {
        let index = index as usize;
        // SAFETY: this function's contract; a host backend's ids need not be aligned.
        unsafe {
            match self.wide {
                0 => ids.cast::<i32>().add(index).read_unaligned().into(),
                _ => ids.cast::<i64>().add(index).read_unaligned(),
            }
        }
    }

    /// # Safety
    /// `to` has room for more than `index` integers of this copy's width.
    unsafe fn store(&self, index: u64, id: i64) {
        let (to, index) = (self.to.cast::<u8>(), index as usize);
        // SAFETY: this function's contract. An id of 32 bits that is kept has come from 32 bits.
        unsafe {
            match self.wide {
                0 => to.cast::<i32>().add(index).write_unaligned(id as i32),
                _ => to.cast::<i64>().add(index).write_unaligned(id),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::ptr;

    use super::super::{IdReport, IdRules};
    use super::*;

    const RULES: IdRules =
        IdRules { experts: 8, topk: 4, repeated: Repeated::Counted, rank_experts: 0 };

    /// What becomes of ids, how many are wrong, and the index of the first.
    fn looked_at(rules: IdRules, ids: &[i64]) -> (Vec<i64>, Option<(u64, u64)>) {
        let looked = |wide: u32, from: *const u8, to: *mut u8| {
            let report = IdReport::default();
            let check = IdCheck {
                from: from.cast(),
                to: to.cast(),
                tokens: ids.len() as u64 / u64::from(rules.topk),
                experts: rules.experts,
                topk: rules.topk,
                wide,
                repeated: rules.repeated as u32,
                rank_experts: rules.rank_experts,
                state: ptr::null_mut(),
                report: &raw const report,
            };
            // SAFETY: `from` and `to` hold as many ids as `ids`, and the report lives.
            unsafe { check.run() };
            report.after(0, 0).map(|report| (report.count, report.first))
        };
        let mut wide = vec![0_i64; ids.len()];
        let found = looked(1, ids.as_ptr().cast(), wide.as_mut_ptr().cast());
        if let Ok(narrow) = ids.iter().map(|id| i32::try_from(*id)).collect::<Result<Vec<_>, _>>() {
            let mut to = vec![0_i32; ids.len()];
            assert_eq!(looked(0, narrow.as_ptr().cast(), to.as_mut_ptr().cast()), found);
            assert!(to.iter().map(|id| i64::from(*id)).eq(wide.iter().copied()));
        }
        (wide, found)
    }

    #[test]
    fn ids_of_experts_pass_and_every_negative_one_is_none() {
        let ids = [5, 2, 7, 0, -1, -2, i64::from(i32::MIN), 3];
        assert_eq!(looked_at(RULES, &ids), (vec![5, 2, 7, 0, -1, -1, -1, 3], None));
        let (looked, found) = looked_at(RULES, &[i64::MIN, -65_529, 1, 2]);
        assert_eq!((looked, found), (vec![-1, -1, 1, 2], None));
    }

    #[test]
    fn an_id_of_no_expert_becomes_none_and_is_counted() {
        let ids = [0, 1, 2, 3, 3, 8, 1_000_000, 4, 7, 8, 6, i64::MAX];
        let expected = vec![0, 1, 2, 3, 3, -1, -1, 4, 7, -1, 6, -1];
        assert_eq!(looked_at(RULES, &ids), (expected, Some((4, 5))));
    }

    #[test]
    fn a_repeated_id_is_allowed_counted_or_dropped() {
        let ids = [0, 1, 2, 3, 5, 2, 5, 1, 3, 3, 3, 3];
        let with = |repeated| looked_at(IdRules { repeated, ..RULES }, &ids);
        assert_eq!(with(Repeated::Allowed), (ids.to_vec(), None));
        assert_eq!(with(Repeated::Counted), (ids.to_vec(), Some((4, 6))));
        let dropped = vec![0, 1, 2, 3, 5, 2, -1, 1, 3, -1, -1, -1];
        assert_eq!(with(Repeated::Dropped), (dropped, Some((4, 6))));
    }

    #[test]
    fn a_ninth_expert_of_one_rank_is_dropped_where_that_is_the_limit() {
        let rules = IdRules { experts: 32, topk: 12, rank_experts: 16, ..RULES };
        let ids = [0, 1, 2, 3, 4, 4, 16, 5, 6, 7, 8, 17];
        let expected = vec![0, 1, 2, 3, 4, 4, 16, 5, 6, 7, -1, 17];
        // The second 4 is counted, and no ninth expert.
        assert_eq!(looked_at(rules, &ids), (expected, Some((2, 5))));
        let free = IdRules { rank_experts: 0, ..rules };
        assert_eq!(looked_at(free, &ids), (ids.to_vec(), Some((1, 5))));
    }
}
