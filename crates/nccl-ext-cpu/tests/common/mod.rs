//! What the tests share: raw calls through the tables, tensors that own their data, the fixtures
//! of EP 9.0.
#![allow(dead_code, missing_docs, unreachable_pub)]

pub mod import;
pub mod masks;
pub mod scaled;

use std::ptr::{null, null_mut};

use nccl_ep_sys::*;
use nccl_ext_core::raw::{ncclResult_t, ncclWindow_t};
use nccl_ext_core::{Comm, DataType, Element, Error, bf16};
use nccl_ext_cpu::{CpuConfig, FailureClass, backend, last_refusal, run_ranks};

pub const OK: ncclResult_t = ncclResult_t::ncclSuccess;
pub const ARGUMENT: ncclResult_t = ncclResult_t::ncclInvalidArgument;
pub const USAGE: ncclResult_t = ncclResult_t::ncclInvalidUsage;
pub const INTERNAL: ncclResult_t = ncclResult_t::ncclInternalError;

pub const HT: ncclEpAlgorithm_t = ncclEpAlgorithm_t::NCCL_EP_ALGO_HIGH_THROUGHPUT;
pub const LL: ncclEpAlgorithm_t = ncclEpAlgorithm_t::NCCL_EP_ALGO_LOW_LATENCY;
pub const EM: ncclEpLayout_t = ncclEpLayout_t::NCCL_EP_LAYOUT_EXPERT_MAJOR;
pub const RM: ncclEpLayout_t = ncclEpLayout_t::NCCL_EP_LAYOUT_RANK_MAJOR;
pub const FLAT: ncclEpLayout_t = ncclEpLayout_t::NCCL_EP_LAYOUT_FLAT;

pub fn api() -> &'static EpApi {
    backend().extension::<EpApi>().unwrap()
}

/// The error behind the last call of this thread.
pub fn error() -> Option<Error> {
    (backend().hooks().unwrap().take_error)()
}

#[track_caller]
pub fn ok(code: ncclResult_t) {
    if code != OK {
        panic!("{}: {}", code.0, error().map_or_else(String::new, |e| e.to_string()));
    }
}

/// The call was refused with this code, in the vendor's library with this class, and says why.
#[track_caller]
pub fn refused(code: ncclResult_t, expected: ncclResult_t, class: FailureClass) {
    let error = error();
    assert_eq!(code, expected, "{error:?}");
    assert_eq!(last_refusal(), Some(class), "{error:?}");
    let Some(Error::Native { code: inside, detail, .. }) = error else { panic!("{error:?}") };
    assert_eq!(inside, expected);
    assert!(detail.contains("expected") && detail.contains("found"), "{detail}");
}

/// Runs `body` on every rank of a new world; every rank succeeds.
#[track_caller]
pub fn ranks<T: Send>(count: usize, body: impl Fn(&Comm) -> T + Sync) -> Vec<T> {
    let config = CpuConfig::new().timeout(std::time::Duration::from_secs(20));
    let results = run_ranks(count, &config, |comm| Ok::<_, Error>(body(&comm)));
    let results: Vec<_> = results.into_iter().collect();
    // Show the cause, not the peers that heard of it.
    let failures: Vec<_> = results.iter().filter_map(|r| r.as_ref().err()).collect();
    assert!(failures.is_empty(), "{failures:#?}");
    results.into_iter().map(|result| result.unwrap()).collect()
}

/// A tensor with its data and descriptor.
pub struct Ten<T> {
    pub data: Vec<T>,
    sizes: Vec<usize>,
    raw: ncclEpTensor_t,
    /// Bytes by which the descriptor misses the data.
    pub skew: usize,
}

impl<T: Element> Ten<T> {
    pub fn new(sizes: &[usize], data: Vec<T>) -> Self {
        assert_eq!(data.len(), sizes.iter().product::<usize>());
        let mut this = Self { data, sizes: sizes.to_vec(), raw: VersionedStruct::init(), skew: 0 };
        this.raw.ndim = sizes.len() as u32;
        this.raw.datatype = T::DATA_TYPE.as_raw();
        this
    }

    pub fn filled(sizes: &[usize], value: T) -> Self {
        Self::new(sizes, vec![value; sizes.iter().product()])
    }

