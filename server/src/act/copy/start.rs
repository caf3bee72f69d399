//! The beginning of a COPY: what is copied, in which form, and into which transaction.

use datafusion::common::DFSchema;
use millpond_planner::{
    bind::{BoundCopyFrom, BoundQuery},
    catalog::fold,
    functions::clock,
    parse::statement::{CopyFormat as Form, CopyOptions},
    types::SqlType,
};

use crate::{
    act::{
        copy::{CopyTarget, Destination, Filling, TableCopy},
        dml::target::physical_over,
        select,
    },
    answer::{Answer, Column, CopyFormat},
    error::{Result, SqlError},
    session::{Session, cancel::Cancel, transaction::Phase},
    system_tables::numbers,
};

/// COPY table FROM STDIN.
pub(crate) async fn from_stdin(session: &mut Session, from: &BoundCopyFrom, cancel: &Cancel) -> Result<Answer> {
    session.require_writable("COPY FROM")?;
    let server = session.server.clone();
    let target = server.targets.get(&server, from.table.id)?;
    let no_columns = DFSchema::empty();
    let mut filling = Vec::with_capacity(target.schema().fields().len());
    for number in 0..target.schema().fields().len() {
        let given = from.columns.iter().position(|column| *column == number);
        let default = from.defaults.iter().find(|(column, _)| *column == number);
        filling.push(match (given, default) {
            (Some(place), _) => Filling::Value(place),
            (None, Some((_, default))) => {
                Filling::Default(physical_over(&clock::resolve_expression(default.clone(), session.times())?, &no_columns)?)
            }
            (None, None) => return Err(SqlError::internal("a column of COPY has neither a value nor a default")),
        });
    }
    let columns: Vec<Column> = from
        .columns
        .iter()
        .map(|number| {
            let column = &target.object.columns()[*number];
            described(&column.name, &column.sql_type, column.modifier, numbers::oid(target.object.id), *number as i16 + 1)
        })
        .collect();
    let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
    let format = format(&from.options, &names)?;
    let destination = match session.transaction.phase() {
        Phase::Block => Destination::Lent(session.lend_work()),
        Phase::Implicit => {
            // Earlier statements of the script come first: nobody would commit them after the data.
            session.commit(cancel).await?;
            Destination::Alone
        }
        Phase::Idle | Phase::Failed => Destination::Alone,
    };
    let copy = CopyTarget { target, columns: from.columns.clone(), filling, text: session.text_settings() };
    let sink = Box::new(TableCopy::new(server, copy, &format, destination, cancel.clone()));
    Ok(Answer::CopyIn { columns, format, sink })
}

/// COPY .. TO STDOUT.
pub(crate) async fn to_stdout(session: &mut Session, query: &BoundQuery, options: &CopyOptions, cancel: &Cancel) -> Result<Answer> {
    let names: Vec<String> = query.columns.iter().map(|column| column.name.clone()).collect();
    let format = format(options, &names)?;
    let (columns, stream) = select::open(session, query, &[], cancel.clone()).await?;
    Ok(Answer::CopyOut { columns, format, stream })
}

fn described(name: &str, sql_type: &SqlType, modifier: i32, table_oid: i32, column_number: i16) -> Column {
    Column {
        name: name.to_owned(),
        data_type: sql_type.arrow(),
        type_oid: sql_type.oid(),
        type_modifier: modifier,
        table_oid,
        column_number,
    }
}

/// The options as the coders take them.
fn format(options: &CopyOptions, names: &[String]) -> Result<CopyFormat> {
    let byte = |character: char| {
        u8::try_from(character).ok().filter(u8::is_ascii).ok_or_else(|| SqlError::unsupported("COPY delimiters must be ASCII characters"))
    };
    let chosen = |columns: &[_]| {
        let columns: Vec<String> = columns.iter().map(fold).collect();
        if let Some(unknown) = columns.iter().find(|column| !names.contains(column)) {
            return Err(SqlError::new("42703", format!("column \"{unknown}\" does not exist")));
        }
        Ok(names.iter().map(|name| columns.contains(name)).collect::<Vec<bool>>())
    };
    let (delimiter, null, header) = (byte(options.delimiter)?, options.null.clone(), options.header);
    Ok(match options.format {
        Form::Text => CopyFormat::Text { delimiter, null, header },
        Form::Binary => CopyFormat::Binary,
        Form::Csv => CopyFormat::Csv {
            delimiter,
            null,
            header,
            quote: byte(options.quote)?,
            escape: byte(options.escape)?,
            force_quote: if options.force_quote_all { vec![true; names.len()] } else { chosen(&options.force_quote)? },
            force_not_null: chosen(&options.force_not_null)?,
            force_null: chosen(&options.force_null)?,
        },
    })
}
