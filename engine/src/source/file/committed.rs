//! Which files in the folder of a file sink are committed. A sink writes data files under their final names and commits them by a manifest; until
//! then its restart may remove them, so that a source must not see them. A manifest of an epoch commits all data files of that epoch and those
//! before it.

use std::{collections::BTreeMap, io::ErrorKind, path::Path};

use super::input::file_error;
use crate::error::Result;

/// Where manifests lie in a sink's folder.
pub(crate) const MANIFEST_FOLDER: &str = "_manifest";

/// The epoch in the name of a sink's data file, `<epoch>-<number>.<format>` with twenty digits; `None` if it is none.
pub(crate) fn data_epoch(name: &str) -> Option<u64> {
    let (epoch, _) = name.split_once('-')?;
    if epoch.len() == 20 { epoch.parse().ok() } else { None }
}

/// The epoch in the name of a manifest, `<epoch>.json`; `None` if it is none.
pub(crate) fn manifest_epoch(name: &str) -> Option<u64> {
    name.strip_suffix(".json")?.parse().ok()
}

/// The newest committed epoch of a local folder, 0 before the first; `None` if no sink writes there. What is committed is listed before the data
/// files, so that those that are taken are whole.
pub(super) fn newest_local(folder: &Path) -> Result<Option<u64>> {
    let manifests = folder.join(MANIFEST_FOLDER);
    let failed = |error: std::io::Error| file_error("open", &manifests.display().to_string(), &error);
    let entries = match std::fs::read_dir(&manifests) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut newest = 0;
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        newest = newest.max(manifest_epoch(&name.to_string_lossy()).unwrap_or(0));
    }
    Ok(Some(newest))
}

/// The newest committed epoch of every sink's folder among listed names, by its path with the `/` behind it.
pub(super) fn newest_listed<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, u64> {
    let mut newest = BTreeMap::new();
    for name in names {
        let (path, last) = split_name(name);
        let folder = path.strip_suffix('/').and_then(|path| path.strip_suffix(MANIFEST_FOLDER));
        if let Some(folder) = folder.filter(|folder| folder.is_empty() || folder.ends_with('/')) {
            let reached: &mut u64 = newest.entry(folder).or_default();
            *reached = (*reached).max(manifest_epoch(last).unwrap_or(0));
        }
    }
    newest
}

/// Whether a listed file is committed, or no sink's.
pub(super) fn is_committed(newest: &BTreeMap<&str, u64>, name: &str) -> bool {
    let (folder, last) = split_name(name);
    newest.get(folder).is_none_or(|reached| data_epoch(last).is_none_or(|epoch| epoch <= *reached))
}

/// A path with the last `/`, and the name behind it.
fn split_name(name: &str) -> (&str, &str) {
    name.split_at(name.rfind('/').map_or(0, |slash| slash + 1))
}
