//! What one transaction of a file sink committed: a JSON document whose last member is a checksum over the text before it.

use serde::{Deserialize, Serialize};

use crate::error::{EngineError, Result};

/// Format version of manifests.
const VERSION: u32 = 1;

/// One committed transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    /// The epoch reached.
    pub epoch: u64,
    /// The epoch reached before.
    pub previous: u64,
    /// The files it added.
    pub files: Vec<DataFile>,
}

/// One data file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DataFile {
    /// Its name in the sink's folder.
    pub name: String,
    /// Rows in it.
    pub rows: u64,
    /// Bytes of it.
    pub bytes: u64,
}

/// The manifest as it is written.
#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    epoch: u64,
    previous: u64,
    files: Vec<DataFile>,
    #[serde(default)]
    checksum: String,
}

const CHECKSUM: &str = ",\"checksum\":\"";

impl Manifest {
    /// The text of the manifest.
    pub(super) fn to_text(&self) -> Result<String> {
        let stored =
            Stored { version: VERSION, epoch: self.epoch, previous: self.previous, files: self.files.clone(), checksum: String::new() };
        let text =
            serde_json::to_string(&stored).map_err(|error| EngineError::Internal(format!("a manifest cannot be written: {error}")))?;
        let body = &text[..text.rfind(CHECKSUM).unwrap_or(text.len())];
        Ok(format!("{body}{CHECKSUM}{:08x}\"}}\n", crc32fast::hash(body.as_bytes())))
    }

    /// Reads the text of manifest `file` back.
    ///
    /// # Errors
    /// XX001 naming the file if it is not what was written.
    pub(super) fn from_text(file: &str, text: &str) -> Result<Self> {
        let corrupt = |detail: String| EngineError::user("XX001", format!("sink manifest \"{file}\" is corrupt: {detail}"));
        let stored: Stored = serde_json::from_str(text).map_err(|error| corrupt(error.to_string()))?;
        let body = &text[..text.rfind(CHECKSUM).ok_or_else(|| corrupt("it has no checksum".into()))?];
        if stored.checksum != format!("{:08x}", crc32fast::hash(body.as_bytes())) {
            return Err(corrupt("its checksum does not match".into()));
        }
        if stored.version != VERSION {
            return Err(corrupt(format!("version {} is not known", stored.version)));
        }
        Ok(Self { epoch: stored.epoch, previous: stored.previous, files: stored.files })
    }
}
