//! Events of one object, made once and used again.

use crate::device::Device;
use crate::error::Result;
use crate::event::Event;

/// Events that nothing needs any more.
#[derive(Default)]
pub(super) struct EventPool(Vec<Event>);

impl EventPool {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn take(&mut self, device: Device) -> Result<Event> {
        match self.0.pop() {
            Some(event) => Ok(event),
            None => Event::for_order(device),
        }
    }

    pub(super) fn give_back(&mut self, event: Event) {
        self.0.push(event);
    }
}