    /// The descriptor, good until the tensor is used otherwise.
    pub fn d(&mut self) -> *mut ncclEpTensor_t {
        self.raw.sizes = self.sizes.as_mut_ptr();
        self.raw.data =
            if self.data.is_empty() { null_mut() } else { self.data.as_mut_ptr().cast() };
        self.raw.data = self.raw.data.wrapping_byte_add(self.skew);
        &raw mut self.raw
    }

    /// Another element type over the same bytes; the last extent counts its elements.
    pub fn retype(&mut self, data_type: DataType, size: usize) {
        self.raw.datatype = data_type.as_raw();
        let last = self.sizes.last_mut().unwrap();
        *last = *last * size_of::<T>() / size;
    }

    pub fn with_window(mut self, window: ncclWindow_t) -> Self {
        self.raw.win_hdl = window;
        self
    }

    pub fn raw(&mut self) -> &mut ncclEpTensor_t {
        self.d();
        &mut self.raw
    }
}

/// Registers all of a tensor's data as a window.
pub fn window<T: Element>(comm: &Comm, mut tensor: Ten<T>) -> Ten<T> {
    let mut handle = null_mut();
    let (data, bytes) = (tensor.data.as_mut_ptr().cast(), size_of_val(&tensor.data[..]));
    let register = backend().nccl().ncclCommWindowRegister;
    // SAFETY: the communicator is live and the data is the tensor's, whose buffer does not move
    // with it.
    ok(unsafe { register(comm.as_raw(), data, bytes, &mut handle, 0) });
    tensor.with_window(handle)
}

/// Rows whose elements all have one value each.
pub fn rows(values: &[f32], hidden: usize) -> Vec<bf16> {
    values.iter().flat_map(|&v| vec![bf16::from_f32(v); hidden]).collect()
}

/// The value of each row; panics when a row is not of one value.
#[track_caller]
pub fn values(data: &[bf16], hidden: usize) -> Vec<f32> {
    let row = |row: &[bf16]| {
        assert!(row.iter().all(|x| x.to_bits() == row[0].to_bits()), "a mixed row: {row:?}");
        row[0].to_f32()
    };
    data.chunks_exact(hidden).map(row).collect()
}

/// What untouched memory holds.
pub const CANARY: f32 = -77.0;

pub fn config(algorithm: ncclEpAlgorithm_t) -> ncclEpGroupConfig_t {
    ncclEpGroupConfig_t { algorithm, ..VersionedStruct::init() }
}

/// A group of one rank.
pub struct Group {
    pub raw: ncclEpGroup_t,
}

impl Group {
    #[track_caller]
    pub fn new(comm: &Comm, config: &ncclEpGroupConfig_t) -> Self {
        let mut raw = null_mut();
        // SAFETY: the communicator is live; `raw` and the config outlive the call.
        ok(unsafe { (api().ncclEpCreateGroup)(&mut raw, comm.as_raw(), config) });
        Self { raw }
    }

    pub fn init(
        &self,
        layout: ncclEpLayout_t,
        topk: i32,
        alignment: usize,
    ) -> (ncclResult_t, ncclEpHandle_t) {
        let mut config = ncclEpHandleConfig_t::init();
        config.dispatch_output_per_expert_alignment = alignment;
        let mut handle = null_mut();
        let call = api().ncclEpInitHandle;
        // SAFETY: the group is live; `handle` and the config outlive the call.
        let code = unsafe { call(&mut handle, self.raw, layout, &config, topk, null()) };
        (code, handle)
    }

    #[track_caller]
    pub fn handle(&self, layout: ncclEpLayout_t, topk: usize, alignment: usize) -> Handle {
        let (code, raw) = self.init(layout, topk as i32, alignment);
        ok(code);
        Handle { raw, layout, topk }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Destroying a low-latency group is a collective; a panicking rank leaves it.
        if !std::thread::panicking() {
            // SAFETY: the group is live, and this is its last use.
            ok(unsafe { (api().ncclEpGroupDestroy)(self.raw) });
        }
    }
}

