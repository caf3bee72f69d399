//! A projection above a projection is one, unless that would compute something twice.

use std::sync::Arc;

use datafusion::{
    common::{
        Result,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    physical_expr::expressions::{Column, Literal},
    physical_plan::PhysicalExpr,
};
use millpond_engine::graph::Expression;

/// `above` over the input of `below`; `None` if an expression of `below` is read more than once (it is a common subexpression then).
pub(super) fn compose(above: &[Expression], below: &[Expression], names: &[String]) -> Result<Option<Vec<Expression>>> {
    let mut uses = vec![0usize; below.len()];
    for expression in above {
        expression.physical.apply(|inner| {
            if let Some(column) = inner.downcast_ref::<Column>() {
                uses[column.index()] += 1;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    if below.iter().zip(&uses).any(|(expression, uses)| *uses > 1 && !is_trivial(&expression.physical)) {
        return Ok(None);
    }
    above.iter().map(|expression| substitute(expression, below, names)).collect::<Result<Vec<_>>>().map(Some)
}

fn is_trivial(expression: &Arc<dyn PhysicalExpr>) -> bool {
    expression.downcast_ref::<Column>().is_some() || expression.downcast_ref::<Literal>().is_some()
}

fn substitute(expression: &Expression, below: &[Expression], names: &[String]) -> Result<Expression> {
    if let Some(column) = expression.physical.downcast_ref::<Column>() {
        return Ok(below[column.index()].clone());
    }
    let mut text = expression.text.clone();
    let physical = Arc::clone(&expression.physical).transform_up(|inner| match inner.downcast_ref::<Column>() {
        Some(column) => {
            let replacement = &below[column.index()];
            text = with_name_replaced(&text, &names[column.index()], &replacement.text);
            Ok(Transformed::yes(Arc::clone(&replacement.physical)))
        }
        None => Ok(Transformed::no(inner)),
    })?;
    Ok(Expression { physical: physical.data, text })
}

/// The text for people, with a column's name replaced where it stands as a word of its own, qualified or not.
fn with_name_replaced(text: &str, name: &str, replacement: &str) -> String {
    let is_word = |character: char| character.is_alphanumeric() || matches!(character, '_' | '.' | '$');
    if !name.chars().all(is_word) {
        return text.replace(name, replacement);
    }
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(is_word) {
        let length = rest[start..].find(|character| !is_word(character)).unwrap_or(rest.len() - start);
        let word = &rest[start..start + length];
        result.push_str(&rest[..start]);
        let matches = word == name || word.strip_suffix(name).is_some_and(|qualifier| qualifier.ends_with('.'));
        result.push_str(if matches { replacement } else { word });
        rest = &rest[start + length..];
    }
    result.push_str(rest);
    result
}
