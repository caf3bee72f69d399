//! What the planner is told about the relations that a view reads.

use arrow::datatypes::SchemaRef;

use crate::{optimize::statistics::RelationStatistics, relation_source::RelationKind};

/// The relations of the catalog, by id.
pub trait StreamRelations {
    /// The relation, if it exists and a view may read it.
    fn relation(&self, id: u64) -> Option<StreamRelation>;

    /// What is known of its rows now.
    fn statistics(&self, _id: u64) -> Option<RelationStatistics> {
        None
    }
}

/// A source, table or materialized view as a view reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRelation {
    /// Name that EXPLAIN shows.
    pub name: String,
    /// External source, or a collection.
    pub kind: RelationKind,
    /// All its columns.
    pub schema: SchemaRef,
    /// No row is ever deleted or updated (every source; append-only tables and views).
    pub append_only: bool,
    /// Columns that are unique among its rows: a primary key, or the key of a view's collection.
    pub stream_key: Option<Vec<usize>>,
    /// The column that carries its watermark.
    pub watermark_column: Option<usize>,
    /// No row below the watermark ever comes out of it (`late_rows = 'divert'`, and views that emit on window close). Otherwise the
    /// watermark closes windows under EMIT ON WINDOW CLOSE, but frees no state.
    pub late_rows_diverted: bool,
}
