//! M2N 2.3 to 2.5, 8.2: what depends on the transport and on the environment.

use super::{ReshardCall, Row, reshard_passes, reshard_refused};

/// Refused only once the transport is known.
fn refused(
    id: &'static str,
    name: &'static str,
    change: fn(&mut ReshardCall),
    words: &'static [&'static str],
) -> Row {
    reshard_refused(id, name, change, words).on_device()
}

const DIRECT: &[(&str, &str)] = &[("COPY_ALGORITHM", "direct")];
const PIPE: &[(&str, &str)] = &[("COPY_ALGORITHM", "PIPE")];
/// One byte more than the default buffer.
const TOO_LARGE: usize = (1 << 31) + 1;

pub(super) fn rows() -> Vec<Row> {
    let large = |c: &mut ReshardCall| c.shaped(&[TOO_LARGE]);
    let mut rows = vec![
        refused(
            "E40",
            "2^31 + 1 bytes",
            large,
            &["implicit default", "NCCL_RESHARD_PACK_BUFFSIZES", "2147483649", "2147483648"],
        ),
        refused(
            "E41",
            "4097 bytes in buffers of 4096",
            |c| c.shaped(&[4097]),
            &["largest configured", "4096", "4097"],
        )
        .under(&[("PACK_BUFFSIZES", "4096:1")]),
        reshard_passes("E41", "4096 bytes", |c| c.shaped(&[4096]))
            .under(&[("PACK_BUFFSIZES", "4096:1")]),
        refused(
            "L11",
            "one byte more than the larger bucket",
            |c| c.shaped(&[1_048_577]),
            &["largest configured", "1048576"],
        )
        .under(&[("PACK_BUFFSIZES", "8k:2,1m")]),
        refused(
            "L13",
            "blanks around items",
            |c| c.shaped(&[8193]),
            &["largest configured", "8192"],
        )
        .under(&[("PACK_BUFFSIZES", " 4k : 2 , 8k")]),
        refused("L13", "the smallest item", |c| c.shaped(&[2049]), &["largest configured", "2048"])
            .under(&[("PACK_BUFFSIZES", "2048")]),
        refused("L13", "eight items", |c| c.shaped(&[8193]), &["largest configured", "8192"])
            .under(&[("PACK_BUFFSIZES", "2k,3k,4k,5k,6k,7k,7680,8k")]),
        reshard_passes("L14", "an unknown algorithm is PACK, which takes empty tensors", |c| {
            c.shaped(&[0])
        })
        .under(&[("COPY_ALGORITHM", "foo")]),
        reshard_passes("L14", "no algorithm is PACK", |c| c.shaped(&[0]))
            .under(&[("COPY_ALGORITHM", "")]),
    ];
    rows.extend([DIRECT, PIPE].into_iter().flat_map(|algorithm| {
        [
            refused(
                "E44",
                "shape 4 to 3",
                |c| {
                    c.dst().shaped(&[3]);
                },
                &["global shape", "dim 0"],
            ),
            refused("E45", "empty", |c| c.shaped(&[0]), &["src->localShape", "localShape[0]=0"]),
            refused(
                "E45",
                "empty dst",
                |c| {
                    c.dst().shaped(&[0]);
                },
                &["dst->localShape"],
            ),
            reshard_passes("E44", "it works", |c| c.stream = 0),
            refused("E48", "17 sources", |c| fan_in(c, 17, 0, 17), &["sources=17", "rank 17"])
                .ranks(18),
            reshard_passes("E47", "16 sources", |c| fan_in(c, 16, 0, 16)).ranks(17),
        ]
        .map(|row| row.under(algorithm))
    }));
    let rejected = "a bad list leaves the default";
    rows.extend(BAD_LISTS.map(|list| {
        refused("L12", rejected, |c| c.shaped(&[TOO_LARGE]), &["implicit default"]).under(list)
    }));
    rows.extend(peers());
    rows
}

const BAD_LISTS: [&[(&str, &str)]; 9] = [
    &[("PACK_BUFFSIZES", "1k")],
    &[("PACK_BUFFSIZES", "2k:65")],
    &[("PACK_BUFFSIZES", "4k,4096")],
    &[("PACK_BUFFSIZES", "4k,")],
    &[("PACK_BUFFSIZES", "4kb")],
    &[("PACK_BUFFSIZES", "4g")],
    &[("PACK_BUFFSIZES", "")],
    &[("PACK_BUFFSIZES", "4k:0")],
    &[("PACK_BUFFSIZES", "2k,3k,4k,5k,6k,7k,8k,9k,10k")],
];

/// `shards` sources of one byte each to one destination.
fn fan_in(c: &mut ReshardCall, shards: usize, src: i32, dst: i32) {
    c.src().on(&[shards as i32], src, &[0]).shaped(&[1]);
    c.dst().on(&[1], dst, &[-1]).shaped(&[shards]);
}

/// One source to `shards` destinations of one byte each.
fn fan_out(c: &mut ReshardCall, shards: usize) {
    c.src().on(&[1], 0, &[-1]).shaped(&[shards]);
    c.dst().on(&[shards as i32], 1, &[0]).shaped(&[1]);
}

fn peers() -> Vec<Row> {
    vec![
        reshard_passes("E46", "one rank copies to itself", |c| {
            c.dst().on(&[1], 0, &[-1]);
        })
        .ranks(1),
        reshard_passes("E46", "with DIRECT", |c| {
            c.dst().on(&[1], 0, &[-1]);
        })
        .ranks(1)
        .under(DIRECT),
        refused(
            "E46",
            "not with PIPE",
            |c| {
                c.dst().on(&[1], 0, &[-1]);
            },
            &["disjoint"],
        )
        .ranks(1)
        .under(PIPE),
        // A destination before its sources takes the path with the smaller limits.
        reshard_passes("E47", "16 sources of the ring", |c| fan_in(c, 16, 1, 0)).ranks(17),
        refused("E48", "17 sources of the ring", |c| fan_in(c, 17, 1, 0), &["sources=17"])
            .ranks(18),
        reshard_passes("E49", "17 sources in one domain", |c| fan_in(c, 17, 0, 17)).ranks(18),
        reshard_passes("E49", "32 sources in one domain", |c| fan_in(c, 32, 0, 32)).ranks(33),
        refused("E49", "33 sources", |c| fan_in(c, 33, 0, 33), &["sources=33"]).ranks(34),
        reshard_passes("E50", "64 targets", |c| fan_out(c, 64)).ranks(65),
        refused("E50", "65 targets", |c| fan_out(c, 65), &["targets=65"]).ranks(66),
        reshard_passes("E51", "129 replicas", |c| {
            c.dst().on(&[129], 1, &[-1]);
        })
        .ranks(130),
        refused(
            "E51",
            "130 replicas",
            |c| {
                c.dst().on(&[130], 1, &[-1]);
            },
            &["130", "129"],
        )
        .ranks(131),
    ]
}
