//! An order of joins, and its text: `1 2,0,1 ((0 1) 2)` is the format's version, the rank of each relation in the order of the statement, and the tree
//! over ranks. The catalog keeps it, so that a view is planned again as it was created.

use std::fmt;

use super::relation_set::RelationSet;

/// The version of the text.
const VERSION: &str = "1";

/// The region that stays as it is written.
const AS_WRITTEN: &str = "-";

/// Joins of relations, by their ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum JoinTree {
    Relation(usize),
    Join(Box<JoinTree>, Box<JoinTree>),
}

impl JoinTree {
    /// The relations in it.
    pub(super) fn relations(&self) -> RelationSet {
        match self {
            Self::Relation(relation) => RelationSet::one(*relation),
            Self::Join(left, right) => left.relations().union(right.relations()),
        }
    }
}

impl fmt::Display for JoinTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relation(relation) => write!(f, "{relation}"),
            Self::Join(left, right) => write!(f, "({left} {right})"),
        }
    }
}

/// The order of one region's joins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RegionOrder {
    /// The rank of each relation, in the order in which the statement has them.
    pub(super) ranks: Vec<usize>,
    pub(super) tree: JoinTree,
}

impl fmt::Display for RegionOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks: Vec<String> = self.ranks.iter().map(usize::to_string).collect();
        write!(f, "{} {}", ranks.join(","), self.tree)
    }
}

/// The orders of all regions of a plan, from below.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JoinOrder(pub(super) Vec<Option<RegionOrder>>);

impl JoinOrder {
    /// Every region stays as it is written.
    pub fn as_written() -> Self {
        Self::default()
    }

    /// Whether every region stays as it is written.
    pub fn is_as_written(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// The order that a text stands for; `None` if it is none, or of a later version.
    pub fn from_text(text: &str) -> Option<Self> {
        let mut parts = text.split(';');
        if parts.next()? != VERSION {
            return None;
        }
        parts.map(read_region).collect::<Option<Vec<_>>>().map(Self)
    }
}

impl fmt::Display for JoinOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(VERSION)?;
        for region in &self.0 {
            match region {
                Some(region) => write!(f, ";{region}")?,
                None => write!(f, ";{AS_WRITTEN}")?,
            }
        }
        Ok(())
    }
}

fn read_region(text: &str) -> Option<Option<RegionOrder>> {
    if text == AS_WRITTEN {
        return Some(None);
    }
    let (ranks, tree) = text.split_once(' ')?;
    let ranks = ranks.split(',').map(|rank| rank.parse().ok()).collect::<Option<Vec<usize>>>()?;
    let mut sorted = ranks.clone();
    sorted.sort_unstable();
    let (tree, rest) = read_tree(tree, 0)?;
    let complete = rest.is_empty()
        && ranks.len() <= RelationSet::CAPACITY
        && sorted.iter().enumerate().all(|(at, rank)| at == *rank)
        && leaves(&tree) == ranks.len()
        && tree.relations() == RelationSet::below(ranks.len());
    complete.then_some(Some(RegionOrder { ranks, tree }))
}

fn leaves(tree: &JoinTree) -> usize {
    match tree {
        JoinTree::Relation(_) => 1,
        JoinTree::Join(left, right) => leaves(left) + leaves(right),
    }
}

fn read_tree(text: &str, depth: usize) -> Option<(JoinTree, &str)> {
    if depth > RelationSet::CAPACITY {
        return None;
    }
    if let Some(inner) = text.strip_prefix('(') {
        let (left, rest) = read_tree(inner, depth + 1)?;
        let (right, rest) = read_tree(rest.strip_prefix(' ')?, depth + 1)?;
        return Some((JoinTree::Join(Box::new(left), Box::new(right)), rest.strip_prefix(')')?));
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let relation: usize = text[..end].parse().ok().filter(|relation| *relation < RelationSet::CAPACITY)?;
    Some((JoinTree::Relation(relation), &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_written() {
        let text = "1;2,0,1 ((0 1) 2);-;1,0 (1 0)";
        let order = JoinOrder::from_text(text).expect("an order");
        assert_eq!(order.to_string(), text);
        assert!(!order.is_as_written() && JoinOrder::from_text("1;-").is_some_and(|order| order.is_as_written()));
    }

    #[test]
    fn what_is_no_order_is_refused() {
        for text in
            ["", "2;0,1 (0 1)", "1;0,1", "1;0,1 (0 1", "1;0,1 (0 0)", "1;0,2 (0 2)", "1;0,1,2 (0 1)", "1;0,1 (0 1) ", "1;0,64 (0 64)"]
        {
            assert_eq!(JoinOrder::from_text(text), None, "{text}");
        }
        assert_eq!(JoinOrder::from_text(&format!("1;0,1 {}", "(".repeat(100_000))), None);
    }
}
