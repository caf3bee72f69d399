//! `/*+ LEADING(a b c) ROWS(t 1000) */`: what a statement's text says about its plan, against the estimates.

use crate::parse::hint_comments;

/// Most hints that one statement may have; the rest is left out.
const MAX_HINTS: usize = 64;

/// The hints of a statement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hints {
    /// Relations that are joined first, one after the other, each list in its own join graph.
    leading: Vec<Vec<String>>,
    /// Rows that relations have.
    rows: Vec<(String, f64)>,
    /// What was not understood.
    unknown: Vec<String>,
}

impl Hints {
    /// The hints in the comments of a statement, which begin with a plus sign. Cheap for a text without any.
    pub fn in_text(sql: &str) -> Self {
        let mut hints = Self::default();
        for comment in hint_comments(sql) {
            hints.read(&comment);
        }
        hints
    }

    fn read(&mut self, text: &str) {
        let mut rest = text.trim();
        while !rest.is_empty() && self.len() < MAX_HINTS {
            let Some((name, after)) = rest.split_once('(') else { break };
            let Some((arguments, after)) = after.split_once(')') else { break };
            self.add(name.trim(), arguments);
            rest = after.trim_start();
        }
        if !rest.is_empty() {
            self.unknown.push(rest.to_owned());
        }
    }

    fn add(&mut self, name: &str, arguments: &str) {
        let words: Vec<String> =
            arguments.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty()).map(identifier).collect();
        match (name.to_ascii_uppercase().as_str(), words.as_slice()) {
            ("LEADING", [_, _, ..]) => self.leading.push(words),
            ("ROWS", [relation, rows]) if rows.parse::<f64>().is_ok_and(|rows| rows.is_finite() && rows >= 0.0) => {
                self.rows.push((relation.clone(), rows.parse().unwrap_or_default()));
            }
            _ => self.unknown.push(format!("{name}({})", arguments.trim())),
        }
    }

    fn len(&self) -> usize {
        self.leading.len() + self.rows.len() + self.unknown.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rows that a relation is said to have.
    pub(crate) fn rows(&self, relation: &str) -> Option<f64> {
        self.rows.iter().find(|(name, _)| name == relation).map(|(_, rows)| *rows)
    }

    /// The relations that are to be joined first, if there is a list all of whose relations `number` knows.
    pub(crate) fn leading(&self, number: &dyn Fn(&str) -> Option<usize>) -> Option<Vec<usize>> {
        let lists = self.leading.iter().map(|list| list.iter().map(|name| number(name)).collect::<Option<Vec<_>>>());
        let distinct = |list: &Vec<usize>| (1..list.len()).all(|at| !list[..at].contains(&list[at]));
        lists.flatten().find(distinct)
    }

    /// What EXPLAIN says of hints that were not understood.
    pub(crate) fn unknown(&self) -> impl Iterator<Item = &str> {
        self.unknown.iter().map(String::as_str)
    }
}

/// A name as an identifier: lower case, unless it is quoted.
fn identifier(word: &str) -> String {
    match word.strip_prefix('"').and_then(|word| word.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => word.to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_comments_with_a_plus_sign() {
        let hints = Hints::in_text("SELECT /*+ LEADING(A b, \"C\") rows(t 1000) NONSENSE(x) */ 1 /* ROWS(u 5) */, '/*+ ROWS(v 7) */'");
        assert_eq!(hints.leading(&|name| ["C", "a", "b"].iter().position(|known| *known == name)), Some(vec![1, 2, 0]));
        assert_eq!(hints.leading(&|name| (name == "a").then_some(0)), None);
        assert_eq!((hints.rows("t"), hints.rows("u"), hints.rows("v")), (Some(1000.0), None, None));
        assert_eq!(hints.unknown().collect::<Vec<_>>(), ["NONSENSE(x)"]);
        assert!(Hints::in_text("SELECT 1 /* LEADING(a b) */").is_empty());
    }

    #[test]
    fn what_is_no_hint_is_told() {
        for text in ["LEADING(a)", "ROWS(t many)", "ROWS(t -1)", "ROWS", "LEADING(a b"] {
            let hints = Hints::in_text(&format!("SELECT /*+ {text} */ 1"));
            assert_eq!(hints.unknown().collect::<Vec<_>>(), [text], "{text}");
        }
    }
}
