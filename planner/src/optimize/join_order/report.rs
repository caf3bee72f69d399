//! What EXPLAIN says of the order of joins.

use std::fmt::Write;

use super::{
    enumerate::{Leading, Pricing},
    region::{JoinKind, Region},
    relation_set::RelationSet,
    tree::JoinTree,
};
use datafusion::logical_expr::Expr;

/// The joins of a region, from the root down, each with its rows and the cost of all joins under it.
pub(super) fn report(region: &Region, pricing: &Pricing<'_>, tree: &JoinTree, leading: Leading) -> String {
    let mut text = String::new();
    let note = match leading {
        Leading::Unsaid => "",
        Leading::Obeyed => ", begun as the hint LEADING says",
        Leading::Impossible => ", not begun as the hint LEADING says: that would give other rows",
    };
    line(&mut text, 0, &format!("Join order, estimated{note}"));
    Report { region, pricing }.node(&mut text, tree, 1);
    text
}

fn line(text: &mut String, depth: usize, content: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{:width$}{content}", "", width = depth * 2);
}

struct Report<'a> {
    region: &'a Region,
    pricing: &'a Pricing<'a>,
}

impl Report<'_> {
    fn node(&self, text: &mut String, tree: &JoinTree, depth: usize) {
        match tree {
            JoinTree::Relation(relation) => {
                let known = self.pricing.cardinalities.relation(*relation);
                let said = if known.hinted { " as the hint ROWS says" } else { "" };
                let of = if known.base_rows > known.kept.rows { format!(" of {}", number(known.base_rows)) } else { String::new() };
                let name = &self.region.relations[*relation].name;
                let name = if name.is_empty() { "subquery" } else { name.as_str() };
                line(text, depth, &format!("{name}  (rows={}{of}{said})", number(known.kept.rows)));
            }
            JoinTree::Join(left, right) => {
                let (one, two) = (left.relations(), right.relations());
                let (rows, cost) = (self.pricing.cardinalities.rows(one.union(two)), self.cost(tree));
                let what = self.describe(one, two);
                line(text, depth, &format!("{what}  (rows={} cost={})", number(rows), number(cost)));
                self.node(text, left, depth + 1);
                self.node(text, right, depth + 1);
            }
        }
    }

    fn describe(&self, one: RelationSet, two: RelationSet) -> String {
        let graph = self.pricing.graph;
        let Some(joint) = graph.join(one, two) else { return "Join".to_owned() };
        let kind = match (joint.kind, joint.swapped) {
            (JoinKind::Inner, _) if joint.is_cross => "Cross Join",
            (JoinKind::Inner, _) => "Join",
            (JoinKind::Full, _) => "Full Join",
            (JoinKind::Left, false) => "Left Join",
            (JoinKind::Left, true) => "Right Join",
            (JoinKind::Semi, false) => "Left Semi Join",
            (JoinKind::Semi, true) => "Right Semi Join",
            (JoinKind::Anti, false) => "Left Anti Join",
            (JoinKind::Anti, true) => "Right Anti Join",
        };
        let conditions = graph.conditions_between(one, two, &joint);
        if conditions.is_empty() {
            return kind.to_owned();
        }
        let conditions: Vec<String> = conditions.iter().map(Expr::to_string).collect();
        format!("{kind} on {}", conditions.join(" AND "))
    }

    fn cost(&self, tree: &JoinTree) -> f64 {
        let JoinTree::Join(left, right) = tree else { return 0.0 };
        let (one, two) = (left.relations(), right.relations());
        let own = self.pricing.graph.join(one, two).map_or(0.0, |joint| self.pricing.price(one, two, &joint).0);
        self.cost(left) + self.cost(right) + own
    }
}

fn number(value: f64) -> String {
    format!("{value:.0}")
}