pub struct Handle {
    pub raw: ncclEpHandle_t,
    pub layout: ncclEpLayout_t,
    pub topk: usize,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is live, and this is its last use.
        ok(unsafe { (api().ncclEpHandleDestroy)(self.raw) });
    }
}

/// Tensors of a dispatch call; what is `None` is passed as NULL.
#[derive(Default)]
pub struct Dispatch {
    pub tokens: Option<Ten<bf16>>,
    pub weights: Option<Ten<f32>>,
    pub out_tokens: Option<Ten<bf16>>,
    pub out_weights: Option<Ten<f32>>,
    pub out_ids: Option<Ten<i64>>,
    pub out_ids32: Option<Ten<i32>>,
    pub counters: Option<Ten<i32>>,
    pub src_counters: Option<Ten<i32>>,
    pub global: bool,
    pub no_info: bool,
    pub config: Option<ncclEpDispatchConfig_t>,
}

pub fn d<T: Element>(tensor: &mut Option<Ten<T>>) -> *mut ncclEpTensor_t {
    tensor.as_mut().map_or(null_mut(), Ten::d)
}

impl Dispatch {
    pub fn call(&mut self, handle: &Handle) -> ncclResult_t {
        let mut inputs = ncclEpDispatchInputs_t::init();
        inputs.tokens = d(&mut self.tokens);
        inputs.topk_weights = d(&mut self.weights);
        let mut outputs = ncclEpDispatchOutputs_t::init();
        outputs.tokens = d(&mut self.out_tokens);
        outputs.topk_weights = d(&mut self.out_weights);
        outputs.topk_idx = d(&mut self.out_ids);
        if self.out_ids32.is_some() {
            outputs.topk_idx = d(&mut self.out_ids32);
        }
        let mut info = ncclEpLayoutInfo_t::init();
        info.expert_counters = d(&mut self.counters);
        info.src_rank_counters = d(&mut self.src_counters);
        if self.global {
            info.recv_topk_idx_kind = ncclEpExpertIdKind_t::NCCL_EP_EXPERT_ID_GLOBAL;
        }
        let info = if self.no_info { null() } else { &raw const info };
        let config = self.config.as_ref().map_or(null(), |c| &raw const *c);
        let call = api().ncclEpDispatch;
        // SAFETY: the handle is live; the structs are this frame's, and their tensors are null or
        // `self`'s.
        unsafe { call(handle.raw, &inputs, &outputs, info, config, null_mut()) }
    }
}

/// Updates a handle. `topk` columns an id row.
pub fn update_with<T: Element>(
    handle: &Handle,
    ids: &mut Ten<T>,
    info: *const ncclEpLayoutInfo_t,
) -> ncclResult_t {
    // SAFETY: the handle is live, the ids are borrowed, and `info` is null or the caller's.
    unsafe { (api().ncclEpUpdateHandle)(handle.raw, ids.d(), info, null_mut()) }
}

/// Int64 ids of any number of tokens.
pub fn ids(topk: usize, ids: &[i64]) -> Ten<i64> {
    Ten::new(&[ids.len() / topk, topk], ids.to_vec())
}

#[derive(Default)]
pub struct Combine {
    pub tokens: Option<Ten<bf16>>,
    pub in_weights: Option<Ten<f32>>,
    pub out: Option<Ten<bf16>>,
    pub weights: Option<Ten<f32>>,
    pub config: Option<ncclEpCombineConfig_t>,
}

impl Combine {
    pub fn call(&mut self, handle: &Handle) -> ncclResult_t {
        let mut inputs = ncclEpCombineInputs_t::init();
        inputs.tokens = d(&mut self.tokens);
        inputs.topk_weights = d(&mut self.in_weights);
        let mut outputs = ncclEpCombineOutputs_t::init();
        outputs.tokens = d(&mut self.out);
        outputs.topk_weights = d(&mut self.weights);
        let config = self.config.as_ref().map_or(null(), |c| &raw const *c);
        // SAFETY: the handle is live; the structs are this frame's, and their tensors are null or
        // `self`'s.
        unsafe { (api().ncclEpCombine)(handle.raw, &inputs, &outputs, config, null_mut()) }
    }
}

