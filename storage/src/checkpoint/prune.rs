//! Which manifest counts, and deleting what none that counts names.
//!
//! The newest manifest and the one before it are live. An object belongs to the term in its name; only a leader of that term or a later one
//! deletes it, so a leader whose time is over never deletes what its successor has just put. Where other machines can reach the objects,
//! each term leaves a mark that says from which manifest it started: what an older term puts later is never read.

use std::collections::BTreeSet;

use super::manifest::{Manifest, ManifestName};
use super::{Checkpointer, Progress};
use crate::error::{Result, StorageError};
use crate::object::Created;

const NO_MANIFEST: &str = "none";

/// The term in the name of an object (without the job's folder).
fn term_of(name: &str) -> Option<u64> {
    let leading = |text: &str| text.split(['-', '.']).next().and_then(|term| term.parse().ok());
    if let Some(content) = name.strip_prefix("mat/") {
        return leading(content);
    }
    if let Some(log) = name.strip_prefix("log/").or_else(|| name.strip_prefix("flight/")) {
        // <epoch>-<subtask>-<number>.<term>.<attempt>, <epoch>-<subtask>.<term>.<attempt>
        return log.split('.').nth(1).and_then(leading);
    }
    name.strip_prefix("manifest-").and_then(leading)
}

/// The term of a mark that a leader left when it started.
fn started_term(name: &str) -> Option<u64> {
    name.strip_prefix("term-")?.parse().ok()
}

impl Checkpointer {
    /// The manifest to restore: the highest number of the highest started term, or the one from which that term started.
    pub(super) async fn newest_manifest(&self) -> Result<Option<ManifestName>> {
        let folder = self.object("");
        let objects = self.objects.list(folder.trim_end_matches('/')).await?;
        let names = objects.iter().filter_map(|object| object.name.strip_prefix(&folder));
        let (mut manifests, mut terms) = (BTreeSet::new(), BTreeSet::new());
        for name in names {
            manifests.extend(name.parse::<ManifestName>());
            terms.extend(started_term(name));
        }
        if terms.range(self.term + 1..).next().is_some() || manifests.iter().any(|name| name.term > self.term) {
            return Err(StorageError::Fenced { job: self.job, term: self.term });
        }
        let newest = manifests.last().copied();
        match terms.last() {
            Some(term) if newest.is_none_or(|newest| newest.term < *term) => self.start_of(*term).await,
            _ => Ok(newest),
        }
    }

    /// The manifest from which a term started.
    async fn start_of(&self, term: u64) -> Result<Option<ManifestName>> {
        let mark = self.object(&format!("term-{term}"));
        let file = self.objects.full_name(&mark);
        let corrupt = |detail: &str| StorageError::Corrupt { file: file.clone(), detail: detail.into() };
        let bytes = self.objects.get(&mark).await?.ok_or_else(|| corrupt("the file is missing"))?;
        match std::str::from_utf8(&bytes) {
            Ok(NO_MANIFEST) => Ok(None),
            Ok(name) => name.parse().map(Some).map_err(|()| corrupt("it does not name a manifest")),
            Err(_) => Err(corrupt("it does not name a manifest")),
        }
    }

    /// Leaves the mark of this term, where there can be other leaders.
    pub(super) async fn start_term(&self, from: Option<ManifestName>) -> Result<()> {
        if !self.objects.is_shared() || from.is_some_and(|name| name.term == self.term) {
            return Ok(());
        }
        let mark = self.object(&format!("term-{}", self.term));
        let from = from.map_or(NO_MANIFEST.to_owned(), |name| name.to_string());
        match self.objects.put_create(&mark, from.as_bytes()).await? {
            Created::New | Created::Same => Ok(()),
            Created::Taken => Err(StorageError::Fenced { job: self.job, term: self.term }),
        }
    }

    /// Deletes what neither the newest manifest nor `previous` names. Failures are only noted: the next checkpoint tries again.
    pub(super) async fn prune(&self, progress: &Progress, previous: Option<Manifest>) {
        if let Err(error) = self.collect_garbage(progress, previous).await {
            tracing::warn!(job = self.job, %error, "old checkpoints could not be pruned; trying again with the next checkpoint");
        }
    }

    async fn collect_garbage(&self, progress: &Progress, previous: Option<Manifest>) -> Result<()> {
        let newest = progress.newest.as_ref().expect("a manifest was just written");
        let live: Vec<&Manifest> = previous.iter().chain([newest]).collect();
        let mut kept: BTreeSet<&str> = live.iter().flat_map(|manifest| manifest.objects()).map(|object| object.name.as_str()).collect();
        let manifests: Vec<String> = live.iter().map(|manifest| manifest.name.to_string()).collect();
        kept.extend(manifests.iter().map(String::as_str));
        let pending = progress.pending.iter().flat_map(|pending| &pending.image.files);
        kept.extend(pending.map(|file| file.object.name.as_str()));

        let folder = self.object("");
        let objects = self.objects.list(folder.trim_end_matches('/')).await?;
        let mut names: Vec<&str> = objects.iter().filter_map(|object| object.name.strip_prefix(&folder)).collect();
        let is_later = |name: &str| started_term(name).or(name.parse::<ManifestName>().ok().map(|name| name.term)) > Some(self.term);
        if names.iter().any(|name| is_later(name)) {
            return Err(StorageError::Fenced { job: self.job, term: self.term });
        }
        // Some files of an image that is being taken are there already; nobody names them yet.
        let is_imaging = progress.imaging.is_some();
        let is_of_image = |name: &str| is_imaging && name.starts_with("mat/");
        names.retain(|name| !kept.contains(name) && !is_of_image(name) && term_of(name).is_some_and(|term| term <= self.term));
        // Manifests first: none may name what is no longer there.
        names.sort_by_key(|name| !name.starts_with("manifest-"));
        self.objects.reach("prune::delete")?;
        for name in names {
            let (objects, name) = (self.objects.clone(), self.object(name));
            self.settling.to_its_end(async move { objects.delete(&name).await }).await?;
        }
        self.objects.reach("prune::local")?;
        if let Some(local) = self.local.as_ref().filter(|_| !is_imaging) {
            local.retain(&kept);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_term_is_in_every_name() {
        for (name, term) in [
            ("mat/12-00ff", Some(12)),
            ("log/900-1-7.12.3", Some(12)),
            ("flight/900-65537.12.3", Some(12)),
            ("manifest-12-900", Some(12)),
            ("term-12", None),
            ("log/x", None),
            ("other", None),
        ] {
            assert_eq!(term_of(name), term, "{name}");
        }
    }
}
