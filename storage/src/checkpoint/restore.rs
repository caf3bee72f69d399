//! Reading a checkpoint back.
//!
//! The files of the image become the store as they are. The log stays beside it in local files: each table takes its own changes when it is
//! created, into memory where there is room. So restoring small state never touches the store, and every change is read once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::{FutureExt, StreamExt, TryStreamExt};
use parking_lot::Mutex;

use super::Checkpointer;
use super::image::backend_name;
use super::local::ImageSources;
use super::manifest::{Image, ImageObject, LogObject, Manifest, ManifestName};
use crate::durable_file::io_error;
use crate::env::Clock;
use crate::epoch::Epoch;
use crate::error::{Result, StorageError};
use crate::key_group::KEY_GROUPS;
use crate::object::blocking;
use crate::state_changelog::{ChangeFn, StoredPart};
use crate::state_store::WriteOps;
use crate::state_table::JobStore;
use crate::state_table::{TableContext, TableId};

const PARALLEL_DOWNLOADS: usize = 4;
const REPLAY_BYTES: usize = 1 << 20;

/// A complete checkpoint that was found.
#[derive(Clone)]
pub struct Restored {
    pub(super) manifest: Arc<Manifest>,
    object: String,
}

impl Restored {
    /// The epoch at which the state was taken.
    pub fn epoch(&self) -> Epoch {
        self.manifest.epoch
    }

    /// How far each upstream was consumed.
    pub fn upstream(&self) -> &[(u64, Epoch)] {
        &self.manifest.upstream
    }

    /// What the job wanted to find again.
    pub fn notes(&self) -> &BTreeMap<String, String> {
        &self.manifest.notes
    }

    /// Whether it was taken without waiting for what was in flight.
    pub fn is_unaligned(&self) -> bool {
        self.manifest.in_flight.is_some()
    }

    /// Bytes of in-flight data to replay; 0 for an aligned checkpoint.
    pub fn in_flight_bytes(&self) -> u64 {
        self.manifest.in_flight_bytes()
    }

    /// Bytes of changelog to replay and of materialization to fetch.
    pub fn bytes(&self) -> (u64, u64) {
        (self.manifest.log_bytes(), self.manifest.image_bytes())
    }

    /// Name of the manifest.
    pub fn object(&self) -> &str {
        &self.object
    }
}

/// State as of a checkpoint, out of which tasks fill their tables.
#[derive(Clone)]
pub struct RestoredState {
    shared: Arc<Shared>,
}

struct Shared {
    epoch: Epoch,
    parts: Vec<StoredPart>,
    /// Bytes of them, and how long it took to fetch them.
    fetched: (u64, Duration),
    /// How long tables have been bringing them in so far.
    replayed_us: AtomicU64,
    sources: ImageSources,
    /// The store is in use: the state is of one task whose others go on.
    is_rewound: bool,
    /// Entries that tables have read from store and log.
    read: AtomicU64,
    /// Key groups of which tables have taken the log.
    claimed: Mutex<BTreeMap<TableId, BTreeSet<u16>>>,
}

impl RestoredState {
    /// Of the changes in `parts`, with how many bytes were fetched and how long that took, on top of what is in the store from `sources`.
    pub(super) fn new(epoch: Epoch, parts: Vec<StoredPart>, fetched: (u64, Duration), sources: ImageSources) -> Self {
        Self::with(epoch, parts, fetched, sources, false)
    }

    /// The same of one task whose others go on in the same store.
    pub(super) fn rewound(epoch: Epoch, parts: Vec<StoredPart>, fetched: (u64, Duration), sources: ImageSources) -> Self {
        Self::with(epoch, parts, fetched, sources, true)
    }

    fn with(epoch: Epoch, parts: Vec<StoredPart>, fetched: (u64, Duration), sources: ImageSources, is_rewound: bool) -> Self {
        let (replayed_us, read) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { shared: Arc::new(Shared { epoch, parts, fetched, replayed_us, sources, is_rewound, read, claimed: Mutex::default() }) }
    }

    pub(crate) fn is_rewound(&self) -> bool {
        self.shared.is_rewound
    }

    pub(crate) fn count_read(&self, entries: usize) {
        self.shared.read.fetch_add(entries as u64, Ordering::Relaxed);
    }

    /// How many entries tables have read from store and log when they were created.
    pub fn entries_read(&self) -> u64 {
        self.shared.read.load(Ordering::Relaxed)
    }

    /// The epoch at which the state was taken.
    pub fn epoch(&self) -> Epoch {
        self.shared.epoch
    }

