//! Calls of functions.

use datafusion::logical_expr::Expr;
use sqlparser::{
    ast::{self, FunctionArg, FunctionArgExpr, FunctionArguments, Spanned},
    tokenizer::Span,
};

use super::{Place, not_supported};
use crate::{
    bind::{binder::Binder, from::has_functions, scope::Scope, typed::Typed},
    catalog::QualifiedName,
    error::{PlanError, Result, sqlstate},
    functions::{
        aggregate, registry,
        resolve::{Unresolved, resolve},
        sequence,
        signature::{Body, Overload},
        window,
    },
    types::SqlType,
};

impl Binder<'_> {
    pub(super) fn function(&self, function: &ast::Function, scope: &Scope<'_>, place: &Place<'_>) -> Result<Typed> {
        let qualified = QualifiedName::from_ast(&function.name)?;
        let span = function.name.span();
        if !has_functions(qualified.schema.as_deref()) {
            let known = self.context.catalog.schema(qualified.schema.as_deref().unwrap_or_default()).is_some();
            return Err(if known {
                undefined(&qualified.to_string(), &[], span)
            } else {
                crate::catalog::no_schema(qualified.schema.as_deref().unwrap_or_default()).at(span)
            });
        }
        let name = qualified.name.as_str();
        if !matches!(function.parameters, FunctionArguments::None) {
            return Err(PlanError::unsupported("function parameters in front of the arguments are not supported").at(span));
        }
        if name == "array"
            && let FunctionArguments::Subquery(query) = &function.args
        {
            return self.array_subquery(query, scope);
        }
        if name == "row" && qualified.schema.is_none() {
            let values = self.arguments(&function.args, scope, place)?;
            let values = values.into_iter().map(|value| self.known(value)).collect::<Result<_>>()?;
            return self.record(values, None);
        }
        if function.over.is_some() {
            return self.window_call(name, function, scope, place);
        }
        if aggregate::is_aggregate(name) {
            return self.aggregate_call(name, function, scope, place);
        }
        if window::is_window_function(name) {
            let message = format!("window function {name} requires an OVER clause");
            return Err(PlanError::new(sqlstate::WINDOWING_ERROR, message).at(span));
        }
        let refuse = |what: &str| {
            let message = format!("{what} specified, but {name} is not an aggregate function");
            Err(PlanError::new(sqlstate::WRONG_OBJECT_TYPE, message).at(span))
        };
        if function.filter.is_some() {
            return refuse("FILTER");
        }
        if !function.within_group.is_empty() {
            return refuse("WITHIN GROUP");
        }
        if let FunctionArguments::List(list) = &function.args {
            if list.duplicate_treatment.is_some() {
                return refuse("DISTINCT");
            }
            if !list.clauses.is_empty() {
                return refuse("ORDER BY");
            }
        }
        let several_columns = sequence::columns_of(name).is_some();
        if (sequence::is_set_returning(name) || several_columns) && !place.sets {
            let message = format!("set-returning functions are not allowed in {}", place.clause);
            return Err(PlanError::unsupported(message).with_hint("Call it in FROM.").at(span));
        }
        if name == "grouping" {
            return self.grouping_call(function, scope, place);
        }
        let arguments = self.arguments(&function.args, scope, place)?;
        let value = self.call(name, arguments, span)?;
        if several_columns { Ok(self.record_rows(value)?.with_modifier(sequence::modifier_of(name))) } else { Ok(value) }
    }

    /// Lists side by side as rows of records.
    fn record_rows(&self, lists: Typed) -> Result<Typed> {
        let SqlType::Record(types) = lists.sql_type.clone() else { return Err(PlanError::internal("lists without a record")) };
        let column = |(index, sql_type)| sequence::rows_of(Typed::new(sequence::record_field(lists.expr.clone(), index), sql_type));
        self.record(types.into_iter().enumerate().map(column).collect::<Result<_>>()?, None)
    }

    /// The values of a call's arguments.
    pub(in crate::bind) fn arguments(&self, arguments: &FunctionArguments, scope: &Scope<'_>, place: &Place<'_>) -> Result<Vec<Typed>> {
        let list = match arguments {
            FunctionArguments::None => return Ok(Vec::new()),
            FunctionArguments::Subquery(query) => return Ok(vec![self.scalar_subquery(query, scope)?]),
            FunctionArguments::List(list) => list,
        };
        let place = place.in_value();
        let mut values = Vec::with_capacity(list.args.len());
        for argument in &list.args {
            match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(ast)) => values.push(self.expression(ast, scope, &place)?),
                FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(name)) => {
                    let name = QualifiedName::from_ast(name)?;
                    values.push(self.whole_row(name.schema.as_deref(), &name.name, scope, argument.span())?);
                }
                FunctionArg::Unnamed(_) => {
                    return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "* is an argument of count only").at(argument.span()));
                }
                FunctionArg::Named { .. } | FunctionArg::ExprNamed { .. } => {
                    return Err(not_supported("named notation of arguments", "Give the arguments in order.", argument.span()));
                }
            }
        }
        Ok(values)
    }

    /// Calls a function of the name on expressions that stand in special syntax.
    pub(super) fn call_on(&self, name: &str, arguments: &[&ast::Expr], scope: &Scope<'_>, place: &Place<'_>, span: Span) -> Result<Typed> {
        let place = place.in_value();
        let arguments = arguments.iter().map(|argument| self.expression(argument, scope, &place)).collect::<Result<_>>()?;
        self.call(name, arguments, span)
    }

    /// Calls a function by its name.
    ///
    /// # Errors
    /// 42883 `function f(integer) does not exist`, 42725 if several fit.
    pub(crate) fn call(&self, name: &str, arguments: Vec<Typed>, span: Span) -> Result<Typed> {
        let types: Vec<SqlType> = arguments.iter().map(|argument| argument.sql_type.clone()).collect();
        let overloads = registry::overloads(name);
        let problem = match self.try_call(overloads, arguments.clone(), false) {
            Ok(result) => return result.map_err(|error| error.at(span)),
            Err(problem) => problem,
        };
        if let [argument] = arguments.as_slice()
            && let Ok((sql_type, _)) = crate::types::name::parse_type_name(name)
            && overloads.is_empty()
        {
            return self.cast_to(argument.clone(), &sql_type, -1, span);
        }
        if overloads.is_empty()
            && let Some(call) = self.call_datafusion(name, arguments, span)?
        {
            return Ok(call);
        }
        let shown = types.iter().map(SqlType::name).collect::<Vec<_>>().join(", ");
        Err(match problem {
            Unresolved::None => undefined(name, &types, span),
            Unresolved::Ambiguous => PlanError::new(sqlstate::AMBIGUOUS_FUNCTION, format!("function {name}({shown}) is not unique"))
                .with_hint("Could not choose a best candidate function. You might need to add explicit type casts.")
                .at(span),
        })
    }

    /// Calls the overload that fits; the outer error is that none does.
    pub(super) fn try_call(
        &self,
        overloads: &'static [Overload],
        arguments: Vec<Typed>,
        operator: bool,
    ) -> Result<Result<Typed>, Unresolved> {
        let types: Vec<SqlType> = arguments.iter().map(|argument| argument.sql_type.clone()).collect();
        let resolved = resolve(overloads, &types, operator)?;
        let call = || {
            let mut converted = Vec::with_capacity(arguments.len());
            for (argument, target) in arguments.into_iter().zip(&resolved.arguments) {
                converted.push(match target {
                    Some(target) => self.implicit(argument, target)?,
                    None => argument,
                });
            }
            match resolved.overload.body {
                Body::Rewrite(rewrite) => rewrite(self, converted),
                Body::Kernel(..) => Ok(self.kernel_call(resolved.overload, converted, resolved.element.as_ref())),
            }
        };
        Ok(call())
    }

    fn kernel_call(&self, overload: &Overload, arguments: Vec<Typed>, element: Option<&SqlType>) -> Typed {
        let types: Vec<SqlType> = arguments.iter().map(|argument| argument.sql_type.clone()).collect();
        let result = overload.signature.result.resolve(&types, element);
        let kernel = overload.kernel().expect("the caller saw that code computes it");
        let expressions: Vec<Expr> = arguments.into_iter().map(|argument| argument.expr).collect();
        let arrow = types.iter().map(SqlType::arrow).collect();
        Typed::new(kernel.call(expressions, arrow, result.arrow(), &self.environment), result)
    }

    /// A function that only DataFusion has, with DataFusion's own coercions.
    fn call_datafusion(&self, name: &str, arguments: Vec<Typed>, span: Span) -> Result<Option<Typed>> {
        let Some(function) = crate::functions::session::datafusion_function(name) else { return Ok(None) };
        let arguments = arguments.into_iter().map(|argument| self.known(argument)).collect::<Result<Vec<_>>>()?;
        let types: Vec<SqlType> = arguments.iter().map(|argument| argument.sql_type.clone()).collect();
        let call =
            crate::functions::session::call_datafusion(function, arguments.into_iter().map(|argument| argument.expr).collect(), &types);
        match call {
            Ok((expr, data_type)) => match SqlType::from_arrow(&data_type) {
                Some(sql_type) => Ok(Some(Typed::new(crate::functions::cast::native(expr, &data_type, &sql_type.arrow()), sql_type))),
                None => Err(not_supported(&format!("the result type of function {name}"), "Use another function.", span)),
            },
            Err(_) => Err(undefined(name, &types, span)),
        }
    }
}

/// 42883.
pub(in crate::bind) fn undefined(name: &str, types: &[SqlType], span: Span) -> PlanError {
    let shown = types.iter().map(SqlType::name).collect::<Vec<_>>().join(", ");
    PlanError::new(sqlstate::UNDEFINED_FUNCTION, format!("function {name}({shown}) does not exist"))
        .with_hint("No function matches the given name and argument types. You might need to add explicit type casts.")
        .at(span)
}
