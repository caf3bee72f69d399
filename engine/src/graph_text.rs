//! A graph's fingerprint: state of one plan is never given to another.

use twox_hash::XxHash3_64;

use crate::graph::DataflowGraph;

/// A hash of everything that decides the layout of state. Equal for equal plans, also in another process.
pub fn fingerprint(graph: &DataflowGraph) -> u64 {
    let mut text = String::new();
    for node in graph.fragments.iter().flat_map(|fragment| &fragment.nodes) {
        text.push_str(&format!("{} {:?} {:?}\n", node.id, node.spec, node.inputs));
    }
    for exchange in &graph.exchanges {
        text.push_str(&format!("{} {} {} {:?}\n", exchange.id, exchange.from, exchange.to, exchange.distribution));
    }
    XxHash3_64::oneshot(without_column_names(&text).as_bytes())
}

/// The text without the names of columns in expressions: their numbers say which they are, and a table may be renamed below a view.
fn without_column_names(text: &str) -> String {
    const BEFORE: &str = "Column { name: \"";
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(BEFORE) {
        kept.push_str(&rest[..at + BEFORE.len()]);
        rest = &rest[at + BEFORE.len()..];
        let mut escaped = false;
        let end = rest.find(|character| {
            let ends = character == '"' && !escaped;
            escaped = character == '\\' && !escaped;
            ends
        });
        rest = &rest[end.unwrap_or(rest.len())..];
    }
    kept.push_str(rest);
    kept
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::graph::Expression;

    #[test]
    fn names_of_columns_do_not_count() {
        let text = |table: &str, literal: &str| {
            without_column_names(&format!("{:?}", (Column { name: format!("{table}.\"k\\"), index: 1 }, literal)))
        };
        assert_eq!(text("r", "x"), text("other", "x"));
        assert_ne!(text("r", "x"), text("r", "y"));
        assert_ne!(text("r", "Column { name: \"a\""), text("r", "Column { name: \"b\""));
    }

    #[test]
    fn how_an_expression_was_written_does_not_count() {
        let text = |written: &str, index: usize| {
            let physical = Arc::new(datafusion::physical_expr::expressions::Column::new("v", index));
            format!("{:?}", Expression { physical, text: written.into() })
        };
        assert_eq!(text("t.v", 0), text("renamed.v", 0));
        assert_ne!(text("t.v", 0), text("t.v", 1));
    }

    #[derive(Debug)]
    #[expect(dead_code, reason = "printed like the column of an expression")]
    struct Column {
        name: String,
        index: usize,
    }
}
