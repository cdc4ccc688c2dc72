//! Expert ids on a GPU: the kernel against the loop that says what it does, what it costs, and wrong ids
//! between two ranks against right ones. `ids.sh` runs it.
//!
//! ```text
//! ids_on_gpu kernel
//! ids_on_gpu rank RANK FOLDER
//! ids_on_gpu cpu
//! ```
//!
//! In the folder the two ranks meet. `cpu` runs both on the CPU backends, to try the program itself.

use std::path::Path;
use std::time::{Duration, Instant};

use nccl_ep::{
    Backend, Buffer, CombineConfig, CombineInputs, CombineOutputs, Comm, Device, DispatchConfig,
    DispatchInputs, DispatchOutputs, Error, Group, GroupConfig, Handle, HandleConfig, Layout,
    LayoutInfo, OwnedStream, Result, Stream, Tensor, TensorMut, TopK, UniqueId, bf16,
};
use nccl_ext_core::ids::{IdCheck, IdCopies, IdReport, IdRules, IdSource, Repeated};
use nccl_ext_core::{DeviceBuffer, Event};
use nccl_ext_cpu::{CpuConfig, run_ranks};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let run = || -> Result<bool> {
        match words[..] {
            ["kernel"] => kernel(nccl_ep_sys::load()?),
            ["rank", rank, folder] => {
                ranks(nccl_ep_sys::load()?, usize::from(rank != "0"), Path::new(folder))
            }
            ["cpu"] => {
                let configs = [CpuConfig::new(), CpuConfig::new().deferred(1)];
                let worlds = configs.iter().map(|config| run_ranks(2, config, cases));
                let failed = worlds.flatten().filter(|right| !matches!(right, Ok(true)));
                Ok(failed.inspect(|failed| println!("{failed:?}")).count() == 0)
            }
            _ => Ok(false),
        }
    };
    match run() {
        Ok(true) => println!("{}: passed", words.join(" ")),
        Ok(false) => {
            println!("{}: FAILED", words.join(" "));
            std::process::exit(1);
        }
        Err(error) => {
            println!("{}: {error}", words.join(" "));
            std::process::exit(2);
        }
    }
}

/// Numbers that look random, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn kernel(backend: Backend) -> Result<bool> {
    let id = UniqueId::new(backend)?;
    let comm = Comm::init_rank(backend, 1, &id, 0)?;
    let started = Instant::now();
    let loading = IdRules { experts: 8, topk: 1, repeated: Repeated::Allowed, rank_experts: 0 };
    drop(IdCopies::new(comm.device(), 1, loading)?);
    println!("loading the kernel and a first allocation: {:.1} ms", millis(started.elapsed()));

    let mut same = true;
    let mut numbers = Numbers(11);
    for repeated in [Repeated::Allowed, Repeated::Counted, Repeated::Dropped] {
        for (tokens, topk, experts, rank_experts) in
            [(1, 1, 4, 0), (7, 8, 8, 0), (300, 3, 16, 0), (1000, 12, 32, 16), (5000, 8, 256, 0)]
                .into_iter()
                .chain([(300, 20, 64, 16), (50, 40, 64, 0)])
        // rows that shared memory has no room for
        {
            for wide in [false, true] {
                let rules = IdRules { experts, topk, repeated, rank_experts };
                same &= as_the_loop_says(&comm, rules, tokens, wide, &mut numbers)?;
            }
        }
    }
    println!("kernel and loop agree: {same}");
    for tokens in [8, 128, 1024, 4096, 16384] {
        measure(&comm, tokens)?;
    }
    comm.destroy()?;
    Ok(same)
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Copies after copies in one memory: ids, count and first place are those of the loop.
fn as_the_loop_says(
    comm: &Comm,
    rules: IdRules,
    tokens: u64,
    wide: bool,
    numbers: &mut Numbers,
) -> Result<bool> {
    let stream = OwnedStream::new(comm)?;
    let stream = stream.stream();
    let mut copies = IdCopies::new(comm.device(), tokens, rules)?;
    let mut same = true;
    for round in 0..6 {
        let count = (tokens * u64::from(rules.topk)) as usize;
        let id = |numbers: &mut Numbers| match numbers.below(if round % 2 == 0 {
            50
        } else {
            1 << 30
        }) {
            0 => rules.experts as i64 + numbers.below(3) as i64,
            1 => 1_000_000,
            2 => -1 - numbers.below(70_000) as i64,
            _ => numbers.below(rules.experts) as i64,
        };
        let ids: Vec<i64> = (0..count).map(|_| id(numbers)).collect();
        let bytes: Vec<u8> = match wide {
            true => ids.iter().flat_map(|id| id.to_ne_bytes()).collect(),
            false => ids.iter().flat_map(|id| (*id as i32).to_ne_bytes()).collect(),
        };
        let source = Buffer::from_slice(comm, &bytes)?;
        let ids = IdSource { ptr: source.raw().ptr, wide, tokens };
        let calls = comm.lock();
        // SAFETY: the buffer holds the ids and outlives the wait below, on one stream.
        let at = unsafe { copies.copy(comm, ids, stream)? };
        drop(calls);
        let mut found = vec![0_u8; bytes.len()];
        // SAFETY: the copy has as many bytes as the ids.
        unsafe { comm.device().copy_to_host(at, &mut found, stream)? };
        let told = copies.take_error();

        let mut expected = vec![0_u8; bytes.len()];
        let report = IdReport::default();
        let check = IdCheck {
            from: bytes.as_ptr().cast(),
            to: expected.as_mut_ptr().cast(),
            tokens,
            experts: rules.experts,
            topk: rules.topk,
            wide: wide.into(),
            repeated: rules.repeated as u32,
            rank_experts: rules.rank_experts,
            state: core::ptr::null_mut(),
            report: &raw const report,
        };
        // SAFETY: both vectors hold as many ids, and the report lives.
        unsafe { check.run() };
        let wrong = match report.latest() {
            None => told.is_ok(),
            Some((count, first)) => {
                let topk = u64::from(rules.topk);
                let (token, choice) = ((first / topk) as usize, (first % topk) as usize);
                let right = |c: u64, t: usize, k: usize| (c, t, k) == (count, token, choice);
                matches!(told, Err(Error::Ids { count, token, choice }) if right(count, token, choice))
            }
        };
        if found != expected || !wrong {
            println!(
                "{rules:?}, {tokens} tokens, wide {wide}: ids {}, told {told:?} for {:?}",
                if found == expected { "right" } else { "WRONG" },
                report.latest()
            );
            same = false;
        }
    }
    Ok(same)
}

