//! The catalog of the running server: the newest value for readers, and the durable record that is the truth.

use std::path::Path;

use millpond_planner::catalog::{Catalog, CatalogChange};
use millpond_storage::catalog_log::CatalogLog;
use parking_lot::{Mutex, RwLock};
use tokio::sync::MutexGuard;

use crate::error::{Result, SqlError};

/// Records after which the log is written anew as one.
const COMPACT_AFTER: usize = 1_000;

/// The catalog and its log.
pub(crate) struct CatalogStore {
    current: RwLock<(Catalog, u64)>,
    log: Mutex<CatalogLog>,
    /// DDL is done by one session at a time.
    serial: tokio::sync::Mutex<()>,
}

/// The right to change the catalog.
pub(crate) struct DdlGuard<'a>(#[expect(dead_code, reason = "held, not looked at")] MutexGuard<'a, ()>);

impl CatalogStore {
    /// Opens the log and applies its records. `was_there` says that there must be one.
    ///
    /// # Errors
    /// A log that is corrupt, missing or of a later version, named.
    pub(crate) fn open(path: &Path, was_there: bool) -> Result<Self> {
        let (mut log, records) = CatalogLog::open(path, was_there)?;
        let catalog = Catalog::from_records(records.iter().map(Vec::as_slice))
            .map_err(|error| SqlError::from(error).with_detail(format!("The catalog is in \"{}\".", path.display())))?;
        if records.len() > COMPACT_AFTER {
            log.rewrite(&[catalog.to_record()])?;
        }
        Ok(Self { current: RwLock::new((catalog, 0)), log: Mutex::new(log), serial: tokio::sync::Mutex::new(()) })
    }

    /// The catalog now.
    pub(crate) fn snapshot(&self) -> Catalog {
        self.current.read().0.clone()
    }

    /// The catalog now, and a number that differs whenever the catalog does.
    pub(crate) fn versioned(&self) -> (Catalog, u64) {
        self.current.read().clone()
    }

    /// The number that differs whenever the catalog does.
    pub(crate) fn version(&self) -> u64 {
        self.current.read().1
    }

    /// Waits for other DDL to end.
    pub(crate) async fn lock(&self) -> DdlGuard<'_> {
        DdlGuard(self.serial.lock().await)
    }

    /// Makes a change durable, without showing it yet. Answers the catalog with it.
    ///
    /// # Errors
    /// Names that are taken; a log that cannot be written, and then nothing has happened.
    pub(crate) fn record(&self, _guard: &DdlGuard<'_>, change: &CatalogChange) -> Result<Catalog> {
        let changed = self.snapshot().apply(change)?;
        self.log.lock().append(&change.to_record())?;
        Ok(changed)
    }

    /// Shows a catalog that has been recorded.
    pub(crate) fn publish(&self, _guard: &DdlGuard<'_>, catalog: Catalog) {
        let mut current = self.current.write();
        *current = (catalog, current.1 + 1);
    }

    /// Makes a change durable and shows it.
    pub(crate) fn commit(&self, guard: &DdlGuard<'_>, change: &CatalogChange) -> Result<()> {
        let changed = self.record(guard, change)?;
        self.publish(guard, changed);
        Ok(())
    }
}
