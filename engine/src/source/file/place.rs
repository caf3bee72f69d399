//! The files that a location means, found and opened. Listing and opening may block.

use std::path::{Path, PathBuf};

use millpond_storage::foreign_files::ForeignFiles;

use super::{
    committed::{self, MANIFEST_FOLDER, data_epoch},
    input::{InputFile, file_error},
    location::{Base, Location},
};
use crate::error::{EngineError, Result};

/// Files a source may have.
const MAX_FILES: usize = 1_000_000;

/// Folders below each other that are followed.
const MAX_DEPTH: usize = 32;

/// A location with the client that reaches it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    location: Location,
    /// The bucket, if the location is in an object store, and the path in it.
    remote: Option<(ForeignFiles, String)>,
}

/// A file found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Stable name: the path below the folder, or the whole path of a single file.
    pub id: String,
    /// Bytes it has.
    pub length: u64,
}

impl Place {
    /// Makes the client, if one is needed.
    pub(super) fn new(location: Location) -> Result<Self> {
        let remote = match &location.base {
            Base::Local(_) => None,
            Base::S3 { bucket, path, settings } => Some((ForeignFiles::open_s3(bucket, settings)?, path.clone())),
        };
        Ok(Self { location, remote })
    }

    /// Files of a store that the caller opened.
    #[cfg(test)]
    pub(super) fn with_store(location: Location, files: ForeignFiles, path: &str) -> Self {
        Self { location, remote: Some((files, path.to_owned())) }
    }

    /// Whether files lie in an object store.
    pub(super) fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// The path or pattern, for messages.
    pub(super) fn shown(&self) -> String {
        self.location.shown()
    }

    /// The files that exist, by name. An error if a file or folder that was named outright does not exist.
    pub(super) async fn list(&self) -> Result<Vec<Found>> {
        let Some((files, path)) = &self.remote else {
            let location = self.location.clone();
            return super::blocking(move || list_local(&location)).await;
        };
        let single = if self.location.pattern.is_none() { files.length(path).await? } else { None };
        if let Some(length) = single {
            return Ok(vec![Found { id: self.shown(), length }]);
        }
        let folder = files.below(path);
        let first = folder.list().await?;
        let newest = committed::newest_listed(first.iter().map(|file| file.name.as_str()));
        // Data files are listed anew, when it is known what is committed: one that was listed before may have been replaced meanwhile.
        let anew = if newest.is_empty() { None } else { Some(folder.list().await?) };
        let found: Vec<Found> = anew
            .as_ref()
            .unwrap_or(&first)
            .iter()
            .filter(|file| self.location.takes(&file.name) && committed::is_committed(&newest, &file.name))
            .map(|file| Found { id: file.name.clone(), length: file.bytes })
            .collect();
        if found.len() > MAX_FILES { Err(too_many(&self.shown())) } else { Ok(found) }
    }

    /// Opens the file with this id. Must be called on a thread that may block.
    pub(super) fn open(&self, id: &str) -> Result<InputFile> {
        match (&self.remote, &self.location.base) {
            (Some((files, path)), _) if id == self.shown() => InputFile::open_remote(files.clone(), path),
            (Some((files, path)), _) => InputFile::open_remote(files.below(path), id),
            // The id of a single file is its whole path, which `join` takes as it is.
            (None, Base::Local(path)) => InputFile::open_local(&path.join(id)),
            (None, Base::S3 { .. }) => Err(EngineError::Internal("a file store was not opened".into())),
        }
    }

    /// The name by which a person finds the file with this id.
    pub(super) fn full_name(&self, id: &str) -> String {
        match &self.location.base {
            Base::Local(path) => path.join(id).display().to_string(),
            Base::S3 { .. } if id == self.shown() => id.to_owned(),
            base @ Base::S3 { .. } => format!("{}/{id}", base.shown()),
        }
    }
}

fn too_many(shown: &str) -> EngineError {
    EngineError::user("54000", format!("\"{shown}\" has more than {MAX_FILES} files"))
}

fn list_local(location: &Location) -> Result<Vec<Found>> {
    let Base::Local(path) = &location.base else { return Err(EngineError::Internal("not a local path".into())) };
    let metadata = std::fs::metadata(path).map_err(|error| file_error("open", &location.shown(), &error))?;
    if location.pattern.is_none() && !metadata.is_dir() {
        return Ok(vec![Found { id: location.shown(), length: metadata.len() }]);
    }
    let mut found = Vec::new();
    walk(location, path, "", 0, &mut found)?;
    found.sort_by(|left, right| left.id.cmp(&right.id));
    Ok(found)
}

/// Collects the files below a folder, with their path from the top.
fn walk(location: &Location, folder: &Path, prefix: &str, depth: usize, found: &mut Vec<Found>) -> Result<()> {
    let shown = folder.display().to_string();
    let failed = |error: std::io::Error| file_error("open", &shown, &error);
    let newest = committed::newest_local(folder)?;
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(['.', '_']) {
            continue;
        }
        let is_uncommitted = |epoch| match newest {
            Some(newest) => epoch > newest,
            // A sink may have begun meanwhile.
            None => folder.join(MANIFEST_FOLDER).is_dir(),
        };
        if data_epoch(&name).is_some_and(is_uncommitted) {
            continue;
        }
        let path: PathBuf = entry.path();
        // A file that goes away meanwhile was never there.
        let Ok(metadata) = std::fs::metadata(&path) else { continue };
        let id = format!("{prefix}{name}");
        if metadata.is_dir() {
            if depth < MAX_DEPTH {
                walk(location, &path, &format!("{id}/"), depth + 1, found)?;
            }
        } else if location.takes(&id) {
            if found.len() >= MAX_FILES {
                return Err(too_many(&location.shown()));
            }
            found.push(Found { id, length: metadata.len() });
        }
    }
    Ok(())
}
