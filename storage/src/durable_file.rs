//! Files that survive a power loss: what is needed around `std::fs` for that, once.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use crate::error::{Result, StorageError};

/// Turns an I/O error into ours, which names the file and what was tried.
pub(crate) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StorageError + use<> {
    let file = path.display().to_string();
    move |source| StorageError::Io { action, file, source }
}

/// An error that says what is wrong with a file.
pub(crate) fn corrupt(path: &Path, detail: impl Into<String>) -> StorageError {
    StorageError::Corrupt { file: path.display().to_string(), detail: detail.into() }
}

/// Makes creations, renames and removals in a directory durable.
pub(crate) fn sync_directory(directory: &Path) -> Result<()> {
    File::open(directory).and_then(|opened| sync_file(&opened)).map_err(io_error("fsync", directory))
}

/// Waits until a file, its length included, is on disk. Tests do not cut the power: there it does nothing, and they take seconds
/// instead of minutes.
pub(crate) fn sync_file(file: &File) -> io::Result<()> {
    if cfg!(test) { Ok(()) } else { file.sync_data() }
}

/// Bytes written at most between two fsyncs of a large file. A journalling file system makes the fsync of a small file wait for what others
/// have written and not yet synced: the epoch log's would wait for a whole checkpoint.
const UNSYNCED_BYTES: usize = 1 << 20;

/// Writes a file's contents and waits until they are on disk.
pub(crate) fn write_synced(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    for piece in bytes.chunks(UNSYNCED_BYTES) {
        file.write_all(piece)?;
        sync_file(file)?;
    }
    sync_file(file)
}

/// Creates a directory, with those above it, durably.
pub(crate) fn create_directory(directory: &Path) -> Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    if let Some(parent) = directory.parent() {
        create_directory(parent)?;
        fs::create_dir(directory).or_else(ignore_existing).map_err(io_error("create", directory))?;
        return sync_directory(parent);
    }
    Ok(())
}

fn ignore_existing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) }
}

/// Where a file is written before it takes the place of another one; a crash may leave it.
pub(crate) fn staged_path(path: &Path) -> std::path::PathBuf {
    path.with_extension("new")
}

/// Puts `bytes` in the place of a file, all or nothing, durably.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let directory = path.parent().expect("a file is in a directory");
    let staged = staged_path(path);
    let mut file = File::create(&staged).map_err(io_error("create", &staged))?;
    file.write_all(bytes).and_then(|()| sync_file(&file)).map_err(io_error("write", &staged))?;
    fs::rename(&staged, path).map_err(io_error("rename", &staged))?;
    sync_directory(directory)
}

/// Removes a file; one that is not there is removed already.
pub(crate) fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Removes a directory with all that is in it, durably.
pub(crate) fn remove_directory(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error("remove", directory)(error)),
        _ => {}
    }
    sync_directory(directory.parent().expect("a directory is in another"))
}
