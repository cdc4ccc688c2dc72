//! Parts of buffers, streams and events, on the CPU backend.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::thread;
use std::time::Duration;

use nccl_ext_core::{Buffer, Comm, Error, Event, OwnedStream, Stream, device};
use nccl_ext_cpu::{CpuConfig, run_ranks};

fn on_one_rank(body: impl Fn(&Comm) -> Result<(), Error> + Sync) {
    for result in run_ranks(1, &CpuConfig::new(), |comm| body(&comm)) {
        result.unwrap();
    }
}

#[test]
fn parts_of_a_buffer() {
    on_one_rank(|comm| {
        let stream = Stream::DEFAULT;
        let mut buffer = Buffer::from_slice(comm, &[0_i32, 1, 2, 3, 4])?;
        buffer.write_range(3, &[30, 40], stream)?;
        buffer.write_range(1, &[10], stream)?;
        buffer.write_range(5, &[], stream)?;
        assert_eq!(buffer.to_vec(stream)?, [0, 10, 2, 30, 40]);
        let mut part = [0; 3];
        buffer.read_range_into(1, &mut part, stream)?;
        assert_eq!(part, [10, 2, 30]);
        buffer.read_range_into(5, &mut [], stream)?;

        let refused = |result: Result<(), Error>| result.unwrap_err().to_string();
        let rule = "`data`: a copy stays inside the buffer; expected";
        assert_eq!(
            refused(buffer.read_range_into(3, &mut part, stream)),
            format!("{rule} at most 2 elements, found 3 from element 3 of 5 on")
        );
        assert_eq!(
            refused(buffer.write_range(6, &[], stream)),
            format!("{rule} at most 0 elements, found 0 from element 6 of 5 on")
        );
        assert_eq!(
            refused(buffer.write_range(usize::MAX, &[1, 2], stream)),
            format!("{rule} at most 0 elements, found 2 from element {} of 5 on", usize::MAX)
        );
        assert_eq!(
            refused(buffer.write(&[0; 6], stream)),
            format!("{rule} at most 5 elements, found 6")
        );
        assert_eq!(buffer.to_vec(stream)?, [0, 10, 2, 30, 40]);
        Ok(())
    });
}

#[test]
fn streams_and_events() {
    on_one_rank(|comm| {
        let own = OwnedStream::new(comm)?;
        let stream = own.stream();
        let (mut start, mut end) = (Event::new(comm)?, Event::new(comm)?);
        end.synchronize()?;
        let line = end.elapsed_since(&start).unwrap_err().to_string();
        assert!(line.ends_with("found an end that was never recorded"), "{line}");
        end.record(stream)?;
        let line = end.elapsed_since(&start).unwrap_err().to_string();
        assert!(line.contains("a start that was never recorded"), "{line}");
        start.record(stream)?;
        thread::sleep(Duration::from_millis(3));
        end.record(stream)?;
        assert!(end.elapsed_since(&start)? >= Duration::from_millis(3));
        assert_eq!(start.elapsed_since(&end)?, Duration::ZERO);
        assert_eq!(device::count(comm.backend())?, 1);
        Ok(())
    });
}
