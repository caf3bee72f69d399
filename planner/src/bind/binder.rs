//! What is shared while one statement is bound.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use arrow::datatypes::{DataType, Field};
use datafusion::logical_expr::{Expr, expr::Placeholder};
use sqlparser::tokenizer::Span;

use super::{
    BindContext,
    reference::{Form, Reference},
    typed::Typed,
};
use crate::{
    error::{PlanError, Result, sqlstate},
    functions::{Environment, cast::relation_named, system::NOT_OF_SESSION},
    types::SqlType,
};

/// Most parameters of a statement: the protocol counts them in 16 bits.
const MAX_PARAMETERS: usize = 65_535;

/// Binds one statement.
pub struct Binder<'a> {
    pub(crate) context: &'a BindContext<'a>,
    /// The session, for functions that depend on it.
    pub(crate) environment: Arc<Environment>,
    parameters: RefCell<Vec<Option<SqlType>>>,
    qualifiers: RefCell<BTreeMap<String, usize>>,
    dependencies: RefCell<BTreeSet<u64>>,
    references: RefCell<Vec<Reference>>,
    /// How many views deep the text stands that is being bound; 0 is the user's own.
    depth: RefCell<usize>,
    /// Queries and relations of the plan so far, each as often as the plan has it.
    relations: Cell<usize>,
    /// Parts of expressions that the plan has once more than they are written.
    pub(super) repeated: Cell<usize>,
    /// Types of the columns that the next query's rows are stored in.
    pub(super) targets: RefCell<Option<Vec<SqlType>>>,
}

/// Views within views within views.
const MAX_VIEW_DEPTH: usize = 64;

/// Most queries and relations of a plan. A reference to a WITH query or a view repeats its plan, so that a short text can mean a plan of any size.
const MAX_RELATIONS: usize = 4_000;

impl<'a> Binder<'a> {
    pub(super) fn new(context: &'a BindContext<'a>) -> Self {
        let environment = Environment {
            text: context.text.clone(),
            catalog: context.catalog.clone(),
            search_path: context.search_path.into(),
            user: context.user.into(),
            database: context.database.into(),
            server_version: context.server_version.into(),
            live: context.system.live(),
        };
        Self {
            context,
            environment: Arc::new(environment),
            parameters: RefCell::new(context.parameter_types.to_vec()),
            qualifiers: RefCell::default(),
            dependencies: RefCell::default(),
            references: RefCell::default(),
            depth: RefCell::default(),
            relations: Cell::default(),
            repeated: Cell::default(),
            targets: RefCell::default(),
        }
    }

    /// A qualifier that nothing else in the statement has: the name itself the first time.
    pub(super) fn unique_qualifier(&self, name: &str) -> String {
        let mut qualifiers = self.qualifiers.borrow_mut();
        if !qualifiers.contains_key(name) {
            qualifiers.insert(name.to_owned(), 0);
            return name.to_owned();
        }
        loop {
            let count = qualifiers.get_mut(name).expect("it was just found");
            *count += 1;
            let candidate = format!("{name}_{count}");
            if !qualifiers.contains_key(&candidate) {
                qualifiers.insert(candidate.clone(), 0);
                return candidate;
            }
        }
    }

    /// Notes that the statement needs an object, and where it names it if that is in the user's own text.
    pub(super) fn depend_on(&self, reference: Reference) {
        if *self.depth.borrow() == 0 {
            self.dependencies.borrow_mut().insert(reference.id);
            self.references.borrow_mut().push(reference);
        }
    }

    /// The reference at `span` stands where no alias may follow.
    pub(super) fn forbid_implied_alias(&self, span: Span) {
        for reference in self.references.borrow_mut().iter_mut().filter(|reference| reference.span == span) {
            if let Form::Name { implied_alias } = &mut reference.form {
                *implied_alias = None;
            }
        }
    }

    /// A constant of type `regclass` names a relation by a text, written at `span`: as in Postgres it means that relation from then on.
    pub(super) fn depend_on_named(&self, text: &str, span: Option<Span>) {
        let written = span.filter(|span| *span != Span::empty());
        if let (Some(span), Ok(object)) = (written, relation_named(&self.environment, text)) {
            self.depend_on(Reference { id: object.id, span, form: Form::Text });
        }
    }

