//! Whether an operator ever takes back a row.

use millpond_engine::graph::{JoinKind, OperatorSpec};

use super::properties::Properties;

/// Whether the output is append-only. Scans are not derived: their relation says it.
pub(super) fn append_only(spec: &OperatorSpec, inputs: &[&Properties]) -> bool {
    let all = inputs.iter().all(|input| input.append_only);
    match spec {
        OperatorSpec::Values { .. }
        | OperatorSpec::Filter { .. }
        | OperatorSpec::Project { .. }
        | OperatorSpec::Union
        | OperatorSpec::HopWindow { .. }
        | OperatorSpec::Materialize { .. }
        | OperatorSpec::Discard => all,
        // A group that only has to exist never changes; with calls, its row is updated until its window closes.
        OperatorSpec::Aggregate(spec) => spec.emit_on_close.is_some() || (all && spec.calls.is_empty() && !spec.group_by.is_empty()),
        // A pair, or the first match of a row, is never undone by more rows; padding and absence are.
        OperatorSpec::Join(spec) => all && matches!(spec.kind, JoinKind::Inner | JoinKind::LeftSemi | JoinKind::RightSemi),
        OperatorSpec::EmitOnWindowClose { .. } => true,
        OperatorSpec::TopN(_) | OperatorSpec::ScalarSubquery | OperatorSpec::SourceScan { .. } | OperatorSpec::CollectionScan { .. } => {
            false
        }
    }
}
