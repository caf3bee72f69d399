//! What became dirty, in that order, and when: so that changes reach the changelog at an age, and not all at once with a checkpoint.

use std::collections::VecDeque;

/// Entries in the order in which they became dirty.
pub(super) struct DirtyQueue<T> {
    entries: VecDeque<T>,
    /// Entries that have ever left the queue.
    left: u64,
    /// Moments, and how many entries had ever been in the queue by then.
    marks: VecDeque<(i64, u64)>,
}

impl<T> Default for DirtyQueue<T> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), left: 0, marks: VecDeque::new() }
    }
}

impl<T> DirtyQueue<T> {
    pub(super) fn push(&mut self, entry: T) {
        self.entries.push_back(entry);
    }

    fn ever(&self) -> u64 {
        self.left + self.entries.len() as u64
    }

    /// Notes the time, in microseconds, and takes out what has been dirty for at least `age_us` by the moments noted.
    pub(super) fn take_aged(&mut self, now_us: i64, age_us: i64) -> Vec<T> {
        let mut aged = self.left;
        while let Some((_, ever)) = self.marks.front().filter(|(time, _)| *time <= now_us.saturating_sub(age_us)) {
            aged = *ever;
            self.marks.pop_front();
        }
        let taken = self.take_first(aged.saturating_sub(self.left) as usize);
        if !self.entries.is_empty() && self.marks.back().is_none_or(|(_, ever)| *ever < self.ever()) {
            self.marks.push_back((now_us, self.ever()));
        }
        taken
    }

    /// Takes out the older half.
    pub(super) fn take_half(&mut self) -> Vec<T> {
        self.take_first(self.entries.len() / 2)
    }

    /// Takes out everything.
    pub(super) fn take_all(&mut self) -> Vec<T> {
        self.marks.clear();
        self.take_first(self.entries.len())
    }

    fn take_first(&mut self, count: usize) -> Vec<T> {
        self.left += count as u64;
        self.entries.drain(..count).collect()
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<T>() + self.marks.capacity() * size_of::<(i64, u64)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_leave_when_they_are_old_enough() {
        let mut queue = DirtyQueue::default();
        queue.push('a');
        assert!(queue.take_aged(100, 50).is_empty());
        queue.push('b');
        queue.push('c');
        assert!(queue.take_aged(120, 50).is_empty());
        assert_eq!(queue.take_aged(150, 50), ['a']);
        queue.push('d');
        assert_eq!(queue.take_aged(180, 50), ['b', 'c']);
        assert_eq!(queue.take_aged(1_000, 50), ['d']);
        assert!(queue.marks.is_empty());
    }

    #[test]
    fn what_was_taken_otherwise_is_not_taken_again() {
        let mut queue = DirtyQueue::default();
        (0..10).for_each(|entry| queue.push(entry));
        assert!(queue.take_aged(0, 50).is_empty());
        assert_eq!(queue.take_half(), [0, 1, 2, 3, 4]);
        queue.push(10);
        assert_eq!(queue.take_aged(60, 50), [5, 6, 7, 8, 9]);
        assert_eq!(queue.take_all(), [10]);
        queue.push(11);
        assert!(queue.take_aged(200, 50).is_empty());
        assert_eq!(queue.take_aged(260, 50), [11]);
    }
}
