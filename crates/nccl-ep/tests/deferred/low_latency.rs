//! Low latency, on as many streams as one likes.

use nccl_ep::{
    Buffer, CombineConfig, CombineInputs, CombineOutputs, Comm, DispatchConfig, DispatchInputs,
    DispatchOutputs, Group, GroupConfig, HandleConfig, HandleMemory, Layout, LayoutInfo,
    OwnedStream, Result, Step, Stream, Tensor, TensorMut, TopK, bf16,
};
use nccl_ext_test::routing::G2;

use crate::world::on_two_ranks;

const HIDDEN: usize = 512;

/// The tensors of a step of G2.
pub(crate) struct Buffers {
    layout: Layout,
    tokens: Buffer<bf16>,
    weights: Buffer<f32>,
    rows: Buffer<bf16>,
    out_weights: Buffer<f32>,
    out_ids: Buffer<i32>,
    counters: Buffer<i32>,
    sums: Buffer<bf16>,
}

impl Buffers {
    pub(crate) fn new(comm: &Comm, layout: Layout) -> Result<Self> {
        let rank = comm.rank();
        Ok(Self {
            layout,
            tokens: Buffer::from_slice(comm, &G2::tokens(rank, HIDDEN))?,
            weights: Buffer::from_slice(comm, &G2::weights(rank))?,
            rows: Buffer::zeroed(comm, 2 * 8 * HIDDEN)?,
            out_weights: Buffer::zeroed(comm, 2 * 4 * 2)?,
            out_ids: Buffer::zeroed(comm, 2 * 4 * 2)?,
            counters: Buffer::zeroed(comm, 2)?,
            sums: Buffer::zeroed(comm, 4 * HIDDEN)?,
        })
    }

    fn is_expert_major(&self) -> bool {
        self.layout == Layout::ExpertMajor
    }

    /// Experts or sources, and the rows of each.
    fn shape(&self) -> [usize; 3] {
        [2, if self.is_expert_major() { 8 } else { 4 }, HIDDEN]
    }

    pub(crate) fn dispatch(
        &mut self,
        step: &mut Step<'_>,
        stream: Stream<'_>,
        staged: bool,
    ) -> Result<()> {
        let (em, shape) = (self.is_expert_major(), self.shape());
        let mut inputs = DispatchInputs::new(Tensor::new(&self.tokens, &[4, HIDDEN])?);
        let mut outputs = DispatchOutputs::new(TensorMut::new(&mut self.rows, &shape)?);
        let counters = TensorMut::new(&mut self.counters, &[2])?;
        let mut info = LayoutInfo::new();
        if em {
            info = info.expert_counters(counters);
        } else {
            inputs = inputs.topk_weights(Tensor::new(&self.weights, &[4, 2])?);
            outputs = outputs
                .topk_weights(TensorMut::new(&mut self.out_weights, &[2, 4, 2])?)
                .topk_idx(TensorMut::new(&mut self.out_ids, &[2, 4, 2])?);
            info = info.src_rank_counters(counters);
        }
        let config = DispatchConfig::new();
        match staged {
            true => {
                step.staged_dispatch(&inputs, &mut outputs, Some(&mut info), &config, stream, || ())
            }
            false => step.dispatch(&inputs, &mut outputs, Some(&mut info), &config, stream),
        }
    }

    pub(crate) fn combine(
        &mut self,
        step: &mut Step<'_>,
        stream: Stream<'_>,
        staged: bool,
    ) -> Result<()> {
        let (em, shape) = (self.is_expert_major(), self.shape());
        let mut inputs = CombineInputs::new(Tensor::new(&self.rows, &shape)?);
        if em {
            inputs = inputs.routing_weights(Tensor::new(&self.weights, &[4, 2])?);
        }
        let mut outputs = CombineOutputs::new(TensorMut::new(&mut self.sums, &[4, HIDDEN])?);
        let config = CombineConfig::new();
        match staged {
            true => step.staged_combine(&inputs, &mut outputs, &config, stream, || ()),
            false => step.combine(&inputs, &mut outputs, &config, stream),
        }
    }

    /// The sums are those of G2.
    pub(crate) fn assert_sums(&self, rank: usize, stream: Stream<'_>) -> Result<()> {
        let sums = self.sums.to_vec(stream)?;
        // Without duplicates in their rows the tokens of both layouts are summed alike, except that
        // only expert-major weighs them.
        let expected = if self.is_expert_major() { G2::WEIGHTED } else { G2::SUMMED };
        for (token, row) in sums.chunks_exact(HIDDEN).enumerate() {
            assert!(row.iter().all(|x| x.to_f32() == expected[rank][token]), "token {token}");
        }
        Ok(())
    }
}