/// A routing with the values of its tokens: one of the fixtures of EP 9.0.
#[derive(Clone, Copy)]
pub struct Fixture {
    pub ranks: usize,
    pub experts: usize,
    pub max_tokens: usize,
    pub topk: usize,
    pub ids: fn(usize) -> Vec<i64>,
    pub values: fn(usize) -> Vec<f32>,
    /// Weights of each entry; by position `k` for the token's value `v`.
    pub weight: fn(f32, usize) -> f32,
    pub max_recv: usize,
}

/// F4: token `i` of rank `r` goes to expert `(4r+i) mod 8`, value `4r+i+1`.
pub const F4: Fixture = Fixture {
    ranks: 4,
    experts: 8,
    max_tokens: 4,
    topk: 1,
    ids: |r| (0..4).map(|i| (4 * r as i64 + i) % 8).collect(),
    values: |r| (0..4).map(|i| (4 * r + i + 1) as f32).collect(),
    weight: |_, _| 1.0,
    max_recv: 32,
};

/// F4K2: as F4 with two experts a token.
pub const F4K2: Fixture = Fixture { topk: 2, ids: |_| vec![0, 1, 2, 3, 4, 6, 5, 7], ..F4 };

/// G2.
pub const G2: Fixture = Fixture {
    ranks: 2,
    experts: 4,
    max_tokens: 4,
    topk: 2,
    ids: |r| match r {
        0 => vec![0, 2, 3, 1, 1, 0, -1, -1],
        _ => vec![2, -1, 3, 3, 0, 1, 2, 3],
    },
    values: |r| (1..=4).map(|i| (4 * r + i) as f32).collect(),
    weight: |v, k| v + k as f32 / 4.0,
    max_recv: 16,
};

impl Fixture {
    pub fn local(&self) -> usize {
        self.experts / self.ranks
    }

    pub fn config(&self, algorithm: ncclEpAlgorithm_t, hidden: usize) -> ncclEpGroupConfig_t {
        ncclEpGroupConfig_t {
            num_experts: self.experts as u32,
            max_dispatch_tokens_per_rank: self.max_tokens as u32,
            max_recv_tokens_per_rank: if algorithm == HT { self.max_recv as u32 } else { 0 },
            max_token_bytes: 2 * hidden as u32,
            ..config(algorithm)
        }
    }

    pub fn ids(&self, rank: usize) -> Ten<i64> {
        ids(self.topk, &(self.ids)(rank))
    }

    pub fn tokens(&self, rank: usize, hidden: usize) -> Ten<bf16> {
        let values = (self.values)(rank);
        Ten::new(&[values.len(), hidden], rows(&values, hidden))
    }

    pub fn weights(&self, rank: usize) -> Ten<f32> {
        let values = (self.values)(rank);
        let weights = |v: &f32| (0..self.topk).map(|k| (self.weight)(*v, k)).collect::<Vec<_>>();
        Ten::new(&[values.len(), self.topk], values.iter().flat_map(weights).collect())
    }
}

/// Width of the rows of high-throughput tests.
pub const H: usize = 16;

/// What an update published.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    pub counters: Vec<i64>,
    pub offsets: Vec<i64>,
    pub total: i64,
}

/// A high-throughput rank with an updated handle.
pub struct Ht {
    pub fixture: Fixture,
    pub rank: usize,
    // Handles go before their group.
    pub handle: Handle,
    pub group: Group,
    pub published: Published,
}

impl Ht {
    /// Group and handle, not updated.
    #[track_caller]
    pub fn fresh(
        comm: &Comm,
        fixture: Fixture,
        layout: ncclEpLayout_t,
        alignment: usize,
        change: impl Fn(&mut ncclEpGroupConfig_t),
    ) -> Self {
        let mut config = fixture.config(HT, H);
        change(&mut config);
        let group = Group::new(comm, &config);
        let handle = group.handle(layout, fixture.topk, alignment);
        let published = Published { counters: vec![], offsets: vec![], total: -1 };
        Self { fixture, rank: comm.rank(), handle, group, published }
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
        ok(this.update(&mut ids));
        this
    }

    #[track_caller]
    pub fn new(comm: &Comm, fixture: Fixture, layout: ncclEpLayout_t) -> Self {
        Self::with(comm, fixture, layout, 0, |_| ())
    }

