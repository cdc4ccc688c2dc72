//! M2N 2.6, 8.4: which entry a group fails with.

use super::{Action, Data, Handle, ReshardCall, Row, bad, ok};

pub(super) fn nothing() -> Action {
    Action::Reshard(|c| c.nothing())
}

pub(super) fn valid() -> Action {
    Action::Reshard(|_| ())
}

fn bad_rank() -> Action {
    Action::Reshard(|c| c.src().ndims = 7)
}

fn bad_handle() -> Action {
    Action::Reshard(|c| c.handle = Handle::Fake(0xdead))
}

fn no_tile() -> Action {
    Action::Reshard(|c| c.src().data = Data::Null)
}

fn out_of_bounds() -> Action {
    Action::Reshard(|c| {
        c.dst().on(&[2], 1, &[0]);
    })
}

/// Records entries, and ends with this error.
pub(super) fn fails(
    id: &'static str,
    name: &'static str,
    entries: Vec<Action>,
    words: &'static [&'static str],
) -> Row {
    let mut steps = vec![ok(Action::Start)];
    steps.extend(entries.into_iter().map(ok));
    steps.push(bad(Action::End, words));
    Row::new(id, name, steps)
}

fn passes(id: &'static str, name: &'static str, entries: Vec<Action>) -> Row {
    let mut steps = vec![ok(Action::Start)];
    steps.extend(entries.into_iter().map(ok));
    steps.push(ok(Action::End));
    Row::new(id, name, steps).on_device()
}

pub(super) fn rows() -> Vec<Row> {
    [indices(), fused(), aliases()].into_iter().flatten().collect()
}

fn indices() -> Vec<Row> {
    vec![
        fails(
            "G08",
            "the third",
            vec![valid(), valid(), bad_rank()],
            &["entry 2 of 3 failed", "src->ndims", "7"],
        ),
        fails(
            "G09",
            "the last is blamed for the handle",
            vec![bad_handle(), bad_handle()],
            &["entry 1 of 2 failed", "handle", "0xdead"],
        ),
        fails(
            "G10",
            "the first bucket is checked as a whole",
            vec![valid(), bad_handle(), out_of_bounds()],
            &["entry 2 of 3 failed", "dst mesh interval"],
        ),
        fails(
            "G11",
            "out of bounds",
            vec![valid(), out_of_bounds()],
            &["entry 1 of 2 failed", "dst mesh interval"],
        ),
        fails(
            "G12",
            "no source tile",
            vec![no_tile(), valid()],
            &["entry 0 of 2 failed", "src->dataPtr", "active source rank 0"],
        ),
        fails(
            "G13",
            "NULL is the legacy stream",
            vec![Action::Reshard(|c| c.stream = 1), bad_rank()],
            &["entry 1 of 2 failed", "src->ndims"],
        )
        // One by one its text would name the single call.
        .ends_without(&["ncclReshard"]),
        fails(
            "G14",
            "the per-thread stream is another",
            vec![Action::Reshard(|c| c.stream = 2), bad_rank()],
            &["entry 1 of 2 failed", "ncclReshard"],
        )
        .on_device(),
        fails(
            "2.6",
            "tiles of an entry before bounds of the next",
            vec![no_tile(), out_of_bounds()],
            &["entry 0 of 2 failed", "src->dataPtr", "active source rank 0"],
        ),
        fails(
            "2.6",
            "bounds of an entry before tiles of the next",
            vec![out_of_bounds(), no_tile()],
            &["entry 0 of 2 failed", "dst mesh interval"],
        ),
        fails(
            "2.6",
            "descriptors of all before the handle",
            vec![
                bad_handle(),
                Action::Reshard(|c| {
                    c.handle = Handle::Fake(0xdead);
                    c.src().ndims = 7;
                }),
            ],
            &["entry 1 of 2 failed", "src->ndims"],
        ),
        fails(
            "2.6",
            "a NULL descriptor keeps its bucket from fusing",
            vec![Action::Reshard(|c| c.stream = 0), Action::Reshard(|c| c.src = None)],
            &["entry 1 of 2 failed", "ncclReshard"],
        )
        .on_device(),
    ]
}

