//! From a [`JoinSpec`] to an operator: what each side stores and counts, and where output columns come from.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::{
    common::tree_node::{Transformed, TreeNode},
    physical_expr::{expressions::Column, utils::collect_columns},
    physical_plan::PhysicalExpr,
};
use millpond_storage::encoding::{key::KeyCodec, row::RowCodec};

use super::{
    Condition, Join, Kept,
    candidates::Candidates,
    expiry::Expiry,
    other,
    output::{OutputPlan, Source, Weighted},
    side::{Layout, Numbers, Side},
};
use crate::{
    error::Result,
    expression::Evaluator,
    graph::{Expression, JoinKind, JoinSpec},
    operator::{OperatorContext, SideOutput, key_groups::GroupKeys, state::TableIds, timers::Timers},
};

impl Join {
    /// An operator over inputs with the columns of `left` and `right` and an output of `schema`. `name` names it in the side output.
    pub(crate) fn new(
        name: String,
        spec: &JoinSpec,
        [left, right]: [&SchemaRef; 2],
        schema: SchemaRef,
        ids: TableIds,
        context: &mut OperatorContext,
    ) -> Result<Self> {
        let inputs = [left, right];
        let sources = sources_of(spec, inputs);
        let columns = sources.len();
        let output = OutputPlan::new(schema, sources);
        let condition = spec.condition.as_ref().map(|expression| condition(expression, inputs, name, context.side.clone())).transpose()?;
        let kept = kept_of(spec.kind);
        let plan = SidePlan { spec, kept, condition: condition.as_ref(), output: &output, ids };
        let sides = [plan.side(0, left, context)?, plan.side(1, right, context)?];
        Ok(Self {
            sides,
            pairs: emits_pairs(spec.kind),
            condition,
            output,
            work: None,
            candidates: Candidates::default(),
            owed: Weighted::default(),
            announced: vec![None; columns],
            expired: [i64::MIN; 2],
            expiring: false,
        })
    }
}

fn kept_of(kind: JoinKind) -> [Kept; 2] {
    match kind {
        JoinKind::Inner => [Kept::No, Kept::No],
        JoinKind::Left => [Kept::Padded, Kept::No],
        JoinKind::Right => [Kept::No, Kept::Padded],
        JoinKind::Full => [Kept::Padded, Kept::Padded],
        JoinKind::LeftSemi => [Kept::Semi, Kept::No],
        JoinKind::LeftAnti => [Kept::Anti, Kept::No],
        JoinKind::RightSemi => [Kept::No, Kept::Semi],
        JoinKind::RightAnti => [Kept::No, Kept::Anti],
        JoinKind::LeftMark => [Kept::Mark, Kept::No],
    }
}

fn emits_pairs(kind: JoinKind) -> bool {
    match kind {
        JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full => true,
        JoinKind::LeftSemi | JoinKind::LeftAnti | JoinKind::RightSemi | JoinKind::RightAnti | JoinKind::LeftMark => false,
    }
}

fn sources_of(spec: &JoinSpec, inputs: [&SchemaRef; 2]) -> Vec<Source> {
    let left = inputs[0].fields().len();
    let source = |column: &usize| match spec.kind {
        JoinKind::RightSemi | JoinKind::RightAnti => Source::Side(1, *column),
        JoinKind::LeftMark if *column == left => Source::Mark,
        _ if *column < left => Source::Side(0, *column),
        _ => Source::Side(1, *column - left),
    };
    spec.output.iter().map(source).collect()
}

/// The condition over a batch that has only the columns it reads.
fn condition(expression: &Expression, inputs: [&SchemaRef; 2], name: String, side: Arc<dyn SideOutput>) -> Result<Condition> {
    let left = inputs[0].fields().len();
    let mut read: Vec<usize> = collect_columns(&expression.physical).iter().map(Column::index).collect();
    read.sort_unstable();
    read.dedup();
    let physical = Arc::clone(&expression.physical).transform_up(|node: Arc<dyn PhysicalExpr>| {
        let place = node.downcast_ref::<Column>().and_then(|column| {
            let place = read.iter().position(|index| *index == column.index())?;
            Some(Arc::new(Column::new(column.name(), place)) as Arc<dyn PhysicalExpr>)
        });
        Ok(place.map_or(Transformed::no(node), Transformed::yes))
    })?;
    let columns: Vec<(usize, usize)> = read.iter().map(|index| if *index < left { (0, *index) } else { (1, *index - left) }).collect();
    let field = |(place, (side, column)): (usize, &(usize, usize))| -> Field {
        let field = inputs[*side].field(*column);
        Field::new(format!("{place}"), field.data_type().clone(), true)
    };
    let schema = Arc::new(Schema::new(columns.iter().enumerate().map(field).collect::<Vec<_>>()));
    let expression = Expression { physical: physical.data, text: expression.text.clone() };
    Ok(Condition { evaluator: Evaluator::predicate(expression, name, side), columns, schema })
}

