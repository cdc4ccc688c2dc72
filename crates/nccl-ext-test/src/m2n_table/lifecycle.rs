//! M2N 2.8, 8.3: handles.

use nccl_m2n_sys::NCCL_M2N_API_MAGIC;

use super::{Action, Handle, ReshardCall, Row, bad, ok};

const FIRST: Handle = Handle::Slot(0);

fn with_slot(c: &mut ReshardCall) {
    c.handle = FIRST;
}

pub(super) fn rows() -> Vec<Row> {
    let finalize = || Action::Finalize(FIRST);
    vec![
        Row::new(
            "L01",
            "nowhere to put the handle",
            vec![bad(Action::InitNowhere, &["ncclM2nInit"])],
        ),
        Row::new(
            "L02",
            "config of 20 bytes",
            vec![bad(Action::Init(0, |config| config.size = 20), &["config", "20", "24"])],
        ),
        Row::new(
            "L02",
            "config of 32 bytes",
            vec![bad(Action::Init(0, |config| config.size = 32), &["config", "32", "24"])],
        ),
        Row::new(
            "L03",
            "magic 0",
            vec![bad(Action::Init(0, |config| config.magic = 0), &["config", "magic"])],
        ),
        Row::new(
            "L03",
            "another bit of magic",
            vec![bad(
                Action::Init(0, |config| config.magic = NCCL_M2N_API_MAGIC ^ 1),
                &["config", "magic"],
            )],
        ),
        Row::new(
            "L02",
            "size before magic",
            vec![bad(
                Action::Init(0, |config| (config.size, config.magic) = (20, 0)),
                &["config", "20"],
            )],
        ),
        Row::new(
            "L04",
            "version 1",
            vec![ok(Action::Init(0, |config| config.version = 1)), ok(finalize())],
        ),
        Row::new(
            "L05",
            "no CTAs",
            vec![ok(Action::Init(0, |config| config.maxCta = 0)), ok(finalize())],
        ),
        Row::new(
            "L06",
            "finalize twice",
            vec![ok(Action::InitWithoutConfig(0)), ok(finalize()), bad(finalize(), &["handle"])],
        ),
        Row::new(
            "L06",
            "finalize a handle of nobody",
            vec![bad(Action::Finalize(Handle::Fake(0xdead)), &["handle", "0xdead"])],
        ),
        Row::new(
            "L07",
            "reshard with a finalized handle",
            vec![
                ok(Action::Init(0, |_| ())),
                ok(finalize()),
                bad(Action::Reshard(with_slot), &["handle"]),
            ],
        ),
        Row::new(
            "L08",
            "finalize the default handle twice",
            vec![ok(Action::Finalize(Handle::Null)), ok(Action::Finalize(Handle::Null))],
        ),
        Row::new(
            "L09",
            "finalize in a group",
            vec![
                ok(Action::Init(0, |_| ())),
                ok(Action::Start),
                bad(Action::Finalize(Handle::Null), &["group"]),
                bad(finalize(), &["group"]),
                ok(Action::End),
                // The handle was not released.
                ok(finalize()),
            ],
        ),
        Row::new(
            "2.8",
            "init in a group",
            vec![ok(Action::Start), ok(Action::Init(0, |_| ())), ok(Action::End), ok(finalize())],
        ),
        Row::new(
            "L07",
            "a live handle",
            vec![ok(Action::Init(0, |_| ())), ok(Action::Reshard(with_slot)), ok(finalize())],
        )
        .on_device(),
    ]
}
