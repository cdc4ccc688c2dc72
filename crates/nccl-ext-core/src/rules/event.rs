//! Rules of events.

use crate::device::Device;
use crate::rules;

/// Two events, of which one may be on another device.
pub(crate) struct PairFacts {
    pub(crate) start: Device,
    pub(crate) end: Device,
}

rules! {
    /// Checked when time is taken between two events.
    PLACE over plain PairFacts {
        "event.place" on "start": "time passes between two events of one device"
            ("CUDA cuEventElapsedTime", Local)
            |f| f.start != f.end => (format!("an event of {}", f.end), format!("one of {}", f.start));
    }
}

/// Two events between which time is taken.
pub(crate) struct ElapsedFacts {
    /// What is wrong with them.
    pub(crate) wrong: Option<&'static str>,
}

rules! {
    /// Checked where the driver does not.
    ELAPSED over plain ElapsedFacts {
        "event.elapsed" on "start":
            "both events must be recorded"
            ("CUDA cuEventElapsedTime", Local)
            |f| f.wrong => |wrong| ("two recorded events", wrong);
    }
}
