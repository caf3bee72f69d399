//! Operators work on column numbers, so expressions in their arguments are projected below them.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use datafusion::{common::DFSchema, logical_expr::Expr};
use millpond_engine::graph::{Expression, OperatorSpec};

use super::Lowering;
use crate::{
    error::Result,
    stream::{columns::plain_column, node::NodeIndex},
};

/// The distinct expressions that an operator wants as columns.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    expressions: Vec<Expr>,
}

impl Wanted {
    /// The place of an expression among the wanted ones.
    pub(super) fn place(&mut self, expression: &Expr) -> usize {
        let bare = super::expression::unaliased(expression);
        if let Some(place) = self.expressions.iter().position(|other| other == bare) {
            return place;
        }
        self.expressions.push(bare.clone());
        self.expressions.len() - 1
    }
}

/// A node, and where the wanted expressions are among its columns.
pub(super) struct InputColumns {
    /// The node to read.
    pub(super) node: NodeIndex,
    /// For each place its column.
    pub(super) columns: Vec<usize>,
}

impl Lowering<'_> {
    /// An input that has just the wanted columns: what an exchange above it would carry.
    pub(super) fn only(&mut self, input: NodeIndex, schema: &DFSchema, wanted: &Wanted) -> Result<InputColumns> {
        let expressions = self.expressions(&wanted.expressions, schema)?;
        let plain: Option<Vec<usize>> = expressions.iter().map(plain_column).collect();
        let width = self.arena.node(input).width();
        if let Some(columns) = plain
            && (0..width).all(|column| columns.contains(&column))
        {
            return Ok(InputColumns { node: input, columns });
        }
        if expressions.is_empty() {
            // Rows without columns cannot be counted, so the first column stays.
            return self.first_column(input);
        }
        let fields = self.fields(&wanted.expressions, &expressions, input)?;
        let columns = (0..expressions.len()).collect();
        let node = self.project(input, expressions, Arc::new(Schema::new(fields)))?;
        Ok(InputColumns { node, columns })
    }

    /// An input that keeps all its columns, the wanted ones that are not among them appended.
    pub(super) fn appended(&mut self, input: NodeIndex, schema: &DFSchema, wanted: &Wanted) -> Result<InputColumns> {
        let expressions = self.expressions(&wanted.expressions, schema)?;
        let input_schema = self.schema_of(input);
        let mut all = self.identity(input);
        let mut fields: Vec<Field> = input_schema.fields().iter().map(|field| field.as_ref().clone()).collect();
        let new_fields = self.fields(&wanted.expressions, &expressions, input)?;
        let mut columns = Vec::with_capacity(expressions.len());
        for (expression, field) in expressions.into_iter().zip(new_fields) {
            columns.push(plain_column(&expression).unwrap_or(all.len()));
            if plain_column(&expression).is_none() {
                all.push(expression);
                fields.push(field);
            }
        }
        if all.len() == input_schema.fields().len() {
            return Ok(InputColumns { node: input, columns });
        }
        let node = self.arena.add(OperatorSpec::Project { expressions: all }, vec![input], Arc::new(Schema::new(fields)));
        Ok(InputColumns { node, columns })
    }

    fn first_column(&mut self, input: NodeIndex) -> Result<InputColumns> {
        if self.arena.node(input).width() <= 1 {
            return Ok(InputColumns { node: input, columns: Vec::new() });
        }
        let schema = self.schema_of(input);
        let first = self.identity(input).swap_remove(0);
        let node = self.project(input, vec![first], Arc::new(Schema::new(vec![Arc::clone(&schema.fields()[0])])))?;
        Ok(InputColumns { node, columns: Vec::new() })
    }

    fn expressions(&self, expressions: &[Expr], schema: &DFSchema) -> Result<Vec<Expression>> {
        expressions.iter().map(|expression| self.expression(expression, schema)).collect()
    }

    fn fields(&self, logical: &[Expr], physical: &[Expression], input: NodeIndex) -> Result<Vec<Field>> {
        let schema = self.schema_of(input);
        let field = |(logical, physical): (&Expr, &Expression)| {
            let name = match logical {
                Expr::Column(column) => column.name.clone(),
                _ => physical.text.clone(),
            };
            Ok(Field::new(name, physical.physical.data_type(&schema)?, true))
        };
        logical.iter().zip(physical).map(field).collect()
    }
}
