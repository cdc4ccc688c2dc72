//! The same tokens over another number of ranks.

use super::recording::{Routing, Sizes};
use crate::failure::InputError;

impl Routing {
    /// Deals the tokens of all ranks, in order, to this many ranks, and the experts with them.
    ///
    /// # Errors
    /// [`InputError`] naming the counts that divide both.
    pub fn over(self, ranks: usize) -> Result<Self, InputError> {
        let (tokens, experts) = (self.sizes.tokens(), self.sizes.experts);
        let divides = |ranks: &usize| {
            *ranks > 0 && tokens.is_multiple_of(*ranks) && experts.is_multiple_of(*ranks)
        };
        if !divides(&ranks) {
            let valid: Vec<_> = (1..=experts).filter(divides).map(|n| n.to_string()).collect();
            return Err(InputError {
                file: self.name,
                item: "--ranks",
                rule: "tokens and experts divide evenly over ranks",
                expected: valid.join(", "),
                found: format!("{ranks}, for {tokens} tokens and {experts} experts"),
            });
        }
        let sizes = Sizes { ranks, tokens_per_rank: tokens / ranks, ..self.sizes };
        Ok(Self { sizes, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::tests::g2;

    #[test]
    fn tokens_keep_their_order() {
        let whole = Routing::recorded().unwrap();
        for ranks in [1, 2, 4, 128] {
            let folded = whole.clone().over(ranks).unwrap();
            assert_eq!(folded.sizes.ranks, ranks);
            assert_eq!(folded.sizes.tokens(), 512);
            assert_eq!(folded.sizes.local_experts(), 128 / ranks);
            assert_eq!(folded.ids(300), whole.ids(300));
            assert_eq!(folded.of_rank(ranks - 1).1.last(), whole.topk_idx.last());
        }
    }

    #[test]
    fn counts_that_do_not_divide_are_refused_with_those_that_do() {
        for ranks in [0, 3, 8, usize::MAX] {
            assert_eq!(
                g2(1).over(ranks).unwrap_err().to_string(),
                format!(
                    "G2: `--ranks`: tokens and experts divide evenly over ranks; expected 1, 2, 4, \
                     found {ranks}, for 8 tokens and 4 experts"
                )
            );
        }
    }
}
