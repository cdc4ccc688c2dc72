//! M2N 2.6, 8.4: starts, ends and aborts, and what is refused while recording.

use super::groups::{fails, nothing, valid};
use super::{Action, Comm, Handle, Row, Step, bad, ok, usage};

pub(super) fn rows() -> Vec<Row> {
    [nesting(), latched()].into_iter().flatten().collect()
}

fn without(step: Step, without: &'static [&'static str]) -> Step {
    Step { without, ..step }
}

fn nesting() -> Vec<Row> {
    vec![
        Row::new("G01", "an end without a start", vec![usage(Action::End, &["group", "thread"])]),
        Row::new("G02", "aborts without a start", vec![ok(Action::Abort), ok(Action::Abort)]),
        Row::new("G03", "an empty group", vec![ok(Action::Start), ok(Action::End)]),
        Row::new(
            "G04",
            "three levels",
            vec![
                ok(Action::Start),
                ok(nothing()),
                ok(Action::Start),
                ok(nothing()),
                ok(Action::Start),
                ok(nothing()),
                ok(Action::End),
                ok(Action::End),
                bad(Action::End, &["ncclM2nGroupEnd: entry 0 of 3 failed", "comm"]),
                usage(Action::End, &["group"]),
            ],
        ),
        fails("G05", "one entry", vec![nothing()], &["entry 0 of 1 failed", "ncclReshard", "comm"]),
        Row::new(
            "G06",
            "nothing is followed before the end",
            vec![
                ok(Action::Start),
                ok(Action::Reshard(|c| {
                    (c.handle, c.comm, c.stream) = (Handle::Fake(7), Comm::Fake(8), 3)
                })),
                ok(Action::WithWindow(|c| (c.comm, c.stream) = (Comm::Fake(16), 1))),
                ok(nothing()),
                ok(Action::Abort),
                usage(Action::End, &["group"]),
            ],
        ),
        Row::new(
            "4.3",
            "an abort discards all levels",
            vec![
                ok(Action::Start),
                ok(Action::Start),
                ok(nothing()),
                ok(Action::Abort),
                usage(Action::End, &["group"]),
            ],
        ),
        Row::new(
            "4.3",
            "a start after a failed group starts anew",
            vec![
                ok(Action::Start),
                ok(nothing()),
                bad(Action::End, &["entry 0 of 1"]),
                ok(Action::Start),
                ok(Action::End),
            ],
        ),
    ]
}

fn latched() -> Vec<Row> {
    let size = || Action::Reshard(|c| c.src().size = 3);
    const SIZE: &[&str] = &["ncclM2n group", "source", "tensor", "descriptor"];
    vec![
        Row::new(
            "G07",
            "a short descriptor",
            vec![
                ok(Action::Start),
                bad(size(), SIZE),
                bad(valid(), SIZE),
                ok(Action::Start),
                ok(Action::End),
                without(bad(Action::End, SIZE), &["entry"]),
                usage(Action::End, &["group"]),
            ],
        ),
        Row::new(
            "2.6",
            "versions and meshes",
            vec![
                ok(Action::Start),
                bad(
                    Action::Reshard(|c| c.dst().version = 1),
                    &["destination", "tensor", "version", "1"],
                ),
                ok(Action::Abort),
                ok(Action::Start),
                bad(
                    Action::Reshard(|c| c.src().mesh().size = 8),
                    &["source", "mesh", "descriptor"],
                ),
                ok(Action::Abort),
                ok(Action::Start),
                bad(
                    Action::Reshard(|c| c.dst().mesh().version = 3),
                    &["destination", "mesh", "version"],
                ),
                ok(Action::Abort),
            ],
        ),
        Row::new(
            "2.6",
            "the source before the destination",
            vec![
                ok(Action::Start),
                bad(
                    Action::Reshard(|c| {
                        c.src().mesh().version = 3;
                        c.dst().size = 3;
                    }),
                    &["source", "mesh"],
                ),
                ok(Action::Abort),
            ],
        ),
        Row::new(
            "2.6",
            "everything else waits for the end",
            vec![
                ok(Action::Start),
                ok(Action::Reshard(|c| c.src().mesh = None)),
                ok(Action::Reshard(|c| c.src().shape = None)),
                ok(Action::Reshard(|c| c.src().placements = None)),
                ok(Action::Reshard(|c| c.src().mesh().ndims = 9)),
                ok(Action::Reshard(|c| c.src().ndims = -4)),
                bad(Action::End, &["ncclM2nGroupEnd: entry 0 of 5 failed", "src->mesh"]),
            ],
        ),
    ]
}
