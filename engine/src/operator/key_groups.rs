//! State that belongs to a key group and not to a key: it needs a key of its own in every group that the subtask owns, so that it moves
//! with the group when the job is rescaled.

use std::ops::Range;

use millpond_storage::key_group::key_group;

/// For each of some key groups the smallest number whose bytes hash into it.
pub(crate) struct GroupKeys {
    groups: Range<u16>,
    keys: Vec<[u8; 4]>,
}

impl GroupKeys {
    /// Keys for the groups of a subtask.
    pub(crate) fn new(groups: Range<u16>) -> Self {
        let mut keys: Vec<Option<[u8; 4]>> = vec![None; groups.len()];
        let mut missing = keys.len();
        for bytes in (0u32..).map(u32::to_be_bytes) {
            if missing == 0 {
                break;
            }
            let group = key_group(&bytes);
            if groups.contains(&group) {
                let key = &mut keys[usize::from(group - groups.start)];
                missing -= usize::from(key.is_none());
                key.get_or_insert(bytes);
            }
        }
        Self { groups, keys: keys.into_iter().flatten().collect() }
    }

    /// Place, among the owned groups, of the group that a distribution key belongs to.
    pub(crate) fn place_of(&self, distribution_key: &[u8]) -> usize {
        usize::from(key_group(distribution_key).saturating_sub(self.groups.start)).min(self.keys.len().saturating_sub(1))
    }

    /// The keys, by place.
    pub(crate) fn keys(&self) -> &[[u8; 4]] {
        &self.keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_owned_group_has_a_key_that_hashes_into_it() {
        for groups in [0..256, 10..13, 255..256] {
            let keys = GroupKeys::new(groups.clone());
            let found: Vec<u16> = keys.keys().iter().map(|key| key_group(key)).collect();
            assert_eq!(found, groups.collect::<Vec<_>>());
            for (place, key) in keys.keys().iter().enumerate() {
                assert_eq!(keys.place_of(key), place);
            }
        }
    }
}
