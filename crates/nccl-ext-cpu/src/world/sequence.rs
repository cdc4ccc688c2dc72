//! Sequences of operations that all ranks make in the same order, and what ranks post in them.

use std::any::TypeId;
use std::fmt;

use crate::queue::Clock;

/// Names a sequence. Ranks create sequences in the same order and so agree on the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SequenceId(u64);

impl SequenceId {
    /// The communicator's own sequence.
    pub(crate) const COMM: Self = Self(0);

    /// The sequence of a group; groups are numbered from 1.
    pub(crate) fn of_group(number: u64) -> Self {
        Self(number)
    }
}

/// What a rank shows to its peers during one operation.
///
/// # Safety
/// Peers read the value from their threads while the operation runs; what it points to may be
/// used by them as the operation's code says.
pub(crate) unsafe trait Descriptor: 'static {
    /// The operation, as error messages call it.
    const NAME: &'static str;
    /// Names of the numbers in [`key`](Self::key); empty for those not in use.
    const KEY: [&'static str; KEYS] = [""; KEYS];

    /// What must be equal on all ranks for their calls to be the same operation.
    fn key(&self) -> [u64; KEYS] {
        [0; KEYS]
    }
}

/// Numbers in an operation's key.
pub(crate) const KEYS: usize = 6;

/// Which operation a rank has posted.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct OperationTag {
    kind: TypeId,
    pub(super) name: &'static str,
    names: [&'static str; KEYS],
    key: [u64; KEYS],
}

impl OperationTag {
    pub(super) fn of<D: Descriptor>(descriptor: &D) -> Self {
        Self { kind: TypeId::of::<D>(), name: D::NAME, names: D::KEY, key: descriptor.key() }
    }
}

impl fmt::Display for OperationTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        let named = self.names.iter().zip(self.key).filter(|(name, _)| !name.is_empty());
        for (i, (name, value)) in named.enumerate() {
            write!(f, "{}{name} {value}", if i == 0 { " with " } else { ", " })?;
        }
        Ok(())
    }
}

/// A rank is in an operation, and shows this.
#[derive(Clone)]
pub(super) struct Post {
    pub(super) tag: OperationTag,
    pub(super) descriptor: *const (),
    /// Whether the descriptor outlives the operation, or its readers have all gone.
    pub(super) staged: bool,
    /// What happened before it was posted.
    pub(super) clock: Clock,
}

// SAFETY: the pointer is only followed as `Descriptor` allows.
unsafe impl Send for Post {}

/// Operations of all ranks, in order.
pub(super) struct Sequence {
    /// How many operations each rank has posted, and how many it is done with.
    pub(super) posted: Vec<u64>,
    pub(super) done: Vec<u64>,
    /// The last two posts of each rank. Two are enough: who posts operation n+2 is done with n+1,
    /// which everybody posted after being done with n.
    pub(super) posts: [Vec<Option<Post>>; 2],
    /// What happened before each rank was done with its last operation.
    pub(super) ends: Vec<Clock>,
    /// Ranks that have closed it.
    pub(super) closed: usize,
}

impl Sequence {
    pub(super) fn new(size: usize) -> Self {
        let posts = || vec![None; size];
        let (posted, done, ends) = (vec![0; size], vec![0; size], vec![Clock::default(); size]);
        Self { posted, done, posts: [posts(), posts()], ends, closed: 0 }
    }

    /// Which of the two posts an operation uses.
    pub(super) fn bank(operation: u64) -> usize {
        usize::from(operation % 2 == 1)
    }

    /// Whether every rank has posted the operation.
    pub(super) fn all_posted(&self, operation: u64) -> bool {
        self.posted.iter().all(|&posted| posted >= operation)
    }

    /// The ranks that have not.
    pub(super) fn missing(&self, operation: u64) -> impl Iterator<Item = usize> {
        (0..self.posted.len()).filter(move |&rank| self.posted[rank] < operation)
    }

    /// What happened before the ranks posted the operation.
    pub(super) fn starts(&self, operation: u64) -> Vec<Clock> {
        let posts = self.posts[Self::bank(operation)].iter().flatten();
        posts.map(|post| post.clock.clone()).collect()
    }

    /// Whether nobody reads full descriptors of the operation any more.
    pub(super) fn is_done(&self, operation: u64) -> bool {
        let mut posts = self.done.iter().zip(&self.posts[Self::bank(operation)]);
        posts.all(|(&done, post)| done >= operation || is_staged(post))
    }

    /// Whether everything that was posted can be read by those who staged.
    pub(super) fn is_staged(&self, operation: u64) -> bool {
        self.posts[Self::bank(operation)].iter().all(is_staged)
    }

    pub(super) fn has_staged(&self, operation: u64) -> bool {
        self.posts[Self::bank(operation)].iter().any(is_staged)
    }
}

/// Whether a rank has posted and its peers may read that at any time.
pub(super) fn is_staged(post: &Option<Post>) -> bool {
    post.as_ref().is_some_and(|post| post.staged)
}
