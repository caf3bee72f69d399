//! What follows from a job's errors.

use millpond_storage::error::StorageError;

use super::{driver::Driver, status::JobFailure};
use crate::{chunk::row_text, error::EngineError, task::fault::Fault};

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

impl Driver {
    /// What is told of an error, with the operator and the row where that is known.
    pub(super) fn told(&self, error: &EngineError, fault: Option<&Fault>) -> JobFailure {
        let told = failure(error);
        let Some((fault, row)) = fault.and_then(|fault| Some((fault, fault.row.as_ref()?))) else { return told };
        let hint = told.hint.or_else(|| Some("ALTER .. RESUME SKIP goes on without that row.".into()));
        JobFailure { message: format!("{} ({}, row: {})", told.message, self.operator(fault.node), row_text(row, 0)), hint, ..told }
    }

    /// The row that the job was parked for is left out from now on, and listed.
    pub(super) fn skip_row(&mut self) {
        let Some(fault) = self.parked_at.take() else { return };
        if let Some(row) = fault.row.as_ref().filter(|_| self.orders.faults.skip(&fault)) {
            let (operator, text) = (self.operator(fault.node), row_text(row, 0));
            tracing::warn!(job = %self.spec.name, operator, row = text, "the job goes on without a row");
            let reason = self.handle.error.lock().clone().unwrap_or_default();
            self.shared.side_output(self.spec.id).bad_row(&operator, text, reason, None);
        }
    }

    /// The name of an operator, as bad rows have it.
    fn operator(&self, node: usize) -> String {
        let spec = self.spec.graph.fragments.iter().flat_map(|fragment| &fragment.nodes).find(|known| known.id == node);
        let text = spec.map(|known| format!("{:?}", known.spec)).unwrap_or_default();
        format!("{} {node}", text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default())
    }
}
