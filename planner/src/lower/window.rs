//! TUMBLE and HOP.

use millpond_engine::graph::OperatorSpec;

use super::{Lowering, nullable_schema};
use crate::{error::Result, logical::window::WindowNode, stream::node::NodeIndex};
use datafusion::logical_expr::UserDefinedLogicalNodeCore;

impl Lowering<'_> {
    /// Lowers the assignment of rows to windows.
    pub(super) fn window(&mut self, window: &WindowNode) -> Result<NodeIndex> {
        let input = self.lower(window.input())?;
        let time_column = window.input().schema().index_of_column(window.time())?;
        let spec = OperatorSpec::HopWindow { time_column, slide: window.slide(), size: window.size(), offset_us: window.offset_us() };
        Ok(self.arena.add(spec, vec![input], nullable_schema(window.schema())))
    }
}
