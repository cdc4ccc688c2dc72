//! M2N 2.1, 8.2: one call, and the order of its checks.

use nccl_ext_core::raw::ncclDataType_t;

use super::{Action, Comm, Data, Handle, ReshardCall, Row, Step, bad, ok};

fn refused(
    id: &'static str,
    name: &'static str,
    change: fn(&mut ReshardCall),
    words: &'static [&'static str],
) -> Row {
    Row::new(id, name, vec![bad(Action::Reshard(change), words)])
}

fn passes(id: &'static str, name: &'static str, change: fn(&mut ReshardCall)) -> Row {
    Row::new(id, name, vec![ok(Action::Reshard(change))]).on_device()
}

const FLOAT: ncclDataType_t = ncclDataType_t::ncclFloat32;

pub(super) fn rows() -> Vec<Row> {
    [descriptors(), meshes(), placements(), bounds(), sizes(), order()]
        .into_iter()
        .flatten()
        .collect()
}

fn descriptors() -> Vec<Row> {
    vec![
        refused("E01", "everything NULL", |c| c.nothing(), &["ncclReshard", "comm"]),
        refused("E01", "comm NULL", |c| c.comm = Comm::Null, &["ncclReshard", "comm"]),
        refused("E02", "src NULL", |c| c.src = None, &["descriptor", "every rank"]),
        refused("E03", "dst NULL", |c| c.dst = None, &["descriptor", "every rank"]),
        refused("E04", "src size 55", |c| c.src().size = 55, &["src", "55", "56"]),
        passes("E05", "src size 100", |c| c.src().size = 100),
        refused("E06", "src version 1", |c| c.src().version = 1, &["src", "version", "1", "2"]),
        refused("E07", "rank 0", |c| c.src().ndims = 0, &["src->ndims", "0", "3"]),
        refused("E07", "rank 4", |c| c.src().ndims = 4, &["src->ndims", "4", "3"]),
        refused("E07", "rank -1", |c| c.src().ndims = -1, &["src->ndims", "-1", "3"]),
        refused("E08", "no shape", |c| c.src().shape = None, &["src->localShape"]),
        refused("E09", "no mesh", |c| c.src().mesh = None, &["src->mesh"]),
        refused("E10", "mesh size 31", |c| c.src().mesh().size = 31, &["mesh", "31", "32"]),
        refused("E11", "mesh version 3", |c| c.src().mesh().version = 3, &["mesh", "version", "3"]),
        refused("E12", "mesh rank 3", |c| c.src().mesh().ndims = 3, &["src->mesh->ndims", "2"]),
        refused("E12", "mesh rank 0", |c| c.src().mesh().ndims = 0, &["src->mesh->ndims", "2"]),
        refused("E13", "no dims", |c| c.src().mesh().dims = None, &["src->mesh->dims"]),
        refused("E14", "no placements", |c| c.src().placements = None, &["src->placements"]),
        refused("E15", "dst size 1", |c| c.dst().size = 1, &["dst", "1", "56"]),
        refused("E15", "dst rank 4", |c| c.dst().ndims = 4, &["dst->ndims", "4"]),
        refused("E15", "dst shape", |c| c.dst().shape = None, &["dst->localShape"]),
        refused("E15", "dst mesh", |c| c.dst().mesh = None, &["dst->mesh"]),
        refused("E15", "dst dims", |c| c.dst().mesh().dims = None, &["dst->mesh->dims"]),
        refused("E15", "dst placements", |c| c.dst().placements = None, &["dst->placements"]),
        Row::new(
            "1.1",
            "texts of the window call name the plain one",
            vec![Step {
                without: &["WithWindow"],
                ..bad(Action::WithWindow(|c| c.src().size = 55), &["ncclReshard", "55"])
            }],
        ),
    ]
}

