//! Objects: named, immutable byte strings in a local folder or an object store.
//!
//! Every object ends in a trailer (checksum, length) that is verified when it is read, so what comes back is what was put, or an error that
//! names it. A put is durable when it returns: in a local folder the file is written aside, fsynced, moved to its place, and the folder
//! fsynced. Object stores retry within bounds by themselves.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{BufMut, Bytes, BytesMut};
use futures::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, RetryConfig};

use crate::durable_file::{create_directory, io_error, remove_file, sync_directory, write_synced};
use crate::error::{Result, StorageError};

const TRAILER_MAGIC: &[u8; 4] = b"MPOB";
const TRAILER_BYTES: usize = 16;
const STAGING: &str = ".staging";
const MOST_RETRIES: usize = 6;
const RETRY_SECONDS: u64 = 60;

/// Called before each operation with its kind and the object's name, and at each step between operations with [`STEP`] and the step's name; an
/// error is returned in place of doing it. For fault injection.
pub type FaultFn = dyn Fn(&'static str, &str) -> Result<()> + Send + Sync;

/// What a [`FaultFn`] is called with at a step between operations, see [`ObjectStorage::reach`].
pub const STEP: &str = "reach";

/// A place for objects. Cloning shares it.
#[derive(Clone)]
pub struct ObjectStorage {
    place: Arc<Place>,
    faults: Option<Arc<FaultFn>>,
}

enum Place {
    Local(PathBuf),
    Remote { store: Box<dyn ObjectStore>, folder: ObjectPath },
}

/// An object in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Its name, as given to `put`.
    pub name: String,
    /// Its bytes, trailer included.
    pub bytes: u64,
}

/// What was put or read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectChecksum {
    /// Bytes without the trailer.
    pub bytes: u64,
    /// CRC-32 of them.
    pub checksum: u32,
}

/// What became of a create-only put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// The object is now there.
    New,
    /// The object was there with the same contents, as after a retry.
    Same,
    /// Somebody else's object has the name.
    Taken,
}

