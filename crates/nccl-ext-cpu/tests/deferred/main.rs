//! The backend whose calls return before their work is done.

mod order;
mod races;
