//! M2N 2.1, consequences: the first failure wins.

use super::{Comm, Data, FLOAT, Handle, Row, reshard_refused};

pub(super) fn rows() -> Vec<Row> {
    vec![
        reshard_refused(
            "2.1",
            "the communicator before the descriptors",
            |c| {
                c.comm = Comm::Null;
                c.src = None;
            },
            &["comm"],
        ),
        reshard_refused(
            "2.1",
            "size before version",
            |c| {
                c.src().size = 55;
                c.src().version = 9;
            },
            &["55"],
        ),
        reshard_refused(
            "2.1",
            "all of src before dst",
            |c| {
                c.src().placements = None;
                c.dst().size = 1;
            },
            &["src->placements"],
        ),
        reshard_refused(
            "2.1",
            "the shape before the mesh",
            |c| {
                c.src().mesh = None;
                c.src().shape = None;
            },
            &["src->localShape"],
        ),
        reshard_refused(
            "2.1",
            "the mesh before the placements",
            |c| {
                c.src().mesh().dims = None;
                c.src().placements = None;
            },
            &["src->mesh->dims"],
        ),
        reshard_refused(
            "2.1",
            "descriptors before meshes",
            |c| {
                c.src().mesh().start = -1;
                c.dst().mesh().version = 7;
            },
            &["mesh", "version", "7"],
        ),
        reshard_refused(
            "2.1",
            "meshes before ranks of tensors",
            |c| {
                c.dst().mesh().start = -1;
                c.dst().shaped(&[4, 4]);
            },
            &["startRank=-1"],
        ),
        reshard_refused(
            "2.1",
            "ranks before types",
            |c| {
                c.dst().dtype = FLOAT;
                c.dst().shaped(&[4, 4]);
            },
            &["ndims"],
        ),
        reshard_refused(
            "2.1",
            "types before placements",
            |c| {
                c.dst().dtype = FLOAT;
                c.src().placements = Some(vec![-2]);
            },
            &["dtype"],
        ),
        reshard_refused(
            "2.1",
            "placements axis by axis",
            |c| {
                c.src().on(&[1, 1], 0, &[5, -2]);
            },
            &["src->placements[0]", "SHARD(5)"],
        ),
        reshard_refused(
            "2.1",
            "placements before their number",
            |c| {
                c.src().on(&[1, 1], 0, &[0, 5]);
            },
            &["src->placements[1]", "SHARD(5)"],
        ),
        reshard_refused(
            "2.1",
            "placements of src before those of dst",
            |c| {
                c.src().on(&[1, 1], 0, &[0, 0]);
                c.dst().placements = Some(vec![-2]);
            },
            &["src", "SHARD", "2"],
        ),
        reshard_refused(
            "2.1",
            "descriptors before the handle",
            |c| {
                c.handle = Handle::Fake(0xdead);
                c.dst().placements = Some(vec![-2]);
            },
            &["dst->placements[0]"],
        ),
        reshard_refused(
            "E27",
            "the handle before bounds",
            |c| {
                c.handle = Handle::Fake(0xdead);
                c.dst().on(&[2], 1, &[0]);
            },
            &["handle", "0xdead"],
        ),
        reshard_refused(
            "2.1",
            "bounds before disjointness",
            |c| {
                c.src().on(&[2], 0, &[-1]);
                c.dst().on(&[2], 1, &[-1]);
            },
            &["dst mesh interval"],
        ),
        reshard_refused(
            "2.1",
            "bounds of src before those of dst",
            |c| {
                c.src().on(&[3], 0, &[0]);
                c.dst().on(&[5], 1, &[0]);
            },
            &["src mesh interval"],
        ),
        reshard_refused(
            "2.1",
            "extents of the source before those of the destination",
            |c| {
                c.src().on(&[2], 0, &[0]).shaped(&[1 << 63]);
                c.dst().on(&[2], 2, &[0]).shaped(&[1 << 63]);
            },
            &["source shard dimension"],
        )
        .ranks(4),
        reshard_refused(
            "2.1",
            "disjointness before tiles",
            |c| {
                c.src().on(&[2], 0, &[-1]).data = Data::Null;
            },
            &["disjoint"],
        ),
        reshard_refused(
            "2.1",
            "tiles before overflow",
            |c| {
                c.src().on(&[2], 0, &[0]).shaped(&[1 << 63]).data = Data::Null;
                c.dst().on(&[2], 2, &[0]).shaped(&[1 << 63]);
            },
            &["src->dataPtr", "active source rank 0"],
        )
        .ranks(4),
        reshard_refused(
            "2.1",
            "overflow of extents before that of bytes",
            |c| {
                c.src().on(&[2], 0, &[0]).shaped(&[4, 1 << 63]).dtype = FLOAT;
                c.dst().on(&[2], 2, &[0]).shaped(&[1 << 63, 1]).dtype = FLOAT;
            },
            &["destination shard dimension"],
        )
        .ranks(4),
    ]
}
