//! Which columns carry event time.
//!
//! An operator keeps a watermark only if it emits nothing below it. A join loses it where an old row of one side comes out when its partner
//! arrives; it keeps the watermark of a column that is not below one of its partner's by more than a constant.

use millpond_engine::graph::{JoinKind, JoinSpec, OperatorSpec};

use super::{
    columns::{output_of, plain_columns},
    node::StreamNode,
    properties::{TimeRole, WatermarkColumn},
    time_bounds::bounded_watermarks,
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
                // Rows without a time are in no window.
                all.push(WatermarkColumn { column: width - 2, role: TimeRole::WindowStart, padded: false, ..time });
                all.push(WatermarkColumn { column: width - 1, role: TimeRole::WindowEnd, padded: false, ..time });
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
                watermark.padded |= other.padded;
                true
            }
            None => false,
        });
    }
    common
}

/// Columns that are bounded by one of the other side. A row comes out, or goes, only when one of its partners has just come or gone: that one is
/// not below its side's watermark, and the bound says what follows for the column. Padding does not change that, but the padded columns are
/// NULL, which is below nothing.
fn join(spec: &JoinSpec, inputs: &[&StreamNode]) -> Vec<WatermarkColumn> {
    let [left, right] = inputs else { return Vec::new() };
    let of_left = bounded_watermarks(&spec.left_bounds, &left.properties, &right.properties).into_iter();
    let of_right = bounded_watermarks(&spec.right_bounds, &right.properties, &left.properties).into_iter();
    let columns: Vec<WatermarkColumn> = match spec.kind {
        JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full => {
            let pads_left = matches!(spec.kind, JoinKind::Right | JoinKind::Full);
            let pads_right = matches!(spec.kind, JoinKind::Left | JoinKind::Full);
            let of_left = of_left.map(|found| WatermarkColumn { padded: found.padded || pads_left, ..found });
            let place = |column: usize| left.width() + column;
            let of_right =
                of_right.map(|found| WatermarkColumn { column: place(found.column), padded: found.padded || pads_right, ..found });
            of_left.chain(of_right).collect()
        }
        JoinKind::LeftSemi | JoinKind::LeftAnti | JoinKind::LeftMark => of_left.collect(),
        JoinKind::RightSemi | JoinKind::RightAnti => of_right.collect(),
    };
    moved(&columns, |column| spec.output.iter().position(|output| *output == column))
}
