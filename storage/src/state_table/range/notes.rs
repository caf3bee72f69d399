//! What a range table's entries were before they were changed: see [`before_images`](super::super::before_images). Keys are as in full keys.

use std::borrow::Cow;

use super::super::before_images::{Before, BeforeImages, Image};
use super::super::context::{KEY_PREFIX_BYTES, TableContext};
use super::super::left::Changed;
use super::super::packed::{self, DIRTY, LOGGED, PackedEntry, STORED, UNFLUSHED};
use super::read::Group;
use super::{Mark, RangeTable, StateTable};
use crate::error::Result;
use crate::state_changelog::put_varint;

/// Changelog and store know of the entry, even if it had been deleted meanwhile without a trace.
const PUT_BACK: Mark = Mark { change: DIRTY | UNFLUSHED | STORED | LOGGED, absent: STORED | LOGGED };

/// What a key begins with under a prefix.
fn key_of(prefix: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(prefix.len() + 1);
    put_varint(&mut key, prefix.len() as u64);
    key.extend_from_slice(prefix);
    key
}

/// What an entry in memory is; `None` if it is dirty.
fn image_of(entry: PackedEntry<'_>) -> Option<Image<'_>> {
    let image = if entry.is_live() { Image::Value(entry.value) } else { Image::Absent };
    (entry.flags & DIRTY == 0).then_some(image)
}

impl RangeTable {
    /// An entry is about to be changed.
    pub(super) fn note(&mut self, prefix: &[u8], suffix: &[u8]) {
        let Some(mut images) = self.images.take() else { return };
        let (list, complete) = match self.group(prefix) {
            Group::Absent => (Cow::Borrowed(&[][..]), true),
            Group::List(list, complete) => (list, complete),
            Group::Large(group) => {
                let segment = group.segment_of(suffix).1;
                (Cow::Borrowed(segment.list.as_slice()), segment.complete)
            }
        };
        let image = match packed::find(&list, suffix) {
            Ok(entry) => image_of(entry),
            Err(_) if complete => Some(Image::Absent),
            Err(_) => Some(Image::InStore),
        };
        if let Some(image) = image {
            images.note(&[&key_of(prefix), suffix], image);
        }
        self.images = Some(images);
    }

    /// All entries of a group are about to be deleted; of those in the store only, [`note_stored`](Self::note_stored) follows.
    pub(super) fn note_group(&mut self, prefix: &[u8]) {
        let Some(mut images) = self.images.take() else { return };
        let key = key_of(prefix);
        let mut note = |list: &[u8]| {
            for entry in packed::entries(list) {
                if let Some(image) = image_of(entry) {
                    images.note(&[&key, entry.suffix], image);
                }
            }
        };
        match self.group(prefix) {
            Group::Absent => {}
            Group::List(list, _) => note(&list),
            Group::Large(group) => group.segments.values().for_each(|segment| note(&segment.list)),
        }
        self.images = Some(images);
    }

    /// Entries of the store are about to be deleted. What memory had of them has been noted, and counts.
    pub(super) fn note_stored(&mut self, full_keys: &[Vec<u8>]) {
        if let Some(images) = &mut self.images {
            full_keys.iter().for_each(|key| images.note(&[&key[KEY_PREFIX_BYTES..]], Image::InStore));
        }
    }

    /// What has been changed behind a position of the changelog; see [`BeforeImages::behind`].
    pub(in super::super) fn changed_behind(&self, named: u64) -> Option<Changed> {
        self.images.as_ref()?.behind(named)
    }

    pub(in super::super) fn full_key_of(&self, key: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let (prefix, suffix) = self.parts(key)?;
        self.context.full_prefix(prefix, out);
        out.extend_from_slice(suffix);
        Ok(())
    }

    /// Changes entries to what they were where another changelog begins.
    pub(in super::super) fn go_back(&mut self, changed: &Changed) -> Result<()> {
        self.images = None;
        for (key, before) in changed {
            let (prefix, suffix) = self.parts(key)?;
            match before {
                Before::Value(value) => self.set(prefix, suffix, value, PUT_BACK),
                Before::Absent | Before::InStore => self.delete(prefix, suffix),
            }
        }
        self.images = Some(BeforeImages::put_back(self.context.task.store.undo().images(), changed));
        Ok(())
    }

    /// The table in the place of another task.
    pub(in super::super) fn adopt(mut self, context: TableContext) -> Self {
        context.memory.resize(self.memory_bytes());
        self.context = context;
        self.sweep = None;
        self
    }
}