    /// Updates with all counters: int64 for expert-major, int32 and an int64 total for FLAT.
    pub fn update<T: Element>(&mut self, ids: &mut Ten<T>) -> ncclResult_t {
        let local = self.fixture.local();
        let mut counters = Ten::filled(&[local + 1], -9_i64);
        let mut counters32 = Ten::filled(&[local + 1], -9_i32);
        let mut offsets = Ten::filled(&[local + 1], -9_i64);
        let mut total = Ten::filled(&[2], -9_i64);
        let mut info = ncclEpLayoutInfo_t::init();
        let em = self.handle.layout == EM;
        info.expert_counters = if em { counters.d() } else { counters32.d() };
        info.expert_offsets = offsets.d();
        info.recv_total_counter = total.d();
        let code = update_with(&self.handle, ids, &info);
        let wide = |x: &i32| i64::from(*x);
        let counters = if em { counters.data } else { counters32.data.iter().map(wide).collect() };
        assert_eq!(counters[local], -9, "written beyond the experts");
        assert_eq!(offsets.data[local], -9, "written beyond the experts");
        assert_eq!(total.data[1], -9, "written beyond the total");
        self.published = Published {
            counters: counters[..local].to_vec(),
            offsets: offsets.data[..local].to_vec(),
            total: total.data[0],
        };
        code
    }

    /// A forward dispatch of the fixture's tokens into canaries of that many rows.
    pub fn dispatch_into(&self, rows: usize) -> Dispatch {
        let (fixture, k) = (self.fixture, self.fixture.topk);
        let flat = self.handle.layout == FLAT;
        let weights = if flat { vec![rows, k] } else { vec![rows] };
        Dispatch {
            tokens: Some(fixture.tokens(self.rank, H)),
            weights: Some(fixture.weights(self.rank)),
            out_tokens: Some(Ten::filled(&[rows, H], bf16::from_f32(CANARY))),
            out_weights: Some(Ten::filled(&weights, CANARY)),
            out_ids: flat.then(|| Ten::filled(&[rows, k], CANARY as i64)),
            ..Dispatch::default()
        }
    }

    #[track_caller]
    pub fn dispatch(&self) -> Received {
        let mut dispatch = self.dispatch_into(self.fixture.max_recv);
        ok(dispatch.call(&self.handle));
        Received::of(dispatch)
    }

    /// Combines rows of these values; the output has a row for each token of the fixture.
    pub fn combine_of(&self, values: &[f32]) -> Combine {
        let tokens = (self.fixture.values)(self.rank).len();
        Combine {
            tokens: Some(Ten::new(&[values.len(), H], rows(values, H))),
            out: Some(Ten::filled(&[tokens, H], bf16::from_f32(CANARY))),
            ..Combine::default()
        }
    }

    #[track_caller]
    pub fn combine(&self, values: &[f32]) -> Vec<f32> {
        let mut combine = self.combine_of(values);
        ok(combine.call(&self.handle));
        self::values(&combine.out.unwrap().data, H)
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
    pub fn of(dispatch: Dispatch) -> Self {
        Self {
            rows: values(&dispatch.out_tokens.unwrap().data, H),
            weights: dispatch.out_weights.map_or(vec![], |t| t.data),
            ids: dispatch.out_ids.map_or(vec![], |t| t.data),
        }
    }
}

/// The table of a fixture rank by rank: what `f` gives for each.
pub fn by_rank<T>(fixture: Fixture, f: impl Fn(usize) -> T) -> Vec<T> {
    (0..fixture.ranks).map(f).collect()
}

/// Width of the rows of low-latency tests.
pub const WIDE: usize = 512;

/// A low-latency rank with an updated handle.
pub struct Ll {
    pub fixture: Fixture,
    pub rank: usize,
    // Handles go before their group.
    pub handle: Handle,
    pub group: std::rc::Rc<Group>,
    /// Borrowed by the handle until the step's last combine.
    pub ids: Ten<i64>,
}

/// What a low-latency dispatch left in its outputs.
#[derive(Debug, Clone, PartialEq)]
pub struct LlReceived {
    /// By expert or by source.
    pub counters: Vec<i32>,
    pub rows: Vec<f32>,
    /// Rank-major only.
    pub weights: Vec<f32>,
    pub ids: Vec<i32>,
    /// Rows an expert or source has room for.
    pub room: usize,
}

impl LlReceived {
    /// The live rows of an expert or source.
    pub fn rows_of(&self, i: usize) -> &[f32] {
        &self.rows[i * self.room..][..self.counters[i] as usize]
    }

