//! Exchanges: the edges between fragments, inside one process.
//!
//! Every consumer subtask has one [`inbox::Inbox`] with a bounded FIFO queue per channel, a channel being one (edge, producer) pair. A
//! [`router::Router`] sits at a producer's root and decides which consumer gets a row. Messages of a channel are numbered; across channels no
//! order is promised. Beside its queue a channel has a lane on which a checkpoint's barrier passes what is queued ([`channel`]). How much a queue may
//! hold follows its consumer ([`debloat`]).
//!
//! # Unaligned checkpoints
//!
//! *Problem.* The barrier of a checkpoint waits behind what is queued before it, and at every subtask for the slowest channel. With a slow
//! operator, or an input that stands still, that takes as long as the slowness does.
//!
//! *The cut.* A checkpoint is named by the epoch `e` of its barrier and begins aligned. When its parts have not come after the job's
//! `aligned_checkpoint_timeout`, counted from the injection, the driver switches it ([`switch`]): every subtask that has not passed
//! barrier `e` takes its state where it stands, in mid-epoch, as soon as every producer of its channels has, and puts the barrier on the
//! lanes of its outputs with the sequence number it stands at. What is below that number and not taken is a *segment* of the checkpoint:
//! chunks, watermarks, and epoch barriers, which keep their place. Scans come first, for they have no producers: what is queued between a
//! reader and its subtask is not kept but read again, from the row on that the subtask took last ([`crate::scan::place`]). So the switch goes
//! through the graph at the pace at which subtasks look up from their work, and waits for no queue and no reader. A subtask looks up between
//! two messages; it takes slices of chunks that take about 20 ms, and no message while an output has no room, so what is kept of its place
//! is in its channels and state tables alone.
//!
//! *What is withheld until an epoch closes is state.* An aggregate's and a top-N's touched keys are in tables of their own, with the last epoch
//! that their subtask had closed; a subquery's value is compared with the one it emitted last; joins, windows and projections withhold
//! nothing; what the root has collected of epochs that are not sealed goes into the checkpoint beside the segments.
//!
//! *Invariants.* A subtask never takes a message that its producer sent behind the barrier before its own state is taken. Nothing behind the
//! barrier of `e` is in a checkpoint `e`, so all it holds is of closed epochs and the same after every restart.
//!
//! *Restore.* A segment becomes a channel of its own in every new subtask that owns some of its key groups, with only the rows that the
//! subtask owns; it is aligned like an input and gone once drained. Subtasks of a fragment may have stood at different epochs: the new ones
//! start at the lowest, close epochs again that some of the old ones had closed, and what an old one had open closes only with an epoch above
//! its own ([`crate::operator::OperatorContext::closed`]). Barriers between that epoch and `e` are injected again, as they were.
//!
//! *What is never overtaken.* A forward, single, merge, round-robin or broadcast edge cannot be filtered by key group. Fragments at either end of one
//! stay aligned, and so do all fragments above them ([`crate::graph::DataflowGraph::aligned_fragments`]): their subtasks take their state at barrier `e`. EXPLAIN
//! marks their edges. So does a job stay aligned that is not readable yet, and one whose inputs have ended.

pub mod channel;
pub mod debloat;
pub mod inbox;
pub mod router;
pub mod switch;
