//! What system relations and functions may know of the session that asks.

/// A session at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionView {
    /// The user.
    pub(crate) user: String,
    /// The database.
    pub(crate) database: String,
    /// Settings with their values.
    pub(crate) settings: Vec<(String, String)>,
    /// Name, text, held?, scrollable? of cursors.
    pub(crate) cursors: Vec<(String, String, bool, bool)>,
    /// Name and text of prepared statements, and whether each comes from PREPARE.
    pub(crate) prepared: Vec<(String, String, bool)>,
}