fn meshes() -> Vec<Row> {
    vec![
        refused(
            "E16",
            "no ranks",
            |c| {
                c.src().on(&[0], 0, &[-1]);
            },
            &["mesh", "dims[0]=0"],
        ),
        refused(
            "E17",
            "negative",
            |c| {
                c.src().on(&[2, -1], 0, &[0, -1]);
            },
            &["dims[1]=-1"],
        ),
        refused(
            "E17",
            "in order",
            |c| {
                c.src().on(&[-2, -1], 0, &[0, -1]);
            },
            &["dims[0]=-2"],
        ),
        refused(
            "E18",
            "start -1",
            |c| {
                c.src().on(&[1], -1, &[-1]);
            },
            &["mesh", "startRank=-1"],
        ),
        refused(
            "E19",
            "65536 by 65536",
            |c| {
                c.src().on(&[65536, 65536], 0, &[0, -1]);
            },
            &["mesh", "size", "4294967296"],
        ),
        refused(
            "E20",
            "the last rank is beyond INT_MAX",
            |c| {
                c.src().on(&[2], 2_147_483_646, &[0]);
            },
            &["mesh interval", "overflow"],
        ),
        refused(
            "E16",
            "dst",
            |c| {
                c.dst().on(&[0], 1, &[-1]);
            },
            &["mesh", "dims[0]=0"],
        ),
        refused(
            "E21",
            "dst of rank 2",
            |c| {
                c.dst().shaped(&[4, 4]);
            },
            &["ndims"],
        ),
        refused("E22", "dst of int8", |c| c.dst().dtype = ncclDataType_t(0), &["dtype", "0", "1"]),
        refused(
            "E23",
            "type 12",
            |c| (c.src().dtype, c.dst().dtype) = (ncclDataType_t(12), ncclDataType_t(12)),
            &["type", "12"],
        ),
        refused(
            "E23",
            "type -1",
            |c| (c.src().dtype, c.dst().dtype) = (ncclDataType_t(!0), ncclDataType_t(!0)),
            &["type", "-1"],
        ),
    ]
}

fn placements() -> Vec<Row> {
    vec![
        refused(
            "E24",
            "-2",
            |c| c.src().placements = Some(vec![-2]),
            &["src->placements[0]", "-2"],
        ),
        refused(
            "E25",
            "an axis that is not there",
            |c| c.src().placements = Some(vec![1]),
            &["src->placements[0]", "SHARD(1)", "rank 1"],
        ),
        refused(
            "E26",
            "both axes shard the same",
            |c| {
                c.src().on(&[1, 1], 0, &[0, 0]);
            },
            &["src", "SHARD", "2"],
        ),
        refused(
            "E26",
            "both axes shard",
            |c| {
                c.shaped(&[4, 4]);
                c.src().on(&[1, 1], 0, &[0, 1]);
            },
            &["src", "SHARD", "2"],
        ),
        refused(
            "E24",
            "dst",
            |c| c.dst().placements = Some(vec![-2]),
            &["dst->placements[0]", "-2"],
        ),
    ]
}

