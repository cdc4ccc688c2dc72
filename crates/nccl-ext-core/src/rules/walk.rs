//! Walks the table of this crate: every row has a call that breaks it, and the error names the row.
//! A row without such a call fails the walk.

use std::collections::HashSet;

use super::RuleInfo;
use crate::stub::comm;
use crate::{
    Buffer, Comm, DataType, DeviceBuffer, Error, Event, MemorySpace, OwnedStream, PinnedBuffer,
    RawBuffer, Result, Stream, UniqueId,
};

/// A call that breaks the rule.
fn violating(name: &str) -> Result<()> {
    let host = comm(MemorySpace::Host);
    let stream = Stream::DEFAULT;
    match name {
        "comm.rank" => {
            let id = UniqueId::from_bytes([0; UniqueId::BYTES]);
            let join = |size, rank| Comm::init_rank(host.backend(), size, &id, rank).map(drop);
            for (size, rank) in [(0, 0), (1 << 31, 0), (1, 1 << 31)] {
                assert!(matches!(join(size, rank), Err(Error::Invalid { .. })), "{rank} of {size}");
            }
            join(2, 2)
        }
        "comm.root" => host.broadcast(&mut [0_u8; 4], 1, stream),
        "comm.receive-buffer" => host.all_gather(&[0_u8; 4], &mut [0_u8; 5], stream),
        "memory.place" => {
            let other = Buffer::<u8>::zeroed(&comm(MemorySpace::Host), 4)?;
            host.check_memory("buffer", &other.raw())
        }
        "memory.alignment" => {
            let memory = [0_u32; 3];
            let odd = memory.as_ptr().wrapping_byte_add(1).cast_mut().cast();
            let buffer = RawBuffer::host(odd, 8, DataType::Uint32);
            let error = host.check_memory("buffer", &buffer).unwrap_err().to_string();
            let found = format!("expected a multiple of 4 bytes, found {:#x}", odd as usize);
            assert!(error.ends_with(&found), "{error}");
            // Bytes lie anywhere, and so does memory of no bytes.
            host.check_memory("buffer", &RawBuffer::host(odd, 8, DataType::Uint8))?;
            host.check_memory("buffer", &RawBuffer::host(odd, 0, DataType::Uint32))?;
            host.check_memory("buffer", &buffer)
        }
        "memory.device" => {
            let device = comm(MemorySpace::Device);
            let ptr = core::ptr::null_mut();
            let buffer = RawBuffer::unowned(ptr, DataType::Uint8, &[4], MemorySpace::Device);
            device.check_device_pointer("buffer", &buffer)
        }
        "buffer.size" => Buffer::<u64>::zeroed(&host, usize::MAX).map(drop),
        "buffer.pinned-place" => {
            let pinned = PinnedBuffer::<u32>::zeroed(&comm(MemorySpace::Host), 3)?;
            Buffer::<u32>::zeroed(&host, 3)?.enqueue_write(&pinned, stream)
        }
        "buffer.copy-inside" => {
            let mut buffer = Buffer::<u32>::zeroed(&host, 3)?;
            let from_the_middle = buffer.write_range(2, &[0; 2], stream).unwrap_err().to_string();
            assert!(
                from_the_middle.ends_with("at most 1 elements, found 2 from element 2 of 3 on")
            );
            buffer.write(&[0; 4], stream)
        }
        "stream.place" => {
            let other = OwnedStream::new(&comm(MemorySpace::Host))?;
            host.all_gather(&[0_u8; 4], &mut [0_u8; 4], other.stream())
        }
        "event.place" => {
            Event::new(&host)?.elapsed_since(&Event::new(&comm(MemorySpace::Host))?).map(drop)
        }
        "event.elapsed" => Event::new(&host)?.elapsed_since(&Event::new(&host)?).map(drop),
        #[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
        "loader.cuda-major" => crate::loader::cuda::asked(Some("11".into())).map(drop),
        name => panic!("no violating call for {name}"),
    }
}

/// Arguments of rules about one of several.
fn argument(rule: &RuleInfo) -> &'static str {
    if rule.argument == "any buffer" { "buffer" } else { rule.argument }
}

#[test]
fn every_rule_has_a_call_that_breaks_it() {
    let here = cfg!(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"));
    for rule in super::all().filter(|rule| here || !rule.name.starts_with("loader.")) {
        let error = violating(rule.name).unwrap_err();
        assert!(rule.is_cause_of(&error), "{}: {error:?}", rule.name);
        let Error::Invalid { name, argument: named, rule: words, scope, .. } = error else {
            panic!("{}: {error:?}", rule.name);
        };
        assert_eq!((name, named), (rule.name, argument(&rule)));
        assert_eq!((words, scope), (rule.rule, rule.scope), "{}", rule.name);
    }
}

#[test]
fn names_are_unique_and_every_rule_cites_its_source() {
    let mut names = HashSet::new();
    for rule in super::all() {
        assert!(names.insert(rule.name), "{} twice", rule.name);
        let cited = ["EP ", "M2N ", "NCCL nccl", "CUDA cu", "book "];
        assert!(cited.iter().any(|start| rule.source.starts_with(start)), "{}", rule.name);
        assert!(!rule.rule.ends_with('.'), "{}", rule.name);
    }
}
