//! Parsing, whose time counts for the statement that was parsed.

use millpond_planner::parse;

use super::Session;
use crate::{binding, error::Result};

impl Session {
    /// The statements of a text.
    pub(super) fn parse(&mut self, sql: &str) -> Result<Vec<parse::ParsedStatement>> {
        let began = self.clock.monotonic();
        let parsed = binding::planning(|| parse::parse(sql));
        self.parsing = self.clock.monotonic().saturating_sub(began);
        Ok(parsed?)
    }
}
