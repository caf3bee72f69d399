//! Taking a materialization: an image of the store, of which only files that are new are uploaded.

use std::collections::BTreeMap;

use twox_hash::XxHash3_64;

use super::manifest::{Image, ImageObject, NamedObject};
use super::upload::Tasks;
use super::{Checkpointer, Progress, fail_point};
use crate::durable_file::io_error;
use crate::error::Result;
use crate::object::{ObjectChecksum, blocking};
use crate::state_store::StateBackend;
use crate::state_table::ImageFile;

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

impl Checkpointer {
    /// Takes and uploads an image if all tasks have brought their state into the store. Returns the bytes uploaded. A failure is not one of
    /// the checkpoint, whose log is complete without it: it is tried again with the next one.
    pub(super) async fn take_image(&self, progress: &mut Progress, tasks: &Tasks) -> u64 {
        let Some(swept) = tasks.swept.filter(|swept| progress.requested > 0 && swept.request >= progress.requested) else { return 0 };
        let (Some(store), true) = (tasks.store.clone(), progress.pending.is_none()) else { return 0 };
        let result = async {
            if let Some(restored) = progress.restored.clone() {
                let store = store.clone();
                blocking(move || restored.replay_unclaimed(&store)).await?;
            }
            let imaged = store.clone();
            let files = blocking(move || imaged.create_image()).await?;
            // After the image: it contains no change behind these.
            let positions = store.positions();
            fail_point("checkpoint::image")?;
            let (objects, bytes) = self.upload_image(files, progress).await?;
            let backend = backend_name(store.backend()).to_owned();
            let image = Image { base: swept.base, backend, files: objects, positions: positions.clone() };
            Ok::<_, crate::error::StorageError>((PendingImage { image, positions }, bytes))
        };
        let result = result.await;
        store.discard_image();
        match result {
            Ok((pending, bytes)) => {
                progress.pending = Some(pending);
                progress.requested = 0;
                progress.restored = None;
                bytes
            }
            Err(error) => {
                tracing::warn!(job = self.job, %error, "the state could not be materialized; trying again with the next checkpoint");
                0
            }
        }
    }

    async fn upload_image(&self, files: Vec<ImageFile>, progress: &Progress) -> Result<(Vec<ImageObject>, u64)> {
        let known: BTreeMap<&str, &ImageObject> = progress
            .newest
            .iter()
            .filter_map(|newest| newest.image.as_ref())
            .flat_map(|image| image.files.iter().map(|file| (file.file.as_str(), file)))
            .collect();
        let mut objects = Vec::new();
        let mut uploaded = 0;
        for file in files {
            // A sorted file never changes under its number within the life of a database, and the store was begun from the known image.
            let unchanged =
                known.get(file.name.as_str()).filter(|known| known.file.ends_with(".sst") && known.object.known.bytes == file.bytes);
            if let Some(unchanged) = unchanged {
                self.keep_locally(&file, &unchanged.object).await?;
                objects.push((*unchanged).clone());
                continue;
            }
            let path = file.path.clone();
            let bytes = blocking(move || std::fs::read(&path).map_err(io_error("read", &path))).await?;
            let known = ObjectChecksum { bytes: bytes.len() as u64, checksum: crc32fast::hash(&bytes) };
            let name = format!("mat/{}-{}", self.term, content_name(&bytes));
            let there =
                progress.newest.iter().flat_map(|newest| newest.objects()).any(|object| object.name == name && object.known == known);
            if !there {
                self.objects.put(&self.object(&name), &bytes).await?;
                uploaded += known.bytes;
            }
            let object = NamedObject { name, known };
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
