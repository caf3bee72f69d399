//! Taking over what a checkpoint has for a range table.

use super::super::packed::{LOGGED, STORED, UNFLUSHED};
use super::super::resident::hash_key;
use super::super::{Kept, RestoreTable};
use super::{LARGE, Mark, RangeTable, Segment, StateTable};
use crate::error::{Result, StorageError};
use crate::state_changelog::take_varint;

/// Takes a full key without key group and table apart.
pub(super) fn split_key(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = key;
    let len = usize::try_from(take_varint(&mut rest)?).ok()?;
    rest.split_at_checked(len)
}

impl RangeTable {
    pub(super) fn parts<'a>(&self, key: &'a [u8]) -> Result<(&'a [u8], &'a [u8])> {
        split_key(key).ok_or_else(|| StorageError::Corrupt {
            file: format!("state table {}", self.context.id),
            detail: "a key is shorter than its own length says".into(),
        })
    }

    /// Notes that an entry of the store stays there. Once it has happened to one, it happens to all: a group is never left with a hole.
    fn refuse_stored(&mut self, prefix: &[u8], suffix: &[u8]) {
        if self.restore_refused.as_deref() == Some(prefix) {
            return;
        }
        self.restore_refused = Some(prefix.into());
        let hash = hash_key(prefix);
        let Some(loc) = self.groups.find(hash, prefix) else {
            return self.cold.insert(hash);
        };
        let loc = if self.groups.blocks().flags(loc) & LARGE != 0 { loc } else { self.promote(loc) };
        let id = self.large_id(loc);
        self.with_large(id, |group| {
            group.insert(suffix.into(), Segment::new(false));
            group.len = None;
        });
    }
}

impl RestoreTable for RangeTable {
    fn restore_stored(&mut self, key: &[u8], value: &[u8]) -> Result<Kept> {
        let (prefix, suffix) = self.parts(key)?;
        if self.restore_refused.is_some() || !self.context.has_room_to_restore() {
            self.refuse_stored(prefix, suffix);
            return Ok(Kept::InStore);
        }
        self.set(prefix, suffix, value, Mark { change: 0, absent: STORED | LOGGED });
        self.context.memory.resize(self.memory_bytes());
        Ok(Kept::InMemory)
    }

    fn give_up(&mut self) {
        self.cold.give_up();
    }

    fn restore_logged(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let (prefix, suffix) = self.parts(key)?;
        match value {
            Some(value) => self.set(prefix, suffix, value, Mark { change: UNFLUSHED | LOGGED, absent: 0 }),
            None => self.unset(prefix, suffix, false),
        }
        Ok(())
    }
}