pub(crate) fn config() -> GroupConfig {
    GroupConfig::new().num_experts(4).max_dispatch_tokens_per_rank(4).max_token_bytes(1024)
}

const LAYOUTS: [Layout; 2] = [Layout::ExpertMajor, Layout::RankMajor];

/// Rounds of one handle, with the streams of dispatch and combine by round.
fn rounds(layout: Layout, staged: bool, streams_of: impl Fn(usize) -> [usize; 2] + Sync) {
    on_two_ranks(|comm| {
        let owned = [(); 3].map(|()| OwnedStream::new(comm));
        let owned: Vec<_> = owned.into_iter().collect::<Result<_>>()?;
        let group = Group::create(comm, &config())?;
        let mut handle = group.init_handle(layout, &HandleConfig::new(), TopK::N(2), None)?;
        let mut buffers = Buffers::new(comm, layout)?;
        for round in 0..4 {
            let [first, second] = streams_of(round).map(|stream| owned[stream].stream());
            // Each round has ids of its own, whose buffer ends with it.
            let ids = Buffer::from_slice(comm, &G2::UNIQUE_IDS[comm.rank()])?;
            let mut step = handle.update(Tensor::new(&ids, &[4, 2])?, None, first)?;
            buffers.dispatch(&mut step, first, staged)?;
            buffers.combine(&mut step, second, staged)?;
        }
        // Read on a stream that nothing ran on, last of all.
        buffers.assert_sums(comm.rank(), owned[2].stream())?;
        handle.destroy()?;
        group.destroy()?;
        Ok(())
    });
}

#[test]
fn rounds_on_one_stream() {
    for layout in LAYOUTS {
        rounds(layout, false, |_| [0, 0]);
    }
}

/// Case A2.
#[test]
fn dispatch_and_combine_on_two_streams_are_ordered() {
    for layout in LAYOUTS {
        rounds(layout, false, |_| [0, 1]);
        rounds(layout, false, |round| [round % 2, (round + 1) % 2]);
    }
}

#[test]
fn staged_halves_are_ordered() {
    for layout in LAYOUTS {
        rounds(layout, true, |round| [round % 2, (round + 1) % 2]);
    }
}

/// Everything goes while the streams have work: buffers, step, handle, group.
#[test]
fn drops_wait_for_what_they_drop() {
    for layout in LAYOUTS {
        on_two_ranks(|comm| {
            let stream = OwnedStream::new(comm)?;
            let group = Group::create(comm, &config())?;
            let mut handle = group.init_handle(layout, &HandleConfig::new(), TopK::N(2), None)?;
            for _ in 0..3 {
                let mut buffers = Buffers::new(comm, layout)?;
                let ids = Buffer::from_slice(comm, &G2::UNIQUE_IDS[comm.rank()])?;
                let mut step = handle.update(Tensor::new(&ids, &[4, 2])?, None, stream.stream())?;
                buffers.dispatch(&mut step, stream.stream(), false)?;
                buffers.combine(&mut step, stream.stream(), false)?;
            }
            drop(handle);
            group.destroy()?;
            Ok(())
        });
    }
}

/// Handle memory is given back when the streams have passed it, so another handle may have it.
#[test]
fn handle_memory_goes_from_handle_to_handle() {
    on_two_ranks(|comm| {
        let streams = [OwnedStream::new(comm)?, OwnedStream::new(comm)?];
        let group = Group::create(comm, &config())?;
        let (layout, options) = (Layout::ExpertMajor, HandleConfig::new());
        let bytes = group.handle_mem_size(layout, &options, TopK::N(2))?;
        let mut memory: HandleMemory = Box::new(Buffer::<u8>::zeroed(comm, bytes)?);
        let mut buffers = Buffers::new(comm, layout)?;
        for stream in streams.iter().chain(&streams) {
            let mut handle = group.init_handle(layout, &options, TopK::N(2), Some(memory))?;
            let ids = Buffer::from_slice(comm, &G2::UNIQUE_IDS[comm.rank()])?;
            let mut step = handle.update(Tensor::new(&ids, &[4, 2])?, None, stream.stream())?;
            buffers.dispatch(&mut step, stream.stream(), false)?;
            buffers.combine(&mut step, stream.stream(), false)?;
            drop(step);
            memory = handle.destroy()?.unwrap();
        }
        drop(memory);
        buffers.assert_sums(comm.rank(), streams[0].stream())?;
        group.destroy()?;
        Ok(())
    });
}
