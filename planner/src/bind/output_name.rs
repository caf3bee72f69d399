//! Names of columns that a query does not name: Postgres' guesses.

use sqlparser::ast::{self, AccessExpr, Expr, Query, SelectItem, SetExpr};

use crate::{catalog::fold, types::name::from_ast};

const UNNAMED: &str = "?column?";

/// The name of a column that shows an expression.
pub(super) fn of_expression(ast: &Expr) -> String {
    guess(ast).map_or_else(|| UNNAMED.to_owned(), |(name, _)| name)
}

/// A name and whether it is a strong one: a cast passes on strong names only.
fn guess(ast: &Expr) -> Option<(String, bool)> {
    let strong = |name: &str| Some((name.to_owned(), true));
    match ast {
        Expr::Identifier(ident) => Some((fold(ident), true)),
        Expr::CompoundIdentifier(parts) => parts.last().map(|part| (fold(part), true)),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => guess(inner),
        Expr::Function(function) => function.name.0.last().and_then(|part| part.as_ident()).map(|ident| (fold(ident), true)),
        Expr::CompoundFieldAccess { root, access_chain } => match access_chain.iter().rev().find_map(|access| match access {
            AccessExpr::Dot(Expr::Identifier(name)) => Some(fold(name)),
            _ => None,
        }) {
            Some(name) => Some((name, true)),
            None => guess(root),
        },
        Expr::Cast { expr, data_type, .. } => match guess(expr) {
            Some((name, true)) => Some((name, true)),
            weak => from_ast(data_type).ok().map(|(sql_type, _)| (sql_type.internal_name(), false)).or(weak),
        },
        Expr::TypedString(typed) => from_ast(&typed.data_type).ok().map(|(sql_type, _)| (sql_type.internal_name(), false)),
        Expr::Interval(_) => Some(("interval".to_owned(), false)),
        Expr::Value(value) => matches!(value.value, ast::Value::Boolean(_)).then(|| ("bool".to_owned(), false)),
        Expr::Case { else_result, .. } => match else_result.as_deref().and_then(guess) {
            Some((name, true)) => Some((name, true)),
            _ => Some(("case".to_owned(), false)),
        },
        Expr::Exists { .. } => strong("exists"),
        Expr::Subquery(query) => of_query(query).map(|name| (name, true)),
        Expr::Array(_) => strong("array"),
        Expr::Tuple(_) => strong("row"),
        Expr::Extract { .. } => strong("extract"),
        Expr::Ceil { .. } => strong("ceil"),
        Expr::Floor { .. } => strong("floor"),
        Expr::Position { .. } => strong("position"),
        Expr::Substring { .. } => strong("substring"),
        Expr::Overlay { .. } => strong("overlay"),
        Expr::AtTimeZone { .. } => strong("timezone"),
        Expr::Trim { trim_where, .. } => strong(match trim_where {
            Some(ast::TrimWhereField::Leading) => "ltrim",
            Some(ast::TrimWhereField::Trailing) => "rtrim",
            _ => "btrim",
        }),
        _ => None,
    }
}

/// The name of the only column of a subquery.
fn of_query(query: &Query) -> Option<String> {
    let mut body = query.body.as_ref();
    while let SetExpr::SetOperation { left, .. } = body {
        body = left;
    }
    match body {
        SetExpr::Select(select) => match select.projection.first()? {
            SelectItem::UnnamedExpr(ast) => Some(of_expression(ast)),
            SelectItem::ExprWithAlias { alias, .. } => Some(fold(alias)),
            _ => None,
        },
        SetExpr::Query(inner) => of_query(inner),
        SetExpr::Values(_) => Some("column1".to_owned()),
        _ => None,
    }
}
