//! Uses on several streams are ordered by the buffers themselves: no seed shows a race, and results are
//! right.

use nccl_ext_core::{Buffer, Comm, OwnedStream, PinnedBuffer, Reduction, Result, Stream};
use nccl_ext_cpu::{CpuConfig, run_ranks};

/// Runs `body` on two ranks, whose work is delayed and interleaved in several ways.
fn whatever_the_seed(body: impl Fn(&Comm) -> Result<Vec<i32>> + Sync, expected: &[i32]) {
    for seed in 0..25 {
        for result in run_ranks(2, &CpuConfig::new().deferred(seed), |comm: Comm| body(&comm)) {
            assert_eq!(result.unwrap(), expected, "seed {seed}");
        }
    }
}

#[test]
fn a_chain_over_three_streams() {
    let chain = |comm: &Comm| {
        let [a, b, c] = [OwnedStream::new(comm)?, OwnedStream::new(comm)?, OwnedStream::new(comm)?];
        let mine = Buffer::from_slice(comm, &[1, 2 + comm.rank() as i32])?;
        let [mut once, mut twice] = [Buffer::zeroed(comm, 2)?, Buffer::zeroed(comm, 2)?];
        comm.all_reduce(&mine, &mut once, Reduction::Sum, a.stream())?;
        comm.all_reduce(&once, &mut twice, Reduction::Sum, b.stream())?;
        let mut copy = PinnedBuffer::zeroed(comm, 2)?;
        twice.enqueue_read(&mut copy, c.stream())?;
        Ok(copy.get()?.to_vec())
    };
    whatever_the_seed(chain, &[4, 10]);
}

#[test]
fn the_same_with_the_default_stream_in_the_middle() {
    let chain = |comm: &Comm| {
        let stream = OwnedStream::new(comm)?;
        let mine = Buffer::from_slice(comm, &[1, 2 + comm.rank() as i32])?;
        let [mut once, mut twice] = [Buffer::zeroed(comm, 2)?, Buffer::zeroed(comm, 2)?];
        comm.all_reduce(&mine, &mut once, Reduction::Sum, stream.stream())?;
        comm.all_reduce(&once, &mut twice, Reduction::Sum, Stream::DEFAULT)?;
        twice.to_vec(stream.stream())
    };
    whatever_the_seed(chain, &[4, 10]);
}

/// Case A2, for a buffer: overwritten from another stream while a collective reads it.
#[test]
fn a_write_waits_for_the_reads_on_other_streams() {
    let overwrite = |comm: &Comm| {
        let [a, b, c] = [OwnedStream::new(comm)?, OwnedStream::new(comm)?, OwnedStream::new(comm)?];
        let mut mine = Buffer::from_slice(comm, &[5])?;
        let [mut first, mut second] = [Buffer::zeroed(comm, 1)?, Buffer::zeroed(comm, 1)?];
        let other = PinnedBuffer::from_slice(comm, &[100])?;
        comm.all_reduce(&mine, &mut first, Reduction::Sum, a.stream())?;
        comm.all_reduce(&mine, &mut second, Reduction::Max, b.stream())?;
        mine.enqueue_write(&other, c.stream())?;
        let mut sums = first.to_vec(c.stream())?;
        sums.extend(second.to_vec(c.stream())?);
        sums.extend(mine.to_vec(a.stream())?);
        Ok(sums)
    };
    whatever_the_seed(overwrite, &[10, 5, 100]);
}

#[test]
fn memory_is_freed_after_its_last_use_whatever_is_dropped_first() {
    let dropped = |comm: &Comm| {
        let stream = OwnedStream::new(comm)?;
        let mine = Buffer::from_slice(comm, &[1])?;
        let mut sum = Buffer::zeroed(comm, 1)?;
        comm.all_reduce(&mine, &mut sum, Reduction::Sum, stream.stream())?;
        drop(stream);
        drop(mine);
        let sums = sum.to_vec(Stream::DEFAULT)?;
        let pinned = PinnedBuffer::from_slice(comm, &[7])?;
        let stream = OwnedStream::new(comm)?;
        sum.enqueue_write(&pinned, stream.stream())?;
        drop((pinned, sum, stream));
        Ok(sums)
    };
    whatever_the_seed(dropped, &[2]);
}

#[test]
fn two_threads_read_one_buffer_on_two_streams_and_then_it_is_written() {
    let threads = |comm: &Comm| {
        let mut source = Buffer::from_slice(comm, &[3])?;
        let streams = [OwnedStream::new(comm)?, OwnedStream::new(comm)?];
        let read: Vec<Vec<i32>> = std::thread::scope(|scope| {
            let readers = streams.each_ref().map(|stream| {
                let source = &source;
                scope.spawn(move || {
                    let mut copy = PinnedBuffer::zeroed(source.device(), 1)?;
                    source.enqueue_read(&mut copy, stream.stream())?;
                    copy.get().map(<[i32]>::to_vec)
                })
            });
            readers.into_iter().map(|reader| reader.join().unwrap()).collect::<Result<_>>()
        })?;
        source.write(&[4], Stream::DEFAULT)?;
        let mut all = read.concat();
        all.extend(source.to_vec(Stream::DEFAULT)?);
        Ok(all)
    };
    whatever_the_seed(threads, &[3, 3, 4]);
}