    /// Refuses a function that tells of the session where the result is kept for all sessions.
    ///
    /// # Errors
    /// 0A000 with the function's name.
    pub(crate) fn require_session(&self, function: &str) -> Result<()> {
        if !self.context.is_kept {
            return Ok(());
        }
        Err(PlanError::unsupported(format!("function {function}() is not supported in a materialized view")).with_hint(NOT_OF_SESSION))
    }

    /// Numbers of the objects the statement names.
    pub(super) fn dependencies(&self) -> BTreeSet<u64> {
        self.dependencies.borrow().clone()
    }

    /// Where it names them.
    pub(super) fn references(&self) -> Vec<Reference> {
        self.references.borrow().clone()
    }

    /// Queries and relations of the plan so far.
    pub(super) fn relations(&self) -> usize {
        self.relations.get()
    }

    /// Notes that the plan has so many queries and relations more.
    ///
    /// # Errors
    /// 54001 if these are too many; what the statement is interrupted with.
    pub(super) fn add_relations(&self, more: usize, span: Span) -> Result<()> {
        self.context.interrupt.check()?;
        let total = self.relations.get().saturating_add(more);
        self.relations.set(total);
        if total <= MAX_RELATIONS {
            return Ok(());
        }
        Err(PlanError::new(sqlstate::STATEMENT_TOO_COMPLEX, "statement is too complex")
            .with_detail(format!("Its plan would have more than {MAX_RELATIONS} queries and relations."))
            .with_hint("Each reference to a WITH query or view repeats its plan. Keep its rows in a table or materialized view instead.")
            .at(span))
    }

    /// Binds the text of a view.
    pub(super) fn inside_view<T>(&self, bind: impl FnOnce() -> Result<T>) -> Result<T> {
        if *self.depth.borrow() >= MAX_VIEW_DEPTH {
            return Err(PlanError::new(sqlstate::STATEMENT_TOO_COMPLEX, "views are nested too deeply"));
        }
        *self.depth.borrow_mut() += 1;
        let result = bind().map_err(PlanError::without_position);
        *self.depth.borrow_mut() -= 1;
        result
    }

    /// The parameter `$number`.
    pub(super) fn parameter(&self, text: &str, span: Span) -> Result<Typed> {
        let missing = || PlanError::new(sqlstate::UNDEFINED_PARAMETER, format!("there is no parameter {text}")).at(span);
        let number: usize = text.strip_prefix('$').and_then(|number| number.parse().ok()).ok_or_else(missing)?;
        if number == 0 || number > MAX_PARAMETERS || *self.depth.borrow() > 0 {
            return Err(missing());
        }
        let mut parameters = self.parameters.borrow_mut();
        if parameters.len() < number {
            parameters.resize(number, None);
        }
        let sql_type = parameters[number - 1].clone();
        let placeholder = |data_type| placeholder(text.to_owned(), data_type);
        Ok(match sql_type {
            Some(sql_type) => Typed::new(placeholder(Some(sql_type.arrow())), sql_type),
            None => Typed::new(placeholder(None), SqlType::Unknown),
        })
    }

    /// Settles the type of a parameter that has none yet. One that was settled since the expression was made is converted by the caller.
    pub(super) fn settle_parameter(&self, id: &str, sql_type: &SqlType) -> Typed {
        let index = id.trim_start_matches('$').parse::<usize>().unwrap_or(1) - 1;
        let mut parameters = self.parameters.borrow_mut();
        let settled = parameters[index].get_or_insert_with(|| sql_type.clone()).clone();
        Typed::new(placeholder(id.to_owned(), Some(settled.arrow())), settled)
    }

    pub(super) fn parameter_count(&self) -> usize {
        self.parameters.borrow().len()
    }

    /// The types of all parameters.
    ///
    /// # Errors
    /// 42P18 for one whose type nothing told.
    pub(super) fn parameter_types(&self) -> Result<Vec<SqlType>> {
        let parameters = self.parameters.borrow();
        let types = parameters.iter().enumerate().map(|(index, sql_type)| {
            sql_type.clone().ok_or_else(|| {
                let message = format!("could not determine data type of parameter ${}", index + 1);
                PlanError::new(sqlstate::INDETERMINATE_DATATYPE, message)
            })
        });
        types.collect()
    }
}

/// A parameter, of a type if that is known.
pub(super) fn placeholder(id: String, data_type: Option<DataType>) -> Expr {
    let field = data_type.map(|data_type| Arc::new(Field::new(&id, data_type, true)));
    Expr::Placeholder(Placeholder::new_with_field(id, field))
}
