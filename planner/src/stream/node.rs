//! The operators of a plan before they are cut into fragments: an arena of immutable nodes. Equal nodes over equal inputs are one node, so
//! a subplan that is written twice is computed once. A rewrite adds nodes and leaves the old ones unreachable.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use arrow::datatypes::SchemaRef;
use millpond_engine::graph::{Expression, OperatorSpec};

use super::{
    changelog, distribution,
    distribution::{Partitioning, Requirement},
    properties::{Properties, TimeRole, WatermarkColumn},
    relations::StreamRelation,
    stream_key, watermark,
};

/// Index of a node in its arena.
pub(crate) type NodeIndex = usize;

/// One operator.
#[derive(Clone, Debug)]
pub(crate) struct StreamNode {
    /// What it computes.
    pub(crate) spec: OperatorSpec,
    /// The node each port reads.
    pub(crate) inputs: Vec<NodeIndex>,
    /// What it demands of each input.
    pub(crate) requirements: Vec<Requirement>,
    /// Columns of its output.
    pub(crate) schema: SchemaRef,
    /// What is known of its output.
    pub(crate) properties: Properties,
}

impl StreamNode {
    /// Number of output columns.
    pub(crate) fn width(&self) -> usize {
        self.schema.fields().len()
    }
}

/// All nodes of a plan.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    nodes: Vec<StreamNode>,
    relations: BTreeMap<u64, StreamRelation>,
    by_text: HashMap<String, Vec<NodeIndex>>,
}

impl Arena {
    /// The node at an index.
    pub(crate) fn node(&self, index: NodeIndex) -> &StreamNode {
        &self.nodes[index]
    }

    /// Makes a relation known, before its scans are added.
    pub(crate) fn add_relation(&mut self, id: u64, relation: StreamRelation) {
        self.relations.insert(id, relation);
    }

    /// The relations that are scanned.
    pub(crate) fn relation(&self, id: u64) -> Option<&StreamRelation> {
        self.relations.get(&id)
    }

    /// Adds a node, or finds an equal one, and derives its properties. Names of columns do not count.
    pub(crate) fn add(&mut self, spec: OperatorSpec, inputs: Vec<NodeIndex>, schema: SchemaRef) -> NodeIndex {
        let text = identity_text(&spec, &inputs);
        if let Some(same) = self.by_text.get(&text)
            && let Some(found) = same.iter().find(|node| same_expressions(&self.nodes[**node].spec, &spec))
        {
            return *found;
        }
        let requirements = distribution::requirements(&spec, &self.nodes_of(&inputs));
        let properties = self.derive(&spec, &inputs, &requirements, schema.fields().len());
        self.nodes.push(StreamNode { spec, inputs, requirements, schema, properties });
        let index = self.nodes.len() - 1;
        self.by_text.entry(text).or_default().push(index);
        index
    }

    fn nodes_of(&self, inputs: &[NodeIndex]) -> Vec<&StreamNode> {
        inputs.iter().map(|input| &self.nodes[*input]).collect()
    }

    fn derive(&self, spec: &OperatorSpec, inputs: &[NodeIndex], requirements: &[Requirement], width: usize) -> Properties {
        if let OperatorSpec::SourceScan { source: relation, projection }
        | OperatorSpec::CollectionScan { collection: relation, projection } = spec
        {
            let relation = self.relations.get(relation).expect("a relation is made known before it is scanned");
            return scan_properties(relation, projection);
        }
        let inputs = self.nodes_of(inputs);
        let known: Vec<&Properties> = inputs.iter().map(|input| &input.properties).collect();
        Properties {
            append_only: changelog::append_only(spec, &known),
            stream_key: stream_key::stream_key(spec, &inputs, width),
            watermarks: watermark::watermarks(spec, &inputs, width),
            partitioning: distribution::partitioning(spec, &inputs, requirements),
        }
    }
}

fn scan_properties(relation: &StreamRelation, projection: &[usize]) -> Properties {
    let position = |column: usize| projection.iter().position(|projected| *projected == column);
    let watermark = relation.watermark_column.and_then(position);
    Properties {
        append_only: relation.append_only,
        stream_key: relation.stream_key.as_ref().and_then(|key| key.iter().map(|column| position(*column)).collect()),
        watermarks: watermark
            .map(|column| WatermarkColumn { column, role: TimeRole::Time, strict: relation.late_rows_diverted, padded: false })
            .into_iter()
            .collect(),
        partitioning: Partitioning::Any,
    }
}

/// The spec and the inputs without what EXPLAIN shows of expressions, which depends on aliases.
fn identity_text(spec: &OperatorSpec, inputs: &[NodeIndex]) -> String {
    let mut bare = spec.clone();
    match &mut bare {
        OperatorSpec::Filter { predicate } => predicate.text.clear(),
        OperatorSpec::Project { expressions } => expressions.iter_mut().for_each(|expression| expression.text.clear()),
        OperatorSpec::Join(join) => join.condition.iter_mut().for_each(|condition| condition.text.clear()),
        _ => {}
    }
    format!("{bare:?} {inputs:?}")
}

/// Two functions may print alike, so expressions are compared as what they are.
fn same_expressions(one: &OperatorSpec, two: &OperatorSpec) -> bool {
    let (one, two) = (expressions(one), expressions(two));
    one.len() == two.len()
        && one.iter().zip(two).all(|(one, two)| Arc::ptr_eq(&one.physical, &two.physical) || *one.physical == *two.physical)
}

/// The expressions of a spec.
pub(crate) fn expressions(spec: &OperatorSpec) -> Vec<&Expression> {
    match spec {
        OperatorSpec::Filter { predicate } => vec![predicate],
        OperatorSpec::Project { expressions } => expressions.iter().collect(),
        OperatorSpec::Join(join) => join.condition.iter().collect(),
        _ => Vec::new(),
    }
}
