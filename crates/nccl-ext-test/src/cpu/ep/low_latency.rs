//! Ranks of low-latency groups.

use std::rc::Rc;

use nccl_ep_sys::ncclEpLayout_t;
use nccl_ext_core::{Comm, bf16};

use super::{
    CANARY, CombineCall, DispatchCall, EXPERT_MAJOR, Fixture, LOW_LATENCY, TestGroup, TestHandle,
    TestTensor, assert_ok, row_values, uniform_rows, update_handle,
};

/// Width of the rows of low-latency tests.
pub const LL_HIDDEN: usize = 512;

/// A low-latency rank with an updated handle.
#[derive(Debug)]
pub struct LowLatencyRank {
    pub fixture: Fixture,
    pub rank: usize,
    // Handles go before their group.
    pub handle: TestHandle,
    pub group: Rc<TestGroup>,
    /// Borrowed by the handle until the step's last combine.
    pub ids: TestTensor<i64>,
}

/// What a low-latency dispatch left in its outputs.
#[derive(Debug, Clone, PartialEq)]
pub struct LowLatencyReceived {
    /// By expert or by source.
    pub counters: Vec<i32>,
    pub rows: Vec<f32>,
    /// Rank-major only.
    pub weights: Vec<f32>,
    /// Rank-major only.
    pub ids: Vec<i32>,
    /// Rows an expert or source has room for.
    pub room: usize,
}

impl LowLatencyReceived {
    /// The live rows of an expert or source.
    pub fn rows_of(&self, i: usize) -> &[f32] {
        &self.rows[i * self.room..][..self.counters[i] as usize]
    }

    /// The live rows of all experts or sources.
    pub fn live(&self) -> Vec<f32> {
        (0..self.counters.len()).flat_map(|i| self.rows_of(i).to_vec()).collect()
    }

    /// Rows at and beyond the counters, with their number.
    pub fn dead(&self) -> impl Iterator<Item = (usize, f32)> {
        let alive = |row: &usize| row % self.room < self.counters[row / self.room] as usize;
        (0..self.rows.len()).filter(move |row| !alive(row)).map(|row| (row, self.rows[row]))
    }

    /// Value, indices and weights of the live rows of a source.
    pub fn tokens_of(&self, source: usize, k: usize) -> Vec<(f32, Vec<i32>, Vec<f32>)> {
        let first = source * self.room;
        let token = |row: usize| {
            let columns = row * k..(row + 1) * k;
            (self.rows[row], self.ids[columns.clone()].to_vec(), self.weights[columns].to_vec())
        };
        (first..first + self.counters[source] as usize).map(token).collect()
    }
}

impl LowLatencyRank {
    /// A handle of a group that may have others.
    #[track_caller]
    pub fn on(group: Rc<TestGroup>, rank: usize, fixture: Fixture, layout: ncclEpLayout_t) -> Self {
        let handle = group.handle(layout, fixture.topk, 0);
        let mut ids = fixture.ids(rank);
        assert_ok(update_handle(&handle, &mut ids, None));
        Self { fixture, rank, handle, group, ids }
    }

    #[track_caller]
    pub fn new(comm: &Comm, fixture: Fixture, layout: ncclEpLayout_t) -> Self {
        let group = TestGroup::new(comm, &fixture.config(LOW_LATENCY, LL_HIDDEN));
        Self::on(group.into(), comm.rank(), fixture, layout)
    }

    pub fn shape(&self, hidden: usize) -> [usize; 3] {
        let Fixture { ranks, max_tokens, .. } = self.fixture;
        match self.handle.layout == EXPERT_MAJOR {
            true => [self.fixture.local_experts(), ranks * max_tokens, hidden],
            false => [ranks, max_tokens, hidden],
        }
    }

    /// A dispatch of the fixture's tokens into canaries.
    pub fn dispatch_call(&self, hidden: usize) -> DispatchCall {
        let em = self.handle.layout == EXPERT_MAJOR;
        let Fixture { ranks, max_tokens, topk, .. } = self.fixture;
        let (shape, columns) = (self.shape(hidden), [ranks, max_tokens, topk]);
        DispatchCall {
            tokens: Some(self.fixture.tokens(self.rank, hidden)),
            weights: (!em).then(|| self.fixture.weights(self.rank)),
            out_tokens: Some(TestTensor::filled(&shape, bf16::from_f32(CANARY))),
            out_weights: (!em).then(|| TestTensor::filled(&columns, CANARY)),
            out_ids32: (!em).then(|| TestTensor::filled(&columns, CANARY as i32)),
            counters: em.then(|| TestTensor::filled(&[self.fixture.local_experts()], -9)),
            src_counters: (!em).then(|| TestTensor::filled(&[ranks], -9)),
            ..DispatchCall::default()
        }
    }

    /// What a completed call left in its outputs.
    #[track_caller]
    pub fn received(&self, call: DispatchCall) -> LowLatencyReceived {
        LowLatencyReceived {
            counters: call.counters.or(call.src_counters).map_or(vec![], |tensor| tensor.data),
            rows: row_values(&call.out_tokens.unwrap().data, LL_HIDDEN),
            weights: call.out_weights.map_or(vec![], |tensor| tensor.data),
            ids: call.out_ids32.map_or(vec![], |tensor| tensor.data),
            room: self.shape(1)[1],
        }
    }

    /// Makes the call.
    #[track_caller]
    pub fn receive(&self, mut call: DispatchCall) -> LowLatencyReceived {
        assert_ok(call.call(&self.handle));
        self.received(call)
    }

    #[track_caller]
    pub fn dispatch(&self) -> LowLatencyReceived {
        self.receive(self.dispatch_call(LL_HIDDEN))
    }

    /// A combine of rows of these values, with the fixture's weights for expert-major.
    pub fn combine_call(&self, values: &[f32], hidden: usize) -> CombineCall {
        let tokens = (self.fixture.values)(self.rank).len();
        let input = TestTensor::new(&self.shape(hidden), uniform_rows(values, hidden));
        let output = TestTensor::filled(&[tokens, hidden], bf16::from_f32(CANARY));
        CombineCall {
            weights: (self.handle.layout == EXPERT_MAJOR).then(|| self.fixture.weights(self.rank)),
            ..CombineCall::new(input, output)
        }
    }

    /// Dispatches, and combines what it received.
    #[track_caller]
    pub fn round_trip(&self) -> Vec<f32> {
        self.combine(&self.dispatch().rows)
    }

    #[track_caller]
    pub fn combine(&self, values: &[f32]) -> Vec<f32> {
        let mut call = self.combine_call(values, LL_HIDDEN);
        assert_ok(call.call(&self.handle));
        row_values(&call.out.unwrap().data, LL_HIDDEN)
    }
}
