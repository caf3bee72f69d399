//! The number of this start of the server, durable: names that it writes are nobody else's.

use millpond_storage::error::StorageError;

use crate::error::Result;

/// Counts the starts of the server in a small file.
pub(crate) fn next_term(path: &std::path::Path) -> Result<u64> {
    let file = || path.display().to_string();
    let failed = |action| move |source| StorageError::Io { action, file: path.display().to_string(), source };
    let before = match std::fs::read_to_string(path) {
        Ok(text) => text.trim().parse().map_err(|_| StorageError::Corrupt { file: file(), detail: format!("not a number: {text:?}") })?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
        Err(error) => return Err(failed("read")(error).into()),
    };
    let term: u64 = before + 1;
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, format!("{term}\n")).map_err(failed("write"))?;
    std::fs::File::open(&fresh).and_then(|file| file.sync_all()).map_err(failed("fsync"))?;
    std::fs::rename(&fresh, path).map_err(failed("rename"))?;
    let directory = path.parent().unwrap_or(std::path::Path::new("."));
    std::fs::File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed("fsync"))?;
    Ok(term)
}
