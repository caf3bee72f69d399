//! A relation that is scanned several times with different columns is scanned once with all of them: reading and decoding cost more than
//! the exchange from one scan to its readers.

use std::collections::{BTreeMap, BTreeSet};

use millpond_engine::graph::OperatorSpec;

use super::Lowering;
use crate::{error::Result, stream::node::NodeIndex};

/// Rebuilds the plan under `root` over shared scans.
pub(crate) fn share_scans(lowering: &mut Lowering<'_>, root: NodeIndex) -> Result<NodeIndex> {
    let mut scans: BTreeMap<u64, BTreeSet<Vec<usize>>> = BTreeMap::new();
    for node in reachable(lowering, root) {
        if let Some((relation, projection)) = scan(&lowering.arena.node(node).spec) {
            scans.entry(relation).or_default().insert(projection.to_vec());
        }
    }
    scans.retain(|_, projections| projections.len() > 1);
    if scans.is_empty() {
        return Ok(root);
    }
    let wide: BTreeMap<u64, Vec<usize>> = scans
        .into_iter()
        .map(|(relation, projections)| (relation, projections.into_iter().flatten().collect::<BTreeSet<_>>().into_iter().collect()))
        .collect();
    rebuild(lowering, root, &wide, &mut BTreeMap::new())
}

/// Every node under the root, inputs first, each once.
pub(crate) fn reachable(lowering: &Lowering<'_>, root: NodeIndex) -> Vec<NodeIndex> {
    fn visit(lowering: &Lowering<'_>, node: NodeIndex, seen: &mut BTreeSet<NodeIndex>, order: &mut Vec<NodeIndex>) {
        if seen.insert(node) {
            for input in &lowering.arena.node(node).inputs {
                visit(lowering, *input, seen, order);
            }
            order.push(node);
        }
    }
    let (mut seen, mut order) = (BTreeSet::new(), Vec::new());
    visit(lowering, root, &mut seen, &mut order);
    order
}

fn scan(spec: &OperatorSpec) -> Option<(u64, &[usize])> {
    match spec {
        OperatorSpec::SourceScan { source: relation, projection } | OperatorSpec::CollectionScan { collection: relation, projection } => {
            Some((*relation, projection))
        }
        _ => None,
    }
}

fn rebuild(
    lowering: &mut Lowering<'_>,
    node: NodeIndex,
    wide: &BTreeMap<u64, Vec<usize>>,
    done: &mut BTreeMap<NodeIndex, NodeIndex>,
) -> Result<NodeIndex> {
    if let Some(rebuilt) = done.get(&node) {
        return Ok(*rebuilt);
    }
    let old = lowering.arena.node(node).clone();
    let rebuilt = match scan(&old.spec) {
        Some((relation, projection)) => match wide.get(&relation) {
            Some(columns) => {
                let shared = lowering.scan_columns(relation, columns)?;
                let all = lowering.identity(shared);
                let place = |column: &usize| columns.binary_search(column).ok().map(|at| all[at].clone());
                let picked = projection.iter().filter_map(place).collect();
                lowering.project_above(shared, picked, old.schema)
            }
            None => node,
        },
        None => {
            let inputs = old.inputs.iter().map(|input| rebuild(lowering, *input, wide, done)).collect::<Result<Vec<_>>>()?;
            if inputs == old.inputs { node } else { lowering.arena.add(old.spec, inputs, old.schema) }
        }
    };
    done.insert(node, rebuilt);
    Ok(rebuilt)
}
