//! Rules of events.

use crate::rules;

/// Two events between which time is taken.
pub(crate) struct ElapsedFacts {
    /// What is wrong with them.
    pub(crate) wrong: Option<&'static str>,
}

rules! {
    /// Checked where the driver does not.
    ELAPSED over plain ElapsedFacts {
        "event.elapsed" on "start":
            "both events must be recorded, on the same backend"
            ("CUDA cuEventElapsedTime", Local)
            |f| f.wrong => |wrong| ("two recorded events", wrong);
    }
}
