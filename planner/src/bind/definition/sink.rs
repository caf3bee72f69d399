//! CREATE SINK.

use std::rc::Rc;

use sqlparser::ast::Spanned;

use super::{distinct_names, option_map, table_as::named_columns};
use crate::{
    bind::{
        binder::Binder,
        bound::{BoundCreateAs, BoundQuery},
        query::BoundRows,
        reference::write_out,
    },
    catalog::{
        CatalogChange, ObjectBody, QualifiedName,
        object::{Column, Sink, SinkInput},
    },
    error::{PlanError, Result, sqlstate},
    parse::statement::{CreateSink, SinkInput as ParsedInput},
};

impl Binder<'_> {
    pub(in crate::bind) fn create_sink(&self, create: &CreateSink, sql: &str) -> Result<BoundCreateAs> {
        let name = QualifiedName::from_ast(&create.name)?;
        let mut notices = Vec::new();
        let place = self.new_name(&name, create.if_not_exists, &mut notices)?;
        let options = option_map(&create.options);
        if !options.contains_key("connector") {
            return Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, "missing option \"connector\"")
                .with_hint("For example, WITH (connector = 'blackhole')."));
        }
        let (query, input, columns) = self.sink_input(create)?;
        let Some(place) = place else { return Ok(BoundCreateAs { change: None, query, fill: false, notices }) };
        let sink = Sink {
            columns,
            input,
            emit_on_window_close: create.emit_on_window_close,
            options,
            settings: self.query_settings(),
            join_order: None,
        };
        let object = self.new_object(place, sql, ObjectBody::Sink(sink));
        Ok(BoundCreateAs { change: Some(CatalogChange::put(object)), query, fill: false, notices })
    }

    fn sink_input(&self, create: &CreateSink) -> Result<(BoundQuery, SinkInput, Vec<Column>)> {
        match &create.input {
            ParsedInput::Query(query, text) => {
                let bound = self.top_query(query)?;
                self.no_parameters(&bound)?;
                let columns = named_columns(&bound, &[], "too many column names were specified")?;
                let definition = write_out(&text.text, text.start, &self.references(), self.context.catalog)?;
                Ok((bound, SinkInput::Query(definition), columns))
            }
            ParsedInput::Relation(name) => {
                let qualified = QualifiedName::from_ast(name)?;
                let object = self.find_relation(&qualified, name.span())?;
                let item = self.relation(&qualified, None, name.span(), &Rc::default())?;
                let columns: Vec<_> = item.scope.visible_columns().cloned().collect();
                let bound = self.finish_query(BoundRows { plan: item.plan, columns })?;
                let columns: Vec<Column> =
                    bound.columns.iter().map(|column| Column::new(column.name.clone(), column.sql_type.clone(), column.modifier)).collect();
                distinct_names(&columns)?;
                Ok((bound, SinkInput::Relation(object.id), columns))
            }
        }
    }
}