struct SidePlan<'a> {
    spec: &'a JoinSpec,
    kept: [Kept; 2],
    condition: Option<&'a Condition>,
    output: &'a OutputPlan,
    ids: TableIds,
}

impl SidePlan<'_> {
    fn side(&self, number: usize, input: &SchemaRef, context: &mut OperatorContext) -> Result<Side> {
        let spec = self.spec;
        let types =
            |columns: &[usize]| -> Vec<DataType> { columns.iter().map(|column| input.field(*column).data_type().clone()).collect() };
        let keys: Vec<usize> = spec.on.iter().map(|(left, right)| if number == 0 { *left } else { *right }).collect();
        let (kept, other_kept) = (self.kept[number], self.kept[other(number)]);
        let by_condition = self.condition.is_some();
        let properties = if number == 0 { &spec.left } else { &spec.right };
        let (expires, bounds) = if number == 0 { (spec.left_expiry, &spec.left_bounds) } else { (spec.right_expiry, &spec.right_bounds) };
        // Rows are asked for to make pairs, to count matches under a condition, and to turn when their matches come and go.
        let stores_rows = emits_pairs(spec.kind) || by_condition || kept != Kept::No;
        let stored = self.stored_columns(number, input);
        let layout = if properties.append_only { Layout::Numbered } else { Layout::Weighted };
        let table = |kind: u16| self.ids.table(2 * kind + number as u16);
        let rows = stores_rows.then(|| context.state.range_table(table(0))).transpose()?;
        let counted = other_kept != Kept::No && !by_condition;
        let weights = counted.then(|| context.state.point_table(table(1))).transpose()?;
        let groups = context.state.key_groups();
        // Counts per key may die with a row only if all rows of the key die with it.
        let expires = expires.filter(|column| stores_rows && weights.is_none() || keys.contains(column));
        let expiry = match expires {
            None => None,
            Some(column) => {
                let timers = Timers::new(context.state.range_table(table(2))?, groups.clone());
                let null_matches = spec
                    .on
                    .iter()
                    .zip(&spec.null_equal)
                    .any(|((left, right), null_equal)| *null_equal && column == if number == 0 { *left } else { *right });
                Some(Expiry::new(column, null_matches, timers))
            }
        };
        let numbered = stores_rows && layout == Layout::Numbered || expiry.is_some();
        let numbers = match numbered {
            true => Some(Numbers::new(context.state.point_table(table(3))?, GroupKeys::new(groups))?),
            false => None,
        };
        Ok(Side {
            key_codec: KeyCodec::ascending(&types(&keys))?,
            row_codec: RowCodec::new(&types(&stored))?,
            null_equal: (0..keys.len()).map(|pair| spec.null_equal.get(pair).copied().unwrap_or(false)).collect(),
            keys,
            stored,
            kept,
            counts_matches: kept != Kept::No && by_condition,
            layout,
            numbers,
            rows,
            weights,
            bounds: bounds.clone(),
            expiry,
            watermarks: vec![None; input.fields().len()],
        })
    }

    /// Input columns of a side that the output or the condition needs; at least one, since a row must have bytes.
    fn stored_columns(&self, number: usize, input: &SchemaRef) -> Vec<usize> {
        let mut columns = self.output.columns_of(number);
        let condition = self.condition.iter().flat_map(|condition| &condition.columns);
        columns.extend(condition.filter(|(side, _)| *side == number).map(|(_, column)| *column));
        columns.sort_unstable();
        columns.dedup();
        if columns.is_empty() && !input.fields().is_empty() {
            columns.push(0);
        }
        columns
    }
}
