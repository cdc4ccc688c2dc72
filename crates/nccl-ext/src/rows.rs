//! Work on the rows of a matrix, spread over threads.

use std::num::NonZero;
use std::thread;

/// Fewer elements than this are not worth a thread.
const WORTH: usize = 1 << 16;

/// Threads that this machine runs at once.
pub(crate) fn threads() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Calls `work` with the number and the elements of every row, on up to `threads` threads.
pub(crate) fn each<T: Send>(
    threads: usize,
    data: &mut [T],
    width: usize,
    work: impl Fn(usize, &mut [T]) + Sync,
) {
    let width = width.max(1);
    let rows = data.len().div_ceil(width);
    let threads = threads.min(data.len() / WORTH).max(1);
    let part = rows.div_ceil(threads).max(1);
    let work = &work;
    let run = move |part: usize, first: usize, data: &mut [T]| {
        for (row, data) in data.chunks_mut(width).enumerate() {
            work(part * first + row, data);
        }
    };
    if threads == 1 {
        return run(0, 0, data);
    }
    thread::scope(|scope| {
        for (number, data) in data.chunks_mut(part * width).enumerate() {
            scope.spawn(move || run(part, number, data));
        }
    });
}

/// What `work` makes of each of `count` rows of `width` elements, in order.
pub(crate) fn map<R: Send + Default + Clone>(
    threads: usize,
    count: usize,
    width: usize,
    work: impl Fn(usize) -> R + Sync,
) -> Vec<R> {
    let mut results = vec![R::default(); count];
    // `each` weighs elements, of which a result has one.
    let threads = threads.min(count.saturating_mul(width) / WORTH).max(1);
    let part = count.div_ceil(threads).max(1);
    let work = &work;
    thread::scope(|scope| {
        for (number, results) in results.chunks_mut(part).enumerate() {
            let mut fill = move || {
                for (row, result) in results.iter_mut().enumerate() {
                    *result = work(part * number + row);
                }
            };
            if threads == 1 {
                fill();
            } else {
                scope.spawn(fill);
            }
        }
    });
    results
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_row_is_visited_once_with_its_number() {
        for (rows, width) in [(0, 7), (1, 1), (5, 3), (1000, 333), (3, 100_000), (70_000, 2)] {
            for threads in [1, 2, 3, 64] {
                let mut data = vec![0_usize; rows * width];
                super::each(threads, &mut data, width, |row, data| {
                    assert_eq!(data.len(), width);
                    data.iter_mut().for_each(|value| *value += row + 1);
                });
                assert!(data.chunks(width).enumerate().all(|(row, data)| data[0] == row + 1));
                let numbers = super::map(threads, rows, width, |row| row);
                assert!(numbers.into_iter().eq(0..rows));
            }
        }
    }
}
