//! Where an expression stands, which decides what may be in it.

use sqlparser::ast::WindowSpec;

/// A place in a query.
#[derive(Clone, Copy)]
pub(in crate::bind) struct Place<'p> {
    /// For messages: `WHERE`, `GROUP BY`.
    pub(in crate::bind) clause: &'static str,
    /// Aggregates may be called.
    pub(in crate::bind) aggregates: bool,
    /// Window functions may be called.
    pub(in crate::bind) windows: bool,
    /// Functions that return rows may be called.
    pub(in crate::bind) sets: bool,
    /// Only whether the value is true matters, as in WHERE: conditions may be split at AND.
    pub(in crate::bind) filter: bool,
    /// Windows that WINDOW names.
    pub(in crate::bind) named_windows: &'p [(String, WindowSpec)],
}

impl Place<'_> {
    /// A place where nothing but values of the row may be.
    pub(in crate::bind) const fn scalar(clause: &'static str) -> Self {
        Self { clause, aggregates: false, windows: false, sets: false, filter: false, named_windows: &[] }
    }

    /// A condition whose truth alone matters.
    pub(in crate::bind) const fn filter(clause: &'static str) -> Self {
        Self { filter: true, ..Self::scalar(clause) }
    }

    /// The same inside of an operator or call: the value matters, not only its truth.
    pub(in crate::bind) fn in_value(&self) -> Self {
        Self { filter: false, ..*self }
    }
}
