//! M2N 2.1, 8.2: descriptors, meshes and placements, each by itself.

use nccl_ext_core::raw::ncclDataType_t;

use super::{Action, Comm, Row, Step, bad, reshard_passes, reshard_refused};

pub(super) fn rows() -> Vec<Row> {
    [descriptors(), meshes(), placements()].into_iter().flatten().collect()
}

fn descriptors() -> Vec<Row> {
    vec![
        reshard_refused("E01", "everything NULL", |c| c.nothing(), &["ncclReshard", "comm"]),
        reshard_refused("E01", "comm NULL", |c| c.comm = Comm::Null, &["ncclReshard", "comm"]),
        reshard_refused("E02", "src NULL", |c| c.src = None, &["descriptor", "every rank"]),
        reshard_refused("E03", "dst NULL", |c| c.dst = None, &["descriptor", "every rank"]),
        reshard_refused("E04", "src size 55", |c| c.src().size = 55, &["src", "55", "56"]),
        reshard_passes("E05", "src size 100", |c| c.src().size = 100),
        reshard_refused(
            "E06",
            "src version 1",
            |c| c.src().version = 1,
            &["src", "version", "1", "2"],
        ),
        reshard_refused("E07", "rank 0", |c| c.src().ndims = 0, &["src->ndims", "0", "3"]),
        reshard_refused("E07", "rank 4", |c| c.src().ndims = 4, &["src->ndims", "4", "3"]),
        reshard_refused("E07", "rank -1", |c| c.src().ndims = -1, &["src->ndims", "-1", "3"]),
        reshard_refused("E08", "no shape", |c| c.src().shape = None, &["src->localShape"]),
        reshard_refused("E09", "no mesh", |c| c.src().mesh = None, &["src->mesh"]),
        reshard_refused("E10", "mesh size 31", |c| c.src().mesh().size = 31, &["mesh", "31", "32"]),
        reshard_refused(
            "E11",
            "mesh version 3",
            |c| c.src().mesh().version = 3,
            &["mesh", "version", "3"],
        ),
        reshard_refused(
            "E12",
            "mesh rank 3",
            |c| c.src().mesh().ndims = 3,
            &["src->mesh->ndims", "2"],
        ),
        reshard_refused(
            "E12",
            "mesh rank 0",
            |c| c.src().mesh().ndims = 0,
            &["src->mesh->ndims", "2"],
        ),
        reshard_refused("E13", "no dims", |c| c.src().mesh().dims = None, &["src->mesh->dims"]),
        reshard_refused(
            "E14",
            "no placements",
            |c| c.src().placements = None,
            &["src->placements"],
        ),
        reshard_refused("E15", "dst size 1", |c| c.dst().size = 1, &["dst", "1", "56"]),
        reshard_refused("E15", "dst rank 4", |c| c.dst().ndims = 4, &["dst->ndims", "4"]),
        reshard_refused("E15", "dst shape", |c| c.dst().shape = None, &["dst->localShape"]),
        reshard_refused("E15", "dst mesh", |c| c.dst().mesh = None, &["dst->mesh"]),
        reshard_refused("E15", "dst dims", |c| c.dst().mesh().dims = None, &["dst->mesh->dims"]),
        reshard_refused(
            "E15",
            "dst placements",
            |c| c.dst().placements = None,
            &["dst->placements"],
        ),
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
        reshard_refused(
            "E16",
            "no ranks",
            |c| {
                c.src().on(&[0], 0, &[-1]);
            },
            &["mesh", "dims[0]=0"],
        ),
        reshard_refused(
            "E17",
            "negative",
            |c| {
                c.src().on(&[2, -1], 0, &[0, -1]);
            },
            &["dims[1]=-1"],
        ),
        reshard_refused(
            "E17",
            "in order",
            |c| {
                c.src().on(&[-2, -1], 0, &[0, -1]);
            },
            &["dims[0]=-2"],
        ),
        reshard_refused(
            "E18",
            "start -1",
            |c| {
                c.src().on(&[1], -1, &[-1]);
            },
            &["mesh", "startRank=-1"],
        ),
        reshard_refused(
            "E19",
            "65536 by 65536",
            |c| {
                c.src().on(&[65536, 65536], 0, &[0, -1]);
            },
            &["mesh", "size", "4294967296"],
        ),
        reshard_refused(
            "E20",
            "the last rank is beyond INT_MAX",
            |c| {
                c.src().on(&[2], 2_147_483_646, &[0]);
            },
            &["mesh interval", "overflow"],
        ),
        reshard_refused(
            "E16",
            "dst",
            |c| {
                c.dst().on(&[0], 1, &[-1]);
            },
            &["mesh", "dims[0]=0"],
        ),
        reshard_refused(
            "E21",
            "dst of rank 2",
            |c| {
                c.dst().shaped(&[4, 4]);
            },
            &["ndims"],
        ),
        reshard_refused(
            "E22",
            "dst of int8",
            |c| c.dst().dtype = ncclDataType_t(0),
            &["dtype", "0", "1"],
        ),
        reshard_refused(
            "E23",
            "type 12",
            |c| (c.src().dtype, c.dst().dtype) = (ncclDataType_t(12), ncclDataType_t(12)),
            &["type", "12"],
        ),
        reshard_refused(
            "E23",
            "type -1",
            |c| (c.src().dtype, c.dst().dtype) = (ncclDataType_t(!0), ncclDataType_t(!0)),
            &["type", "-1"],
        ),
    ]
}

fn placements() -> Vec<Row> {
    vec![
        reshard_refused(
            "E24",
            "-2",
            |c| c.src().placements = Some(vec![-2]),
            &["src->placements[0]", "-2"],
        ),
        reshard_refused(
            "E25",
            "an axis that is not there",
            |c| c.src().placements = Some(vec![1]),
            &["src->placements[0]", "SHARD(1)", "rank 1"],
        ),
        reshard_refused(
            "E26",
            "both axes shard the same",
            |c| {
                c.src().on(&[1, 1], 0, &[0, 0]);
            },
            &["src", "SHARD", "2"],
        ),
        reshard_refused(
            "E26",
            "both axes shard",
            |c| {
                c.shaped(&[4, 4]);
                c.src().on(&[1, 1], 0, &[0, 1]);
            },
            &["src", "SHARD", "2"],
        ),
        reshard_refused(
            "E24",
            "dst",
            |c| c.dst().placements = Some(vec![-2]),
            &["dst->placements[0]", "-2"],
        ),
    ]
}
