//! All matches of a pattern in a text, as Postgres finds them: the search goes on where the last match ended, so that an empty match may follow
//! directly behind it, which Rust's iterators leave out.

use regex::{Captures, Regex};

/// The matches from byte `from` on, in their order.
pub(super) fn matches<'r, 't>(regex: &'r Regex, text: &'t str, from: usize) -> impl Iterator<Item = Captures<'t>> + use<'r, 't> {
    let mut next = Some(from);
    std::iter::from_fn(move || {
        let captures = regex.captures_at(text, next?)?;
        let found = captures.get(0)?;
        next = if found.is_empty() {
            // The character behind it has been looked at.
            text[found.end()..].chars().next().map(|character| found.end() + character.len_utf8())
        } else {
            Some(found.end())
        };
        Some(captures)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_matches_follow_others() {
        let found = |pattern: &str, text: &str, from: usize| -> Vec<(usize, usize)> {
            let regex = Regex::new(pattern).unwrap();
            matches(&regex, text, from).map(|captures| captures.get(0).unwrap()).map(|found| (found.start(), found.end())).collect()
        };
        assert_eq!(found("a*", "aaa", 0), [(0, 3), (3, 3)]);
        assert_eq!(found("a*", "baac", 0), [(0, 0), (1, 3), (3, 3), (4, 4)]);
        assert_eq!(found("", "äb", 0), [(0, 0), (2, 2), (3, 3)]);
        assert_eq!(found("b", "äb", 0), [(2, 3)]);
        assert_eq!(found("^a", "aa", 1), []);
        assert_eq!(found("x*", "", 0), [(0, 0)]);
    }
}
