//! Removing a collection.
//!
//! First its directory gets another name, so that a crash leaves no doubt about what was dropped; rows may take long to go after that.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

use super::{
    Base, Collection,
    keyed::{BaseStore, remove_rows},
};
use crate::{
    durable_file::{io_error, remove_directory, sync_directory},
    error::Result,
    rocks::RocksShared,
};

/// Extension of the directory of a collection that was dropped.
const DROPPED: &str = "dropped";

impl Collection {
    /// Removes all of it. Readers that are not done get an error, or rows that were read before. Waits for a fold that is under way; should a crash
    /// come before the end, [`remove_dropped`] does the rest.
    pub fn destroy(self: Arc<Self>) -> Result<()> {
        self.state.write().destroyed = true;
        // A fold sees it and ends.
        self.is_closed.store(true, Ordering::Release);
        let dropped = mark_dropped(&self.directory)?;
        let _folding = self.folding.lock();
        let _log = self.log.lock();
        self.state.write().retained.clear();
        self.memory.shrink(self.memory.used());
        if let Base::Keyed(base) = &self.base {
            remove_rows(base.store(), self.id)?;
        }
        remove_directory(&dropped)
    }
}

pub(super) fn mark_dropped(directory: &Path) -> Result<PathBuf> {
    let dropped = directory.with_extension(DROPPED);
    std::fs::rename(directory, &dropped).map_err(io_error("rename", directory))?;
    if let Some(parent) = directory.parent() {
        sync_directory(parent)?;
    }
    Ok(dropped)
}

/// Removes what is left in the folder `collections` of those that were dropped before a crash.
pub fn remove_dropped(collections: &Path, shared: &Arc<RocksShared>) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(collections) else { return Ok(()) };
    for path in entries.flatten().map(|entry| entry.path()) {
        let id = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
        if let (Some(id), true) = (id, path.extension().is_some_and(|extension| extension == DROPPED)) {
            let store = BaseStore::open(&collections.join("db"), shared)?;
            remove_rows(&store, id)?;
            remove_directory(&path)?;
        }
    }
    Ok(())
}
