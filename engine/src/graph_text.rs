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
    XxHash3_64::oneshot(text.as_bytes())
}