impl ObjectStorage {
    /// Opens `location`: a path or `file://` URL of a folder, or `s3://bucket/folder`. For S3, credentials, region, endpoint and the rest come
    /// from the usual `AWS_*` environment variables.
    pub fn open(location: &str) -> Result<Self> {
        if let Some(path) = location.strip_prefix("file://") {
            return Self::local(Path::new(path));
        }
        let Some((scheme, rest)) = location.split_once("://") else { return Self::local(Path::new(location)) };
        if scheme != "s3" {
            return Err(refused("open", location, format!("scheme \"{scheme}\" is not supported, only file and s3 are")));
        }
        let (bucket, folder) = rest.split_once('/').unwrap_or((rest, ""));
        let retry = RetryConfig {
            max_retries: MOST_RETRIES,
            retry_timeout: std::time::Duration::from_secs(RETRY_SECONDS),
            ..RetryConfig::default()
        };
        let endpoint = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"].iter().find_map(|name| std::env::var(name).ok());
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry);
        if let Some(endpoint) = endpoint {
            builder = builder.with_allow_http(endpoint.starts_with("http://")).with_endpoint(endpoint);
        }
        let store = builder.build().map_err(|error| refused("open", location, error.to_string()))?;
        Ok(Self::remote(Box::new(store), folder))
    }

    /// Objects as files under `folder`, which is created if it is not there.
    pub fn local(folder: &Path) -> Result<Self> {
        let folder = std::path::absolute(folder).map_err(io_error("open", folder))?;
        let staging = folder.join(STAGING);
        create_directory(&staging)?;
        remove_abandoned(&staging);
        Ok(Self { place: Arc::new(Place::Local(folder)), faults: None })
    }

    /// Objects in memory, for tests.
    pub fn memory() -> Self {
        Self::remote(Box::new(InMemory::new()), "")
    }

    fn remote(store: Box<dyn ObjectStore>, folder: &str) -> Self {
        Self { place: Arc::new(Place::Remote { store, folder: ObjectPath::from(folder) }), faults: None }
    }

    /// The same place with faults, for tests.
    pub fn with_faults(&self, faults: Arc<FaultFn>) -> Self {
        Self { place: self.place.clone(), faults: Some(faults) }
    }

    /// Whether other processes on other machines may reach the place too.
    pub fn is_shared(&self) -> bool {
        matches!(*self.place, Place::Remote { .. })
    }

    /// Puts an object, replacing one of the same name.
    pub async fn put(&self, name: &str, payload: &[u8]) -> Result<ObjectChecksum> {
        self.check("write", name).await?;
        let (bytes, checksum) = with_trailer(payload);
        match &*self.place {
            Place::Local(folder) => {
                let (folder, name) = (folder.clone(), name.to_owned());
                blocking(move || put_local(&folder, &name, &bytes, false).map(drop)).await?;
            }
            Place::Remote { store, folder } => {
                store.put(&at(folder, name), bytes.into()).await.map_err(|error| failed("write", name, &error))?;
            }
        }
        Ok(checksum)
    }

    /// Puts an object unless there is one of that name.
    pub async fn put_create(&self, name: &str, payload: &[u8]) -> Result<Created> {
        self.check("create", name).await?;
        let (bytes, _) = with_trailer(payload);
        let created = match &*self.place {
            Place::Local(folder) => {
                let (folder, name) = (folder.clone(), name.to_owned());
                blocking(move || put_local(&folder, &name, &bytes, true)).await?
            }
            Place::Remote { store, folder } => {
                let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
                match store.put_opts(&at(folder, name), bytes.into(), options).await {
                    Ok(_) => true,
                    Err(object_store::Error::AlreadyExists { .. }) => false,
                    Err(error) => return Err(failed("create", name, &error)),
                }
            }
        };
        if created {
            return Ok(Created::New);
        }
        // A retried request may find what its first attempt wrote.
        let same = self.get(name).await?.is_some_and(|existing| *existing == *payload);
        Ok(if same { Created::Same } else { Created::Taken })
    }

    /// Reads an object; `None` if there is none of that name, [`StorageError::Corrupt`] if it is not what was put.
    pub async fn get(&self, name: &str) -> Result<Option<Bytes>> {
        self.check("read", name).await?;
        let bytes = match &*self.place {
            Place::Local(folder) => {
                let path = folder.join(name);
                let read = blocking(move || match std::fs::read(&path) {
                    Ok(bytes) => Ok(Some(Bytes::from(bytes))),
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(io_error("read", &path)(error)),
                });
                read.await?
            }
            Place::Remote { store, folder } => match store.get(&at(folder, name)).await {
                Ok(result) => Some(result.bytes().await.map_err(|error| failed("read", name, &error))?),
                Err(object_store::Error::NotFound { .. }) => None,
                Err(error) => return Err(failed("read", name, &error)),
            },
        };
        bytes.map(|bytes| without_trailer(bytes, &self.full_name(name))).transpose()
    }

    /// Reads an object that has to be there and to be the one whose checksum is known.
    pub async fn get_known(&self, name: &str, known: ObjectChecksum) -> Result<Bytes> {
        let corrupt = |detail: &str| StorageError::Corrupt { file: self.full_name(name), detail: detail.into() };
        let payload = self.get(name).await?.ok_or_else(|| corrupt("the file is missing"))?;
        if payload.len() as u64 != known.bytes || crc32fast::hash(&payload) != known.checksum {
            return Err(corrupt("it is not the file that was written here"));
        }
        Ok(payload)
    }

    /// The objects whose name starts with the folder `prefix` (without a slash at the end), in order of names.
    pub async fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        self.check("list", prefix).await?;
        let mut objects = match &*self.place {
            Place::Local(folder) => {
                let (folder, prefix) = (folder.clone(), prefix.to_owned());
                blocking(move || {
                    let mut objects = Vec::new();
                    list_local(&folder, &prefix, &mut objects)?;
                    Ok(objects)
                })
                .await?
            }
            Place::Remote { store, folder } => {
                let start = folder.as_ref().len() + usize::from(!folder.as_ref().is_empty());
                let found: Vec<_> = store.list(Some(&at(folder, prefix))).try_collect().await.map_err(|e| failed("list", prefix, &e))?;
                found.into_iter().map(|meta| ObjectInfo { name: meta.location.as_ref()[start..].to_owned(), bytes: meta.size }).collect()
            }
        };
        objects.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(objects)
    }

    /// Removes an object, if it is there.
    pub async fn delete(&self, name: &str) -> Result<()> {
        self.check("delete", name).await?;
        match &*self.place {
            Place::Local(folder) => {
                let path = folder.join(name);
                blocking(move || remove_file(&path)).await
            }
            Place::Remote { store, folder } => match store.delete(&at(folder, name)).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(failed("delete", name, &error)),
            },
        }
    }

    /// The name by which a person finds the object.
    pub fn full_name(&self, name: &str) -> String {
        match &*self.place {
            Place::Local(folder) => folder.join(name).display().to_string(),
            Place::Remote { folder, .. } => at(folder, name).to_string(),
        }
    }

    /// A step between operations of whoever works with the objects: a place where tests make a checkpoint, a restore or a rescaling fail, or
    /// the process end. Each storage has its own faults, so tests beside each other do not meet.
    ///
    /// # Errors
    /// What a test has put there.
    pub fn reach(&self, step: &'static str) -> Result<()> {
        fail::fail_point!(step, |message| Err(StorageError::Internal(format!("fail point {step}: {}", message.unwrap_or_default()))));
        self.faults.as_ref().map_or(Ok(()), |faults| faults(STEP, step))
    }

    /// What a test has put before an operation. In a folder it may take its time, as the operation may.
    async fn check(&self, action: &'static str, name: &str) -> Result<()> {
        let Some(faults) = self.faults.clone() else { return Ok(()) };
        match &*self.place {
            Place::Local(_) => {
                let name = name.to_owned();
                blocking(move || faults(action, &name)).await
            }
            Place::Remote { .. } => faults(action, name),
        }
    }
}

