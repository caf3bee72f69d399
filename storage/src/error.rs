//! Errors of durable state, by what the caller must do.

use std::path::PathBuf;

use thiserror::Error;

/// Result of the storage crate.
pub type Result<T, E = StorageError> = std::result::Result<T, E>;

/// What can go wrong with durable state.
#[derive(Debug, Error)]
pub enum StorageError {
    /// An I/O error that may pass (disk full, object store away).
    #[error("could not {action} \"{file}\": {source}")]
    Io {
        /// "read", "write", "fsync", ...
        action: &'static str,
        /// The file or object.
        file: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The object store refused or failed.
    #[error("object store: could not {action} \"{object}\": {message}")]
    ObjectStore {
        /// "read", "write", "list", ...
        action: &'static str,
        /// Object name.
        object: String,
        /// The cause.
        message: String,
    },
    /// Bytes are not what was written. Never repaired silently.
    #[error("\"{file}\" is corrupt: {detail}")]
    Corrupt {
        /// The file or object.
        file: String,
        /// What was found.
        detail: String,
    },
    /// A checkpoint was written by a job with another graph or another store.
    #[error("\"{file}\" cannot be used here: {detail}")]
    Incompatible {
        /// The file or object.
        file: String,
        /// What does not fit.
        detail: String,
    },
    /// Another coordinator has taken the job over; this one has to stop.
    #[error("job {job} has been taken over by another coordinator (term {term} is over)")]
    Fenced {
        /// The job.
        job: u64,
        /// The term that is over.
        term: u64,
    },
    /// A subtask was put back to an earlier checkpoint after it had given its part of this one.
    #[error("the checkpoint of epoch {epoch} was given up, for a subtask was restarted")]
    GivenUp {
        /// Its epoch.
        epoch: u64,
    },
    /// The directory belongs to another process.
    #[error("data directory \"{directory}\" is in use by another millpond{}", .pid.map(|p| format!(" (process {p})")).unwrap_or_default())]
    Locked {
        /// The directory.
        directory: PathBuf,
        /// Its owner, if it said so.
        pid: Option<u32>,
    },
    /// A reader asked for an epoch whose changes are gone.
    #[error("epoch {asked} is no longer readable, the oldest is {oldest}")]
    FallenBehind {
        /// Asked for.
        asked: u64,
        /// Oldest readable.
        oldest: u64,
    },
    /// RocksDB failed.
    #[error("state store: {0}")]
    Store(String),
    /// The caller broke a rule.
    #[error("internal error: {0}")]
    Internal(String),
}

impl StorageError {
    /// Whether there was no space. It passes.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull)
    }
}

impl From<arrow::error::ArrowError> for StorageError {
    fn from(error: arrow::error::ArrowError) -> Self {
        Self::Internal(error.to_string())
    }
}
