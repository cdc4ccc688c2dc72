//! Whether two layouts are sides of one reshard on a communicator (M2N 2.1, 2.7).

use nccl_ext_core::rules;

use crate::layout::Layout;
use crate::settings::CopyAlgorithm;

/// What the rules of a pair of layouts look at.
pub(crate) struct PairFacts<'a> {
    /// Ranks of the communicator.
    pub(crate) ranks: usize,
    pub(crate) source: &'a Layout,
    pub(crate) destination: &'a Layout,
    pub(crate) copy_algorithm: CopyAlgorithm,
}

impl PairFacts<'_> {
    fn meshes_overlap(&self) -> bool {
        let (a, b) = (self.source.mesh().ranks(), self.destination.mesh().ranks());
        a.start < b.end && b.start < a.end
    }

    fn is_pipe(&self) -> bool {
        self.copy_algorithm == CopyAlgorithm::Pipe
    }
}

rules! {
    /// Checked before a reshard is planned.
    RULES over PairFacts {
        "call.source-in-communicator" on "source": "the source mesh lies inside the communicator"
            ("M2N 2.1 #28a", Uniform)
            |f| f.source.mesh().ranks().end > f.ranks
                => (format!("ranks below {}", f.ranks),
                    format!("{:?}", f.source.mesh().ranks()));
        "call.destination-in-communicator" on "destination":
            "the destination mesh lies inside the communicator" ("M2N 2.1 #28b", Uniform)
            |f| f.destination.mesh().ranks().end > f.ranks
                => (format!("ranks below {}", f.ranks),
                    format!("{:?}", f.destination.mesh().ranks()));
        "call.disjoint" on "destination":
            "source and destination meshes share no rank, unless the communicator has one alone"
            ("M2N 2.1 #28c", Uniform)
            |f| f.ranks > 1 && f.meshes_overlap()
                => (format!("ranks outside of {:?}", f.source.mesh().ranks()),
                    format!("{:?}", f.destination.mesh().ranks()));
        "call.pipe-disjoint" on "destination": "PIPE copies to other ranks only"
            ("M2N 2.4 #5", Uniform)
            |f| f.is_pipe() && f.meshes_overlap()
                => ("disjoint meshes, or NCCL_RESHARD_COPY_ALGORITHM unset",
                    format!("{:?} on both sides", f.destination.mesh().ranks()));
        "call.dimensions" on "destination": "both sides have equally many dimensions"
            ("M2N 2.1 #19", Uniform)
            |f| f.source.local_shape().len() != f.destination.local_shape().len()
                => (f.source.local_shape().len(), f.destination.local_shape().len());
        "call.data-type" on "destination": "both sides have one element type"
            ("M2N 2.1 #20", Uniform)
            |f| f.source.data_type() != f.destination.data_type()
                => (f.source.data_type(), f.destination.data_type());
        "call.global-shape" on "destination":
            "both sides are layouts of one global tensor (the library delivers stale bytes \
             otherwise)" ("M2N 2.7", Uniform)
            |f| f.source.global_shape() != f.destination.global_shape()
                => (format!("{:?}, as the source", f.source.global_shape()),
                    format!("{:?}", f.destination.global_shape()));
    }
}
