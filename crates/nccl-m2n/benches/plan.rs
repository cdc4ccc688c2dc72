//! What planning costs: `cargo bench -p nccl-m2n --bench plan`.
//!
//! One line of JSON for each case. Times are the best of several runs, in milliseconds: `plan_ms`
//! makes the plan and checks it against the library's limits, `walk_ms` computes every transfer,
//! `list_ms` keeps them all in memory, `traffic_ms` adds bytes up by link, `prove_ms` is the proof.
//! `list_bytes` is the memory of the list, `peak_bytes` what the proof had allocated at most.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nccl_m2n::plan::{Conditions, Plan, Transfer};
use nccl_m2n::{DataType, Layout, Mesh, Placement};

struct Peak;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system allocator does the work.
unsafe impl GlobalAlloc for Peak {
    unsafe fn alloc(&self, layout: Memory) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Memory) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static PEAK: Peak = Peak;

fn main() {
    // `cargo test` runs benchmarks too, with this argument and without time to spare.
    let quick = std::env::args().any(|argument| argument == "--test");
    let (rows, columns) = (Placement::Shard(0), Placement::Shard(1));
    case("64 -> 64, same dimension", 64, 64, rows, rows, quick);
    case("64 -> 96, same dimension", 64, 96, rows, rows, quick);
    case("64 -> 64, across dimensions", 64, 64, rows, columns, quick);
    if !quick {
        case("256 -> 256, across dimensions", 256, 256, rows, columns, quick);
        case("1024 -> 1024, across dimensions", 1024, 1024, rows, columns, quick);
    }
}

fn case(name: &str, from: usize, to: usize, a: Placement, b: Placement, quick: bool) {
    let mesh = |ranks, start| Mesh::new(&[ranks], start).unwrap();
    let shape = [from * to, from * to];
    let source = Layout::from_global(mesh(from, 0), &[a], &shape, DataType::Bfloat16).unwrap();
    let destination = source.on(mesh(to, from), &[b]).unwrap();
    let conditions = Conditions::domains(from + to, 8);
    let make = || Plan::new(&source, &destination, &conditions).unwrap();
    let plan = make();
    let runs = if quick { 1 } else { 7 };
    let plan_ms = best(runs, || black_box((make(), plan.accepted().is_ok(), plan.digest())));
    let walk_ms = best(runs, || plan.transfers().map(|t| black_box(t).bytes()).sum::<usize>());
    let list = || {
        let mut list = Vec::with_capacity(plan.transfer_count());
        list.extend(plan.transfers());
        list
    };
    let list_ms = best(runs, list);
    let traffic_ms = best(runs, || plan.traffic());
    let prove_ms = best(runs, || plan.prove().unwrap());
    let before = LIVE.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let proof = plan.prove().unwrap();
    let peak_bytes = MOST.load(Ordering::Relaxed) - before;
    let list_bytes = list().len() * size_of::<Transfer>();
    println!(
        "{{\"case\": \"{name}\", \"transfers\": {}, \"plan_ms\": {plan_ms:.4}, \"walk_ms\": \
         {walk_ms:.3}, \"list_ms\": {list_ms:.3}, \"traffic_ms\": {traffic_ms:.3}, \"prove_ms\": \
         {prove_ms:.3}, \"plan_bytes\": {}, \"list_bytes\": {list_bytes}, \"peak_bytes\": \
         {peak_bytes}}}",
        proof.transfers,
        size_of::<Plan>(),
    );
}

/// Milliseconds of the fastest run.
fn best<T>(runs: usize, work: impl Fn() -> T) -> f64 {
    let time = |_| {
        let start = Instant::now();
        let result = black_box(work());
        let elapsed = start.elapsed();
        drop(result);
        elapsed
    };
    (0..runs).map(time).min().unwrap_or(Duration::ZERO).as_secs_f64() * 1e3
}
