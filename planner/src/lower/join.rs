//! Joins: equalities become key columns, the rest a condition.

use datafusion::{
    common::{JoinType, NullEquality},
    logical_expr::{
        BinaryExpr, Expr, Join, LogicalPlan, Operator,
        utils::{conjunction, split_conjunction},
    },
};
use millpond_engine::graph::{JoinKind, JoinSpec, OperatorSpec};

use super::{Lowering, input_columns::Wanted, nullable_schema};
use crate::{
    error::Result,
    optimize::unsupported,
    stream::{columns::moved, node::NodeIndex, time_bounds},
};

/// A join with its sides in the order in which the engine has them.
struct Sides<'a> {
    kind: JoinKind,
    left: &'a LogicalPlan,
    right: &'a LogicalPlan,
    /// (left, right, whether NULLs are equal).
    on: Vec<(Expr, Expr, bool)>,
    condition: Option<Expr>,
}

impl Lowering<'_> {
    /// Lowers a join.
    pub(super) fn join(&mut self, join: &Join) -> Result<NodeIndex> {
        let sides = sides(join)?;
        let (left_input, right_input) = (self.lower(sides.left)?, self.lower(sides.right)?);
        let (left_width, right_width) = (sides.left.schema().fields().len(), sides.right.schema().fields().len());
        let (mut left_wanted, mut right_wanted) = (Wanted::default(), Wanted::default());
        let places: Vec<(usize, usize)> =
            sides.on.iter().map(|(left, right, _)| (left_wanted.place(left), right_wanted.place(right))).collect();
        let left = self.appended(left_input, sides.left.schema(), &left_wanted)?;
        let right = self.appended(right_input, sides.right.schema(), &right_wanted)?;
        let on: Vec<(usize, usize)> = places.into_iter().map(|(one, two)| (left.columns[one], right.columns[two])).collect();

        // Columns appended to the left side move the right ones.
        let joined_width = self.arena.node(left.node).width();
        let place = |column: usize| if column < left_width { column } else { column - left_width + joined_width };
        let schema = sides.left.schema().join(sides.right.schema())?;
        let condition = match &sides.condition {
            Some(condition) => Some(moved(&self.expression(condition, &schema)?, &place)?),
            None => None,
        };
        let inequalities = sides.condition.as_ref().map(|condition| time_bounds::inequalities(condition, &schema)).unwrap_or_default();
        let (left_known, right_known) = (&self.arena.node(left.node).properties, &self.arena.node(right.node).properties);
        let times = time_bounds::join_times(&on, &inequalities, left_width, left_known, right_known);
        let mut output: Vec<usize> = match sides.kind {
            JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full => (0..left_width + right_width).map(place).collect(),
            JoinKind::LeftMark => (0..left_width).chain([joined_width]).collect(),
            JoinKind::LeftSemi | JoinKind::LeftAnti => (0..left_width).collect(),
            JoinKind::RightSemi | JoinKind::RightAnti => (0..right_width).collect(),
        };
        if output.is_empty() {
            // Rows without columns cannot be counted.
            output.push(0);
        }
        let one_row = |key: &Option<Vec<usize>>| key.as_ref().is_some_and(Vec::is_empty);
        let has_one_row = one_row(&left_known.stream_key) || one_row(&right_known.stream_key);
        let spec = JoinSpec {
            kind: sides.kind,
            on,
            null_equal: sides.on.iter().map(|(_, _, null_equal)| *null_equal).collect(),
            condition,
            output,
            left: left_known.for_graph(),
            right: right_known.for_graph(),
            left_bounds: times.left_bounds.into(),
            right_bounds: times.right_bounds.into(),
            left_expiry: times.left_expiry,
            right_expiry: times.right_expiry,
        };
        // A bare existence test only counts the other side's rows.
        let tests_existence = matches!(spec.kind, JoinKind::LeftSemi | JoinKind::LeftAnti | JoinKind::LeftMark) && spec.condition.is_none();
        if spec.on.is_empty() && !has_one_row && !tests_existence {
            self.warn_about_cross_join(&spec);
        }
        Ok(self.arena.add(OperatorSpec::Join(spec), vec![left.node, right.node], nullable_schema(&join.schema)))
    }

    fn warn_about_cross_join(&mut self, spec: &JoinSpec) {
        let warning = match &spec.condition {
            Some(condition) => format!("the join on \"{condition}\" has no equality condition: every row meets every row, on one subtask"),
            None => "a join has no condition: every row meets every row, on one subtask".to_owned(),
        };
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
}

fn sides(join: &Join) -> Result<Sides<'_>> {
    let kind = match join.join_type {
        JoinType::Inner => JoinKind::Inner,
        JoinType::Left => JoinKind::Left,
        JoinType::Right => JoinKind::Right,
        JoinType::Full => JoinKind::Full,
        JoinType::LeftSemi | JoinType::RightSemi => JoinKind::LeftSemi,
        JoinType::LeftAnti | JoinType::RightAnti => JoinKind::LeftAnti,
        JoinType::LeftMark | JoinType::RightMark => JoinKind::LeftMark,
    };
    if join.null_aware || join.join_type == JoinType::RightMark {
        return Err(unsupported("this form of NOT IN is not supported in a materialized view", "Write it with NOT EXISTS."));
    }
    let swapped = matches!(join.join_type, JoinType::RightSemi | JoinType::RightAnti);
    let (left, right) = if swapped { (&join.right, &join.left) } else { (&join.left, &join.right) };
    let null_equal = join.null_equality == NullEquality::NullEqualsNull;
    let pair =
        |(one, two): &(Expr, Expr)| if swapped { (two.clone(), one.clone(), null_equal) } else { (one.clone(), two.clone(), null_equal) };
    let mut on: Vec<(Expr, Expr, bool)> = join.on.iter().map(pair).collect();
    let mut rest = Vec::new();
    for conjunct in join.filter.iter().flat_map(|filter| split_conjunction(filter)) {
        match equality(conjunct, left, right) {
            Some(pair) => on.push(pair),
            None if is_true(conjunct) => {}
            None => rest.push(conjunct.clone()),
        }
    }
    Ok(Sides { kind, left, right, on, condition: conjunction(rest) })
}

/// `l = r` and `l IS NOT DISTINCT FROM r` between the sides, in this order or the other.
fn equality(conjunct: &Expr, left: &LogicalPlan, right: &LogicalPlan) -> Option<(Expr, Expr, bool)> {
    let Expr::BinaryExpr(BinaryExpr { left: one, op, right: two }) = conjunct else { return None };
    let null_equal = match op {
        Operator::Eq => false,
        Operator::IsNotDistinctFrom => true,
        _ => return None,
    };
    if of_side(one, left) && of_side(two, right) {
        Some((one.as_ref().clone(), two.as_ref().clone(), null_equal))
    } else if of_side(one, right) && of_side(two, left) {
        Some((two.as_ref().clone(), one.as_ref().clone(), null_equal))
    } else {
        None
    }
}

/// Whether an expression reads columns, and only of this side.
fn of_side(expression: &Expr, side: &LogicalPlan) -> bool {
    let columns = expression.column_refs();
    !columns.is_empty() && columns.into_iter().all(|column| side.schema().has_column(column))
}

fn is_true(conjunct: &Expr) -> bool {
    matches!(conjunct, Expr::Literal(datafusion::common::ScalarValue::Boolean(Some(true)), _))
}