    /// The same, sorted: their order is not specified.
    pub fn set_of(&self, i: usize) -> Vec<f32> {
        let mut rows = self.rows_of(i).to_vec();
        rows.sort_by(f32::total_cmp);
        rows
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

impl Ll {
    #[track_caller]
    pub fn on(
        group: std::rc::Rc<Group>,
        rank: usize,
        fixture: Fixture,
        layout: ncclEpLayout_t,
    ) -> Self {
        let handle = group.handle(layout, fixture.topk, 0);
        let mut ids = fixture.ids(rank);
        ok(update_with(&handle, &mut ids, null()));
        Self { fixture, rank, handle, group, ids }
    }

    #[track_caller]
    pub fn new(comm: &Comm, fixture: Fixture, layout: ncclEpLayout_t) -> Self {
        let group = Group::new(comm, &fixture.config(LL, WIDE));
        Self::on(group.into(), comm.rank(), fixture, layout)
    }

    pub fn shape(&self, hidden: usize) -> [usize; 3] {
        let Fixture { ranks, max_tokens, .. } = self.fixture;
        match self.handle.layout == EM {
            true => [self.fixture.local(), ranks * max_tokens, hidden],
            false => [ranks, max_tokens, hidden],
        }
    }

    /// A dispatch of the fixture's tokens into canaries.
    pub fn dispatch_call(&self, hidden: usize) -> Dispatch {
        let em = self.handle.layout == EM;
        let Fixture { ranks, max_tokens, topk, .. } = self.fixture;
        let (shape, columns) = (self.shape(hidden), [ranks, max_tokens, topk]);
        Dispatch {
            tokens: Some(self.fixture.tokens(self.rank, hidden)),
            weights: (!em).then(|| self.fixture.weights(self.rank)),
            out_tokens: Some(Ten::filled(&shape, bf16::from_f32(CANARY))),
            out_weights: (!em).then(|| Ten::filled(&columns, CANARY)),
            out_ids32: (!em).then(|| Ten::filled(&columns, CANARY as i32)),
            counters: em.then(|| Ten::filled(&[self.fixture.local()], -9)),
            src_counters: (!em).then(|| Ten::filled(&[ranks], -9)),
            ..Dispatch::default()
        }
    }

    #[track_caller]
    pub fn received(&self, call: Dispatch) -> LlReceived {
        LlReceived {
            counters: call.counters.or(call.src_counters).map_or(vec![], |t| t.data),
            rows: values(&call.out_tokens.unwrap().data, WIDE),
            weights: call.out_weights.map_or(vec![], |t| t.data),
            ids: call.out_ids32.map_or(vec![], |t| t.data),
            room: self.shape(1)[1],
        }
    }

    #[track_caller]
    pub fn dispatch(&self) -> LlReceived {
        let mut call = self.dispatch_call(WIDE);
        ok(call.call(&self.handle));
        self.received(call)
    }

    /// A combine of rows of these values, with the fixture's weights for expert-major.
    pub fn combine_call(&self, values: &[f32], hidden: usize) -> Combine {
        let tokens = (self.fixture.values)(self.rank).len();
        Combine {
            tokens: Some(Ten::new(&self.shape(hidden), rows(values, hidden))),
            out: Some(Ten::filled(&[tokens, hidden], bf16::from_f32(CANARY))),
            weights: (self.handle.layout == EM).then(|| self.fixture.weights(self.rank)),
            ..Combine::default()
        }
    }

    #[track_caller]
    pub fn combine(&self, values: &[f32]) -> Vec<f32> {
        let mut call = self.combine_call(values, WIDE);
        ok(call.call(&self.handle));
        self::values(&call.out.unwrap().data, WIDE)
    }
}