fn at(folder: &ObjectPath, name: &str) -> ObjectPath {
    if folder.as_ref().is_empty() { ObjectPath::from(name) } else { ObjectPath::from(format!("{folder}/{name}")) }
}

fn refused(action: &'static str, object: &str, message: String) -> StorageError {
    StorageError::ObjectStore { action, object: object.to_owned(), message }
}

fn failed(action: &'static str, name: &str, error: &object_store::Error) -> StorageError {
    refused(action, name, error.to_string())
}

/// Runs file operations where they do not hold up other tasks.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(StorageError::Internal(format!("a file operation ended early: {error}"))),
    }
}

fn with_trailer(payload: &[u8]) -> (Bytes, ObjectChecksum) {
    let checksum = ObjectChecksum { bytes: payload.len() as u64, checksum: crc32fast::hash(payload) };
    let mut bytes = BytesMut::with_capacity(payload.len() + TRAILER_BYTES);
    bytes.put_slice(payload);
    bytes.put_u32_le(checksum.checksum);
    bytes.put_u64_le(checksum.bytes);
    bytes.put_slice(TRAILER_MAGIC);
    (bytes.freeze(), checksum)
}

fn without_trailer(bytes: Bytes, name: &str) -> Result<Bytes> {
    let corrupt = |detail: &str| StorageError::Corrupt { file: name.to_owned(), detail: detail.into() };
    let end = bytes.len().checked_sub(TRAILER_BYTES).ok_or_else(|| corrupt("it is cut off"))?;
    let (payload, trailer) = bytes.split_at(end);
    if trailer[12..] != *TRAILER_MAGIC || trailer[4..12] != (end as u64).to_le_bytes() {
        return Err(corrupt("it is cut off or not an object of this program"));
    }
    if trailer[..4] != crc32fast::hash(payload).to_le_bytes() {
        return Err(corrupt("its checksum does not match"));
    }
    Ok(bytes.slice(..end))
}

static STAGED: AtomicU64 = AtomicU64::new(0);

/// Writes a file so that it is there as a whole or not at all, and stays. False if `create_only` and the name was taken.
fn put_local(folder: &Path, name: &str, bytes: &[u8], create_only: bool) -> Result<bool> {
    let target = folder.join(name);
    let home = target.parent().expect("an object lies in a folder");
    let staged = folder.join(STAGING).join(format!("{}-{}", std::process::id(), STAGED.fetch_add(1, Ordering::Relaxed)));
    create_directory(home)?;
    let result = File::create(&staged).and_then(|mut file| {
        write_synced(&mut file, bytes)?;
        if !create_only {
            return std::fs::rename(&staged, &target).map(|()| true);
        }
        match std::fs::hard_link(&staged, &target) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    });
    if (create_only || result.is_err())
        && let Err(error) = std::fs::remove_file(&staged)
    {
        tracing::debug!(file = %staged.display(), %error, "a staged file was not removed");
    }
    let created = result.map_err(io_error("write", &target))?;
    sync_directory(home)?;
    Ok(created)
}

/// Removes staged files of processes that are no more.
fn remove_abandoned(staging: &Path) {
    let Ok(entries) = std::fs::read_dir(staging) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.split_once('-')).and_then(|(pid, _)| pid.parse::<u32>().ok());
        let alive = |pid: u32| pid == std::process::id() || Path::new("/proc").join(pid.to_string()).exists();
        if owner.is_some_and(|pid| !alive(pid))
            && let Err(error) = std::fs::remove_file(entry.path())
        {
            tracing::debug!(file = %entry.path().display(), %error, "an abandoned file was not removed");
        }
    }
}

fn list_local(folder: &Path, prefix: &str, objects: &mut Vec<ObjectInfo>) -> Result<()> {
    let path = folder.join(prefix);
    let fail = |error| io_error("list", &path)(error);
    let entries = match std::fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(fail(error)),
    };
    for entry in entries {
        let entry = entry.map_err(fail)?;
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(fail(error)),
        };
        let file_name = entry.file_name();
        let name =
            if prefix.is_empty() { file_name.to_string_lossy().into_owned() } else { format!("{prefix}/{}", file_name.to_string_lossy()) };
        if metadata.is_dir() {
            if name != STAGING {
                list_local(folder, &name, objects)?;
            }
        } else {
            objects.push(ObjectInfo { name, bytes: metadata.len() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
