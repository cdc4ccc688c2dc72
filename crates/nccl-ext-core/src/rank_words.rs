//! Words that every rank tells every other.

use crate::buffer::Buffer;
use crate::comm::Comm;
use crate::error::Result;
use crate::stream::Stream;

/// What every rank of a communicator said, as many words each; see [`Comm::all_gather_words`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankWords {
    words: Vec<u64>,
    /// Words of a rank.
    each: usize,
}

impl RankWords {
    /// What a rank said; nothing for a rank that there is not.
    #[must_use]
    pub fn of(&self, rank: usize) -> &[u64] {
        self.iter().nth(rank).unwrap_or_default()
    }

    /// What each rank said, by rank.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u64]> {
        self.words.chunks_exact(self.each.max(1))
    }
}

impl Comm {
    /// Tells every rank these words and hears theirs. Every rank calls it, with as many words; it
    /// waits for the device.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather); what the backend reports of memory and copies.
    pub fn all_gather_words(&self, own: &[u64]) -> Result<RankWords> {
        let send = Buffer::from_slice(self, own)?;
        let mut recv = Buffer::<u64>::zeroed(self, own.len() * self.size())?;
        self.all_gather(&send, &mut recv, Stream::DEFAULT)?;
        Ok(RankWords { words: recv.to_vec(Stream::DEFAULT)?, each: own.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::RankWords;

    #[test]
    fn words_are_cut_by_rank() {
        let words = RankWords { words: vec![1, 2, 3, 4], each: 2 };
        assert_eq!(words.iter().collect::<Vec<_>>(), [[1, 2], [3, 4]]);
        assert_eq!((words.of(1), words.of(2)), (&[3, 4][..], &[][..]));
        let none = RankWords { words: Vec::new(), each: 0 };
        assert_eq!((none.iter().len(), none.of(0)), (0, &[][..]));
    }
}