/// Top-8 of 256 experts, all right.
fn measure(comm: &Comm, tokens: u64) -> Result<()> {
    const TIMES: u32 = 200;
    let device: Device = comm.device();
    let stream = OwnedStream::new(comm)?;
    let stream = stream.stream();
    let rules = IdRules { experts: 256, topk: 8, repeated: Repeated::Dropped, rank_experts: 0 };
    let mut copies = IdCopies::new(device, tokens, rules)?;
    let row = (0..8).map(|choice| choice * 31);
    let ids: Vec<i64> = (0..tokens as i64)
        .flat_map(|token| row.clone().map(move |choice| (token + choice) % 256))
        .collect();
    let source = Buffer::from_slice(comm, &ids)?;
    let ids = IdSource { ptr: source.raw().ptr, wide: true, tokens };
    let _calls = comm.lock();
    let mut copy = || {
        // SAFETY: the buffer holds the ids and outlives the wait below, on one stream.
        unsafe { copies.copy(comm, ids, stream) }
    };
    for _ in 0..TIMES {
        copy()?;
    }
    stream.synchronize(device)?;
    let (mut start, mut end) = (Event::new(device)?, Event::new(device)?);
    // One at a time, with nothing enqueued: what a launch costs here.
    let mut host = Vec::new();
    for _ in 0..TIMES {
        let began = Instant::now();
        copy()?;
        host.push(began.elapsed());
        stream.synchronize(device)?;
    }
    host.sort_unstable();
    start.record(stream)?;
    for _ in 0..TIMES {
        copy()?;
    }
    end.record(stream)?;
    end.synchronize()?;
    let gpu = end.elapsed_since(&start)? / TIMES;
    println!(
        "{tokens} x 8 ids: {:.2} us of the GPU (with {TIMES} in a row), {:.2} us of the host (median)",
        millis(gpu) * 1e3,
        millis(host[host.len() / 2]) * 1e3
    );
    Ok(())
}

const TOKENS: usize = 4;
const HIDDEN: usize = 512;
const EXPERTS: usize = 8;

