//! The first rows of a partition as one byte string: entries in ascending order of their sort key. An entry is
//! `length of key, copies, length of the exact form` (LEB128 each), the sort key, and the exact form (empty where the key says it all).

use crate::operator::multiplicity::{read_number, write_number};

/// One row of a list, with its multiplicity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry<'a> {
    /// Order columns, then all others but the partition's, as a sort key.
    pub key: &'a [u8],
    /// How often the row is there.
    pub copies: u64,
    /// Columns whose values the key does not keep exactly; empty if it does.
    pub exact: &'a [u8],
}

impl Entry<'_> {
    /// Appends the entry to a list.
    pub(super) fn write(&self, list: &mut Vec<u8>) {
        write_number(self.key.len() as u64, list);
        write_number(self.copies, list);
        write_number(self.exact.len() as u64, list);
        list.extend_from_slice(self.key);
        list.extend_from_slice(self.exact);
    }
}

/// The entries of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entries<'a> {
    rest: &'a [u8],
}

/// The entries of `list`, which was written by [`Entry::write`].
pub(super) fn entries(list: &[u8]) -> Entries<'_> {
    Entries { rest: list }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        let key_bytes = read_number(&mut self.rest)? as usize;
        let copies = read_number(&mut self.rest)?;
        let exact_bytes = read_number(&mut self.rest)? as usize;
        let (key, rest) = self.rest.split_at_checked(key_bytes)?;
        let (exact, rest) = rest.split_at_checked(exact_bytes)?;
        self.rest = rest;
        Some(Entry { key, copies, exact })
    }
}

/// Inserts one copy of a row into a list that holds at most `room` rows, dropping the last if it is full: `out` becomes the new list.
/// `false` if the row has no place in it; then `out` is undefined.
pub(super) fn insert(list: &[u8], key: &[u8], exact: &[u8], room: u64, out: &mut Vec<u8>) -> bool {
    out.clear();
    let mut rows = 0;
    let mut inserted = false;
    for entry in entries(list) {
        if rows >= room {
            break;
        }
        if !inserted && entry.key >= key {
            inserted = true;
            if entry.key == key {
                let copies = (entry.copies + 1).min(room - rows);
                if copies == entry.copies {
                    return false;
                }
                Entry { copies, ..entry }.write(out);
                rows += copies;
                continue;
            }
            Entry { key, copies: 1, exact }.write(out);
            rows += 1;
        }
        let copies = entry.copies.min(room - rows);
        if copies > 0 {
            Entry { copies, ..entry }.write(out);
            rows += copies;
        }
    }
    if !inserted {
        if rows >= room {
            return false;
        }
        Entry { key, copies: 1, exact }.write(out);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(list: &[u8]) -> String {
        entries(list).map(|entry| format!("{}x{}", String::from_utf8_lossy(entry.key), entry.copies)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn lists_keep_their_first_rows() {
        let (mut list, mut out) = (Vec::new(), Vec::new());
        for (key, expected) in [
            ("c", Some("cx1")),
            ("a", Some("ax1 cx1")),
            ("c", Some("ax1 cx2")),
            ("d", None),
            ("c", None),
            ("b", Some("ax1 bx1 cx1")),
            ("a", Some("ax2 bx1")),
            ("a", Some("ax3")),
            ("a", None),
            ("b", None),
        ] {
            let inserted = insert(&list, key.as_bytes(), b"", 3, &mut out);
            assert_eq!(inserted.then(|| text(&out)).as_deref(), expected, "{key}");
            if inserted {
                std::mem::swap(&mut list, &mut out);
            }
        }
    }
}
