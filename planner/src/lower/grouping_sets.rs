//! GROUPING SETS, ROLLUP and CUBE: one aggregate per set over the same input, and their union. So the empty set gives its one row over no
//! rows, as a global aggregate does.
//!
//! DataFusion's output is: all group expressions (NULL where a set leaves one out), `__grouping_id`, the calls. Bit `n - 1 - i` of the id
//! says that expression `i` is left out; bits from `n` on number the repetitions of a set.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::{
    common::ScalarValue,
    logical_expr::{Aggregate, Expr, GroupingSet},
    physical_expr::expressions::Literal,
};
use millpond_engine::graph::{Expression, OperatorSpec};

use super::{
    Lowering,
    aggregate::{Grouping, aggregate_call, input_schema},
    input_columns::Wanted,
    internal,
};
use crate::{error::Result, optimize::unsupported, stream::node::NodeIndex};

/// Sets beyond this number are refused: each has an aggregate of its own.
const MAX_SETS: usize = 64;

impl Lowering<'_> {
    /// Lowers an aggregation by grouping sets.
    pub(super) fn grouping_sets(&mut self, aggregate: &Aggregate, sets: &GroupingSet, schema: &SchemaRef) -> Result<NodeIndex> {
        let expressions: Vec<Expr> = sets.distinct_expr().into_iter().cloned().collect();
        let sets = enumerate(sets);
        if sets.len() > MAX_SETS || expressions.len() > 31 {
            return Err(unsupported(
                format!("more than {MAX_SETS} grouping sets are not supported in a materialized view"),
                "Name fewer sets.",
            ));
        }
        let input = self.lower(&aggregate.input)?;
        let mut wanted = Wanted::default();
        let places: Vec<usize> = expressions.iter().map(|expression| wanted.place(expression)).collect();
        let types = schema.fields()[places.len() + 1..].iter().map(|field| field.data_type());
        let calls = aggregate.aggr_expr.iter().zip(types).map(|(call, output)| aggregate_call(call, output, &mut wanted));
        let calls = calls.collect::<Result<Vec<_>>>()?;
        let below = self.only(input, input_schema(aggregate), &wanted)?;
        let mut grouping = Grouping { groups: Vec::new(), calls };
        let mut branches = Vec::with_capacity(sets.len());
        for (at, set) in sets.iter().enumerate() {
            let members: Vec<usize> = (0..expressions.len()).filter(|place| set.contains(&expressions[*place])).collect();
            grouping.groups = members.iter().map(|member| places[*member]).collect();
            let kept = members.iter().copied().chain(places.len() + 1..schema.fields().len());
            let fields: Vec<Arc<Field>> = kept.map(|column| Arc::clone(&schema.fields()[column])).collect();
            let node = self.grouped(&below, &grouping, &Arc::new(Schema::new(fields)))?;
            let repetition = sets[..at].iter().filter(|other| *other == set).count();
            branches.push(self.spread(node, &members, places.len(), repetition, schema)?);
        }
        match branches.as_slice() {
            [only] => Ok(*only),
            _ => Ok(self.arena.add(OperatorSpec::Union, branches, Arc::clone(schema))),
        }
    }

    /// The rows of one set in the columns of all.
    fn spread(&mut self, node: NodeIndex, members: &[usize], count: usize, repetition: usize, schema: &SchemaRef) -> Result<NodeIndex> {
        let columns = self.identity(node);
        let left_out = (0..count).filter(|place| !members.contains(place)).map(|place| 1u64 << (count - 1 - place)).sum::<u64>();
        let id = left_out | ((repetition as u64) << count);
        let mut expressions = Vec::with_capacity(schema.fields().len());
        for (place, field) in schema.fields()[..count].iter().enumerate() {
            expressions.push(match members.iter().position(|member| *member == place) {
                Some(at) => columns[at].clone(),
                None => literal(ScalarValue::try_from(field.data_type())?),
            });
        }
        let id = ScalarValue::UInt64(Some(id)).cast_to(schema.field(count).data_type())?;
        expressions.push(literal(id));
        expressions.extend(columns.into_iter().skip(members.len()));
        if expressions.len() != schema.fields().len() {
            return Err(internal("a grouping set has other columns than its aggregate".to_owned()));
        }
        self.project(node, expressions, Arc::clone(schema))
    }
}

fn literal(value: ScalarValue) -> Expression {
    Expression { text: super::expression_text::literal(&value), physical: Arc::new(Literal::new(value)) }
}

fn enumerate(sets: &GroupingSet) -> Vec<Vec<Expr>> {
    match sets {
        GroupingSet::GroupingSets(sets) => sets.clone(),
        GroupingSet::Rollup(expressions) => (0..=expressions.len()).rev().map(|length| expressions[..length].to_vec()).collect(),
        GroupingSet::Cube(expressions) => {
            let member = |mask: usize| expressions.iter().enumerate().filter(move |(at, _)| mask & (1 << at) != 0);
            let count = 1usize << expressions.len().min(16);
            (0..count).rev().map(|mask| member(mask).map(|(_, expression)| expression.clone()).collect()).collect()
        }
    }
}
