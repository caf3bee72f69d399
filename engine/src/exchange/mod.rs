//! Exchanges: the edges between fragments, inside one process.
//!
//! Every consumer subtask has one [`inbox::Inbox`] with a bounded FIFO queue per channel, a channel being one (edge, producer) pair. A
//! [`router::Router`] sits at a producer's root and decides which consumer gets a row. Messages of a channel are numbered; across channels no
//! order is promised.

pub mod inbox;
pub mod router;
