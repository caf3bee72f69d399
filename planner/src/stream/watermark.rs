//! Which columns carry event time.
//!
//! An operator keeps a watermark only if it emits nothing below it. A join loses it where an old row of one side comes out when its partner
//! arrives; only a join on time columns, or one that bounds the time between partners, keeps it.

use millpond_engine::graph::{JoinKind, JoinSpec, OperatorSpec};

use super::{
    columns::{output_of, plain_columns},
    node::StreamNode,
    properties::{TimeRole, WatermarkColumn},
};

/// The watermark columns of the output. Scans are not derived: their relation says it.
pub(super) fn watermarks(spec: &OperatorSpec, inputs: &[&StreamNode], width: usize) -> Vec<WatermarkColumn> {
    let input = || inputs.first().map(|input| input.properties.watermarks.clone()).unwrap_or_default();
    let mut found = match spec {
        OperatorSpec::Filter { .. } | OperatorSpec::Materialize { .. } | OperatorSpec::Discard => input(),
        OperatorSpec::Project { expressions } => {
            let plain = plain_columns(expressions);
            moved(&input(), |column| output_of(&plain, column))
        }
        OperatorSpec::HopWindow { time_column, .. } => {
            let mut all = input();
            if let Some(time) = all.iter().copied().find(|watermark| watermark.column == *time_column) {
                all.push(WatermarkColumn { column: width - 2, role: TimeRole::WindowStart, ..time });
                all.push(WatermarkColumn { column: width - 1, role: TimeRole::WindowEnd, ..time });
            }
            all
        }
        // A change of a group comes only with a row of the group. Groups that are emitted at their close have no late rows left.
        OperatorSpec::Aggregate(spec) => {
            let mut all = moved(&input(), |column| spec.group_by.iter().position(|group| *group == column));
            if spec.emit_on_close.is_some() {
                all.iter_mut().for_each(|watermark| watermark.strict = true);
            }
            all
        }
        OperatorSpec::TopN(spec) => input().into_iter().filter(|watermark| spec.partition_by.contains(&watermark.column)).collect(),
        OperatorSpec::EmitOnWindowClose { column } => {
            let closing = input().into_iter().filter(|watermark| watermark.column == *column);
            closing.map(|watermark| WatermarkColumn { strict: true, ..watermark }).collect()
        }
        OperatorSpec::Union => union(inputs),
        OperatorSpec::Join(spec) => join(spec, inputs),
        OperatorSpec::Values { .. }
        | OperatorSpec::ScalarSubquery
        | OperatorSpec::SourceScan { .. }
        | OperatorSpec::CollectionScan { .. } => Vec::new(),
    };
    found.sort_by_key(|watermark| watermark.column);
    found.dedup_by_key(|watermark| watermark.column);
    found
}

fn moved(watermarks: &[WatermarkColumn], map: impl Fn(usize) -> Option<usize>) -> Vec<WatermarkColumn> {
    watermarks.iter().filter_map(|watermark| Some(WatermarkColumn { column: map(watermark.column)?, ..*watermark })).collect()
}

/// Columns that carry a watermark in every input. (An input of constants ends at once, and so promises everything.)
fn union(inputs: &[&StreamNode]) -> Vec<WatermarkColumn> {
    let mut streams = inputs.iter().filter(|input| !matches!(input.spec, OperatorSpec::Values { .. }));
    let Some(first) = streams.next() else { return Vec::new() };
    let mut common = first.properties.watermarks.clone();
    for input in streams {
        common.retain_mut(|watermark| match input.properties.watermark(watermark.column) {
            Some(other) => {
                watermark.role = watermark.role.min(other.role);
                watermark.strict &= other.strict;
                true
            }
            None => false,
        });
    }
    common
}

/// Pairs of equal columns that both carry a watermark: a row comes out only when one of its partners has just arrived, and that one is not
/// below its side's watermark. Padding does not change that, but the padded columns are NULL, which is below nothing. Likewise the columns by
/// which rows die: a row that is still there is not below the join's watermark less the delay, which is what the join emits for them.
fn join(spec: &JoinSpec, inputs: &[&StreamNode]) -> Vec<WatermarkColumn> {
    let [left, right] = inputs else { return Vec::new() };
    let mut columns = Vec::new();
    for (left_column, right_column) in &spec.on {
        let (Some(one), Some(two)) = (left.properties.watermark(*left_column), right.properties.watermark(*right_column)) else { continue };
        let strict = one.strict && two.strict;
        let left_output = WatermarkColumn { strict, ..one };
        let right_output = WatermarkColumn { column: left.width() + right_column, strict, ..two };
        match spec.kind {
            JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full => columns.extend([left_output, right_output]),
            JoinKind::LeftSemi | JoinKind::LeftAnti | JoinKind::LeftMark => columns.push(left_output),
            JoinKind::RightSemi | JoinKind::RightAnti => columns.push(WatermarkColumn { column: *right_column, strict, ..two }),
        }
    }
    if matches!(spec.kind, JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full) {
        let left_time = spec.left_expiry.and_then(|(column, _)| left.properties.watermark(column));
        let right_time = spec.right_expiry.and_then(|(column, _)| right.properties.watermark(column));
        columns.extend(left_time);
        columns.extend(right_time.map(|time| WatermarkColumn { column: left.width() + time.column, ..time }));
    }
    moved(&columns, |column| spec.output.iter().position(|output| *output == column))
}
