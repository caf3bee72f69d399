//! The folder of a file sink, local or in an object store: names, durability, and what is found there at a start. Calls block.

use std::{
    fs::{self, File},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use millpond_storage::{epoch::Epoch, foreign_files::ForeignFiles};
use tokio::runtime::Handle;

use super::manifest::Manifest;
use crate::{
    error::{EngineError, Result},
    source::file::{MANIFEST_FOLDER, data_epoch, file_error, manifest_epoch},
};

/// How the name of a manifest ends that is being written.
const DRAFT: &str = ".draft";

/// A file that is written to see whether files can be; no data, by its first character.
const ATTEMPT: &str = ".attempt";

/// What makes the folder of manifests exist in an object store.
const MARK: &str = ".sink";

/// See the module.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// On this machine.
    Local(PathBuf),
    /// In an object store; the runtime waits for its answers.
    Remote(ForeignFiles, Handle),
}

/// Where a data file is written to.
#[derive(Debug)]
pub(super) enum DataOutput {
    /// A local file.
    File(File, PathBuf),
    /// Bytes that are put when the file is whole.
    Memory(Vec<u8>),
}

impl Write for DataOutput {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            DataOutput::File(file, _) => file.write(bytes),
            DataOutput::Memory(memory) => memory.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            DataOutput::File(file, _) => file.flush(),
            DataOutput::Memory(_) => Ok(()),
        }
    }
}

impl Target {
    /// Creates the folders that do not exist. A source that finds the one of manifests takes only files that they commit.
    pub(super) fn create(&self) -> Result<()> {
        let folder = match self {
            Target::Local(folder) => folder,
            Target::Remote(files, runtime) => {
                return Ok(runtime.block_on(files.put(&format!("{MANIFEST_FOLDER}/{MARK}"), Bytes::new()))?);
            }
        };
        let manifests = folder.join(MANIFEST_FOLDER);
        fs::create_dir_all(&manifests).map_err(|error| file_error("create", &shown(&manifests), &error))?;
        sync_folder(folder)
    }

    /// Writes a file and removes it again.
    pub(super) fn try_write(&self) -> Result<()> {
        match self {
            Target::Local(folder) => {
                let path = folder.join(ATTEMPT);
                File::create(&path).map_err(|error| file_error("create", &shown(&path), &error))?;
            }
            Target::Remote(files, runtime) => runtime.block_on(files.put(ATTEMPT, Bytes::new()))?,
        }
        self.remove(ATTEMPT)
    }

    /// The name by which a person finds a file.
    pub(super) fn full_name(&self, name: &str) -> String {
        match self {
            Target::Local(folder) => shown(&folder.join(name)),
            Target::Remote(files, _) => files.full_name(name),
        }
    }

    /// Begins data file `name`.
    pub(super) fn create_data(&self, name: &str) -> Result<DataOutput> {
        let Target::Local(folder) = self else { return Ok(DataOutput::Memory(Vec::new())) };
        let path = folder.join(name);
        let file = File::create(&path).map_err(|error| file_error("create", &shown(&path), &error))?;
        Ok(DataOutput::File(file, path))
    }

    /// Makes the contents of data file `name` durable, and gives its bytes.
    pub(super) fn finish_data(&self, name: &str, output: DataOutput) -> Result<u64> {
        match (self, output) {
            (_, DataOutput::File(file, path)) => {
                let failed = |error: std::io::Error| file_error("fsync", &shown(&path), &error);
                file.sync_all().map_err(failed)?;
                Ok(file.metadata().map_err(failed)?.len())
            }
            (Target::Remote(files, runtime), DataOutput::Memory(memory)) => {
                let bytes = memory.len() as u64;
                runtime.block_on(files.put(name, Bytes::from(memory)))?;
                Ok(bytes)
            }
            (Target::Local(_), DataOutput::Memory(_)) => Err(EngineError::Internal("a local file was written in memory".into())),
        }
    }

    /// Makes the names of new data files durable.
    pub(super) fn sync(&self) -> Result<()> {
        match self {
            Target::Local(folder) => sync_folder(folder),
            Target::Remote(..) => Ok(()),
        }
    }

