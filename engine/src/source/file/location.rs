//! What a file source's path means: one file, a folder, or a pattern, local or in an object store. A folder stands for all files below it
//! whose name ends as its format says; names that begin with `.` or `_` are never data (half-written files, manifests).

use std::path::PathBuf;

use super::{glob, input::file_error};
use crate::error::{EngineError, Result};

/// Where the files of a source are. Nothing is looked at yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The file system or object store, and the file or folder in it.
    pub(super) base: Base,
    /// Which files below the folder are meant, by their path from there.
    pub(super) pattern: Option<String>,
    /// Name endings, in lower case, that a folder without a pattern is searched for.
    pub(super) endings: &'static [&'static str],
}

/// A file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// On this machine, absolute.
    Local(PathBuf),
    /// In an object store.
    S3 {
        /// `s3://bucket`.
        bucket: String,
        /// Path in the bucket.
        path: String,
        /// Settings of the client.
        settings: Vec<(String, String)>,
    },
}

impl Location {
    /// Parses a path, a `file://` URL or an `s3://` URL, to which `settings` belong. A relative path is taken from the server's working
    /// directory, now.
    pub(super) fn parse(path: &str, endings: &'static [&'static str], settings: Vec<(String, String)>) -> Result<Self> {
        let (shown_base, pattern) = if glob::is_pattern(path) {
            let (base, pattern) = glob::split_base(path);
            (base, Some(pattern.to_owned()))
        } else {
            (path, None)
        };
        Ok(Self { base: Base::parse(shown_base, settings)?, pattern, endings })
    }

    /// The path or pattern, for messages.
    pub fn shown(&self) -> String {
        let base = self.base.shown();
        self.pattern.as_ref().map_or(base.clone(), |pattern| format!("{base}/{pattern}"))
    }

    /// Whether a file with this path below the folder is meant.
    pub(super) fn takes(&self, name: &str) -> bool {
        if name.split('/').any(|part| part.starts_with(['.', '_'])) {
            return false;
        }
        match &self.pattern {
            Some(pattern) => glob::matches(pattern, name),
            None => {
                let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
                ending.is_some_and(|ending| self.endings.contains(&ending.as_str()))
            }
        }
    }
}

impl Base {
    /// Parses a path or URL without wildcards.
    pub(crate) fn parse(path: &str, settings: Vec<(String, String)>) -> Result<Self> {
        let local = match path.split_once("://") {
            Some(("s3", rest)) => {
                let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
                return Ok(Base::S3 { bucket: format!("s3://{bucket}"), path: path.trim_end_matches('/').to_owned(), settings });
            }
            Some(("file", rest)) if rest.starts_with('/') => rest,
            Some((scheme, _)) => {
                return Err(EngineError::User {
                    sqlstate: "0A000",
                    message: format!("files at \"{scheme}://\" are not supported"),
                    hint: Some("Use a local path, a file:// URL or an s3:// URL.".into()),
                });
            }
            None => path,
        };
        if local.is_empty() {
            return Err(EngineError::user("22023", "invalid value for parameter \"path\": \"\""));
        }
        if let Some((name, _)) = settings.first() {
            return Err(EngineError::user("22023", format!("option \"s3.{name}\" needs an s3:// path")));
        }
        std::path::absolute(local).map(Base::Local).map_err(|error| file_error("resolve", local, &error))
    }

    /// The path or URL, for messages.
    pub(super) fn shown(&self) -> String {
        match self {
            Base::Local(path) => path.display().to_string(),
            Base::S3 { bucket, path, .. } => format!("{bucket}/{path}"),
        }
    }
}
