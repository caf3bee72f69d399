//! Taking over what a checkpoint has for a point table, and going back to it: see [`before_images`](super::super::before_images).

use super::super::before_images::{Before, BeforeImages, Image};
use super::super::blocks::Loc;
use super::super::context::TableContext;
use super::super::left::Changed;
use super::super::resident::hash_key;
use super::super::{Kept, RestoreTable, StateTable};
use super::{DIRTY, LOGGED, PointTable, STORED, TOMBSTONE, UNFLUSHED};
use crate::error::Result;

impl PointTable {
    /// Notes what an entry is that is about to be changed, if that is to be known and has not been changed before.
    pub(super) fn note(&mut self, hash: u32, key: &[u8], found: Option<Loc>) {
        let Some(images) = &mut self.images else { return };
        let image = match found {
            None if self.cold.may_contain(hash) => Image::InStore,
            None => Image::Absent,
            Some(loc) => match self.resident.blocks().flags(loc) {
                flags if flags & DIRTY != 0 => return,
                flags if flags & TOMBSTONE != 0 => Image::Absent,
                _ => Image::Value(self.resident.blocks().value(loc)),
            },
        };
        images.note(&[key], image);
    }

    /// What has been changed behind a position of the changelog; see [`BeforeImages::behind`].
    pub(in super::super) fn changed_behind(&self, named: u64) -> Option<Changed> {
        self.images.as_ref()?.behind(named)
    }

    pub(in super::super) fn full_key_of(&self, key: &[u8], out: &mut Vec<u8>) {
        self.context.full_key(key, out);
    }

    /// Changes entries to what they were where another changelog begins.
    pub(in super::super) fn go_back(&mut self, changed: &Changed) {
        self.images = None;
        for (key, before) in changed {
            match before {
                Before::Value(value) => {
                    self.put(key, value);
                    // Even if it had been deleted meanwhile without a trace.
                    if let Some(loc) = self.resident.find(hash_key(key), key) {
                        self.set_flags(loc, STORED | LOGGED);
                    }
                }
                Before::Absent | Before::InStore => self.delete(key),
            }
        }
        self.images = Some(BeforeImages::put_back(self.context.task.store.undo().images(), changed));
    }

    /// The table in the place of another task.
    pub(in super::super) fn adopt(mut self, context: TableContext) -> Self {
        context.memory.resize(self.memory_bytes());
        self.context = context;
        self.sweep = None;
        self
    }
}

impl RestoreTable for PointTable {
    fn restore_stored(&mut self, key: &[u8], value: &[u8]) -> Result<Kept> {
        let hash = hash_key(key);
        if !self.context.has_room_to_restore() {
            self.cold.insert(hash);
            return Ok(Kept::InStore);
        }
        self.resident.insert(hash, key, value, 0, STORED | LOGGED);
        self.context.memory.resize(self.memory_bytes());
        Ok(Kept::InMemory)
    }

    fn give_up(&mut self) {
        self.cold.give_up();
    }

    fn restore_logged(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let hash = hash_key(key);
        let found = self.resident.find(hash, key);
        let stored = found.map_or(self.cold.may_contain(hash), |loc| self.resident.blocks().flags(loc) & STORED != 0);
        match (value, found) {
            (Some(value), Some(loc)) => {
                let moved = self.resident.set_value(loc, value);
                let flags = self.resident.blocks().flags(moved) & !TOMBSTONE;
                self.resident.blocks_mut().set_flags(moved, flags | UNFLUSHED | LOGGED);
            }
            (Some(value), None) => {
                let flags = UNFLUSHED | LOGGED | if stored { STORED } else { 0 };
                self.resident.insert(hash, key, value, 0, flags);
            }
            (None, Some(loc)) if !stored => self.resident.remove(loc),
            (None, None) if !stored => {}
            (None, found) => {
                let loc = found.unwrap_or_else(|| self.resident.insert(hash, key, &[], 0, 0));
                self.resident.blocks_mut().set_value_len(loc, 0);
                self.resident.blocks_mut().set_flags(loc, TOMBSTONE | UNFLUSHED | STORED | LOGGED);
                self.tombstones.push(self.resident.handle(loc));
            }
        }
        Ok(())
    }
}
