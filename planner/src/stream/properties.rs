//! What the planner knows about the rows of an operator.

use millpond_engine::graph::StreamProperties;

use super::distribution::Partitioning;

/// Properties of an operator's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Properties {
    /// No row is ever deleted or updated.
    pub(crate) append_only: bool,
    /// Columns that are unique among the rows present at any epoch, if known. Empty: there is at most one row.
    pub(crate) stream_key: Option<Vec<usize>>,
    /// Columns that carry a watermark, ascending.
    pub(crate) watermarks: Vec<WatermarkColumn>,
    /// Which subtask has a row.
    pub(crate) partitioning: Partitioning,
}

/// A column that carries a watermark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WatermarkColumn {
    /// Its number.
    pub(crate) column: usize,
    /// What its values are.
    pub(crate) role: TimeRole,
    /// No row below the watermark ever arrives. False for tables that keep late rows: there the watermark says when a window closes, but
    /// state must stay.
    pub(crate) strict: bool,
    /// An outer join puts NULL there in rows that are as final as others: no window closes them.
    pub(crate) padded: bool,
}

/// What the values of a time column are. Later variants close windows better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum TimeRole {
    /// Event time.
    Time,
    /// Start of a window.
    WindowStart,
    /// End of a window.
    WindowEnd,
}

impl Properties {
    /// The watermark of a column.
    pub(crate) fn watermark(&self, column: usize) -> Option<WatermarkColumn> {
        self.watermarks.iter().copied().find(|watermark| watermark.column == column)
    }

    /// The best of some columns to close windows by: the position in `columns`.
    pub(crate) fn closing_position(&self, columns: &[usize]) -> Option<usize> {
        self.best_position(columns, |watermark| !watermark.padded)
    }

    /// The best of some columns to free state by: the position in `columns`.
    pub(crate) fn expiry_position(&self, columns: &[usize]) -> Option<usize> {
        self.best_position(columns, |watermark| watermark.strict)
    }

    fn best_position(&self, columns: &[usize], fits: impl Fn(&WatermarkColumn) -> bool) -> Option<usize> {
        let role = |position: usize| self.watermark(columns[position]).filter(&fits).map(|found| found.role);
        let best = (0..columns.len()).filter_map(role).max()?;
        (0..columns.len()).find(|position| role(*position) == Some(best))
    }

    /// The columns whose watermark closes windows, the best first.
    pub(crate) fn closing_columns(&self) -> Vec<usize> {
        let mut watermarks: Vec<&WatermarkColumn> = self.watermarks.iter().filter(|watermark| !watermark.padded).collect();
        watermarks.sort_by_key(|watermark| (std::cmp::Reverse(watermark.role), watermark.column));
        watermarks.into_iter().map(|watermark| watermark.column).collect()
    }

    /// As the engine's graph has it; the column that closes windows best comes first.
    pub(crate) fn for_graph(&self) -> StreamProperties {
        let mut watermarks = self.watermarks.clone();
        watermarks.sort_by_key(|watermark| (watermark.padded, std::cmp::Reverse(watermark.role), watermark.column));
        StreamProperties {
            append_only: self.append_only,
            stream_key: self.stream_key.clone(),
            watermark_columns: watermarks.iter().map(|watermark| watermark.column).collect(),
        }
    }
}
