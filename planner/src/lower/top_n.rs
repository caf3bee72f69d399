//! Top-N and ranking.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::logical_expr::UserDefinedLogicalNodeCore;
use millpond_engine::graph::{OperatorSpec, OrderColumn, TopNSpec};

use super::{Lowering, input_columns::Wanted, nullable_schema};
use crate::{error::Result, logical::top_n::TopNNode, stream::node::NodeIndex};

impl Lowering<'_> {
    /// Lowers a top-N; computed partition and order expressions are appended below and cut off above.
    pub(super) fn top_n(&mut self, node: &TopNNode) -> Result<NodeIndex> {
        if node.limit == Some(0) {
            return self.no_rows(nullable_schema(node.schema()));
        }
        let input = self.lower(&node.input)?;
        let width = self.arena.node(input).width();
        let mut wanted = Wanted::default();
        let partition_places: Vec<usize> = node.partition_by.iter().map(|expression| wanted.place(expression)).collect();
        let order_places: Vec<usize> = node.order_by.iter().map(|sort| wanted.place(&sort.expr)).collect();
        let below = self.appended(input, node.input.schema(), &wanted)?;
        let known = &self.arena.node(below.node).properties;

        let mut partition_by: Vec<usize> = Vec::new();
        for place in partition_places {
            if !partition_by.contains(&below.columns[place]) {
                partition_by.push(below.columns[place]);
            }
        }
        if let Some(aligned) = crate::stream::distribution::aligned(&partition_by, &known.partitioning) {
            partition_by = aligned;
        }
        let order_by = order_places.into_iter().zip(&node.order_by).map(|(place, sort)| OrderColumn {
            column: below.columns[place],
            descending: !sort.asc,
            nulls_first: sort.nulls_first,
        });
        let spec = TopNSpec {
            expiry: known.expiry_position(&partition_by),
            append_only_input: known.append_only,
            partition_by,
            order_by: order_by.collect(),
            limit: node.limit,
            offset: node.offset,
            rank: node.rank,
            emit_rank: node.rank_field.is_some(),
        };
        let mut fields: Vec<Field> = self.schema_of(below.node).fields().iter().map(|field| field.as_ref().clone()).collect();
        if let Some(rank) = &node.rank_field {
            fields.push(Field::new(rank.name().clone(), DataType::Int64, true));
        }
        let appended = self.arena.node(below.node).width() - width;
        let ranked = self.arena.add(OperatorSpec::TopN(spec), vec![below.node], Arc::new(Schema::new(fields)));
        self.as_announced(ranked, width, appended, node)
    }

    /// Cuts the appended columns off and gives the rank the type that the query saw.
    fn as_announced(&mut self, ranked: NodeIndex, width: usize, appended: usize, node: &TopNNode) -> Result<NodeIndex> {
        let announced = nullable_schema(node.schema());
        let kept = |column: &usize| !(width..width + appended).contains(column);
        let expressions: Vec<_> =
            self.identity(ranked).into_iter().enumerate().filter(|(at, _)| kept(at)).map(|(_, column)| column).collect();
        let fields: Vec<_> =
            self.schema_of(ranked).fields().iter().enumerate().filter(|(at, _)| kept(at)).map(|(_, field)| Arc::clone(field)).collect();
        let cut = self.project(ranked, expressions, Arc::new(Schema::new(fields)))?;
        let types: Vec<DataType> = announced.fields().iter().map(|field| field.data_type().clone()).collect();
        self.cast(cut, &types)
    }
}
