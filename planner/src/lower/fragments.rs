//! Cuts the operators into fragments. An edge between two operators is an exchange where rows have to move, and where a node is read by
//! more than one: such a node is the root of its own fragment. All else runs in one stack.

use std::collections::{BTreeMap, BTreeSet};

use millpond_engine::graph::{
    DataflowGraph, Distribution, Exchange, ExchangeMode, Fragment, NodeInput, OperatorNode, OperatorSpec, Parallelism,
};

use crate::{
    error::{PlanError, Result},
    stream::{
        columns::plain_columns,
        distribution::Partitioning,
        node::{Arena, NodeIndex},
    },
};

/// State tables are numbered in 16 bits (`TABLES_PER_OPERATOR` each), so a graph has no more operators than this.
const MAX_OPERATORS: usize = 1000;

/// The graph of the plan under `root`.
///
/// # Errors
/// 54001 if it has too many operators.
pub(crate) fn cut(arena: &Arena, root: NodeIndex) -> Result<DataflowGraph> {
    let mut readers = BTreeMap::new();
    count_readers(arena, root, &mut BTreeSet::new(), &mut readers);
    if readers.len() >= MAX_OPERATORS {
        let message = format!("the query is too complex: it has more than {MAX_OPERATORS} operators");
        return Err(PlanError::new("54001", message).with_hint("Split it into several materialized views."));
    }
    let mut cutter = Cutter { arena, readers, graph: DataflowGraph::default(), roots: BTreeMap::new() };
    cutter.fragment(root);
    number_operators(&mut cutter.graph);
    Ok(cutter.graph)
}

/// For every node but the root, how many input ports read it.
fn count_readers(arena: &Arena, node: NodeIndex, seen: &mut BTreeSet<NodeIndex>, readers: &mut BTreeMap<NodeIndex, usize>) {
    if seen.insert(node) {
        for input in &arena.node(node).inputs {
            *readers.entry(*input).or_insert(0) += 1;
            count_readers(arena, *input, seen, readers);
        }
    }
}

struct Cutter<'a> {
    arena: &'a Arena,
    readers: BTreeMap<NodeIndex, usize>,
    graph: DataflowGraph,
    roots: BTreeMap<NodeIndex, usize>,
}

impl Cutter<'_> {
    /// The fragment whose root is `node`; its producers come before it in the graph.
    fn fragment(&mut self, node: NodeIndex) -> usize {
        if let Some(fragment) = self.roots.get(&node) {
            return *fragment;
        }
        let mut nodes = Vec::new();
        let mut incoming: Vec<usize> = Vec::new();
        self.emit(node, &mut nodes, &mut incoming);
        let id = self.graph.fragments.len();
        for exchange in incoming {
            self.graph.exchanges[exchange].to = id;
        }
        let parallelism = match self.arena.node(node).properties.partitioning {
            Partitioning::Single => Parallelism::Single,
            Partitioning::Any | Partitioning::Hash(_) => Parallelism::Job,
        };
        self.graph.fragments.push(Fragment { id, nodes, parallelism });
        self.roots.insert(node, id);
        id
    }

    /// Appends a node after its inputs; gives its place in the fragment.
    fn emit(&mut self, index: NodeIndex, nodes: &mut Vec<OperatorNode>, incoming: &mut Vec<usize>) -> usize {
        let node = self.arena.node(index);
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for (input, requirement) in node.inputs.iter().zip(&node.requirements) {
            let moved = requirement.exchange(&self.arena.node(*input).properties.partitioning);
            inputs.push(match (moved, self.is_shared(*input)) {
                (Some(distribution), _) => match self.late_projection(*input, &distribution) {
                    Some((below, distribution)) => {
                        let read = self.exchange(below, distribution, incoming);
                        NodeInput::Node(self.push(*input, vec![read], nodes))
                    }
                    None => self.exchange(*input, distribution, incoming),
                },
                (None, true) => self.exchange(*input, Distribution::Forward, incoming),
                (None, false) => NodeInput::Node(self.emit(*input, nodes, incoming)),
            });
        }
        self.push(index, inputs, nodes)
    }

    fn is_shared(&self, node: NodeIndex) -> bool {
        self.readers.get(&node).is_some_and(|readers| *readers > 1)
    }

    fn exchange(&mut self, producer: NodeIndex, distribution: Distribution, incoming: &mut Vec<usize>) -> NodeInput {
        let from = self.fragment(producer);
        let id = self.graph.exchanges.len();
        let schema = self.arena.node(producer).schema.clone();
        self.graph.exchanges.push(Exchange { id, from, to: usize::MAX, distribution, schema, mode: ExchangeMode::Pipelined });
        incoming.push(id);
        NodeInput::Exchange(id)
    }

    fn push(&self, index: NodeIndex, inputs: Vec<NodeInput>, nodes: &mut Vec<OperatorNode>) -> usize {
        let node = self.arena.node(index);
        let properties = node.properties.for_graph();
        nodes.push(OperatorNode { id: 0, spec: node.spec.clone(), inputs, schema: node.schema.clone(), properties });
        nodes.len() - 1
    }

    /// A projection that only picks columns of a shared node, below an exchange, would be a fragment of its own between two exchanges.
    /// Unless it drops more than half of the columns, it is better done behind the exchange: the node to read instead, and how.
    fn late_projection(&self, node: NodeIndex, distribution: &Distribution) -> Option<(NodeIndex, Distribution)> {
        let projection = self.arena.node(node);
        let OperatorSpec::Project { expressions } = &projection.spec else { return None };
        let picked: Vec<usize> = plain_columns(expressions).into_iter().collect::<Option<_>>()?;
        let below = projection.inputs[0];
        let distinct = picked.iter().collect::<BTreeSet<_>>().len();
        if self.is_shared(node) || !self.is_shared(below) || distinct * 2 < self.arena.node(below).width() {
            return None;
        }
        let distribution = match distribution {
            Distribution::Hash(columns) => Distribution::Hash(columns.iter().map(|column| picked[*column]).collect()),
            other => other.clone(),
        };
        Some((below, distribution))
    }
}

/// Operators are numbered in the order of the graph, so that equal plans have equal state tables.
fn number_operators(graph: &mut DataflowGraph) {
    let nodes = graph.fragments.iter_mut().flat_map(|fragment| &mut fragment.nodes);
    for (id, node) in nodes.enumerate() {
        node.id = id;
    }
}