    /// The manifest with the greatest epoch.
    pub(super) fn newest_manifest(&self) -> Result<Option<Manifest>> {
        let names = self.names(MANIFEST_FOLDER)?;
        let Some(epoch) = names.iter().filter_map(|name| manifest_epoch(name)).max() else { return Ok(None) };
        let name = manifest_name(epoch);
        let text = match self {
            Target::Local(folder) => {
                let path = folder.join(&name);
                fs::read(&path).map_err(|error| file_error("read", &shown(&path), &error))?
            }
            Target::Remote(files, runtime) => {
                let length = runtime.block_on(files.length(&name))?.unwrap_or(0);
                runtime.block_on(files.read(&name, 0..length))?.to_vec()
            }
        };
        let full_name = self.full_name(&name);
        let manifest = Manifest::from_text(&full_name, &String::from_utf8_lossy(&text))?;
        if manifest.epoch != epoch {
            return Err(EngineError::user("XX001", format!("sink manifest \"{full_name}\" is corrupt: it is of another epoch")));
        }
        Ok(Some(manifest))
    }

    /// Names in a folder below the sink's (`""`: its own).
    fn names(&self, below: &str) -> Result<Vec<String>> {
        match self {
            Target::Local(folder) => {
                let folder = folder.join(below);
                let failed = |error: std::io::Error| file_error("read", &shown(&folder), &error);
                let mut names = Vec::new();
                for entry in fs::read_dir(&folder).map_err(failed)? {
                    names.push(entry.map_err(failed)?.file_name().to_string_lossy().into_owned());
                }
                Ok(names)
            }
            Target::Remote(files, runtime) => {
                let listed = runtime.block_on(files.below(below).list())?;
                Ok(listed.into_iter().map(|file| file.name).filter(|name| !name.contains('/')).collect())
            }
        }
    }

    /// Removes what a crash left: data files of epochs above `reached`, which no manifest names, and manifests that were never committed.
    pub(super) fn remove_left_overs(&self, reached: Epoch) -> Result<()> {
        for name in self.names(MANIFEST_FOLDER)?.iter().filter(|name| name.ends_with(DRAFT)) {
            self.remove(&format!("{MANIFEST_FOLDER}/{name}"))?;
        }
        let mut removed = false;
        for name in self.names("")? {
            if data_epoch(&name).is_some_and(|epoch| epoch > reached.0) {
                self.remove(&name)?;
                removed = true;
            }
        }
        if removed { self.sync() } else { Ok(()) }
    }

    /// Commits: the manifest exists, whole and durable, or not at all.
    ///
    /// # Errors
    /// 55006 if there is one of this epoch: another process writes here.
    pub(super) fn put_manifest(&self, manifest: &Manifest) -> Result<()> {
        let (name, text) = (manifest_name(manifest.epoch), manifest.to_text()?);
        let is_ours = match self {
            Target::Local(folder) => put_local(folder, &name, text.as_bytes())?,
            Target::Remote(files, runtime) => runtime.block_on(files.put_create(&name, Bytes::from(text)))?,
        };
        if is_ours {
            return Ok(());
        }
        Err(EngineError::user("55006", format!("sink folder \"{}\" is written by another process", self.full_name(""))))
    }

    /// Removes a manifest that names no files and is not the newest.
    pub(super) fn remove_manifest(&self, manifest: &Manifest) -> Result<()> {
        self.remove(&manifest_name(manifest.epoch))
    }

    fn remove(&self, name: &str) -> Result<()> {
        match self {
            Target::Local(folder) => {
                let path = folder.join(name);
                fs::remove_file(&path).map_err(|error| file_error("remove", &shown(&path), &error))
            }
            Target::Remote(files, runtime) => Ok(runtime.block_on(files.delete(name))?),
        }
    }
}

fn manifest_name(epoch: u64) -> String {
    format!("{MANIFEST_FOLDER}/{epoch:020}.json")
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Creates a small file durably; `false` if there is one of that name.
fn put_local(folder: &Path, name: &str, bytes: &[u8]) -> Result<bool> {
    let path = folder.join(name);
    let draft = path.with_extension(&DRAFT[1..]);
    let failed = |error: std::io::Error| file_error("write", &shown(&path), &error);
    let mut file = File::create(&draft).map_err(failed)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed)?;
    // A link, unlike a rename, does not replace what is there.
    let linked = fs::hard_link(&draft, &path);
    fs::remove_file(&draft).map_err(failed)?;
    match linked {
        Ok(()) => sync_folder(path.parent().unwrap_or(folder)).map(|()| true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(failed(error)),
    }
}

/// Makes the names in a folder durable.
fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|file| file.sync_all()).map_err(|error| file_error("fsync", &shown(folder), &error))
}
