//! Path patterns: `*` (any characters of one segment), `?` (one character), `[a-z]` and `[!a-z]` (one of a set), `**` (any number of
//! segments). A pattern matches a whole path, segment by segment.

/// Whether a path is a pattern.
pub(super) fn is_pattern(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

/// Splits a pattern into the folder above its first wildcard and the rest: `/data/2026-*/x.csv` is (`/data`, `2026-*/x.csv`).
pub(super) fn split_base(pattern: &str) -> (&str, &str) {
    let wildcard = pattern.find(['*', '?', '[']).unwrap_or(pattern.len());
    match pattern[..wildcard].rfind('/') {
        Some(0) => ("/", &pattern[1..]),
        Some(slash) => (&pattern[..slash], &pattern[slash + 1..]),
        None => (".", pattern),
    }
}

/// Whether `path` matches `pattern`.
pub(super) fn matches(pattern: &str, path: &str) -> bool {
    let pattern: Vec<&str> = pattern.split('/').collect();
    let path: Vec<&str> = path.split('/').collect();
    segments_match(&pattern, &path)
}

fn segments_match(pattern: &[&str], path: &[&str]) -> bool {
    match pattern.split_first() {
        None => path.is_empty(),
        Some((&"**", rest)) => (0..=path.len()).any(|skipped| segments_match(rest, &path[skipped..])),
        Some((first, rest)) => path.split_first().is_some_and(|(name, path)| {
            let (first, name): (Vec<char>, Vec<char>) = (first.chars().collect(), name.chars().collect());
            segment_matches(&first, &name) && segments_match(rest, path)
        }),
    }
}

/// The usual two-pointer match: a star takes one more character each time what follows it does not fit.
fn segment_matches(pattern: &[char], name: &[char]) -> bool {
    let (mut at, mut read) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while read < name.len() {
        let step = if pattern.get(at) == Some(&'*') {
            star = Some((at, read));
            at += 1;
            continue;
        } else {
            one_matches(&pattern[at.min(pattern.len())..], name[read])
        };
        match (step, star) {
            (Some(length), _) => {
                at += length;
                read += 1;
            }
            (None, Some((star_at, star_read))) => {
                star = Some((star_at, star_read + 1));
                at = star_at + 1;
                read = star_read + 1;
            }
            (None, None) => return false,
        }
    }
    pattern[at..].iter().all(|character| *character == '*')
}

/// The length of the pattern's first element if it takes `character`.
fn one_matches(pattern: &[char], character: char) -> Option<usize> {
    match pattern.first()? {
        '?' => Some(1),
        '[' => {
            let Some(close) = pattern.iter().skip(2).position(|part| *part == ']').map(|at| at + 2) else {
                return (character == '[').then_some(1);
            };
            let negated = pattern[1] == '!';
            let set = &pattern[1 + usize::from(negated)..close];
            let mut found = false;
            let mut at = 0;
            while at < set.len() {
                if at + 2 < set.len() && set[at + 1] == '-' {
                    found |= (set[at]..=set[at + 2]).contains(&character);
                    at += 3;
                } else {
                    found |= set[at] == character;
                    at += 1;
                }
            }
            (found != negated).then_some(close + 1)
        }
        literal => (*literal == character).then_some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, path, expected) in [
            ("*.csv", "a.csv", true),
            ("*.csv", "a/b.csv", false),
            ("**/*.csv", "a/b/c.csv", true),
            ("**/*.csv", "c.csv", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("?.csv", "ab.csv", false),
            ("[0-9][!a].csv", "1b.csv", true),
            ("[0-9][!a].csv", "1a.csv", false),
            ("*", "", true),
            ("day-[12]/x", "day-2/x", true),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
        assert_eq!(split_base("/data/2026-*/x.csv"), ("/data", "2026-*/x.csv"));
        assert_eq!(split_base("*.csv"), (".", "*.csv"));
        assert_eq!(split_base("/*.csv"), ("/", "*.csv"));
    }
}
