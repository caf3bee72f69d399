//! Projections and filters. A projection that only picks columns goes into the operator below where that can pick by itself.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::{
    common::ScalarValue,
    logical_expr::{Filter, Projection},
    physical_expr::expressions::{Column, Literal},
};
use millpond_engine::graph::{Expression, JoinSpec, OperatorSpec, TopNSpec};

use super::{Lowering, compose::compose, nullable_schema};
use crate::{
    error::Result,
    stream::{
        columns::{columns_read, moved, plain_columns},
        node::NodeIndex,
    },
};

impl Lowering<'_> {
    /// Lowers a projection.
    pub(super) fn projection(&mut self, projection: &Projection) -> Result<NodeIndex> {
        let input = self.lower(&projection.input)?;
        let schema = projection.input.schema();
        if projection.expr.is_empty() {
            return Ok(self.countable(input));
        }
        let expressions = projection.expr.iter().map(|expression| self.expression(expression, schema)).collect::<Result<Vec<_>>>()?;
        self.project(input, expressions, nullable_schema(&projection.schema))
    }

    /// Rows without columns, which could not be counted: they get a constant one.
    pub(super) fn countable(&mut self, input: NodeIndex) -> NodeIndex {
        let row = Expression { physical: Arc::new(Literal::new(ScalarValue::Boolean(Some(true)))), text: "true".to_owned() };
        let schema = Arc::new(Schema::new(vec![Field::new("row", DataType::Boolean, true)]));
        self.arena.add(OperatorSpec::Project { expressions: vec![row] }, vec![input], schema)
    }

    /// Lowers a filter.
    pub(super) fn filter(&mut self, filter: &Filter) -> Result<NodeIndex> {
        let input = self.lower(&filter.input)?;
        let predicate = self.expression(&filter.predicate, filter.input.schema())?;
        let schema = self.schema_of(input);
        Ok(self.arena.add(OperatorSpec::Filter { predicate }, vec![input], schema))
    }

    /// All columns of a node, as expressions.
    pub(crate) fn identity(&self, node: NodeIndex) -> Vec<Expression> {
        let fields = self.arena.node(node).schema.fields();
        fields.iter().enumerate().map(|(at, field)| column_expression(field, at)).collect()
    }

    /// A projection above a node, or a node that has these columns already.
    pub(crate) fn project(&mut self, input: NodeIndex, expressions: Vec<Expression>, schema: SchemaRef) -> Result<NodeIndex> {
        let input = self.without_unread_rank(input, &expressions);
        match &self.arena.node(input).spec {
            OperatorSpec::Values { batch } => {
                let batch = batch.clone();
                return self.constant_projection(&batch, &expressions, &schema);
            }
            OperatorSpec::Project { expressions: below } => {
                let node = self.arena.node(input);
                let names: Vec<String> = node.schema.fields().iter().map(|field| field.name().clone()).collect();
                if let Some(composed) = compose(&expressions, below, &names)? {
                    return self.project(node.inputs[0], composed, schema);
                }
            }
            _ => {}
        }
        let plain: Option<Vec<usize>> = plain_columns(&expressions).into_iter().collect();
        if let Some(plain) = plain
            && let Some(picked) = self.pick(input, &plain, &schema)
        {
            return Ok(picked);
        }
        let (input, expressions) = self.narrowed(input, expressions)?;
        Ok(self.project_above(input, expressions, schema))
    }

    /// A projection of its own above a node, unless it changes nothing.
    pub(crate) fn project_above(&mut self, input: NodeIndex, expressions: Vec<Expression>, schema: SchemaRef) -> NodeIndex {
        let plain = plain_columns(&expressions);
        if plain.len() == self.arena.node(input).width() && plain.iter().enumerate().all(|(at, column)| *column == Some(at)) {
            return input;
        }
        self.arena.add(OperatorSpec::Project { expressions }, vec![input], schema)
    }

    /// The columns of a node by number, without a projection of their own.
    fn pick(&mut self, input: NodeIndex, columns: &[usize], schema: &SchemaRef) -> Option<NodeIndex> {
        let node = self.arena.node(input);
        let of = |numbers: &[usize]| columns.iter().map(|column| numbers[*column]).collect::<Vec<usize>>();
        // A scan's columns keep the relation's names.
        let scanned = || Arc::new(Schema::new(columns.iter().map(|column| Arc::clone(&node.schema.fields()[*column])).collect::<Vec<_>>()));
        let (spec, schema) = match &node.spec {
            OperatorSpec::SourceScan { source, projection } if self.keeps_watermark(*source, projection, columns) => {
                (OperatorSpec::SourceScan { source: *source, projection: of(projection) }, scanned())
            }
            OperatorSpec::CollectionScan { collection, projection } => {
                (OperatorSpec::CollectionScan { collection: *collection, projection: of(projection) }, scanned())
            }
            OperatorSpec::Join(join) => (OperatorSpec::Join(JoinSpec { output: of(&join.output), ..join.clone() }), Arc::clone(schema)),
            _ => return None,
        };
        let inputs = node.inputs.clone();
        Some(self.arena.add(spec, inputs, schema))
    }

    /// A top-N whose rank, the last column, nobody reads need not give it; one that only ranks is then nothing at all.
    fn without_unread_rank(&mut self, input: NodeIndex, expressions: &[Expression]) -> NodeIndex {
        let node = self.arena.node(input);
        let OperatorSpec::TopN(top_n) = &node.spec else { return input };
        let rank = node.width() - 1;
        if !top_n.emit_rank || expressions.iter().any(|expression| columns_read(&expression.physical).contains(&rank)) {
            return input;
        }
        if top_n.limit.is_none() && top_n.offset == 0 {
            return node.inputs[0];
        }
        let spec = OperatorSpec::TopN(TopNSpec { emit_rank: false, ..top_n.clone() });
        let (inputs, schema) = (node.inputs.clone(), Schema::new(node.schema.fields()[..rank].to_vec()));
        self.arena.add(spec, inputs, Arc::new(schema))
    }

    /// A join below need not give columns that the expressions do not read.
    fn narrowed(&mut self, input: NodeIndex, expressions: Vec<Expression>) -> Result<(NodeIndex, Vec<Expression>)> {
        let width = self.arena.node(input).width();
        let mut read: Vec<usize> = expressions.iter().flat_map(|expression| columns_read(&expression.physical)).collect();
        read.sort_unstable();
        read.dedup();
        let input_schema = self.schema_of(input);
        // A join must keep a column to have rows at all.
        if read.is_empty() || read.len() == width || !matches!(self.arena.node(input).spec, OperatorSpec::Join(_)) {
            return Ok((input, expressions));
        }
        let fields: Vec<Arc<Field>> = read.iter().map(|column| Arc::clone(&input_schema.fields()[*column])).collect();
        let Some(picked) = self.pick(input, &read, &Arc::new(Schema::new(fields))) else { return Ok((input, expressions)) };
        let place = |column: usize| read.binary_search(&column).unwrap_or(column);
        let expressions = expressions.iter().map(|expression| moved(expression, &place)).collect::<datafusion::common::Result<_>>()?;
        Ok((picked, expressions))
    }

    /// A projection that casts columns to other types, if any differs.
    pub(crate) fn cast(&mut self, input: NodeIndex, types: &[DataType]) -> Result<NodeIndex> {
        let schema = self.schema_of(input);
        if schema.fields().iter().zip(types).all(|(field, wanted)| field.data_type() == wanted) {
            return Ok(input);
        }
        let mut fields = Vec::with_capacity(types.len());
        let mut expressions = self.identity(input);
        for ((expression, field), wanted) in expressions.iter_mut().zip(schema.fields()).zip(types) {
            fields.push(Field::new(field.name().clone(), wanted.clone(), true));
            if field.data_type() != wanted {
                let physical = Arc::clone(&expression.physical);
                expression.physical = datafusion::physical_expr::expressions::cast(physical, &schema, wanted.clone())?;
                expression.text = format!("CAST({} AS {})", expression.text, super::expression_text::type_name(wanted));
            }
        }
        self.project(input, expressions, Arc::new(Schema::new(fields)))
    }
}

/// A column as an expression.
pub(crate) fn column_expression(field: &Field, column: usize) -> Expression {
    Expression { physical: Arc::new(Column::new(field.name(), column)), text: field.name().clone() }
}
