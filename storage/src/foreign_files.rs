//! Files that are not ours in an object store: what sources read and sinks write. Unlike [`crate::object`] nothing is added to their bytes.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::{
    ObjectStore, ObjectStoreExt, PutMode, PutOptions, RetryConfig, aws::AmazonS3Builder, local::LocalFileSystem, memory::InMemory,
    path::Path,
};

use crate::error::{Result, StorageError};

/// How often, and for how many seconds, a request is repeated.
const RETRIES: (usize, u64) = (6, 60);

/// A folder of files in an object store. Cloning shares it.
#[derive(Clone, Debug)]
pub struct ForeignFiles {
    store: Arc<dyn ObjectStore>,
    folder: String,
    shown: String,
}

/// A file in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignFile {
    /// Its path below the folder.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
}

impl ForeignFiles {
    /// Opens `s3://bucket/folder`. `settings` are those of the S3 client (`endpoint`, `region`, `access_key_id`, ...); what they do not say comes
    /// from the usual `AWS_*` environment variables.
    pub fn open_s3(url: &str, settings: &[(String, String)]) -> Result<Self> {
        let refused = |message: String| StorageError::ObjectStore { action: "open", object: url.to_owned(), message };
        let rest = url.strip_prefix("s3://").ok_or_else(|| refused("only s3:// URLs are supported".into()))?;
        let (bucket, folder) = rest.split_once('/').unwrap_or((rest, ""));
        let retry =
            RetryConfig { max_retries: RETRIES.0, retry_timeout: std::time::Duration::from_secs(RETRIES.1), ..RetryConfig::default() };
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry);
        let mut endpoint = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"].iter().find_map(|name| std::env::var(name).ok());
        for (name, value) in settings {
            if name == "endpoint" {
                endpoint = Some(value.clone());
                continue;
            }
            let key = name.parse().map_err(|_| refused(format!("the S3 client has no setting \"{name}\"")))?;
            builder = builder.with_config(key, value);
        }
        if let Some(endpoint) = endpoint {
            builder = builder.with_allow_http(endpoint.starts_with("http://")).with_endpoint(endpoint);
        }
        let store = builder.build().map_err(|error| refused(error.to_string()))?;
        Ok(Self { store: Arc::new(store), folder: folder.trim_matches('/').to_owned(), shown: format!("s3://{bucket}") })
    }

    /// A local folder behind the same interface, for tests.
    pub fn local(folder: &std::path::Path) -> Result<Self> {
        let shown = folder.display().to_string();
        let store = LocalFileSystem::new_with_prefix(folder).map_err(|error| StorageError::ObjectStore {
            action: "open",
            object: shown.clone(),
            message: error.to_string(),
        })?;
        Ok(Self { store: Arc::new(store), folder: String::new(), shown })
    }

    /// Files in memory, for tests.
    pub fn memory() -> Self {
        Self { store: Arc::new(InMemory::new()), folder: String::new(), shown: "memory:".into() }
    }

    /// A folder below this one.
    #[must_use]
    pub fn below(&self, folder: &str) -> Self {
        let joined = [self.folder.as_str(), folder.trim_matches('/')].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
        Self { folder: joined.join("/"), ..self.clone() }
    }

    /// The name by which a person finds a file.
    pub fn full_name(&self, name: &str) -> String {
        format!("{}/{}", self.shown, self.at(name))
    }

    fn at(&self, name: &str) -> Path {
        if self.folder.is_empty() { Path::from(name) } else { Path::from(format!("{}/{name}", self.folder)) }
    }

    fn failed(&self, action: &'static str, name: &str, error: &object_store::Error) -> StorageError {
        StorageError::ObjectStore { action, object: self.full_name(name), message: error.to_string() }
    }

    /// All files below the folder, by name.
    pub async fn list(&self) -> Result<Vec<ForeignFile>> {
        let prefix = (!self.folder.is_empty()).then(|| Path::from(self.folder.as_str()));
        let found: Vec<_> = self.store.list(prefix.as_ref()).try_collect().await.map_err(|error| self.failed("list", "", &error))?;
        let start = if self.folder.is_empty() { 0 } else { self.folder.len() + 1 };
        let named = found.into_iter().filter_map(|meta| Some((meta.location.as_ref().get(start..)?.to_owned(), meta.size)));
        let mut files: Vec<ForeignFile> = named.map(|(name, bytes)| ForeignFile { name, bytes }).collect();
        files.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(files)
    }

    /// Bytes of a file; `None` if there is none of that name.
    pub async fn length(&self, name: &str) -> Result<Option<u64>> {
        match self.store.head(&self.at(name)).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed("read", name, &error)),
        }
    }

    /// Reads a part of a file that exists.
    pub async fn read(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.store.get_range(&self.at(name), range).await.map_err(|error| self.failed("read", name, &error))
    }

    /// Writes a file, replacing one of the same name. Durable when it returns.
    pub async fn put(&self, name: &str, bytes: Bytes) -> Result<()> {
        self.store.put(&self.at(name), bytes.into()).await.map_err(|error| self.failed("write", name, &error))?;
        Ok(())
    }

    /// Writes a file unless there is one of that name with other contents, and says whether the file is ours.
    pub async fn put_create(&self, name: &str, bytes: Bytes) -> Result<bool> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.store.put_opts(&self.at(name), bytes.clone().into(), options).await {
            Ok(_) => Ok(true),
            // A repeated request may find what its first attempt wrote.
            Err(object_store::Error::AlreadyExists { .. }) => {
                let there = self.store.get(&self.at(name)).await.map_err(|error| self.failed("read", name, &error))?;
                Ok(there.bytes().await.map_err(|error| self.failed("read", name, &error))? == bytes)
            }
            Err(error) => Err(self.failed("create", name, &error)),
        }
    }

    /// Removes a file, if it is there.
    pub async fn delete(&self, name: &str) -> Result<()> {
        match self.store.delete(&self.at(name)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed("delete", name, &error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_come_back_as_they_were_written() {
        let files = ForeignFiles::memory().below("a/b/");
        files.put("x.csv", Bytes::from_static(b"0123456789")).await.unwrap();
        files.put("c/y.csv", Bytes::from_static(b"y")).await.unwrap();
        let listed = files.list().await.unwrap();
        assert_eq!(listed, [ForeignFile { name: "c/y.csv".into(), bytes: 1 }, ForeignFile { name: "x.csv".into(), bytes: 10 }]);
        assert_eq!(files.below("c").list().await.unwrap(), [ForeignFile { name: "y.csv".into(), bytes: 1 }]);
        assert_eq!(files.read("x.csv", 3..6).await.unwrap(), Bytes::from_static(b"345"));
        assert_eq!((files.length("x.csv").await.unwrap(), files.length("z").await.unwrap()), (Some(10), None));
        assert!(files.put_create("m", Bytes::from_static(b"1")).await.unwrap());
        assert!(files.put_create("m", Bytes::from_static(b"1")).await.unwrap());
        assert!(!files.put_create("m", Bytes::from_static(b"2")).await.unwrap());
        files.delete("m").await.unwrap();
        files.delete("m").await.unwrap();
        assert_eq!(files.full_name("x.csv"), "memory:/a/b/x.csv");
    }

    #[test]
    fn a_wrong_setting_is_named() {
        let wrong = ForeignFiles::open_s3("s3://bucket/x", &[("color".into(), "red".into())]).unwrap_err();
        assert!(wrong.to_string().contains("no setting \"color\""), "{wrong}");
        let settings = [("endpoint", "http://127.0.0.1:1"), ("region", "here"), ("access_key_id", "a"), ("secret_access_key", "b")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(ForeignFiles::open_s3("s3://bucket/x/", &settings).unwrap().full_name("y"), "s3://bucket/x/y");
    }
}
