//! Parsing, whose time counts for the statement that was parsed.

use std::time::Duration;

use millpond_planner::parse;

use super::{Session, settings};
use crate::{binding, error::Result};

impl Session {
    /// The statements of a text.
    pub(super) fn parse(&mut self, sql: &str) -> Result<Vec<parse::ParsedStatement>> {
        let began = self.clock.monotonic();
        let parsed = binding::planning(|| parse::parse(sql));
        self.parsing = self.clock.monotonic().saturating_sub(began);
        Ok(parsed?)
    }

    /// How long the statement that starts now may take. Its parsing is a part of it, and was before.
    pub(super) fn statement_timeout(&mut self) -> Option<Duration> {
        let parsing = std::mem::take(&mut self.parsing);
        let timeout = self.variables.get("statement_timeout").and_then(|value| settings::duration(&value));
        timeout.map(|timeout| timeout.saturating_sub(parsing))
    }
}
