//! Files of materializations on this machine's disk, so that a restart need not fetch them from the object store.
//!
//! When a file of an image has been uploaded it is linked into a folder of the job, under the name of its object: where the store had it on
//! disk already, it takes no more room until the store has let go of it. What no live manifest names is removed with the objects. The copies
//! are a cache: they are not synced, a file is used only if its length and checksum are those the manifest says, and any other is read from the
//! object store. The live database is never restored from.
//!
//! Where the objects are files of this machine themselves there is nothing to spare, and no copies are kept.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::manifest::{ImageObject, NamedObject};
use crate::durable_file::{io_error, remove_directory};
use crate::error::Result;
use crate::object::ObjectChecksum;

const READ_BYTES: usize = 1 << 20;

/// Where the files of a restored materialization came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageSources {
    /// Files that were on this machine's disk.
    pub local_files: u64,
    /// Bytes of them.
    pub local_bytes: u64,
    /// Files that were read from the object store.
    pub store_files: u64,
    /// Bytes of them.
    pub store_bytes: u64,
}

/// Removes the folder of a job's local copies, if there is one.
pub fn remove_local_copies(directory: &Path) -> Result<()> {
    if directory.exists() { remove_directory(directory) } else { Ok(()) }
}

/// The folder of one job's local copies.
#[derive(Clone, Debug)]
pub(super) struct LocalCopies {
    directory: PathBuf,
}

impl LocalCopies {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    fn path(&self, object: &NamedObject) -> PathBuf {
        self.directory.join(file_name(&object.name))
    }

    /// Keeps a file of an image whose object is in the store. A copy that cannot be kept will be missed later, and only then.
    pub(super) fn keep(&self, file: &Path, object: &NamedObject) {
        let path = self.path(object);
        let linked = std::fs::create_dir_all(&self.directory).and_then(|()| match std::fs::hard_link(file, &path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            other => other,
        });
        if let Err(error) = linked {
            tracing::warn!(file = %path.display(), %error, "a file of a materialization is not kept locally");
        }
    }

    /// Keeps a file that a restart has just fetched. The store goes on writing to the files that are not sorted ones.
    pub(super) fn keep_fetched(&self, file: &ImageObject, fetched: &Path) {
        if is_constant(&file.file) {
            return self.keep(fetched, &file.object);
        }
        let path = self.path(&file.object);
        if let Err(error) = std::fs::create_dir_all(&self.directory).and_then(|()| std::fs::copy(fetched, &path)) {
            tracing::warn!(file = %path.display(), %error, "a file of a materialization is not kept locally");
        }
    }

    /// Brings the copy of a file to `target`, if there is one and it is the file. Files that never change are linked.
    pub(super) fn bring(&self, file: &ImageObject, target: &Path) -> Result<bool> {
        let path = self.path(&file.object);
        match checksum_of(&path) {
            Ok(found) if found == file.object.known => {}
            Ok(_) => {
                tracing::warn!(file = %path.display(), "a local file of a materialization is damaged: it is read from the object store");
                discard(&path);
                return Ok(false);
            }
            Err(error) => {
                tracing::debug!(file = %path.display(), %error, "a file of a materialization is not there locally");
                return Ok(false);
            }
        }
        let is_linked = is_constant(&file.file) && std::fs::hard_link(&path, target).is_ok();
        if !is_linked {
            std::fs::copy(&path, target).map_err(io_error("write", target))?;
        }
        Ok(true)
    }

    /// Removes all files but those of these objects.
    pub(super) fn retain(&self, objects: &BTreeSet<&str>) {
        let kept: BTreeSet<String> = objects.iter().map(|name| file_name(name)).collect();
        let Ok(entries) = std::fs::read_dir(&self.directory) else { return };
        for entry in entries.flatten() {
            if !entry.file_name().to_str().is_some_and(|name| kept.contains(name)) {
                discard(&entry.path());
            }
        }
    }
}

/// Whether a store never writes to a file of an image again.
fn is_constant(file: &str) -> bool {
    file.ends_with(".sst")
}

fn file_name(object: &str) -> String {
    object.replace('/', "-")
}

fn discard(path: &Path) {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != ErrorKind::NotFound
    {
        tracing::warn!(file = %path.display(), %error, "a local file of a materialization could not be removed");
    }
}

fn checksum_of(path: &Path) -> std::io::Result<ObjectChecksum> {
    let mut file = std::fs::File::open(path)?;
    let (mut buffer, mut checksum, mut bytes) = (vec![0; READ_BYTES], crc32fast::Hasher::new(), 0);
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(ObjectChecksum { bytes, checksum: checksum.finalize() });
        }
        checksum.update(&buffer[..count]);
        bytes += count as u64;
    }
}
