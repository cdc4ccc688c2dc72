//! A group's work comes after the earlier uses of all that it uses, and before the later ones.

use nccl_ext_core::{Result, Stream, Use};

use super::Group;
use crate::runtime::CommState;

impl Group<'_> {
    /// Issues the group in order with other uses. The communicators are locked.
    pub(super) fn in_order(&self, issue: impl FnOnce() -> Result<()>) -> Result<()> {
        let members = self.members();
        let mut uses: Vec<(Stream<'_>, Use<'_>)> = Vec::new();
        for (state, streams) in &members {
            state.comm.refuse_if_aborted()?;
            for stream in streams {
                uses.push((*stream, state.comm.as_use()));
                uses.push((*stream, Use::write(Some(&state.last_use))));
            }
        }
        for entry in &self.entries {
            uses.extend(entry.uses.map(|tile| (entry.stream, tile)));
        }
        let mut begun = 0;
        let mut result = Ok(());
        for (stream, used) in &uses {
            result = used.begin(*stream);
            if result.is_err() {
                break;
            }
            begun += 1;
        }
        let mut result = result.and_then(|()| issue());
        for (stream, used) in &uses[..begun] {
            result = result.and(used.end(*stream));
        }
        result.and_then(|()| members.iter().try_for_each(remember_all))
    }

    /// The communicators with the streams that the group uses on them.
    fn members(&self) -> Vec<(&CommState, Vec<Stream<'_>>)> {
        let streams_of = |state: &CommState| {
            let mut streams: Vec<Stream<'_>> = Vec::new();
            for entry in self.entries.iter().filter(|entry| std::ptr::eq(&*entry.comm_state, state))
            {
                if !streams.iter().any(|stream| is_same(*stream, entry.stream)) {
                    streams.push(entry.stream);
                }
            }
            streams
        };
        self.comm_states().into_iter().map(|state| (state, streams_of(state))).collect()
    }
}

/// A communicator's member remembers the last of several streams as the one that must be waited for.
/// The others take part again after it, so that the next call waits for all.
fn remember_all((state, streams): &(&CommState, Vec<Stream<'_>>)) -> Result<()> {
    let Some((_, others)) = streams.split_last() else { return Ok(()) };
    others.iter().try_for_each(|stream| {
        let again = Use::read(Some(&state.last_use));
        again.begin(*stream)?;
        again.end(*stream)
    })
}

fn is_same(a: Stream<'_>, b: Stream<'_>) -> bool {
    a.number() == b.number() && a.as_raw() == b.as_raw()
}