/// One of two ranks. Rank 0's ids are wrong, and everything is as if right ones stood there.
fn ranks(backend: Backend, rank: usize, folder: &Path) -> Result<bool> {
    let file = folder.join("id");
    let id = if rank == 0 {
        let id = UniqueId::new(backend)?;
        let made = std::fs::write(folder.join("new"), id.to_bytes())
            .and_then(|()| std::fs::rename(folder.join("new"), &file));
        made.map_err(|error| Error::RankGone { reason: error.to_string() })?;
        id
    } else {
        let bytes = loop {
            match std::fs::read(&file).ok().and_then(|bytes| bytes.try_into().ok()) {
                Some(bytes) => break bytes,
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        UniqueId::from_bytes(bytes)
    };
    cases(Comm::init_rank_on(Device::new(backend, 0), 2, &id, rank)?)
}

fn cases(comm: Comm) -> Result<bool> {
    let mut right = true;
    let low: [(&str, &[i64], &[i64], _); 4] = [
        ("A6 [3, 8]", &[3, 8], &[3, -1], (1, 0, 1)),
        ("A6 [3, 1000000]", &[0, 1, 3, 1_000_000], &[0, 1, 3, -1], (1, 1, 1)),
        ("A6 [3, 3]", &[3, 3], &[3, -1], (1, 0, 1)),
        ("A8 [3, -2^63]", &[3, i64::MIN], &[3, -1], (0, 0, 0)),
    ];
    for (name, wrong, harmless, told) in low {
        right &= case(&comm, name, false, 2, wrong, harmless, told)?;
    }
    let high: [(&str, usize, &[i64], &[i64], _); 3] = [
        ("A7 [5, 2, 5, 1]", 4, &[5, 2, 5, 1], &[5, 2, -1, 1], (1, 0, 2)),
        ("A7 eight times 6", 8, &[6; 8], &[6, -1, -1, -1, -1, -1, -1, -1], (7, 0, 1)),
        ("A7 [3, 8, 1, 2]", 4, &[3, 8, 1, 2], &[3, -1, 1, 2], (1, 0, 1)),
    ];
    for (name, topk, wrong, harmless, told) in high {
        right &= case(&comm, name, true, topk, wrong, harmless, told)?;
    }
    comm.destroy()?;
    Ok(right)
}

/// What a rank sees of a step, and what the step told of ids.
#[derive(Debug, PartialEq)]
struct Seen {
    counters: Vec<i32>,
    /// The first element of each row, sorted where the order is not promised.
    rows: Vec<u32>,
    weights: Vec<u32>,
    combined: Vec<u16>,
}

fn case(
    comm: &Comm,
    name: &str,
    high: bool,
    topk: usize,
    wrong: &[i64],
    harmless: &[i64],
    (count, token, choice): (u64, usize, usize),
) -> Result<bool> {
    let config = GroupConfig::new()
        .num_experts(EXPERTS as u32)
        .max_dispatch_tokens_per_rank(TOKENS as u32)
        .max_token_bytes((2 * HIDDEN) as u32)
        .num_topk(topk as u32);
    let (config, layout) = if high {
        let config = config.algorithm(nccl_ep::Algorithm::HighThroughput);
        (config.max_recv_tokens_per_rank(4 * EXPERTS as u32), Layout::Flat)
    } else {
        (config, Layout::ExpertMajor)
    };
    let group = Group::create(comm, &config)?;
    let mut handle = group.init_handle(layout, &HandleConfig::new(), TopK::Auto, None)?;
    let filled = |first: &[i64]| {
        let mut ids = if comm.rank() == 0 { first.to_vec() } else { Vec::new() };
        ids.extend((3_i64..).map(|id| id % EXPERTS as i64).take(TOKENS * topk - ids.len()));
        ids
    };
    let mut seen = Vec::new();
    // The last step shows that nothing is left of the wrong one.
    for ids in [wrong, harmless, harmless] {
        seen.push(step(comm, &group, &mut handle, high, topk, &filled(ids))?);
    }
    handle.destroy()?;
    group.destroy()?;
    let expected = (comm.rank() == 0 && count > 0).then_some((count, token, choice));
    let told: Vec<_> = seen.iter().map(|(_, told)| *told).collect();
    let same = seen[0].0 == seen[1].0 && seen[1].0 == seen[2].0;
    let right = same && told == [expected, None, None];
    println!("rank {}, {name}: as harmless ids {same}, told {told:?}", comm.rank());
    if !same {
        println!("{:?}\ninstead of\n{:?}", brief(&seen[0].0), brief(&seen[1].0));
    }
    Ok(right)
}

fn brief(seen: &Seen) -> (&[i32], &[u32], Vec<u16>) {
    (&seen.counters, &seen.rows, seen.combined.iter().step_by(HIDDEN).copied().collect())
}

type Told = Option<(u64, usize, usize)>;

fn step(
    comm: &Comm,
    group: &Group,
    handle: &mut Handle,
    high: bool,
    topk: usize,
    ids: &[i64],
) -> Result<(Seen, Told)> {
    let stream = Stream::DEFAULT;
    let rank = comm.rank();
    let value = |token: usize| bf16::from_f32((1 + rank * TOKENS + token) as f32);
    let tokens: Vec<_> = (0..TOKENS * HIDDEN).map(|at| value(at / HIDDEN)).collect();
    let tokens = Buffer::from_slice(comm, &tokens)?;
    let weights: Vec<_> =
        (0..TOKENS * topk).map(|at| 0.25 + (rank * 64 + at) as f32 / 8.0).collect();
    let weights = Buffer::from_slice(comm, &weights)?;
    let mut ids = Buffer::from_slice(comm, ids)?;
    let local = group.local_experts();
    let shape = if high { vec![4 * EXPERTS, HIDDEN] } else { vec![local, 2 * TOKENS, HIDDEN] };
    let mut rows = Buffer::<bf16>::zeroed(comm, shape.iter().product())?;
    let mut row_weights = Buffer::<f32>::zeroed(comm, 4 * EXPERTS * topk)?;
    let mut row_ids = Buffer::<i64>::zeroed(comm, 4 * EXPERTS * topk)?;
    let mut counters = Buffer::<i32>::zeroed(comm, local)?;
    let mut combined = Buffer::<bf16>::zeroed(comm, TOKENS * HIDDEN)?;

    let mut info = LayoutInfo::new().expert_counters(TensorMut::new(&mut counters, &[local])?);
    let at_update = if high { Some(&mut info) } else { None };
    let mut step = handle.update(Tensor::new(&ids, &[TOKENS, topk])?, at_update, stream)?;
    ids.fill_bytes(0x7f, stream)?; // waits for the update, so that what is wrong is known
    let mut outputs = DispatchOutputs::new(TensorMut::new(&mut rows, &shape)?);
    let mut inputs = DispatchInputs::new(Tensor::new(&tokens, &[TOKENS, HIDDEN])?);
    if high {
        inputs = inputs.topk_weights(Tensor::new(&weights, &[TOKENS, topk])?);
        outputs = outputs
            .topk_weights(TensorMut::new(&mut row_weights, &[4 * EXPERTS, topk])?)
            .topk_idx(TensorMut::new(&mut row_ids, &[4 * EXPERTS, topk])?);
    }
    let at_dispatch = if high { None } else { Some(&mut info) };
    let plain = DispatchConfig::new();
    let told = match step.dispatch(&inputs, &mut outputs, at_dispatch, &plain, stream) {
        Ok(()) => None,
        Err(Error::Ids { count, token, choice }) => Some((count, token, choice)),
        Err(error) => return Err(error),
    };
    let mut inputs = CombineInputs::new(Tensor::new(&rows, &shape)?);
    if !high {
        inputs = inputs.routing_weights(Tensor::new(&weights, &[TOKENS, topk])?);
    }
    let mut outputs = CombineOutputs::new(TensorMut::new(&mut combined, &[TOKENS, HIDDEN])?);
    step.combine(&inputs, &mut outputs, &CombineConfig::new(), stream)?;
    step.check(stream)?;
    drop(step);

    let counters = counters.to_vec(stream)?;
    let first = |row: &[bf16]| u32::from(row[0].to_bits());
    let rows = rows.to_vec(stream)?;
    let rows: Vec<u32> = if high {
        rows.chunks_exact(HIDDEN).map(first).collect()
    } else {
        let zones = rows.chunks_exact(2 * TOKENS * HIDDEN).zip(&counters);
        let zones = zones.flat_map(|(zone, count)| {
            let rows = zone.chunks_exact(HIDDEN).take(*count as usize);
            let mut rows: Vec<_> = rows.map(first).collect();
            rows.sort_unstable();
            rows
        });
        zones.collect()
    };
    let weights = row_weights.to_vec(stream)?.into_iter().map(f32::to_bits).collect();
    let combined = combined.to_vec(stream)?.into_iter().map(bf16::to_bits).collect();
    Ok((Seen { counters, rows, weights, combined }, told))
}
