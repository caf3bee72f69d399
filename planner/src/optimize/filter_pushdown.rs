//! DataFusion pushes filters through its physical operators by the names of columns, and takes the first of two with one name: a filter on `b.id` above a join of
//! `a` and `b` becomes one on `a.id` below it (apache/datafusion#25244 and #25296, mended after 55.2). So a plan with such a schema keeps its filters where the
//! logical rules, which go by qualified names, have put them.

use std::{collections::BTreeSet, sync::Arc};

use datafusion::{
    common::tree_node::{TreeNode, TreeNodeRecursion},
    config::ConfigOptions,
    error::Result,
    physical_optimizer::{
        PhysicalOptimizerRule,
        optimizer::{PhysicalOptimizer, PhysicalOptimizerContext},
    },
    physical_plan::ExecutionPlan,
};

/// How the names of the rules begin that push filters.
const PUSHING: &str = "FilterPushdown";

/// DataFusion's rules of physical plans.
pub(crate) fn physical_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let guarded = |rule: Arc<dyn PhysicalOptimizerRule + Send + Sync>| -> Arc<dyn PhysicalOptimizerRule + Send + Sync> {
        if rule.name().starts_with(PUSHING) { Arc::new(UnlessAmbiguous(rule)) } else { rule }
    };
    PhysicalOptimizer::new().rules.into_iter().map(guarded).collect()
}

/// A rule that leaves a plan alone in which a schema has two columns of one name.
#[derive(Debug)]
struct UnlessAmbiguous(Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl PhysicalOptimizerRule for UnlessAmbiguous {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        if is_ambiguous(&plan)? { Ok(plan) } else { self.0.optimize(plan, config) }
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if is_ambiguous(&plan)? { Ok(plan) } else { self.0.optimize_with_context(plan, context) }
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

fn is_ambiguous(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        let schema = node.schema();
        let names: BTreeSet<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        found |= names.len() < schema.fields().len();
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}
