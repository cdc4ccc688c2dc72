//! Groups with masks (EP 6.2): who takes part, and how ranks meet that come and go.

mod mailbox;
mod masks;
mod packet;

pub(super) use mailbox::Mailboxes;
pub(super) use masks::Masks;
pub(super) use packet::{Packet, Rows, check_same_call};
