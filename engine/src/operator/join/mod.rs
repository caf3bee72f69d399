//! Joins two changelogs on equal keys, with an optional extra condition: inner, outer, semi, anti and mark joins over bags.
//!
//! Any changelogs in. An inner join of append-only inputs is append-only, and so is a left semi join of them; all else retracts.
//! Every arriving row meets the rows of the other side that are there; pairs come out at once, with the product of both weights, so the net
//! result of an epoch does not depend on the order of the inputs. A kept row (of an outer, semi, anti or mark join) has a count of its matches;
//! what it owes changes when that count leaves or reaches zero. NULL keys match nothing unless the pair of columns is `null_equal`.
//!
//! State (`key` is the key encoding of the join columns):
//! - table 0, 1: rows of the left, right side: key -> (row number | row) -> (weight) (matches) (row). Sides that never retract number their rows;
//!   the others have one entry per distinct row with its weight. Matches are kept with the row only where there is a condition. Only columns
//!   that the output or the condition needs are stored.
//! - table 2, 3: key -> weight of all rows of the left, right side: where the other side is kept and there is no condition.
//! - table 4, 5: expiry: per key group, (time, number) -> keys of rows that die then.
//! - table 6, 7: per key group, the next row number of the left, right side.
//!
//! A row dies when it is deleted, or when the join's watermark (the minimum over both expiry columns) has passed its time plus the delay.
//! Watermarks are forwarded under join columns (minimum over both sides) and expiry columns (less the delay).
//!
//! Cost: one look-up per distinct key of a chunk plus the matches. A row that matches millions gives them in bounded steps.

mod candidates;
mod expiry;
mod output;
mod plan;
mod probe;
mod side;

use arrow::datatypes::SchemaRef;
use millpond_storage::{epoch::Epoch, state_table::StateTable};

use self::{
    candidates::Candidates,
    output::{OutputPlan, Weighted},
    probe::Work,
    side::Side,
};
use crate::{
    chunk::Chunk,
    error::Result,
    expression::Evaluator,
    message::{Barrier, Watermark},
    operator::{Operator, Output, Progress},
};

/// Bounded portions of dead rows removed in one call.
const EXPIRY_STEPS_PER_CALL: usize = 16;

/// What becomes of a row of one side, apart from its pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kept {
    /// Nothing.
    No,
    /// It comes with NULLs when it has no match.
    Padded,
    /// It comes when it has a match.
    Semi,
    /// It comes when it has no match.
    Anti,
    /// It comes with a boolean that says whether it has a match.
    Mark,
}

/// The extra condition, over the columns it reads.
pub(super) struct Condition {
    /// Over the compact schema of `columns`.
    evaluator: Evaluator,
    /// (side, input column).
    columns: Vec<(usize, usize)>,
    schema: SchemaRef,
}

/// See the module.
pub(crate) struct Join {
    sides: [Side; 2],
    /// Whether pairs come out.
    pairs: bool,
    condition: Option<Condition>,
    output: OutputPlan,
    /// The chunk being joined.
    work: Option<Work>,
    candidates: Candidates,
    /// Output that did not fit yet.
    owed: Weighted,
    /// Watermarks announced, per output column.
    announced: Vec<Option<i64>>,
    /// The watermark that expired rows last.
    expired: i64,
    /// Whether a barrier's call goes on letting rows die.
    expiring: bool,
}

impl Join {
    /// Whether a side's rows know how many matches they have by a count kept with the row.
    fn counts_with_rows(&self, side: usize) -> bool {
        self.sides[side].kept != Kept::No && self.condition.is_some()
    }

    /// Whether a side's rows know whether they match by the number of rows the other side has under their key.
    fn counts_by_key(&self, side: usize) -> bool {
        self.sides[side].kept != Kept::No && self.condition.is_none()
    }

    /// The join's watermark: both sides' expiry columns have reached it.
    fn watermark(&self) -> Option<i64> {
        let reached = |side: &Side| side.watermark_of(side.expiry.as_ref()?.column);
        Some(reached(&self.sides[0])?.min(reached(&self.sides[1])?))
    }

    /// Emits what has become certain about later output.
    fn forward_watermarks(&mut self, out: &mut Output) {
        let mut certain: Vec<(usize, usize, i64)> = Vec::new();
        let keys = self.sides[0].keys.iter().zip(&self.sides[1].keys);
        for (left, right) in keys {
            if let (Some(a), Some(b)) = (self.sides[0].watermark_of(*left), self.sides[1].watermark_of(*right)) {
                certain.extend([(0, *left, a.min(b)), (1, *right, a.min(b))]);
            }
        }
        if let Some(reached) = self.watermark() {
            for (number, side) in self.sides.iter().enumerate() {
                if let Some(expiry) = &side.expiry {
                    let below = if reached == i64::MAX { reached } else { reached.saturating_sub(expiry.delay.max(0)) };
                    certain.push((number, expiry.column, below));
                }
            }
        }
        for (column, announced) in self.announced.iter_mut().enumerate() {
            let Some(source) = self.output.side_column(column) else { continue };
            let micros = certain.iter().filter(|(side, input, _)| (*side, *input) == source).map(|(_, _, micros)| *micros).max();
            if let Some(micros) = micros.filter(|micros| announced.is_none_or(|announced| announced < *micros)) {
                *announced = Some(micros);
                out.emit_watermark(Watermark { column, micros });
            }
        }
    }

    /// Lets rows die that the watermark has passed, a bounded number at a time.
    fn expire(&mut self) -> Result<Progress> {
        self.expiring = false;
        let Some(reached) = self.watermark().filter(|reached| *reached > self.expired) else { return Ok(Progress::Done) };
        let mut steps = 0;
        for side in &mut self.sides {
            while side.expire_some(reached)? {
                steps += 1;
                if steps == EXPIRY_STEPS_PER_CALL {
                    self.expiring = true;
                    return Ok(Progress::More);
                }
            }
        }
        self.expired = reached;
        Ok(Progress::Done)
    }
}

impl Operator for Join {
    fn on_chunk(&mut self, port: usize, chunk: Chunk, out: &mut Output) -> Result<Progress> {
        self.begin(port, chunk)?;
        self.go_on(out)
    }

    fn resume(&mut self, out: &mut Output) -> Result<Progress> {
        if self.expiring { self.expire() } else { self.go_on(out) }
    }

    fn on_watermark(&mut self, port: usize, watermark: Watermark, out: &mut Output) -> Result<Progress> {
        self.sides[port].advance_watermark(watermark);
        self.forward_watermarks(out);
        Ok(Progress::Done)
    }

    fn on_barrier(&mut self, _barrier: &Barrier, _out: &mut Output) -> Result<Progress> {
        self.expire()
    }

    fn snapshot(&mut self, _epoch: Epoch) -> Result<()> {
        self.sides.iter_mut().for_each(Side::write_numbers);
        Ok(())
    }

    fn tables(&mut self) -> Vec<&mut dyn StateTable> {
        self.sides.iter_mut().flat_map(Side::tables).collect()
    }
}

/// The other side.
fn other(side: usize) -> usize {
    1 - side
}

#[cfg(test)]
mod tests;
