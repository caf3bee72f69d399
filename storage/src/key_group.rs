//! Key groups: the unit in which keyed state is assigned to subtasks. A job has 256 of them for ever; a subtask owns a contiguous range.
//!
//! The group of a key is a function of the key codec's bytes alone (version 1: the low eight bits of XXH3-64 with seed 0). Changing
//! it would orphan every state table, so a change means a new version next to this one.

use std::ops::Range;

use twox_hash::XxHash3_64;

/// Key groups of a job. Fixed: it bounds the parallelism of a job.
pub const KEY_GROUPS: u16 = 256;

/// The key group of an encoded distribution key.
pub fn key_group(encoded_key: &[u8]) -> u16 {
    (XxHash3_64::oneshot(encoded_key) % u64::from(KEY_GROUPS)) as u16
}

/// The key groups that belong to `subtask` of `parallelism`. The ranges of all subtasks cover every group once, in order.
///
/// # Panics
/// If `subtask` is not below `parallelism`, or `parallelism` is above [`KEY_GROUPS`].
pub fn key_group_range(subtask: usize, parallelism: usize) -> Range<u16> {
    assert!(subtask < parallelism && parallelism <= usize::from(KEY_GROUPS), "subtask {subtask} of {parallelism}");
    let start = |index: usize| (index * usize::from(KEY_GROUPS)).div_ceil(parallelism) as u16;
    start(subtask)..start(subtask + 1)
}

/// The subtask of `parallelism` that owns `group`.
pub fn subtask_of(group: u16, parallelism: usize) -> usize {
    usize::from(group) * parallelism / usize::from(KEY_GROUPS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_every_group_once_and_agree_with_subtask_of() {
        for parallelism in 1..=usize::from(KEY_GROUPS) {
            let mut next = 0;
            for subtask in 0..parallelism {
                let range = key_group_range(subtask, parallelism);
                assert_eq!(range.start, next);
                assert!(!range.is_empty());
                assert!(range.clone().all(|group| subtask_of(group, parallelism) == subtask));
                next = range.end;
            }
            assert_eq!(next, KEY_GROUPS);
        }
    }

    #[test]
    fn the_hash_is_the_one_that_stored_state_was_written_with() {
        assert_eq!([&b""[..], b"a", b"millpond"].map(key_group), [194, 31, 219]);
    }
}