    /// Bytes of log, and the time it took so far to fetch them and to bring them into tables.
    pub fn replayed(&self) -> (u64, Duration) {
        let (bytes, fetching) = self.shared.fetched;
        (bytes, fetching + Duration::from_micros(self.shared.replayed_us.load(Ordering::Relaxed)))
    }

    /// Where the files of its materialization came from.
    pub fn image_sources(&self) -> ImageSources {
        self.shared.sources
    }

    /// Notes that a table takes the log of `groups`.
    pub(crate) fn claim(&self, table: TableId, groups: Range<u16>) {
        self.shared.claimed.lock().entry(table).or_default().extend(groups);
    }

    /// Visits the changes of a table in the order in which they happened.
    pub(crate) fn for_each(&self, table: TableId, groups: &Range<u16>, f: &mut ChangeFn<'_>) -> Result<()> {
        let clock = Clock::system();
        let result = self.shared.parts.iter().try_for_each(|part| part.for_each(table, groups, f));
        self.shared.replayed_us.fetch_add(clock.monotonic().as_micros() as u64, Ordering::Relaxed);
        result
    }

    /// Brings the log of a table into the store, once, before anything else writes it.
    pub(crate) fn replay_into(&self, store: &JobStore, table: TableId) -> Result<()> {
        // Held throughout, so that nobody sees the table half replayed.
        let mut claimed = self.shared.claimed.lock();
        let claimed = claimed.entry(table).or_default();
        if claimed.len() < usize::from(KEY_GROUPS) {
            self.replay(store, table, &|_| true)?;
            claimed.extend(0..KEY_GROUPS);
        }
        Ok(())
    }

    /// Brings the log that no table has taken into the store: an image must not lose it.
    pub(crate) fn replay_unclaimed(&self, store: &JobStore) -> Result<()> {
        let tables: BTreeSet<TableId> = self.shared.parts.iter().flat_map(StoredPart::tables).collect();
        let mut claimed = self.shared.claimed.lock();
        for table in tables {
            let claimed = claimed.entry(table).or_default();
            self.replay(store, table, &|group| !claimed.contains(&group))?;
            claimed.extend(0..KEY_GROUPS);
        }
        Ok(())
    }

    fn replay(&self, store: &JobStore, table: TableId, wanted: &dyn Fn(u16) -> bool) -> Result<()> {
        let mut ops = WriteOps::new();
        let mut full_key = Vec::new();
        self.for_each(table, &(0..KEY_GROUPS), &mut |group, key, value| {
            if !wanted(group) {
                return Ok(());
            }
            full_key.clear();
            full_key.extend_from_slice(&TableContext::range_of(table, group).0);
            full_key.extend_from_slice(key);
            match value {
                Some(value) => ops.put(&full_key, value),
                None => ops.delete(&full_key),
            }
            if ops.bytes() < REPLAY_BYTES {
                return Ok(());
            }
            store.ensure_open()?.write(std::mem::take(&mut ops))
        })?;
        if ops.is_empty() { Ok(()) } else { store.ensure_open()?.write(ops) }
    }
}

impl Checkpointer {
    /// Finds the newest complete checkpoint; `None` if the job never had one. A damaged one is an error that names it.
    pub async fn restore(&self) -> Result<Option<Restored>> {
        let found = self.newest_manifest().await?;
        let manifest = match &found {
            None => None,
            Some(name) => {
                let object = self.object(&name.to_string());
                let full_name = self.objects.full_name(&object);
                let missing = || StorageError::Corrupt { file: full_name.clone(), detail: "the file is missing".into() };
                let bytes = self.objects.get(&object).await?.ok_or_else(missing)?;
                let manifest = Manifest::decode(&bytes, &full_name)?;
                self.check_manifest(&manifest, *name, &full_name)?;
                Some(manifest)
            }
        };
        self.objects.reach("restore::manifest")?;
        self.start_term(found).await?;
        let mut progress = self.progress.lock().await;
        progress.newest = manifest.clone();
        Ok(manifest.map(|manifest| Restored { object: self.object(&manifest.name.to_string()), manifest: Arc::new(manifest) }))
    }

    /// What to say when there is no manifest although there must have been one.
    pub fn missing(&self) -> StorageError {
        StorageError::Corrupt { file: self.objects.full_name(&self.object("manifest-*")), detail: "the file is missing".into() }
    }

    fn check_manifest(&self, manifest: &Manifest, name: ManifestName, file: &str) -> Result<()> {
        if manifest.name != name || manifest.job != self.job {
            return Err(StorageError::Corrupt { file: file.to_owned(), detail: "it is the manifest of another checkpoint".into() });
        }
        if manifest.fingerprint != self.fingerprint {
            let detail = format!("it was written for graph {:016x}, the job now has graph {:016x}", manifest.fingerprint, self.fingerprint);
            return Err(StorageError::Incompatible { file: file.to_owned(), detail });
        }
        Ok(())
    }

