//! CREATE: which kind, and the pieces several kinds share: elements in parentheses, WITH options, FORMAT and ENCODE.

use sqlparser::{
    ast::{ColumnOption, Expr, Ident, TableConstraint, UnaryOperator, Value},
    tokenizer::Token,
};

use super::{
    grammar::Grammar,
    statement::{CheckDefinition, ColumnDefinition, Statement, TableElements, WatermarkDefinition, WithOption},
};
use crate::error::{PlanError, Result, sqlstate};

impl Grammar<'_> {
    pub(super) fn read_create(&mut self) -> Result<Statement> {
        self.expect_word("CREATE")?;
        let or_replace = self.words(&["OR", "REPLACE"]);
        let temporary = self.one_of(&["TEMPORARY", "TEMP", "UNLOGGED", "GLOBAL", "LOCAL"]).is_some();
        if temporary {
            let _ = self.one_of(&["TEMPORARY", "TEMP"]);
            return Err(PlanError::unsupported("temporary and unlogged objects are not supported").with_hint("Create an ordinary one."));
        }
        if self.word("MATERIALIZED") {
            self.expect_word("VIEW")?;
            return self.read_create_view(true, or_replace);
        }
        if self.word("VIEW") {
            return self.read_create_view(false, or_replace);
        }
        if let Some(error) = self.unsupported_kind("CREATE") {
            return Err(error);
        }
        if or_replace {
            return Err(PlanError::unsupported("CREATE OR REPLACE is supported for views only").with_hint("Drop the object first."));
        }
        match self.one_of(&["TABLE", "SOURCE", "SINK", "SCHEMA", "UNIQUE", "INDEX"]) {
            Some("TABLE") => self.read_create_table(),
            Some("SOURCE") => self.read_create_source(),
            Some("SINK") => self.read_create_sink(),
            Some("SCHEMA") => self.read_create_schema(),
            Some("UNIQUE") => {
                self.expect_word("INDEX")?;
                self.read_create_index(true)
            }
            Some("INDEX") => self.read_create_index(false),
            _ => Err(self.unexpected()),
        }
    }

    fn read_create_schema(&mut self) -> Result<Statement> {
        let if_not_exists = self.if_not_exists();
        let name = self.identifier()?;
        if self.word("AUTHORIZATION") {
            self.identifier()?;
        }
        Ok(Statement::CreateSchema { name, if_not_exists })
    }

    /// `(columns, constraints, WATERMARK FOR ..)`, after the opening parenthesis.
    pub(super) fn table_elements(&mut self) -> Result<TableElements> {
        let mut elements = TableElements::default();
        if self.symbol(&Token::RParen) {
            return Ok(elements);
        }
        loop {
            self.table_element(&mut elements)?;
            if self.symbol(&Token::RParen) {
                return Ok(elements);
            }
            self.expect_symbol(&Token::Comma)?;
        }
    }

    fn table_element(&mut self, elements: &mut TableElements) -> Result<()> {
        if self.peeks("WATERMARK") && self.peeks_at(1, "FOR") {
            let span = self.parser.peek_token_ref().span;
            self.parser.advance_token();
            self.parser.advance_token();
            let column = self.identifier()?;
            self.expect_word("AS")?;
            let start = self.parser.index();
            let expression = self.expression()?;
            let text = self.text_since(start).to_owned();
            let watermark = WatermarkDefinition { column, expression, text };
            return match elements.watermark.replace(watermark) {
                None => Ok(()),
                Some(_) => Err(PlanError::new(sqlstate::INVALID_TABLE_DEFINITION, "only one watermark may be defined").at(span)),
            };
        }
        if self.peeks("LIKE") {
            return Err(PlanError::unsupported("CREATE TABLE .. LIKE is not supported").with_hint("List the columns."));
        }
        if self.starts_constraint() {
            return self.table_constraint(elements);
        }
        let column = self.column_definition(elements)?;
        elements.columns.push(column);
        Ok(())
    }

    fn starts_constraint(&self) -> bool {
        ["CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN", "EXCLUDE"].iter().any(|word| self.peeks(word))
    }

    fn table_constraint(&mut self, elements: &mut TableElements) -> Result<()> {
        let span = self.parser.peek_token_ref().span;
        let constraint = self.run(|parser| parser.parse_optional_table_constraint())?;
        match constraint {
            Some(TableConstraint::PrimaryKey(key)) => {
                let columns = key.columns.into_iter().map(|column| match column.column.expr {
                    Expr::Identifier(name) => Ok(name),
                    other => Err(PlanError::new(sqlstate::SYNTAX_ERROR, format!("syntax error at or near \"{other}\"")).at(span)),
                });
                let columns = columns.collect::<Result<Vec<_>>>()?;
                match elements.primary_key.replace((key.name, columns)) {
                    None => Ok(()),
                    Some(_) => Err(PlanError::new(sqlstate::INVALID_TABLE_DEFINITION, "multiple primary keys are not allowed").at(span)),
                }
            }
            Some(TableConstraint::Check(check)) => {
                let text = check.expr.to_string();
                elements.checks.push(CheckDefinition { name: check.name, expression: *check.expr, text });
                Ok(())
            }
            Some(TableConstraint::Unique(_)) => Err(unique_unsupported().at(span)),
            Some(TableConstraint::ForeignKey(_)) => Err(foreign_key_unsupported().at(span)),
            _ => Err(self.unexpected()),
        }
    }

    fn column_definition(&mut self, elements: &mut TableElements) -> Result<ColumnDefinition> {
        let definition = self.run(|parser| parser.parse_column_def())?;
        let span = definition.name.span;
        let mut column = ColumnDefinition {
            name: definition.name,
            data_type: definition.data_type,
            not_null: false,
            default: None,
            primary_key: false,
            checks: Vec::new(),
        };
        for option in definition.options {
            match option.option {
                ColumnOption::Null => {}
                ColumnOption::NotNull => column.not_null = true,
                ColumnOption::Default(expression) => {
                    let text = expression.to_string();
                    column.default = Some((expression, text));
                }
                ColumnOption::PrimaryKey(_) => column.primary_key = true,
                ColumnOption::Check(check) => {
                    let text = check.expr.to_string();
                    let name = option.name.clone().or(check.name);
                    column.checks.push(CheckDefinition { name, expression: *check.expr, text });
                }
                ColumnOption::Collation(_) | ColumnOption::Comment(_) => {}
                ColumnOption::Unique(_) => return Err(unique_unsupported().at(span)),
                ColumnOption::ForeignKey(_) => return Err(foreign_key_unsupported().at(span)),
                ColumnOption::Generated { .. } | ColumnOption::Identity(_) => {
                    return Err(PlanError::unsupported("generated and identity columns are not supported")
                        .with_hint(
                            "Compute the value in the INSERT, or in a view over the table; UUID DEFAULT gen_random_uuid() makes keys.",
                        )
                        .at(span));
                }
                other => return Err(PlanError::unsupported(format!("column option {other} is not supported")).at(span)),
            }
        }
        if column.primary_key && elements.columns.iter().any(|other| other.primary_key) {
            return Err(PlanError::new(sqlstate::INVALID_TABLE_DEFINITION, "multiple primary keys are not allowed").at(span));
        }
        Ok(column)
    }

    /// `WITH (key = value, ..)` if it is there, with keys in lower case.
    pub(super) fn with_options(&mut self) -> Result<Vec<WithOption>> {
        let mut options = Vec::new();
        if self.peeks("WITH") && self.parser.peek_nth_token_ref(1).token == Token::LParen {
            self.parser.advance_token();
            self.parenthesized_options(&mut options)?;
        }
        Ok(options)
    }

    pub(super) fn parenthesized_options(&mut self, options: &mut Vec<WithOption>) -> Result<()> {
        self.expect_symbol(&Token::LParen)?;
        if self.symbol(&Token::RParen) {
            return Ok(());
        }
        loop {
            let span = self.parser.peek_token_ref().span;
            let key = self.option_key()?;
            let value = if self.symbol(&Token::Eq) { self.option_value()? } else { "true".to_owned() };
            add_option(options, WithOption { key, value, span })?;
            if self.symbol(&Token::RParen) {
                return Ok(());
            }
            self.expect_symbol(&Token::Comma)?;
        }
    }

    /// `a.b.c`, `"a.b"` or `'a.b'`.
    pub(super) fn option_key(&mut self) -> Result<String> {
        if let Ok(text) = self.string() {
            return Ok(text.to_lowercase());
        }
        let mut key = self.identifier()?.value;
        while self.symbol(&Token::Period) {
            key.push('.');
            key.push_str(&self.identifier()?.value);
        }
        Ok(key.to_lowercase())
    }

    pub(super) fn option_value(&mut self) -> Result<String> {
        let start = self.parser.index();
        let expression = self.expression()?;
        Ok(match expression {
            Expr::Value(value) => match value.value {
                Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => text,
                Value::DollarQuotedString(text) => text.value,
                Value::Number(number, _) => number,
                Value::Boolean(value) => value.to_string(),
                other => other.to_string(),
            },
            Expr::Identifier(Ident { value, quote_style, .. }) => {
                if quote_style.is_some() {
                    value
                } else {
                    value.to_lowercase()
                }
            }
            Expr::Interval(interval) => match *interval.value {
                Expr::Value(value) => value.value.into_string().unwrap_or_default(),
                _ => return Err(self.unexpected()),
            },
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => format!("-{expr}"),
            _ => self.text_since(start).to_owned(),
        })
    }

    /// `FORMAT PLAIN ENCODE CSV (delimiter = ';')` as the options `format = csv`, `delimiter = ;`.
    pub(super) fn format_clause(&mut self, options: &mut Vec<WithOption>) -> Result<()> {
        if !self.peeks("FORMAT") {
            return Ok(());
        }
        self.expect_word("FORMAT")?;
        let envelope = self.identifier()?;
        if !envelope.value.eq_ignore_ascii_case("plain") {
            let message = format!("FORMAT {} is not supported", envelope.value.to_uppercase());
            return Err(PlanError::unsupported(message).with_hint("Use FORMAT PLAIN.").at(envelope.span));
        }
        let span = self.parser.peek_token_ref().span;
        self.expect_word("ENCODE")?;
        let value = self.identifier()?.value.to_lowercase();
        add_option(options, WithOption { key: "format".to_owned(), value, span })?;
        if self.parser.peek_token_ref().token == Token::LParen {
            self.parenthesized_options(options)?;
        }
        Ok(())
    }
}

fn add_option(options: &mut Vec<WithOption>, option: WithOption) -> Result<()> {
    if options.iter().any(|other| other.key == option.key) {
        return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "conflicting or redundant options").at(option.span));
    }
    options.push(option);
    Ok(())
}

fn unique_unsupported() -> PlanError {
    PlanError::unsupported("UNIQUE constraints are not supported").with_hint("A table has one key, its PRIMARY KEY.")
}

fn foreign_key_unsupported() -> PlanError {
    PlanError::unsupported("foreign keys are not supported").with_hint("Leave the constraint out; joins do not need it.")
}
