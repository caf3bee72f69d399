//! Scans of sources and collections. Only the columns that are read are scanned; but a source whose late rows are diverted is always
//! scanned with its time column, by whose values lateness is decided.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::logical_expr::{LogicalPlan, TableScan, utils::conjunction};
use millpond_engine::graph::OperatorSpec;

use super::{Lowering, nullable_schema};
use crate::{
    error::{PlanError, Result},
    optimize::unsupported,
    relation_source::{RelationKind, RelationSource},
    stream::{
        StreamRelation,
        node::{Arena, NodeIndex},
    },
};

impl Lowering<'_> {
    /// Lowers a scan.
    pub(super) fn scan(&mut self, plan: &LogicalPlan, scan: &TableScan) -> Result<NodeIndex> {
        let name = scan.table_name.table();
        let Some(source) = RelationSource::of(plan) else {
            return Err(unsupported(
                format!("a materialized view cannot read \"{name}\""),
                "It reads sources, tables and materialized views.",
            ));
        };
        let Some(relation) = self.relations.relation(source.id) else {
            let message = format!("relation \"{name}\" does not exist");
            return Err(PlanError::new("42P01", message));
        };
        let columns = scan.projection.clone().unwrap_or_else(|| (0..relation.schema.fields().len()).collect());
        self.arena.add_relation(source.id, relation);
        let node = self.scan_columns(source.id, &columns)?;
        match conjunction(scan.filters.clone()) {
            None => Ok(node),
            Some(predicate) => {
                let predicate = self.expression(&predicate, &scan.projected_schema)?;
                Ok(self.arena.add(OperatorSpec::Filter { predicate }, vec![node], nullable_schema(&scan.projected_schema)))
            }
        }
    }

    /// Columns of a relation that the arena knows.
    pub(super) fn scan_columns(&mut self, relation: u64, columns: &[usize]) -> Result<NodeIndex> {
        let known = self.arena.relation(relation).ok_or_else(|| super::internal(format!("relation {relation} is not known")))?.clone();
        let mut projection = columns.to_vec();
        if projection.is_empty() {
            // Rows without columns cannot be counted.
            projection.push(0);
        }
        if let Some(time) = time_column(&known)
            && !projection.contains(&time)
        {
            projection.push(time);
        }
        let schema = projected(&known.schema, &projection);
        let spec = match known.kind {
            RelationKind::Source => OperatorSpec::SourceScan { source: relation, projection: projection.clone() },
            RelationKind::Collection => OperatorSpec::CollectionScan { collection: relation, projection: projection.clone() },
        };
        let node = self.arena.add(spec, vec![], schema);
        if projection.len() == columns.len() || columns.is_empty() {
            return Ok(node);
        }
        let expressions = self.identity(node).into_iter().take(columns.len()).collect();
        self.project(node, expressions, projected(&known.schema, columns))
    }

    /// Whether a narrower scan would still have the time column it needs.
    pub(super) fn keeps_watermark(&self, source: u64, projection: &[usize], columns: &[usize]) -> bool {
        keeps_watermark(&self.arena, source, projection, columns)
    }
}

fn keeps_watermark(arena: &Arena, source: u64, projection: &[usize], columns: &[usize]) -> bool {
    arena.relation(source).and_then(time_column).is_none_or(|time| columns.iter().any(|column| projection[*column] == time))
}

/// The column by which a source's rows are judged late.
fn time_column(relation: &StreamRelation) -> Option<usize> {
    relation.watermark_column.filter(|_| relation.kind == RelationKind::Source)
}

/// Some columns of a relation.
pub(super) fn projected(schema: &SchemaRef, columns: &[usize]) -> SchemaRef {
    let field = |column: &usize| Field::new(schema.field(*column).name().clone(), schema.field(*column).data_type().clone(), true);
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}
