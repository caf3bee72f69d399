//! What follows from a job's errors.

use millpond_storage::error::StorageError;

use super::status::JobFailure;
use crate::error::EngineError;

/// Errors that another attempt only repeats.
pub(super) fn is_final(error: &EngineError) -> bool {
    use StorageError::{Corrupt, FallenBehind, Incompatible};
    matches!(error, EngineError::Storage(Corrupt { .. } | FallenBehind { .. } | Incompatible { .. }))
}

/// Errors of what is outside: a disk that is full, an object store that is away.
pub(super) fn may_pass(error: &EngineError) -> bool {
    use StorageError::{Io, ObjectStore, Store};
    matches!(error, EngineError::Retryable(_) | EngineError::Storage(Io { .. } | ObjectStore { .. } | Store(_)))
}

/// What a client is told of the error that parked a job.
pub(super) fn failure(error: &EngineError) -> JobFailure {
    let told = |sqlstate, hint: Option<&str>| JobFailure { sqlstate, message: error.to_string(), hint: hint.map(str::to_owned) };
    match error {
        EngineError::User { sqlstate, hint, .. } => told(sqlstate, hint.as_deref()),
        EngineError::Storage(StorageError::Io { source, .. }) if source.kind() == std::io::ErrorKind::StorageFull => {
            told("53100", Some("Check free disk space."))
        }
        EngineError::Storage(StorageError::Corrupt { .. } | StorageError::Incompatible { .. }) => told("XX001", None),
        EngineError::Storage(StorageError::FallenBehind { .. }) => told("55000", Some("Drop it and create it again.")),
        EngineError::Storage(StorageError::Internal(_)) | EngineError::Internal(_) => told("XX000", None),
        EngineError::Storage(_) | EngineError::Retryable(_) => told("58030", None),
        EngineError::Cancelled => told("57014", None),
    }
}
