//! Ranks of high-throughput groups.

use nccl_ep_sys::{VersionedStruct, ncclEpGroupConfig_t, ncclEpLayout_t, ncclEpLayoutInfo_t};
use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_core::{Comm, Element, bf16};

use super::{
    CANARY, CombineCall, DispatchCall, EXPERT_MAJOR, FLAT, Fixture, HIGH_THROUGHPUT, TestGroup,
    TestHandle, TestTensor, assert_ok, row_values, uniform_rows, update_handle,
};

/// Width of the rows of high-throughput tests.
pub const HT_HIDDEN: usize = 16;

/// What an update published.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedCounters {
    pub counters: Vec<i64>,
    pub offsets: Vec<i64>,
    pub total: i64,
}

/// A high-throughput rank with an updated handle.
#[derive(Debug)]
pub struct HighThroughputRank {
    pub fixture: Fixture,
    pub rank: usize,
    // Handles go before their group.
    pub handle: TestHandle,
    pub group: TestGroup,
    pub published: PublishedCounters,
}

impl HighThroughputRank {
    /// A handle of a group, not updated.
    pub fn with_handle(
        fixture: Fixture,
        rank: usize,
        group: TestGroup,
        handle: TestHandle,
    ) -> Self {
        let published = PublishedCounters { counters: vec![], offsets: vec![], total: -1 };
        Self { fixture, rank, handle, group, published }
    }

    /// Group and handle, not updated.
    #[track_caller]
    pub fn fresh(
        comm: &Comm,
        fixture: Fixture,
        layout: ncclEpLayout_t,
        alignment: usize,
        change: impl Fn(&mut ncclEpGroupConfig_t),
    ) -> Self {
        let mut config = fixture.config(HIGH_THROUGHPUT, HT_HIDDEN);
        change(&mut config);
        let group = TestGroup::new(comm, &config);
        let handle = group.handle(layout, fixture.topk, alignment);
        Self::with_handle(fixture, comm.rank(), group, handle)
    }

    /// Group and handle, updated with the fixture's ids.
    #[track_caller]
    pub fn with(
        comm: &Comm,
        fixture: Fixture,
        layout: ncclEpLayout_t,
        alignment: usize,
        change: impl Fn(&mut ncclEpGroupConfig_t),
    ) -> Self {
        let mut this = Self::fresh(comm, fixture, layout, alignment, change);
        let mut ids = fixture.ids(this.rank);
        assert_ok(this.update(&mut ids));
        this
    }

    #[track_caller]
    pub fn new(comm: &Comm, fixture: Fixture, layout: ncclEpLayout_t) -> Self {
        Self::with(comm, fixture, layout, 0, |_| ())
    }

    /// Updates with all counters: int64 for expert-major, int32 and an int64 total for FLAT.
    pub fn update<T: Element>(&mut self, ids: &mut TestTensor<T>) -> ncclResult_t {
        let local = self.fixture.local_experts();
        let mut counters = TestTensor::filled(&[local + 1], -9_i64);
        let mut counters32 = TestTensor::filled(&[local + 1], -9_i32);
        let mut offsets = TestTensor::filled(&[local + 1], -9_i64);
        let mut total = TestTensor::filled(&[2], -9_i64);
        let mut info = ncclEpLayoutInfo_t::init();
        let em = self.handle.layout == EXPERT_MAJOR;
        info.expert_counters = if em { counters.descriptor() } else { counters32.descriptor() };
        info.expert_offsets = offsets.descriptor();
        info.recv_total_counter = total.descriptor();
        let code = update_handle(&self.handle, ids, Some(&info));
        let wide = |x: &i32| i64::from(*x);
        let counters = if em { counters.data } else { counters32.data.iter().map(wide).collect() };
        assert_eq!(counters[local], -9, "written beyond the experts");
        assert_eq!(offsets.data[local], -9, "written beyond the experts");
        assert_eq!(total.data[1], -9, "written beyond the total");
        self.published = PublishedCounters {
            counters: counters[..local].to_vec(),
            offsets: offsets.data[..local].to_vec(),
            total: total.data[0],
        };
        code
    }

    /// A forward dispatch of the fixture's tokens into canaries of that many rows.
    pub fn dispatch_into(&self, rows: usize) -> DispatchCall {
        let (fixture, k) = (self.fixture, self.fixture.topk);
        let flat = self.handle.layout == FLAT;
        let weights = if flat { vec![rows, k] } else { vec![rows] };
        let out_tokens = TestTensor::filled(&[rows, HT_HIDDEN], bf16::from_f32(CANARY));
        DispatchCall {
            tokens: Some(fixture.tokens(self.rank, HT_HIDDEN)),
            weights: Some(fixture.weights(self.rank)),
            out_tokens: Some(out_tokens),
            out_weights: Some(TestTensor::filled(&weights, CANARY)),
            out_ids: flat.then(|| TestTensor::filled(&[rows, k], CANARY as i64)),
            ..DispatchCall::default()
        }
    }

    /// Makes the call.
    #[track_caller]
    pub fn receive(&self, mut call: DispatchCall) -> Received {
        assert_ok(call.call(&self.handle));
        Received::of(call)
    }

    /// Dispatches into as many rows as the fixture's budget.
    #[track_caller]
    pub fn dispatch(&self) -> Received {
        self.receive(self.dispatch_into(self.fixture.max_recv))
    }

    /// Combines rows of these values; the output has a row for each token of the fixture.
    pub fn combine_of(&self, values: &[f32]) -> CombineCall {
        let tokens = (self.fixture.values)(self.rank).len();
        CombineCall::new(
            TestTensor::new(&[values.len(), HT_HIDDEN], uniform_rows(values, HT_HIDDEN)),
            TestTensor::filled(&[tokens, HT_HIDDEN], bf16::from_f32(CANARY)),
        )
    }

    /// Makes the call and gives the sums.
    #[track_caller]
    pub fn sums(&self, mut call: CombineCall) -> Vec<f32> {
        assert_ok(call.call(&self.handle));
        row_values(&call.out.unwrap().data, HT_HIDDEN)
    }

    /// Dispatches, and combines what it received.
    #[track_caller]
    pub fn round_trip(&self) -> Vec<f32> {
        self.combine(&self.dispatch().rows)
    }

    #[track_caller]
    pub fn combine(&self, values: &[f32]) -> Vec<f32> {
        self.sums(self.combine_of(values))
    }
}

/// What a dispatch left in its outputs.
#[derive(Debug, Clone, PartialEq)]
pub struct Received {
    pub rows: Vec<f32>,
    pub weights: Vec<f32>,
    pub ids: Vec<i64>,
}

impl Received {
    #[track_caller]
    pub fn of(call: DispatchCall) -> Self {
        Self {
            rows: row_values(&call.out_tokens.unwrap().data, HT_HIDDEN),
            weights: call.out_weights.map_or(vec![], |tensor| tensor.data),
            ids: call.out_ids.map_or(vec![], |tensor| tensor.data),
        }
    }
}