fn fused() -> Vec<Row> {
    vec![
        fails(
            "G23",
            "global shapes are compared",
            vec![
                valid(),
                Action::Reshard(|c| {
                    c.dst().shaped(&[5]);
                }),
            ],
            &["entry 1 of 2 failed", "global shape", "dim 0"],
        )
        .on_device(),
        fails(
            "G24",
            "not those of a lone entry",
            vec![Action::Reshard(|c| {
                c.dst().shaped(&[5]);
            })],
            &["entry 0 of 1 failed", "global shape", "dim 0"],
        )
        .unchecked(),
        passes(
            "G25",
            "two topologies",
            vec![
                valid(),
                Action::Reshard(|c| {
                    c.src().on(&[1, 1], 0, &[0, -1]);
                }),
            ],
        ),
        passes(
            "2.6",
            "two shapes of one topology",
            vec![
                valid(),
                Action::Reshard(|c| {
                    c.shaped(&[2, 3]);
                }),
            ],
        ),
        passes(
            "2.7",
            "only empty tensors",
            vec![Action::Reshard(|c| c.shaped(&[0])), Action::Reshard(|c| c.shaped(&[3, 0]))],
        ),
        fails(
            "2.6",
            "an empty tensor beside one that is not",
            vec![valid(), Action::Reshard(|c| c.shaped(&[0]))],
            &["entry 1 of 2 failed", "peer"],
        )
        .unchecked(),
        fails(
            "E40",
            "a tile beyond the default buffer",
            vec![
                valid(),
                Action::Reshard(|c| {
                    c.shaped(&[(1 << 31) + 1]);
                    // Beyond the tiles of the other entry.
                    at(c, 8000, 8000);
                }),
            ],
            &["entry 1 of 2 failed", "implicit default"],
        )
        .on_device(),
    ]
}

fn at(c: &mut ReshardCall, src: usize, dst: usize) {
    c.src().data = Data::Offset(src);
    c.dst().data = Data::Offset(dst);
}

/// M2N 2.6, 9.
fn aliases() -> Vec<Row> {
    const OVERLAP: &[&str] = &["entry 1 of 2 failed", "entries 0 and 1", "overlapping buffers"];
    let shared = || vec![Action::Reshard(|c| at(c, 0, 1000)), Action::Reshard(|c| at(c, 0, 2000))];
    vec![
        fails("G18", "one source of two entries", shared(), OVERLAP).on_device(),
        passes("G19", "which is allowed one by one", shared()).under(&[("SPLIT_COMM", "1")]),
        fails(
            "G20",
            "a destination that is another's source",
            vec![Action::Reshard(|c| at(c, 0, 1000)), Action::Reshard(|c| at(c, 1003, 2000))],
            OVERLAP,
        )
        .on_device(),
        fails(
            "G20",
            "one destination of two entries",
            vec![Action::Reshard(|c| at(c, 0, 1000)), Action::Reshard(|c| at(c, 500, 1000))],
            OVERLAP,
        )
        .on_device(),
        passes(
            "G21",
            "adjacent slices",
            vec![Action::Reshard(|c| at(c, 0, 1000)), Action::Reshard(|c| at(c, 4, 1004))],
        ),
        passes(
            "G22",
            "overlap inside one entry",
            vec![
                Action::Reshard(|c| {
                    at(c, 100, 100);
                    c.dst().on(&[1], 0, &[-1]);
                }),
                Action::Reshard(|c| {
                    at(c, 200, 300);
                    c.dst().on(&[1], 0, &[-1]);
                }),
            ],
        )
        .ranks(1),
        fails(
            "2.6",
            "the later of the two is named",
            vec![
                Action::Reshard(|c| at(c, 500, 1000)),
                Action::Reshard(|c| at(c, 0, 2000)),
                Action::Reshard(|c| at(c, 498, 3000)),
            ],
            &["entry 2 of 3 failed", "entries 0 and 2"],
        )
        .on_device(),
    ]
}
