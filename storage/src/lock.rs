//! One process per data directory.

use std::{
    fs::{File, TryLockError},
    io::{Read, Seek, SeekFrom, Write},
    path::Path,
};

use crate::error::{Result, StorageError};

/// Holds a data directory. The operating system gives it back when the process ends, however it ends.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Takes the directory, which must exist; [`StorageError::Locked`] if another process (or lock) has it.
    pub fn acquire(directory: &Path) -> Result<Self> {
        let path = directory.join("millpond.lock");
        let io = |action| move |source| StorageError::Io { action, file: directory.join("millpond.lock").display().to_string(), source };
        let mut file = File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(io("open"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let read = file.read_to_string(&mut pid).is_ok();
                let pid = pid.trim().parse().ok().filter(|_| read);
                return Err(StorageError::Locked { directory: directory.into(), pid });
            }
            Err(TryLockError::Error(source)) => return Err(io("lock")(source)),
        }
        file.set_len(0).map_err(io("write"))?;
        file.seek(SeekFrom::Start(0)).map_err(io("write"))?;
        writeln!(file, "{}", std::process::id()).map_err(io("write"))?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_owner_who_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let lock = DirectoryLock::acquire(directory.path()).unwrap();
        let refused = DirectoryLock::acquire(directory.path()).unwrap_err();
        assert!(matches!(refused, StorageError::Locked { pid: Some(pid), .. } if pid == std::process::id()));
        drop(lock);
        DirectoryLock::acquire(directory.path()).unwrap();
    }
}
