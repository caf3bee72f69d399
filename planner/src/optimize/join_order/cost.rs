//! What a join costs: one model for queries, which read their inputs once, and one for views, which keep them.

use super::region::JoinKind;

/// A side of a join, or its output.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Side {
    /// Rows.
    pub rows: f64,
    /// Bytes of a row.
    pub width: f64,
    /// Rows that change in some time.
    pub changes: f64,
}

impl Side {
    fn bytes(&self) -> f64 {
        self.rows * self.width
    }
}

/// A join that is to be priced.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PricedJoin {
    /// Its left side.
    pub left: Side,
    /// Its right side.
    pub right: Side,
    /// Its rows.
    pub output: Side,
    /// Hashing can find matches.
    pub is_equality: bool,
    pub(crate) kind: JoinKind,
}

/// The price of a join without that of its inputs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Price {
    /// In bytes that are read, written or kept.
    pub cost: f64,
    /// It is cheaper with its sides exchanged: the left side is the one that is built.
    pub exchanged: bool,
}

/// What makes one plan better than another.
pub trait CostModel {
    /// The price of a join.
    fn join(&self, join: &PricedJoin) -> Price;

    /// The statement as a whole runs again and again, so that a relation that is empty now says nothing of it.
    fn is_continuous(&self) -> bool {
        false
    }
}

/// Bytes that a row takes in a hash table besides its own.
const ENTRY: f64 = 16.0;

/// How much dearer it is to put a row into a hash table than to look one up.
const BUILD: f64 = 2.0;

/// Comparisons that cost as much as a byte.
const COMPARISON: f64 = 2.0;

/// A query: the left side is hashed, the right one looks its matches up, and the output is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchCost;

impl CostModel for BatchCost {
    fn join(&self, join: &PricedJoin) -> Price {
        let build = |side: &Side| BUILD * side.rows * (side.width + ENTRY);
        let probe = |side: &Side| side.rows * (side.width + ENTRY);
        let (left, right) = (build(&join.left) + probe(&join.right), build(&join.right) + probe(&join.left));
        let exchanged = right < left;
        let mut cost = left.min(right) + join.output.bytes();
        if !join.is_equality {
            cost += COMPARISON * join.left.rows * join.right.rows;
        }
        Price { cost, exchanged }
    }
}

/// A view: both sides are kept as long as it exists, and each change of one looks its matches up in the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct ViewCost;

impl CostModel for ViewCost {
    fn join(&self, join: &PricedJoin) -> Price {
        let state = |side: &Side| side.rows * (side.width + ENTRY);
        let changes = |side: &Side| side.changes * (side.width + ENTRY);
        let mut cost = state(&join.left) + state(&join.right);
        cost += changes(&join.left) + changes(&join.right) + changes(&join.output);
        if !join.is_equality {
            // Every change meets every row, on one subtask.
            cost += COMPARISON * (join.left.changes * join.right.rows + join.right.changes * join.left.rows);
        }
        Price { cost, exchanged: false }
    }

    fn is_continuous(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(rows: f64, changes: f64) -> Side {
        Side { rows, width: 10.0, changes }
    }

    fn join(left: Side, right: Side) -> PricedJoin {
        PricedJoin { left, right, output: side(10.0, 10.0), is_equality: true, kind: JoinKind::Inner }
    }

    #[test]
    fn the_smaller_side_builds() {
        assert!(BatchCost.join(&join(side(100.0, 0.0), side(10.0, 0.0))).exchanged);
        assert!(!BatchCost.join(&join(side(10.0, 0.0), side(100.0, 0.0))).exchanged);
        assert!(!BatchCost.join(&join(side(10.0, 0.0), side(10.0, 0.0))).exchanged);
    }

    #[test]
    fn a_view_pays_for_changes_and_state() {
        let calm = ViewCost.join(&join(side(100.0, 1.0), side(10.0, 1.0))).cost;
        let restless = ViewCost.join(&join(side(100.0, 50.0), side(10.0, 1.0))).cost;
        let larger = ViewCost.join(&join(side(200.0, 1.0), side(10.0, 1.0))).cost;
        assert!(calm < restless && calm < larger);
    }

    #[test]
    fn without_equality_every_row_meets_every_row() {
        let with = join(side(1000.0, 1.0), side(1000.0, 1.0));
        let without = PricedJoin { is_equality: false, ..with };
        assert!(BatchCost.join(&without).cost > 10.0 * BatchCost.join(&with).cost);
        assert!(ViewCost.join(&without).cost > ViewCost.join(&with).cost);
    }
}
