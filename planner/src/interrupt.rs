//! Whether anybody still waits for a plan. Planning a statement can take long, and only its caller knows that its client has cancelled it or that
//! its time is up; so binding asks at every expression and relation, and the optimizer before every step of a rule.

use std::{any::Any, fmt, sync::Arc};

use datafusion::{
    common::{
        config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions},
        tree_node::Transformed,
    },
    error::{DataFusionError, Result as DataFusionResult},
    logical_expr::LogicalPlan,
    optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule},
    physical_optimizer::{PhysicalOptimizerRule, optimizer::PhysicalOptimizerContext},
    physical_plan::ExecutionPlan,
};

use crate::error::Result;

/// Asked now and then by long planning; an error ends it.
#[derive(Clone, Default)]
pub struct Interrupt(Option<Arc<dyn Fn() -> Result<()> + Send + Sync>>);

impl Interrupt {
    /// Asks `asked`, which is cheap and gives the error that planning is to end with.
    pub fn new(asked: impl Fn() -> Result<()> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(asked)))
    }

    /// For planning that nothing ends.
    pub fn never() -> Self {
        Self(None)
    }

    /// Whether planning may go on.
    ///
    /// # Errors
    /// What it is to end with.
    pub fn check(&self) -> Result<()> {
        match &self.0 {
            Some(asked) => asked(),
            None => Ok(()),
        }
    }

    /// Lets the rules of [`interruptible`] that run under these options ask it.
    pub fn watch(&self, options: &mut ConfigOptions) {
        options.extensions.insert(self.clone());
    }

    /// The one that watches rules under these options.
    pub(crate) fn of(options: &ConfigOptions) -> Self {
        options.extensions.get::<Self>().cloned().unwrap_or_default()
    }

    fn check_in(options: &ConfigOptions) -> DataFusionResult<()> {
        Ok(Self::of(options).check()?)
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Interrupt" } else { "Interrupt::never" })
    }
}

/// It travels in DataFusion's options, the only thing of the caller's that every rule is given. Nothing of it can be set.
impl ExtensionOptions for Interrupt {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _: &str) -> DataFusionResult<()> {
        Err(DataFusionError::Configuration(format!("there is no option \"{key}\"")))
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}

impl ConfigExtension for Interrupt {
    const PREFIX: &'static str = "millpond_interrupt";
}

/// The rules, each asking before every step.
pub(crate) fn interruptible(rules: Vec<Arc<dyn OptimizerRule + Send + Sync>>) -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    rules.into_iter().map(|rule| Arc::new(Asking(rule)) as Arc<dyn OptimizerRule + Send + Sync>).collect()
}

#[derive(Debug)]
struct Asking<R: ?Sized>(Arc<R>);

impl OptimizerRule for Asking<dyn OptimizerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> DataFusionResult<Transformed<LogicalPlan>> {
        Interrupt::check_in(&config.options())?;
        self.0.rewrite(plan, config)
    }
}

/// The same for rules of physical plans.
pub(crate) fn interruptible_physical(
    rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>,
) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    rules.into_iter().map(|rule| Arc::new(Asking(rule)) as Arc<dyn PhysicalOptimizerRule + Send + Sync>).collect()
}

impl PhysicalOptimizerRule for Asking<dyn PhysicalOptimizerRule + Send + Sync> {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Interrupt::check_in(config)?;
        self.0.optimize(plan, config)
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Interrupt::check_in(context.config_options())?;
        self.0.optimize_with_context(plan, context)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}
