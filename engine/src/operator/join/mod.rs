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
//! A watermark is forwarded under each time column that is bounded by one of the other side: no pair that is still to come, nor one that is
//! still to go, has a value below the other side's watermark plus the bound's shift, nor below the column's own watermark. A row dies when it is
//! deleted, or when this watermark has passed its expiry column: then neither a match of it nor its deletion can come.
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
    expiry::{Due, Expiry},
    output::{OutputPlan, Weighted},
    probe::Work,
    side::Side,
};
use crate::{
    chunk::Chunk,
    error::Result,
    expression::Evaluator,
    graph::TimeBound,
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
    /// The watermark on each side's expiry column that expired rows last.
    expired: [i64; 2],
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

    /// The watermark of a side's time column in the output, as far as its bounds and both sides' watermarks say: of several bounds each holds, so
    /// the highest counts.
    fn watermark_of(&self, side: usize, column: usize) -> Option<i64> {
        let partners = &self.sides[other(side)];
        let of_bound = |bound: &TimeBound| match partners.watermark_of(bound.partner)? {
            i64::MAX => Some(i64::MAX),
            reached => Some(reached.saturating_add(bound.shift_us)),
        };
        let bounds = self.sides[side].bounds.iter().filter(|bound| bound.column == column);
        let by_partners = bounds.filter_map(of_bound).max()?;
        Some(self.sides[side].watermark_of(column)?.min(by_partners))
    }

    /// Emits what has become certain about later output.
    fn forward_watermarks(&mut self, out: &mut Output) {
        for column in 0..self.announced.len() {
            let micros = self.output.side_column(column).and_then(|(side, input)| self.watermark_of(side, input));
            let announced = &mut self.announced[column];
            if let Some(micros) = micros.filter(|micros| announced.is_none_or(|announced| announced < *micros)) {
                *announced = Some(micros);
                out.emit_watermark(Watermark { column, micros });
            }
        }
    }

    /// Lets rows die that the watermark has passed, a bounded number at a time.
    fn expire(&mut self) -> Result<Progress> {
        self.expiring = false;
        let mut steps = 0;
        for side in 0..self.sides.len() {
            let Some(column) = self.sides[side].expiry.as_ref().map(|expiry| expiry.column) else { continue };
            let Some(reached) = self.watermark_of(side, column).filter(|reached| *reached > self.expired[side]) else { continue };
            loop {
                match self.sides[side].expire_some(reached)? {
                    Due::Done => {
                        self.expired[side] = reached;
                        break;
                    }
                    Due::NextEpoch => break,
                    Due::More => steps += 1,
                }
                if steps == EXPIRY_STEPS_PER_CALL {
                    self.expiring = true;
                    return Ok(Progress::More);
                }
            }
        }
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
        self.sides.iter_mut().filter_map(|side| side.expiry.as_mut()).for_each(Expiry::end_epoch);
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
