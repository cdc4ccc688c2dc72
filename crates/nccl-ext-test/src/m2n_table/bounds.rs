//! M2N 2.1, 8.2: ranks of the communicator, tiles and sizes.

use super::{Data, FLOAT, Handle, Row, reshard_passes, reshard_refused};

pub(super) fn rows() -> Vec<Row> {
    [bounds(), sizes()].into_iter().flatten().collect()
}

fn bounds() -> Vec<Row> {
    vec![
        reshard_refused(
            "E27",
            "handle 0xdead",
            |c| c.handle = Handle::Fake(0xdead),
            &["handle", "0xdead"],
        ),
        reshard_refused(
            "E29",
            "src {3}@0",
            |c| {
                c.src().on(&[3], 0, &[0]);
            },
            &["reshard:", "src mesh interval", "0", "3", "2"],
        ),
        reshard_refused(
            "E30",
            "dst {2}@1",
            |c| {
                c.dst().on(&[2], 1, &[0]);
            },
            &["reshard:", "dst mesh interval", "1", "3", "2"],
        ),
        reshard_refused(
            "E31",
            "dst {1}@0",
            |c| {
                c.dst().on(&[1], 0, &[-1]);
            },
            &["reshard:", "mesh intervals", "disjoint", "src=[0", "dst=[0"],
        ),
        reshard_refused(
            "E32",
            "src {2}@0",
            |c| {
                c.src().on(&[2], 0, &[-1]);
            },
            &["disjoint", "src=[0", "dst=[1"],
        ),
        reshard_refused(
            "E33",
            "no source tile",
            |c| c.src().data = Data::Null,
            &["src->dataPtr", "active source rank 0"],
        ),
        reshard_refused(
            "E34",
            "no destination tile",
            |c| c.dst().data = Data::Null,
            &["dst->dataPtr", "active destination rank 1"],
        )
        .rank(1),
        reshard_passes("E35", "inactive sides need no tiles", |c| c.stream = 0).rank(1),
        reshard_refused(
            "E36",
            "no source tile of no bytes",
            |c| {
                c.shaped(&[0]);
                c.src().data = Data::Null;
            },
            &["src->dataPtr", "active source rank 0"],
        ),
    ]
}

fn sizes() -> Vec<Row> {
    vec![
        reshard_refused(
            "E37",
            "2 shards of 2^63",
            |c| {
                c.src().on(&[2], 0, &[0]).shaped(&[1 << 63]);
                c.dst().on(&[2], 2, &[0]).shaped(&[1 << 63]);
            },
            &["ncclReshard", "source shard dimension", "global extent"],
        )
        .ranks(4),
        reshard_refused(
            "E37",
            "of the destination",
            |c| {
                c.src().on(&[2], 0, &[0]).shaped(&[1 << 3]);
                c.dst().on(&[2], 2, &[0]).shaped(&[1 << 63]);
            },
            &["destination shard dimension", "global extent"],
        )
        .ranks(4),
        reshard_refused(
            "E38",
            "2^62 floats",
            |c| {
                c.src().on(&[2], 0, &[0]).shaped(&[1 << 62]).dtype = FLOAT;
                c.dst().on(&[2], 2, &[0]).shaped(&[1 << 62]).dtype = FLOAT;
            },
            &["source local byte size", "overflow at dim 0"],
        )
        .ranks(4),
        reshard_refused(
            "E38",
            "at the second axis",
            |c| c.shaped(&[1 << 40, 1 << 40]),
            &["source local byte size", "overflow at dim 1"],
        ),
        reshard_refused(
            "E42",
            "shape 4 to 6",
            |c| {
                c.dst().shaped(&[6]);
            },
            &["global shape", "dim 0", "4", "6"],
        )
        .unchecked(),
        reshard_refused(
            "E43",
            "shape 6 to 4",
            |c| {
                c.src().shaped(&[6]);
            },
            &["global shape", "dim 0", "6", "4"],
        )
        .unchecked(),
        reshard_refused(
            "E43",
            "shards that are not even",
            |c| {
                c.src().on(&[2], 0, &[0]).shaped(&[3]);
                c.dst().on(&[2], 2, &[0]).shaped(&[4]);
            },
            &["global shape", "dim 0", "6", "8"],
        )
        .ranks(4)
        .unchecked(),
        reshard_refused(
            "E42",
            "the second axis",
            |c| {
                c.src().shaped(&[4, 4]);
                c.dst().shaped(&[4, 3]);
            },
            &["global shape", "dim 1", "4", "3"],
        )
        .unchecked(),
    ]
}
