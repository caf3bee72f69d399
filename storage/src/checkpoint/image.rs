//! Taking a materialization: an image of the store, of which only files that are new are uploaded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::{sync::Mutex, task::JoinHandle};
use twox_hash::XxHash3_64;

use super::local::LocalCopies;
use super::manifest::{Image, ImageObject, Manifest, NamedObject};
use super::restore::RestoredState;
use super::upload::Tasks;
use super::{Checkpointer, Progress};
use crate::durable_file::io_error;
use crate::error::{Result, StorageError};
use crate::object::{ObjectChecksum, ObjectStorage, blocking};
use crate::state_store::StateBackend;
use crate::state_table::{ImageFile, JobStore, Sweep};

/// How long a checkpoint waits for an image that has just been begun: a small one is named at once.
pub(super) const IMAGE_PATIENCE: Duration = Duration::from_millis(200);

/// An image in the object store that no manifest names yet.
pub(super) struct PendingImage {
    pub(super) image: Image,
    /// A manifest may name it if its log reaches these.
    pub(super) positions: BTreeMap<u32, u64>,
}

pub(super) fn backend_name(backend: StateBackend) -> &'static str {
    match backend {
        StateBackend::Memory => "memory",
        StateBackend::RocksDb => "rocksdb",
    }
}

/// The content name of a file: two hashes of it.
fn content_name(bytes: &[u8]) -> String {
    format!("{:016x}{:016x}", XxHash3_64::oneshot(bytes), XxHash3_64::oneshot_with_seed(1, bytes))
}

/// An image that is being taken and uploaded while the job and its checkpoints go on.
pub(super) struct Imaging {
    task: JoinHandle<Result<(PendingImage, u64)>>,
    /// Held while the store is looked at.
    at_store: Arc<Mutex<()>>,
}

impl Imaging {
    /// Gives the image up. When that is done the store is let alone.
    pub(super) async fn give_up(mut self) {
        self.task.abort();
        // How it ends does not matter; what it does on a thread for blocking calls may outlive it.
        let _ = (&mut self.task).await;
        drop(self.at_store.lock().await);
    }
}

impl Drop for Imaging {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// All that is needed for an image beside the store.
struct ImageMaker {
    objects: ObjectStorage,
    /// Folder of the job's objects, with the slash at its end.
    folder: String,
    term: u64,
    local: Option<LocalCopies>,
    /// Files of the image that the newest manifest names.
    known: BTreeMap<String, ImageObject>,
    /// All objects that it names.
    named: BTreeSet<NamedObject>,
}

impl Checkpointer {
    /// Begins to take and upload an image if all tasks have brought their state into the store.
    pub(super) fn begin_image(&self, progress: &mut Progress, tasks: &Tasks) {
        let Some(swept) = tasks.swept.filter(|swept| progress.requested > 0 && swept.request >= progress.requested) else { return };
        let (Some(store), true) = (tasks.store.clone(), progress.pending.is_none() && progress.imaging.is_none()) else { return };
        let newest = progress.newest.as_ref();
        let files = newest.and_then(|newest| newest.image.as_ref()).map_or(&[][..], |image| &image.files);
        let maker = ImageMaker {
            objects: self.objects.clone(),
            folder: self.object(""),
            term: self.term,
            local: self.local.clone(),
            known: files.iter().map(|file| (file.file.clone(), file.clone())).collect(),
            named: newest.into_iter().flat_map(Manifest::objects).cloned().collect(),
        };
        let at_store = Arc::<Mutex<()>>::default();
        let task = tokio::spawn(maker.take(store, swept, progress.restored.clone(), at_store.clone()));
        progress.imaging = Some(Imaging { task, at_store });
        progress.requested = 0;
    }

    /// Takes over an image that is complete, or becomes so soon. Returns the bytes that were uploaded for it. A failure is not one of the
    /// checkpoint, whose log is complete without it: the image is asked for again.
    pub(super) async fn collect_image(&self, progress: &mut Progress) -> u64 {
        let Some(imaging) = &mut progress.imaging else { return 0 };
        let Ok(joined) = tokio::time::timeout(self.image_patience, &mut imaging.task).await else { return 0 };
        progress.imaging = None;
        match joined.unwrap_or_else(|error| Err(StorageError::Internal(error.to_string()))) {
            Ok((pending, bytes)) => {
                progress.pending = Some(pending);
                progress.restored = None;
                bytes
            }
            Err(error) => {
                tracing::warn!(job = self.job, %error, "the state could not be materialized; trying again later");
                0
            }
        }
    }
}

impl ImageMaker {
    async fn take(
        self,
        store: Arc<JobStore>,
        swept: Sweep,
        restored: Option<RestoredState>,
        at_store: Arc<Mutex<()>>,
    ) -> Result<(PendingImage, u64)> {
        let at_store = at_store.lock_owned().await;
        let imaged = store.clone();
        let create = move || {
            let _at_store = at_store;
            if let Some(restored) = restored {
                restored.replay_unclaimed(&imaged)?;
            }
            let files = imaged.create_image()?;
            // After the image: it contains no change behind these.
            Ok((files, imaged.positions()))
        };
        let taken = match blocking(create).await {
            Ok((files, positions)) => self.keep(&store, swept, files, positions).await,
            Err(error) => Err(error),
        };
        store.discard_image();
        taken
    }

    async fn keep(
        &self,
        store: &JobStore,
        swept: Sweep,
        files: Vec<ImageFile>,
        positions: BTreeMap<u32, u64>,
    ) -> Result<(PendingImage, u64)> {
        self.objects.reach("checkpoint::image")?;
        let (files, bytes) = self.upload(files).await?;
        self.objects.reach("checkpoint::image_uploaded")?;
        let image = Image { base: swept.base, backend: backend_name(store.backend()).to_owned(), files, positions: positions.clone() };
        Ok((PendingImage { image, positions }, bytes))
    }

    async fn upload(&self, files: Vec<ImageFile>) -> Result<(Vec<ImageObject>, u64)> {
        let mut objects = Vec::new();
        let mut uploaded = 0;
        for file in files {
            // A sorted file never changes under its number within the life of a database, and the store was begun from the known image.
            let unchanged =
                self.known.get(&file.name).filter(|known| known.file.ends_with(".sst") && known.object.known.bytes == file.bytes);
            if let Some(unchanged) = unchanged {
                self.keep_locally(&file, &unchanged.object).await?;
                objects.push(unchanged.clone());
                continue;
            }
            let path = file.path.clone();
            let bytes = blocking(move || std::fs::read(&path).map_err(io_error("read", &path))).await?;
            let known = ObjectChecksum { bytes: bytes.len() as u64, checksum: crc32fast::hash(&bytes) };
            let object = NamedObject { name: format!("mat/{}-{}", self.term, content_name(&bytes)), known };
            if !self.named.contains(&object) {
                self.objects.put(&format!("{}{}", self.folder, object.name), &bytes).await?;
                uploaded += known.bytes;
            }
            self.keep_locally(&file, &object).await?;
            objects.push(ImageObject { file: file.name, object });
        }
        Ok((objects, uploaded))
    }

    async fn keep_locally(&self, file: &ImageFile, object: &NamedObject) -> Result<()> {
        let Some(local) = self.local.clone() else { return Ok(()) };
        let (path, object) = (file.path.clone(), object.clone());
        blocking(move || {
            local.keep(&path, &object);
            Ok(())
        })
        .await
    }
}