    /// Brings a checkpoint into a store that was just opened, before any task uses it.
    pub async fn load_into(&self, restored: &Restored, store: &Arc<JobStore>) -> Result<RestoredState> {
        let manifest = &restored.manifest;
        let sources = match &manifest.image {
            Some(image) => self.load_image(image, store, &restored.object).await?,
            None => ImageSources::default(),
        };
        self.objects.reach("restore::image")?;
        let clock = Clock::system();
        let parts = self.load_log(&manifest.log, &store.scratch("restored")?).await?;
        self.objects.reach("restore::log")?;
        let state = RestoredState::new(manifest.epoch, parts, (manifest.log_bytes(), clock.monotonic()), sources);
        self.progress.lock().await.restored = Some(state.clone());
        Ok(state)
    }

    /// Brings the parts of a log into files in `scratch`.
    pub(super) async fn load_log(&self, log: &[LogObject], scratch: &Path) -> Result<Vec<StoredPart>> {
        // Boxed: the compiler cannot see that a closure over borrowed items makes a future that is Send.
        let loads: Vec<_> =
            log.iter().enumerate().map(|(index, part)| self.load_part(part, scratch.join(format!("log-{index}"))).boxed()).collect();
        futures::stream::iter(loads).buffered(PARALLEL_DOWNLOADS).try_collect().await
    }

    async fn load_part(&self, log: &LogObject, path: std::path::PathBuf) -> Result<StoredPart> {
        let name = self.object(&log.object.name);
        let bytes = self.objects.get_known(&name, log.object.known).await?;
        let full_name = self.objects.full_name(&name);
        blocking(move || StoredPart::keep(&bytes, &full_name, &path)).await
    }

    pub(super) async fn load_image(&self, image: &Image, store: &Arc<JobStore>, manifest: &str) -> Result<ImageSources> {
        if image.backend != backend_name(store.backend()) {
            let detail =
                format!("its state is of the \"{}\" backend, the job now has \"{}\"", image.backend, backend_name(store.backend()));
            return Err(StorageError::Incompatible { file: self.objects.full_name(manifest), detail });
        }
        let directory = store.image_directory()?;
        let directory: &Path = &directory;
        let load = |file: &'_ ImageObject| {
            let (file, path) = (file.clone(), directory.join(&file.file));
            self.load_image_file(file, path).boxed()
        };
        let loads: Vec<_> = image.files.iter().map(load).collect();
        let is_local: Vec<bool> = futures::stream::iter(loads).buffered(PARALLEL_DOWNLOADS).try_collect().await?;
        let mut sources = ImageSources::default();
        for (file, is_local) in image.files.iter().zip(is_local) {
            let (files, bytes) = match is_local {
                true => (&mut sources.local_files, &mut sources.local_bytes),
                false => (&mut sources.store_files, &mut sources.store_bytes),
            };
            *files += 1;
            *bytes += file.object.known.bytes;
        }
        if self.local.is_some() && sources.store_files > 0 {
            let (job, files, bytes) = (self.job, sources.store_files, sources.store_bytes);
            tracing::warn!(job, files, bytes, "not all files of a materialization are on this disk: they are read from the object store");
        }
        let names: Vec<String> = image.files.iter().map(|file| file.file.clone()).collect();
        let adopting = store.clone();
        let contained = blocking(move || adopting.adopt_image(&names)).await?;
        let ahead = contained.iter().find(|(writer, position)| image.positions.get(writer).is_none_or(|known| known < position));
        match ahead {
            None => Ok(sources),
            Some((writer, position)) => Err(StorageError::Corrupt {
                file: self.objects.full_name(manifest),
                detail: format!("its materialization holds changes of writer {writer} up to {position}, more than it says"),
            }),
        }
    }

    /// Brings a file of an image to `path`; answers whether there was a local copy of it.
    async fn load_image_file(&self, file: ImageObject, path: PathBuf) -> Result<bool> {
        if let Some(local) = self.local.clone() {
            let (file, path) = (file.clone(), path.clone());
            if blocking(move || local.bring(&file, &path)).await? {
                return Ok(true);
            }
        }
        let bytes = self.objects.get_known(&self.object(&file.object.name), file.object.known).await?;
        let local = self.local.clone();
        blocking(move || {
            std::fs::write(&path, &bytes).map_err(io_error("write", &path))?;
            if let Some(local) = local {
                local.keep_fetched(&file, &path);
            }
            Ok(false)
        })
        .await
    }
}
