//! The text of a dataflow graph: fragments from the root down, each as a tree of operators with what is known of their rows and the state
//! they keep. The text is a function of the graph, so that golden files can hold it.
//!
//! ```text
//! Fragment 1, parallel
//!   Materialize v, key (auction)  [retracting; key (auction)]
//!     Aggregate #3 by (auction): count(*)  [retracting; key (auction)]
//!         state: groups, for ever
//!       Exchange 0 from fragment 0, hash (auction)
//! Fragment 0, parallel
//!   SourceScan #0 bid (auction)  [append-only]
//! ```

mod operator;

use std::fmt::Write;

use arrow::datatypes::Schema;
use millpond_engine::graph::{DataflowGraph, Distribution, Exchange, Fragment, NodeInput, OperatorNode, Parallelism, StreamProperties};

/// Explains a graph. `name` gives the name of a relation by its catalog id.
pub fn explain_graph(graph: &DataflowGraph, name: &dyn Fn(u64) -> String) -> String {
    let mut text = String::new();
    for fragment in graph.fragments.iter().rev() {
        let parallelism = match fragment.parallelism {
            Parallelism::Single => "one subtask",
            Parallelism::Job => "parallel",
        };
        line(&mut text, 0, &format!("Fragment {}, {parallelism}", fragment.id));
        if !fragment.nodes.is_empty() {
            explain_node(&mut text, graph, fragment, fragment.nodes.len() - 1, 1, name);
        }
    }
    text
}

fn line(text: &mut String, depth: usize, content: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{:width$}{content}", "", width = depth * 2);
}

fn explain_node(text: &mut String, graph: &DataflowGraph, fragment: &Fragment, index: usize, depth: usize, name: &dyn Fn(u64) -> String) {
    let node = &fragment.nodes[index];
    let inputs: Vec<&Schema> = node.inputs.iter().map(|input| input_schema(graph, fragment, *input)).collect();
    let what = operator::describe(node, &inputs, name);
    line(text, depth, &format!("{what}  [{}]", describe_properties(&node.properties, &node.schema)));
    for state in operator::state(node, &inputs) {
        line(text, depth + 2, &format!("state: {state}"));
    }
    for input in &node.inputs {
        match input {
            NodeInput::Node(below) => explain_node(text, graph, fragment, *below, depth + 1, name),
            NodeInput::Exchange(id) => line(text, depth + 1, &describe_exchange(graph, &graph.exchanges[*id])),
        }
    }
}

fn input_schema<'a>(graph: &'a DataflowGraph, fragment: &'a Fragment, input: NodeInput) -> &'a Schema {
    match input {
        NodeInput::Node(below) => &fragment.nodes[below].schema,
        NodeInput::Exchange(id) => &graph.exchanges[id].schema,
    }
}

/// An edge, and whether the barrier of a checkpoint waits on it however long it takes.
fn describe_exchange(graph: &DataflowGraph, exchange: &Exchange) -> String {
    let distribution = match &exchange.distribution {
        Distribution::Forward => "forward".to_owned(),
        Distribution::Hash(columns) => format!("hash ({})", names(&exchange.schema, columns)),
        Distribution::Broadcast => "broadcast".to_owned(),
        Distribution::RoundRobin => "round-robin".to_owned(),
        Distribution::Single => "single".to_owned(),
    };
    let aligned = if graph.aligned_fragments()[exchange.to] { ", aligned" } else { "" };
    format!("Exchange {} from fragment {}, {distribution}{aligned}", exchange.id, exchange.from)
}

fn describe_properties(properties: &StreamProperties, schema: &Schema) -> String {
    let mut text = if properties.append_only { "append-only" } else { "retracting" }.to_owned();
    match &properties.stream_key {
        Some(key) if key.is_empty() => text.push_str("; at most one row"),
        Some(key) => text.push_str(&format!("; key ({})", names(schema, key))),
        None => {}
    }
    if !properties.watermark_columns.is_empty() {
        text.push_str(&format!("; watermark ({})", names(schema, &properties.watermark_columns)));
    }
    text
}

/// The number of an operator, as state tables and metrics have it.
fn number(node: &OperatorNode) -> String {
    format!("#{}", node.id)
}

/// Names of columns; one that several columns have gets its number.
fn names(schema: &Schema, columns: &[usize]) -> String {
    columns.iter().map(|column| column_name(schema, *column)).collect::<Vec<_>>().join(", ")
}

fn column_name(schema: &Schema, column: usize) -> String {
    let Some(field) = schema.fields().get(column) else { return format!("${column}") };
    let repeated = schema.fields().iter().filter(|other| other.name() == field.name()).count() > 1;
    if repeated { format!("{}${column}", field.name()) } else { field.name().clone() }
}
