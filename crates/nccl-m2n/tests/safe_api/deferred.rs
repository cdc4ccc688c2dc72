//! Groups whose work runs when the call has returned, delayed and interleaved by a seed.

use nccl_ext_cpu::run_ranks;
use nccl_m2n::{
    Agreement, Buffer, Comm, Config, DistTensor, DistTensorMut, Error, OwnedStream, Runtime,
};

use crate::common::{layout, tile};

/// Entries on one stream are fused, the one on the other stream runs by itself; the last round's bytes
/// arrive, and nothing that the library orders is a race.
#[test]
fn groups_over_two_streams_are_right_whatever_the_seed() {
    let from = layout("{2}@0 [S0] 2x4 uint8");
    let rows = layout("{2}@2 [S0] 2x4 uint8");
    let columns = layout("{2}@2 [S1] 4x2 uint8");
    let targets = [rows, columns, columns];
    for seed in 0..8 {
        let config = nccl_ext_test::worlds::config().deferred(seed);
        let results = run_ranks(4, &config, |comm: Comm| {
            let rank = comm.rank();
            let config = Config::new().agreement(Agreement::PerShape);
            let runtime = Runtime::new(comm.backend(), &config)?;
            let [a, b] = [(); 2].map(|()| OwnedStream::new(&comm).unwrap());
            let streams = [&a, &b, &a];
            let mut sources = Vec::new();
            let mut destinations = Vec::new();
            for _ in targets {
                sources.push(Buffer::<u8>::zeroed(&comm, from.local_bytes())?);
                destinations.push(Buffer::<u8>::zeroed(&comm, from.local_bytes())?);
            }
            for round in 0..3 {
                for (i, source) in sources.iter_mut().enumerate() {
                    let mut bytes = tile(&from, rank);
                    bytes.resize(source.len(), 0);
                    bytes.iter_mut().for_each(|byte| *byte += 50 * round + i as u8);
                    source.write(&bytes, b.stream())?;
                }
                runtime.group(|group| {
                    let pairs = sources.iter().zip(&mut destinations);
                    for ((pair, target), stream) in pairs.zip(&targets).zip(streams) {
                        let source = DistTensor::new(pair.0, &from);
                        let destination = DistTensorMut::new(pair.1, target);
                        group.reshard(&comm, source, destination, stream.stream())?;
                    }
                    Ok(())
                })?;
            }
            drop(sources);
            let received: Result<Vec<_>, Error> =
                destinations.iter().map(|tile| tile.to_vec(b.stream())).collect();
            runtime.finalize()?;
            received
        });
        for (rank, received) in results.into_iter().map(Result::unwrap).enumerate().skip(2) {
            for (i, (received, target)) in received.iter().zip(&targets).enumerate() {
                let sent = tile(target, rank).into_iter().map(|byte| byte + 100 + i as u8);
                let sent: Vec<_> = sent.collect();
                assert_eq!(*received, sent, "seed {seed}, rank {rank}, entry {i}");
            }
        }
    }
}