fn bounds() -> Vec<Row> {
    vec![
        refused("E27", "handle 0xdead", |c| c.handle = Handle::Fake(0xdead), &["handle", "0xdead"]),
        refused(
            "E29",
            "src {3}@0",
            |c| {
                c.src().on(&[3], 0, &[0]);
            },
            &["reshard:", "src mesh interval", "0", "3", "2"],
        ),
        refused(
            "E30",
            "dst {2}@1",
            |c| {
                c.dst().on(&[2], 1, &[0]);
            },
            &["reshard:", "dst mesh interval", "1", "3", "2"],
        ),
        refused(
            "E31",
            "dst {1}@0",
            |c| {
                c.dst().on(&[1], 0, &[-1]);
            },
            &["reshard:", "mesh intervals", "disjoint", "src=[0", "dst=[0"],
        ),
        refused(
            "E32",
            "src {2}@0",
            |c| {
                c.src().on(&[2], 0, &[-1]);
            },
            &["disjoint", "src=[0", "dst=[1"],
        ),
        refused(
            "E33",
            "no source tile",
            |c| c.src().data = Data::Null,
            &["src->dataPtr", "active source rank 0"],
        ),
        refused(
            "E34",
            "no destination tile",
            |c| c.dst().data = Data::Null,
            &["dst->dataPtr", "active destination rank 1"],
        )
        .rank(1),
        passes("E35", "inactive sides need no tiles", |c| c.stream = 0).rank(1),
        refused(
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
        refused(
            "E37",
            "2 shards of 2^63",
            |c| {
                c.src().on(&[2], 0, &[0]).shaped(&[1 << 63]);
                c.dst().on(&[2], 2, &[0]).shaped(&[1 << 63]);
            },
            &["ncclReshard", "source shard dimension", "global extent"],
        )
        .ranks(4),
        refused(
            "E37",
            "of the destination",
            |c| {
                c.src().on(&[2], 0, &[0]).shaped(&[1 << 3]);
                c.dst().on(&[2], 2, &[0]).shaped(&[1 << 63]);
            },
            &["destination shard dimension", "global extent"],
        )
        .ranks(4),
        refused(
            "E38",
            "2^62 floats",
            |c| {
                c.src().on(&[2], 0, &[0]).shaped(&[1 << 62]).dtype = FLOAT;
                c.dst().on(&[2], 2, &[0]).shaped(&[1 << 62]).dtype = FLOAT;
            },
            &["source local byte size", "overflow at dim 0"],
        )
        .ranks(4),
        refused(
            "E38",
            "at the second axis",
            |c| c.shaped(&[1 << 40, 1 << 40]),
            &["source local byte size", "overflow at dim 1"],
        ),
        refused(
            "E42",
            "shape 4 to 6",
            |c| {
                c.dst().shaped(&[6]);
            },
            &["global shape", "dim 0", "4", "6"],
        )
        .unchecked(),
        refused(
            "E43",
            "shape 6 to 4",
            |c| {
                c.src().shaped(&[6]);
            },
            &["global shape", "dim 0", "6", "4"],
        )
        .unchecked(),
        refused(
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
        refused(
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

/// M2N 2.1, consequences: the first failure wins.
fn order() -> Vec<Row> {
    vec![
        refused(
            "2.1",
            "the communicator before the descriptors",
            |c| {
                c.comm = Comm::Null;
                c.src = None;
            },
            &["comm"],
        ),
        refused(
            "2.1",
            "size before version",
            |c| {
                c.src().size = 55;
                c.src().version = 9;
            },
            &["55"],
        ),
        refused(
            "2.1",
            "all of src before dst",
            |c| {
                c.src().placements = None;
                c.dst().size = 1;
            },
            &["src->placements"],
        ),
        refused(
            "2.1",
            "the shape before the mesh",
            |c| {
                c.src().mesh = None;
                c.src().shape = None;
            },
            &["src->localShape"],
        ),
        refused(
            "2.1",
            "the mesh before the placements",
            |c| {
                c.src().mesh().dims = None;
                c.src().placements = None;
            },
            &["src->mesh->dims"],
        ),
        refused(
            "2.1",
            "descriptors before meshes",
            |c| {
                c.src().mesh().start = -1;
                c.dst().mesh().version = 7;
            },
            &["mesh", "version", "7"],
        ),
        refused(
            "2.1",
            "meshes before ranks of tensors",
            |c| {
                c.dst().mesh().start = -1;
                c.dst().shaped(&[4, 4]);
            },
            &["startRank=-1"],
        ),
        refused(
            "2.1",
            "ranks before types",
            |c| {
                c.dst().dtype = FLOAT;
                c.dst().shaped(&[4, 4]);
            },
            &["ndims"],
        ),
        refused(
            "2.1",
            "types before placements",
            |c| {
                c.dst().dtype = FLOAT;
                c.src().placements = Some(vec![-2]);
            },
            &["dtype"],
        ),
        refused(
            "2.1",
            "placements axis by axis",
            |c| {
                c.src().on(&[1, 1], 0, &[5, -2]);
            },
            &["src->placements[0]", "SHARD(5)"],
        ),
        refused(
            "2.1",
            "placements before their number",
            |c| {
                c.src().on(&[1, 1], 0, &[0, 5]);
            },
            &["src->placements[1]", "SHARD(5)"],
        ),
        refused(
            "2.1",
            "placements of src before those of dst",
            |c| {
                c.src().on(&[1, 1], 0, &[0, 0]);
                c.dst().placements = Some(vec![-2]);
            },
            &["src", "SHARD", "2"],
        ),
        refused(
            "2.1",
            "descriptors before the handle",
            |c| {
                c.handle = Handle::Fake(0xdead);
                c.dst().placements = Some(vec![-2]);
            },
            &["dst->placements[0]"],
        ),
        refused(
            "E27",
            "the handle before bounds",
            |c| {
                c.handle = Handle::Fake(0xdead);
                c.dst().on(&[2], 1, &[0]);
            },
            &["handle", "0xdead"],
        ),
        refused(
            "2.1",
            "bounds before disjointness",
            |c| {
                c.src().on(&[2], 0, &[-1]);
                c.dst().on(&[2], 1, &[-1]);
            },
            &["dst mesh interval"],
        ),
        refused(
            "2.1",
            "bounds of src before those of dst",
            |c| {
                c.src().on(&[3], 0, &[0]);
                c.dst().on(&[5], 1, &[0]);
            },
            &["src mesh interval"],
        ),
        refused(
            "2.1",
            "extents of the source before those of the destination",
            |c| {
                c.src().on(&[2], 0, &[0]).shaped(&[1 << 63]);
                c.dst().on(&[2], 2, &[0]).shaped(&[1 << 63]);
            },
            &["source shard dimension"],
        )
        .ranks(4),
        refused(
            "2.1",
            "disjointness before tiles",
            |c| {
                c.src().on(&[2], 0, &[-1]).data = Data::Null;
            },
            &["disjoint"],
        ),
        refused(
            "2.1",
            "tiles before overflow",
            |c| {
                c.src().on(&[2], 0, &[0]).shaped(&[1 << 63]).data = Data::Null;
                c.dst().on(&[2], 2, &[0]).shaped(&[1 << 63]);
            },
            &["src->dataPtr", "active source rank 0"],
        )
        .ranks(4),
        refused(
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
