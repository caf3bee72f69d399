//! The store behind the state tables of one job.
//!
//! It lives in a scratch directory and is never trusted after a restart: state comes back from the last checkpoint. It is opened with the
//! first write (or restore), so a job whose state fits in memory has none until its first materialization. Every batch also stores how far
//! the changelog of its task had come, under a key that sorts behind all tables, so that an image of the store says what it contains.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::ops::{Bound, ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::durable_file::io_error;
use crate::error::{Result, StorageError};
use crate::memory::MemoryBudget;
use crate::rocks::{RocksShared, RocksStore};
use crate::state_store::{MemoryStore, StateBackend, StateStore, WriteOps};
use crate::state_table::undo::{PutBack, Undo};

/// What a [`JobStore`] is made of.
#[derive(Clone)]
pub struct JobStoreSpec {
    /// Scratch directory; the store has a sub-directory of its own in it, and removes those of lives that crashed.
    pub directory: PathBuf,
    /// Kind of store.
    pub backend: StateBackend,
    /// Budget of the tables' memory.
    pub budget: MemoryBudget,
    /// Memory that all RocksDB databases share.
    pub shared: Arc<RocksShared>,
}

/// One job's store; all its tasks share it.
pub struct JobStore {
    spec: JobStoreSpec,
    scratch: PathBuf,
    opened: OnceLock<Backing>,
    opening: Mutex<()>,
    /// Up to where in each task's changelog the store may have changes.
    positions: Mutex<BTreeMap<u32, u64>>,
    writers: AtomicU32,
    image_wanted: AtomicU64,
    /// The newest request that must not take long.
    hastened: AtomicU64,
    undo: Undo,
}

enum Backing {
    Memory(MemoryStore),
    Rocks(RocksStore),
}

/// Full keys that start with this are not of a table.
const RESERVED_GROUP: [u8; 2] = [0xff, 0xff];
const IMAGE_FILE_BYTES: usize = 32 << 20;
/// Bytes of a batch with which key groups are replaced.
const REPLACE_BYTES: usize = 1 << 20;

/// A file of an image, by its name within the image.
pub(crate) struct ImageFile {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

impl JobStore {
    /// An empty store.
    pub fn open(spec: JobStoreSpec) -> Result<Arc<Self>> {
        let scratch = new_scratch(&spec.directory)?;
        let undo = Undo::new(&spec.budget);
        let store = Self {
            undo,
            spec,
            scratch,
            opened: OnceLock::new(),
            opening: Mutex::new(()),
            positions: Mutex::default(),
            writers: AtomicU32::new(0),
            image_wanted: AtomicU64::new(0),
            hastened: AtomicU64::new(0),
        };
        store.scratch("log")?;
        Ok(Arc::new(store))
    }

    /// Kind of store.
    pub fn backend(&self) -> StateBackend {
        self.spec.backend
    }

    /// The budget that the tables' memory is counted in.
    pub fn budget(&self) -> &MemoryBudget {
        &self.spec.budget
    }

    /// A sub-directory of this life's scratch directory, created if it is not there.
    pub(crate) fn scratch(&self, name: &str) -> Result<PathBuf> {
        let path = self.scratch.join(name);
        std::fs::create_dir_all(&path).map_err(io_error("create", &path))?;
        Ok(path)
    }

    /// The number of a new writer of the store.
    pub(crate) fn new_writer(&self) -> u32 {
        self.writers.fetch_add(1, Ordering::Relaxed)
    }

    /// The store, if anything was ever written to it.
    pub(crate) fn opened(&self) -> Option<&dyn StateStore> {
        self.opened.get().map(Backing::as_store)
    }

    /// The store, opened now at the latest.
    pub(crate) fn ensure_open(&self) -> Result<&dyn StateStore> {
        if self.opened.get().is_none() {
            let _guard = self.opening.lock();
            if self.opened.get().is_none() {
                let backing = match self.spec.backend {
                    StateBackend::Memory => Backing::Memory(MemoryStore::new()),
                    StateBackend::RocksDb => Backing::Rocks(RocksStore::open(&self.scratch("db")?, &self.spec.shared)?),
                };
                let set = self.opened.set(backing);
                assert!(set.is_ok(), "the store is opened under a lock");
            }
        }
        Ok(self.opened().expect("the store was just opened"))
    }

    /// Whether a task of the job may be put back to a checkpoint while the others go on; see [`Undo`].
    pub fn expect_rewinds(&self, may_come: bool) {
        self.undo.keep(may_come);
    }

    pub(crate) fn undo(&self) -> &Undo {
        &self.undo
    }

    /// Writes a batch of `writer`, whose changelog has come to `position` and holds all that is in the batch. Its keys in `changed` may have other
    /// values than in the newest complete checkpoint.
    pub(crate) fn write(&self, writer: u32, position: u64, mut ops: WriteOps, changed: Vec<Vec<u8>>) -> Result<()> {
        let store = self.ensure_open()?;
        self.undo.add(writer, position, Undo::read(store, changed)?);
        // First, so that whoever reads the positions after taking an image never misses one that the image contains.
        self.positions.lock().insert(writer, position);
        ops.put(&[RESERVED_GROUP.as_slice(), &writer.to_be_bytes()].concat(), &position.to_be_bytes());
        store.write(ops)
    }

