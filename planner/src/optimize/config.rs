//! What the optimizer is told: no start time, so that nothing of the clock is folded into a view, and scalar subqueries as joins.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use datafusion::{
    common::{alias::AliasGenerator, config::ConfigOptions},
    optimizer::OptimizerConfig,
};

use crate::interrupt::Interrupt;

/// The configuration of one run of the optimizer.
pub(super) struct StreamOptimizerConfig {
    aliases: Arc<AliasGenerator>,
    options: Arc<ConfigOptions>,
}

impl StreamOptimizerConfig {
    /// The session's options with what changelogs need.
    pub(super) fn new(session: &ConfigOptions, interrupt: &Interrupt) -> Self {
        let mut options = session.clone();
        interrupt.watch(&mut options);
        options.optimizer.enable_physical_uncorrelated_scalar_subquery = false;
        options.optimizer.skip_failed_rules = false;
        Self { aliases: Arc::new(AliasGenerator::new()), options: Arc::new(options) }
    }
}

impl OptimizerConfig for StreamOptimizerConfig {
    fn query_execution_start_time(&self) -> Option<DateTime<Utc>> {
        None
    }

    fn alias_generator(&self) -> &Arc<AliasGenerator> {
        &self.aliases
    }

    fn options(&self) -> Arc<ConfigOptions> {
        Arc::clone(&self.options)
    }
}
