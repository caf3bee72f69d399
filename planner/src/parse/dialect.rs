//! What `sqlparser` is told of the dialect: PostgreSQL's, but for one thing.

use std::any::TypeId;

use sqlparser::{
    dialect::{Dialect, PostgreSqlDialect, Precedence},
    keywords::Keyword,
    parser::{Parser, ParserError},
};

/// The dialect. In PostgreSQL's own, the parser reads each argument of a function twice (it might be the name of another one: `json_object(a + b : c)`),
/// which takes twice as long with each call within a call.
#[derive(Debug)]
pub(super) struct MillpondDialect;

/// PostgreSQL's answers to plain questions.
macro_rules! as_postgresql {
    ($($question:ident)*) => {
        $(
            fn $question(&self) -> bool {
                PostgreSqlDialect {}.$question()
            }
        )*
    };
}

impl Dialect for MillpondDialect {
    /// The parser asks for it by its type, too.
    fn dialect(&self) -> TypeId {
        TypeId::of::<PostgreSqlDialect>()
    }

    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        false
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        PostgreSqlDialect {}.identifier_quote_style(identifier)
    }

    fn is_delimited_identifier_start(&self, start: char) -> bool {
        PostgreSqlDialect {}.is_delimited_identifier_start(start)
    }

    fn is_identifier_start(&self, start: char) -> bool {
        PostgreSqlDialect {}.is_identifier_start(start)
    }

    fn is_identifier_part(&self, part: char) -> bool {
        PostgreSqlDialect {}.is_identifier_part(part)
    }

    fn is_custom_operator_part(&self, part: char) -> bool {
        PostgreSqlDialect {}.is_custom_operator_part(part)
    }

    fn is_reserved_for_identifier(&self, keyword: Keyword) -> bool {
        PostgreSqlDialect {}.is_reserved_for_identifier(keyword)
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        PostgreSqlDialect {}.get_next_precedence(parser)
    }

    fn prec_value(&self, precedence: Precedence) -> u8 {
        PostgreSqlDialect {}.prec_value(precedence)
    }

    as_postgresql! {
        supports_unicode_string_literal
        supports_filter_during_aggregation
        supports_group_by_expr
        allow_extract_custom
        allow_extract_single_quotes
        supports_create_index_with_clause
        supports_explain_with_utility_options
        supports_listen_notify
        supports_factorial_operator
        supports_bitwise_shift_operators
        supports_comment_on
        supports_load_extension
        supports_named_fn_args_with_colon_operator
        supports_empty_projections
        supports_nested_comments
        supports_string_escape_constant
        supports_numeric_literal_underscores
        supports_array_typedef_with_brackets
        supports_geometric_types
        supports_set_names
        supports_alter_column_type_using
        supports_notnull_operator
        supports_interval_options
        supports_insert_table_alias
        supports_create_table_like_parenthesized
        supports_select_wildcard_with_alias
        supports_comma_separated_trim
        supports_xml_expressions
        supports_comment_optimizer_hint
    }
}
