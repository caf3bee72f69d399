//! Which columns are unique among the rows present at any epoch. Purely knowledge: rows without a key are a bag, which every operator
//! handles.

use millpond_engine::graph::{JoinKind, JoinSpec, OperatorSpec, RankKind, TopNSpec};

use super::{
    columns::{output_of, plain_columns},
    node::StreamNode,
};

/// The stream key of the output, if one is known. Scans are not derived: their relation says it.
pub(super) fn stream_key(spec: &OperatorSpec, inputs: &[&StreamNode], width: usize) -> Option<Vec<usize>> {
    let input_key = || inputs.first().and_then(|input| input.properties.stream_key.clone());
    match spec {
        OperatorSpec::Filter { .. } | OperatorSpec::EmitOnWindowClose { .. } | OperatorSpec::Materialize { .. } | OperatorSpec::Discard => {
            input_key()
        }
        OperatorSpec::Project { expressions } => map_key(&input_key()?, |column| output_of(&plain_columns(expressions), column)),
        // A row is in a window once, so its key and the window's start are unique.
        OperatorSpec::HopWindow { .. } => input_key().map(|key| key.into_iter().chain([width - 2]).collect()),
        OperatorSpec::Aggregate(spec) => Some((0..spec.group_by.len()).collect()),
        OperatorSpec::Join(spec) => join_key(spec, inputs),
        OperatorSpec::TopN(spec) => top_n_key(spec, input_key(), width),
        OperatorSpec::ScalarSubquery => Some(Vec::new()),
        OperatorSpec::Values { batch } => (batch.num_rows() <= 1).then(Vec::new),
        OperatorSpec::Union | OperatorSpec::SourceScan { .. } | OperatorSpec::CollectionScan { .. } => None,
    }
}

fn map_key(key: &[usize], map: impl Fn(usize) -> Option<usize>) -> Option<Vec<usize>> {
    key.iter().map(|column| map(*column)).collect()
}

fn join_key(spec: &JoinSpec, inputs: &[&StreamNode]) -> Option<Vec<usize>> {
    let [left, right] = inputs else { return None };
    let left_key = left.properties.stream_key.as_ref();
    let joined = match spec.kind {
        JoinKind::LeftSemi | JoinKind::LeftAnti | JoinKind::LeftMark => left_key?.clone(),
        JoinKind::RightSemi | JoinKind::RightAnti => right.properties.stream_key.clone()?,
        // Padded rows of both sides may be equal.
        JoinKind::Full => return None,
        JoinKind::Inner | JoinKind::Left | JoinKind::Right => {
            let (left_key, right_key) = (left_key?, right.properties.stream_key.as_ref()?);
            // A side with at most one row per join key adds nothing to the other side's key.
            let right_single = right_key.iter().all(|column| spec.on.iter().any(|(_, right)| right == column));
            let left_single = left_key.iter().all(|column| spec.on.iter().any(|(left, _)| left == column));
            let right_key = right_key.iter().map(|column| left.width() + column);
            match spec.kind {
                JoinKind::Inner | JoinKind::Left if right_single => left_key.clone(),
                JoinKind::Inner | JoinKind::Right if left_single => right_key.collect(),
                _ => left_key.iter().copied().chain(right_key).collect(),
            }
        }
    };
    map_key(&joined, |column| spec.output.iter().position(|output| *output == column))
}

fn top_n_key(spec: &TopNSpec, input_key: Option<Vec<usize>>, width: usize) -> Option<Vec<usize>> {
    if spec.limit == Some(1) && spec.rank == RankKind::RowNumber {
        return Some(spec.partition_by.clone());
    }
    let by_rank = spec.emit_rank && spec.rank == RankKind::RowNumber;
    input_key.or_else(|| by_rank.then(|| spec.partition_by.iter().copied().chain([width - 1]).collect()))
}
