//! Numbers of state tables.

use millpond_storage::state_table::TableId;

use crate::{
    error::{EngineError, Result},
    graph::TABLES_PER_OPERATOR,
};

/// The numbers that one operator may give its state tables.
#[derive(Clone, Copy, Debug)]
pub struct TableIds {
    first: u16,
}

impl TableIds {
    /// The numbers of the operator with this number in the graph.
    pub fn of_node(id: usize) -> Result<Self> {
        let first = u16::try_from(id * TABLES_PER_OPERATOR);
        let too_many = |_| EngineError::user("54001", "a view can have at most 1024 operators");
        Ok(Self { first: first.map_err(too_many)? })
    }

    /// The operator's table `number`.
    pub fn table(self, number: u16) -> TableId {
        debug_assert!(usize::from(number) < TABLES_PER_OPERATOR, "an operator has few tables");
        TableId(self.first + number)
    }
}