    /// Another store of the same kind, for a while, in the scratch directory of this one.
    pub(crate) fn open_beside(&self) -> Result<Arc<Self>> {
        Self::open(JobStoreSpec { directory: self.scratch("beside")?, ..self.spec.clone() })
    }

    /// Takes back what `writer` has written behind the newest complete checkpoint, each key as `put_back` says, and forgets the writer. Answers how
    /// many keys that were; `None`, and then nothing is done, if it is not known.
    pub(crate) fn undo_writer(&self, writer: u32, put_back: &dyn Fn(&[u8]) -> PutBack) -> Result<Option<usize>> {
        let Some((mut ops, keys)) = self.undo.take(writer, put_back) else { return Ok(None) };
        ops.delete(&[RESERVED_GROUP.as_slice(), &writer.to_be_bytes()].concat());
        self.ensure_open()?.write(ops)?;
        self.positions.lock().remove(&writer);
        Ok(Some(keys))
    }

    /// Replaces all entries of `groups` by those of another store, or by none, and forgets what `writer`, to whom they belonged, had written.
    pub(crate) fn replace_groups(&self, groups: &Range<u16>, from: Option<&Self>, writer: u32) -> Result<()> {
        let store = self.ensure_open()?;
        let (start, end) = (groups.start.to_be_bytes(), groups.end.to_be_bytes());
        let mut ops = WriteOps::new();
        ops.delete_range(&start, &end);
        ops.delete(&[RESERVED_GROUP.as_slice(), &writer.to_be_bytes()].concat());
        if let Some(from) = from.and_then(Self::opened) {
            let mut outcome = Ok(());
            from.scan_with((Bound::Included(&start), Bound::Excluded(&end)), false, &mut |key, value| {
                ops.put(key, value);
                if ops.bytes() >= REPLACE_BYTES {
                    outcome = store.write(std::mem::take(&mut ops));
                }
                if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            outcome?;
        }
        store.write(ops)?;
        self.positions.lock().remove(&writer);
        Ok(())
    }

    /// Up to where in each writer's changelog the store may have changes.
    pub(crate) fn positions(&self) -> BTreeMap<u32, u64> {
        self.positions.lock().clone()
    }

    /// Asks the tasks to bring everything into the store. Returns the number of the request.
    pub(crate) fn want_image(&self) -> u64 {
        self.image_wanted.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Somebody waits for the image that is asked for.
    pub(crate) fn hurry_image(&self) {
        self.hastened.fetch_max(self.image_wanted(), Ordering::Relaxed);
    }

    /// Whether somebody waits for what `request` asked for.
    pub(crate) fn is_image_urgent(&self, request: u64) -> bool {
        request <= self.hastened.load(Ordering::Relaxed)
    }

    /// Number of the newest request for an image, 0 before the first.
    pub(crate) fn image_wanted(&self) -> u64 {
        self.image_wanted.load(Ordering::Relaxed)
    }

    /// Roughly how many bytes the store holds.
    pub fn approximate_bytes(&self) -> u64 {
        self.opened().map_or(0, StateStore::approximate_bytes)
    }

    /// How many full buffers of writes wait to be brought to disk.
    pub(crate) fn waiting_buffers(&self) -> u64 {
        self.opened().map_or(0, StateStore::waiting_buffers)
    }

    /// Writes a consistent image of the store into the scratch directory and lists its files.
    pub(crate) fn create_image(&self) -> Result<Vec<ImageFile>> {
        let directory = self.scratch.join("image");
        if directory.exists() {
            std::fs::remove_dir_all(&directory).map_err(io_error("remove", &directory))?;
        }
        self.ensure_open()?;
        match self.opened.get().expect("the store is open") {
            Backing::Rocks(store) => store.checkpoint(&directory)?,
            Backing::Memory(store) => write_sorted_files(store, &directory)?,
        }
        let mut files = Vec::new();
        let entries = std::fs::read_dir(&directory).map_err(io_error("list", &directory))?;
        for entry in entries {
            let entry = entry.map_err(io_error("list", &directory))?;
            let bytes = entry.metadata().map_err(io_error("read", &entry.path()))?.len();
            files.push(ImageFile { name: entry.file_name().to_string_lossy().into_owned(), path: entry.path(), bytes });
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(files)
    }

    /// Removes the local copy of the last image.
    pub(crate) fn discard_image(&self) {
        let directory = self.scratch.join("image");
        if let Err(error) = std::fs::remove_dir_all(&directory) {
            tracing::debug!(path = %directory.display(), %error, "no image to discard");
        }
    }

    /// The directory that the files of an image are to be put into before [`adopt_image`](Self::adopt_image).
    pub(crate) fn image_directory(&self) -> Result<PathBuf> {
        match self.spec.backend {
            StateBackend::RocksDb => self.scratch("db"),
            StateBackend::Memory => self.scratch("restored"),
        }
    }

    /// Makes the files in [`image_directory`](Self::image_directory) the contents of the store, which must not have been opened. Returns
    /// the changelog position of each writer that the image contains, and forgets them: the writers are of an earlier life of the job.
    pub(crate) fn adopt_image(&self, names: &[String]) -> Result<BTreeMap<u32, u64>> {
        if self.opened.get().is_some() {
            return Err(StorageError::Internal("a checkpoint is restored into a store in use".into()));
        }
        let store = self.ensure_open()?;
        if self.spec.backend == StateBackend::Memory {
            let directory = self.image_directory()?;
            for name in names {
                read_sorted_file(store, &directory.join(name))?;
            }
        }
        let mut positions = BTreeMap::new();
        let mut ops = WriteOps::new();
        store.scan_with((Bound::Included(&RESERVED_GROUP[..]), Bound::Unbounded), false, &mut |key, value| {
            if let (Ok(writer), Ok(position)) = (key[2..].try_into(), value.try_into()) {
                positions.insert(u32::from_be_bytes(writer), u64::from_be_bytes(position));
            }
            ops.delete(key);
            ControlFlow::Continue(())
        })?;
        store.write(ops)?;
        Ok(positions)
    }
}

impl Drop for JobStore {
    fn drop(&mut self) {
        drop(self.opened.take());
        LIVES.lock().remove(&self.scratch);
        if let Err(error) = std::fs::remove_dir_all(&self.scratch) {
            tracing::debug!(path = %self.scratch.display(), %error, "a scratch directory was not removed");
        }
    }
}

/// Scratch directories in use by this process.
static LIVES: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
static LIFE: AtomicU64 = AtomicU64::new(0);

/// Makes a directory of its own for a store and removes those that crashed lives left beside it. A life of the same job that is just ending
/// keeps its own.
fn new_scratch(directory: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(directory).map_err(io_error("create", directory))?;
    let mut lives = LIVES.lock();
    for entry in std::fs::read_dir(directory).map_err(io_error("list", directory))? {
        let path = entry.map_err(io_error("list", directory))?.path();
        let is_life = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("life-"));
        if is_life && !lives.contains(&path) {
            std::fs::remove_dir_all(&path).map_err(io_error("remove", &path))?;
        }
    }
    let path = directory.join(format!("life-{}", LIFE.fetch_add(1, Ordering::Relaxed)));
    std::fs::create_dir_all(&path).map_err(io_error("create", &path))?;
    lives.insert(path.clone());
    Ok(path)
}

impl Backing {
    fn as_store(&self) -> &dyn StateStore {
        match self {
            Self::Memory(store) => store,
            Self::Rocks(store) => store,
        }
    }
}

/// Writes the store in key order into files of bounded size: (key length u32, value length u32, key, value)*.
fn write_sorted_files(store: &MemoryStore, directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory).map_err(io_error("create", directory))?;
    let mut after: Option<Vec<u8>> = None;
    for number in 0.. {
        let mut buffer = Vec::new();
        let from = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut last = None;
        store.scan_with((from, Bound::Unbounded), false, &mut |key, value| {
            for length in [key.len(), value.len()] {
                buffer.extend_from_slice(&(length as u32).to_le_bytes());
            }
            buffer.extend_from_slice(key);
            buffer.extend_from_slice(value);
            if buffer.len() < IMAGE_FILE_BYTES {
                return ControlFlow::Continue(());
            }
            last = Some(key.to_vec());
            ControlFlow::Break(())
        })?;
        let path = directory.join(format!("sorted-{number:06}"));
        let written = std::fs::File::create(&path).and_then(|mut file| file.write_all(&buffer));
        written.map_err(io_error("write", &path))?;
        if last.is_none() {
            break;
        }
        after = last;
    }
    Ok(())
}

fn read_sorted_file(store: &dyn StateStore, path: &Path) -> Result<()> {
    let bytes = std::fs::read(path).map_err(io_error("read", path))?;
    let mut rest = bytes.as_slice();
    let mut ops = WriteOps::new();
    let corrupt = || StorageError::Corrupt { file: path.display().to_string(), detail: "an entry is cut off".into() };
    while !rest.is_empty() {
        let (lengths, body) = rest.split_at_checked(8).ok_or_else(corrupt)?;
        let length = |at: usize| u32::from_le_bytes(lengths[at..at + 4].try_into().expect("four bytes")) as usize;
        let (key, body) = body.split_at_checked(length(0)).ok_or_else(corrupt)?;
        let (value, body) = body.split_at_checked(length(4)).ok_or_else(corrupt)?;
        ops.put(key, value);
        rest = body;
    }
    store.write(ops)
}
