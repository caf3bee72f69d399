//! Spellings that `sqlparser` reads otherwise than Postgres, or not at all, brought to others on tokens:
//! - `TABLE t`, where a query may stand, is `SELECT * FROM t`;
//! - `ROW (a, b)` is `(a, b)`;
//! - `a IS DISTINCT FROM b` is a binary operator with parentheses round `b`, which `sqlparser` would take to go on beyond AND and OR;
//! - `x ISNULL` and `x NOTNULL` are `x IS NULL` and `x IS NOT NULL`;
//! - `trim(BOTH FROM x)` and `trim(FROM x)` have no FROM;
//! - `ROWS FROM (f(), g())` is the call of a function that has these calls as arguments;
//! - `SELECT` with neither columns nor FROM has a FROM of one row.
//!
//! New tokens have the place of the token they were made of.

use sqlparser::{
    keywords::Keyword,
    tokenizer::{Token, TokenWithSpan, Word},
};

use super::grammar::is_word;

/// Words after which a query may start.
const BEFORE_QUERY: [&str; 12] =
    ["UNION", "INTERSECT", "EXCEPT", "ALL", "DISTINCT", "AS", "EXPLAIN", "ANALYZE", "VERBOSE", "FOR", "IN", "EXISTS"];

/// Words that no operand of DISTINCT FROM goes beyond.
const AFTER_OPERAND: [&str; 38] = [
    "AND",
    "OR",
    "IS",
    "THEN",
    "WHEN",
    "ELSE",
    "END",
    "AS",
    "FROM",
    "WHERE",
    "GROUP",
    "HAVING",
    "ORDER",
    "LIMIT",
    "OFFSET",
    "FETCH",
    "UNION",
    "INTERSECT",
    "EXCEPT",
    "ON",
    "USING",
    "JOIN",
    "LEFT",
    "RIGHT",
    "INNER",
    "FULL",
    "CROSS",
    "NATURAL",
    "WINDOW",
    "RETURNING",
    "FOR",
    "ASC",
    "DESC",
    "NULLS",
    "ISNULL",
    "NOTNULL",
    "DO",
    "EMIT",
];

/// The same tokens in the spelling that the grammar knows.
pub(super) fn respell(tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    enclose_operands(&respell_words(tokens))
}

/// Parentheses round what follows DISTINCT FROM, whose operators may bind less than that operator.
fn enclose_operands(tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let mut enclosed: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len() + 4);
    // The depths of parentheses and CASEs at which operands are open.
    let mut open: Vec<usize> = Vec::new();
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|index| tokens.get(index));
        let started = before.is_some_and(|before| matches!(&before.token, Token::CustomBinaryOperator(symbol) if is_distinct_test(symbol)));
        let closes = matches!(token.token, Token::RParen | Token::RBracket) || is_word(&token.token, "END");
        let ends = closes
            || matches!(token.token, Token::Comma | Token::SemiColon)
            || AFTER_OPERAND.iter().any(|word| is_word(&token.token, word))
            || is_alias(before, token);
        while !started && ends && open.last() == Some(&depth) {
            open.pop();
            enclosed.push(TokenWithSpan::new(Token::RParen, token.span));
        }
        if started {
            open.push(depth);
            enclosed.push(TokenWithSpan::new(Token::LParen, token.span));
        }
        match &token.token {
            Token::LParen | Token::LBracket => depth += 1,
            _ if is_word(&token.token, "CASE") => depth += 1,
            _ if closes => depth = depth.saturating_sub(1),
            _ => {}
        }
        enclosed.push(token.clone());
    }
    if let Some(last) = tokens.last() {
        enclosed.extend(open.iter().map(|_| TokenWithSpan::new(Token::RParen, last.span)));
    }
    enclosed
}

/// Whether a token is a name right behind a value, which makes it an alias.
fn is_alias(before: Option<&TokenWithSpan>, token: &TokenWithSpan) -> bool {
    let plain = |token: &TokenWithSpan| matches!(&token.token, Token::Word(word) if word.keyword == Keyword::NoKeyword);
    let value = |token: &TokenWithSpan| {
        plain(token) || matches!(token.token, Token::Number(..) | Token::SingleQuotedString(_) | Token::RParen | Token::RBracket)
    };
    plain(token) && before.is_some_and(value)
}

/// The operators that IS DISTINCT FROM and IS NOT DISTINCT FROM become.
pub(crate) const DISTINCT: &str = "IS DISTINCT FROM";
pub(crate) const NOT_DISTINCT: &str = "IS NOT DISTINCT FROM";

fn is_distinct_test(symbol: &str) -> bool {
    symbol == DISTINCT || symbol == NOT_DISTINCT
}

/// The operator whose words stand at the start of tokens, and how many they are.
fn distinct_test(tokens: &[TokenWithSpan]) -> Option<(&'static str, usize)> {
    let starts_with =
        |words: &[&str]| tokens.len() >= words.len() && tokens.iter().zip(words).all(|(token, word)| is_word(&token.token, word));
    if starts_with(&["IS", "DISTINCT", "FROM"]) {
        Some((DISTINCT, 3))
    } else if starts_with(&["IS", "NOT", "DISTINCT", "FROM"]) {
        Some((NOT_DISTINCT, 4))
    } else {
        None
    }
}

fn respell_words(tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let mut respelt = Vec::with_capacity(tokens.len() + 4);
    let mut skipped = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        if skipped > 0 {
            skipped -= 1;
            continue;
        }
        let before = index.checked_sub(1).and_then(|index| tokens.get(index)).map(|token| &token.token);
        let after = tokens.get(index + 1).map(|token| &token.token);
        let mut put = |token_kinds: &[Token]| {
            respelt.extend(token_kinds.iter().map(|kind| TokenWithSpan::new(kind.clone(), token.span)));
        };
        if let Some((operator, words)) = distinct_test(&tokens[index..]) {
            put(&[Token::CustomBinaryOperator(operator.to_owned())]);
            skipped = words - 1;
        } else if is_word(&token.token, "TABLE") && starts_query(tokens, index) && matches!(after, Some(Token::Word(_))) {
            put(&[keyword("SELECT", Keyword::SELECT), Token::Mul, keyword("FROM", Keyword::FROM)]);
        } else if is_word(&token.token, "SELECT") && before != Some(&Token::Period) && selects_nothing(after) {
            let one_row = [Token::LParen, keyword("VALUES", Keyword::VALUES), Token::LParen, Token::Number("1".to_owned(), false)];
            put(&[token.token.clone(), keyword("FROM", Keyword::FROM)]);
            put(&one_row);
            put(&[Token::RParen, Token::RParen, keyword("AS", Keyword::AS), Token::make_word("one_row", Some('"'))]);
        } else if is_word(&token.token, "ISNULL") && ends_operand(before) && after != Some(&Token::LParen) {
            put(&[keyword("IS", Keyword::IS), keyword("NULL", Keyword::NULL)]);
        } else if is_word(&token.token, "NOTNULL") && ends_operand(before) && after != Some(&Token::LParen) {
            put(&[keyword("IS", Keyword::IS), keyword("NOT", Keyword::NOT), keyword("NULL", Keyword::NULL)]);
        } else if is_word(&token.token, "FROM") && trims(&tokens[..index]) {
            // What is left says which ends are trimmed, and of what.
        } else if starts_rows_from(tokens, index) {
            put(&[Token::make_word(ROWS_FROM, Some('"'))]);
            skipped = 1;
        } else if is_word(&token.token, "ROW") && before != Some(&Token::Period) && has_several(tokens.get(index + 1..).unwrap_or_default())
        {
            // The parentheses alone make a row of several values.
        } else {
            respelt.push(token.clone());
        }
    }
    respelt
}

/// The function that `ROWS FROM` becomes.
pub(crate) const ROWS_FROM: &str = "rows from";

/// Whether `ROWS FROM (` stands where a relation may.
fn starts_rows_from(tokens: &[TokenWithSpan], index: usize) -> bool {
    let word = |place: usize, word: &str| tokens.get(place).is_some_and(|token| is_word(&token.token, word));
    let before = index.checked_sub(1).and_then(|before| tokens.get(before));
    let relation = before.is_some_and(|before| {
        before.token == Token::Comma || ["FROM", "JOIN", "LATERAL"].iter().any(|allowed| is_word(&before.token, allowed))
    });
    relation && word(index, "ROWS") && word(index + 1, "FROM") && tokens.get(index + 2).is_some_and(|token| token.token == Token::LParen)
}

/// Whether tokens end with `trim(` or `trim(BOTH`.
fn trims(tokens: &[TokenWithSpan]) -> bool {
    let tokens = match tokens.split_last() {
        Some((last, before)) if ["BOTH", "LEADING", "TRAILING"].iter().any(|side| is_word(&last.token, side)) => before,
        _ => tokens,
    };
    matches!(tokens, [.., name, open] if open.token == Token::LParen && is_word(&name.token, "TRIM"))
}

/// Whether what follows SELECT says that there are neither columns nor relations.
fn selects_nothing(after: Option<&Token>) -> bool {
    const CLAUSES: [&str; 12] =
        ["WHERE", "GROUP", "HAVING", "WINDOW", "UNION", "INTERSECT", "EXCEPT", "ORDER", "LIMIT", "OFFSET", "FETCH", "FOR"];
    match after {
        None | Some(Token::SemiColon | Token::RParen) => true,
        Some(word) => CLAUSES.iter().any(|clause| is_word(word, clause)),
    }
}

/// Whether tokens start with parentheses round several items.
fn has_several(tokens: &[TokenWithSpan]) -> bool {
    let mut depth = 0_usize;
    for token in tokens {
        match &token.token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket if depth <= 1 => return false,
            Token::RParen | Token::RBracket => depth -= 1,
            Token::Comma if depth == 1 => return true,
            _ if depth == 0 => return false,
            _ => {}
        }
    }
    false
}

fn keyword(text: &str, keyword: Keyword) -> Token {
    Token::Word(Word { value: text.to_owned(), quote_style: None, keyword })
}

/// Whether a query may start at a token: at the start, after certain words, in parentheses that are no arguments, after those of WITH and
/// after the columns of INSERT.
fn starts_query(tokens: &[TokenWithSpan], index: usize) -> bool {
    let Some(before) = index.checked_sub(1) else { return true };
    match &tokens[before].token {
        Token::LParen => match before.checked_sub(1).map(|place| &tokens[place].token) {
            Some(Token::Word(word)) => word.quote_style.is_none() && word.keyword != Keyword::NoKeyword && word.keyword != Keyword::TABLE,
            _ => true,
        },
        Token::RParen => true,
        Token::Word(_) if is_word(&tokens[0].token, "INSERT") && before >= 2 => {
            is_word(&tokens[before - 1].token, "INTO") || tokens[before - 1].token == Token::Period
        }
        word => BEFORE_QUERY.iter().any(|allowed| is_word(word, allowed)),
    }
}

/// Whether the token before can be the end of a value.
fn ends_operand(before: Option<&Token>) -> bool {
    match before {
        Some(Token::Word(word)) => word.quote_style.is_some() || !matches!(word.keyword, Keyword::SELECT | Keyword::AS | Keyword::BY),
        Some(Token::Comma | Token::LParen | Token::Period) | None => false,
        Some(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use sqlparser::ast::{BinaryOperator, Expr};

    use crate::parse::{parse_expression, parse_query};

    #[test]
    fn table_is_a_query_wherever_one_may_stand() {
        for (written, meant) in [
            ("TABLE a ORDER BY x LIMIT 1", "SELECT * FROM a ORDER BY x LIMIT 1"),
            ("TABLE s.a UNION ALL TABLE b EXCEPT (TABLE c)", "SELECT * FROM s.a UNION ALL SELECT * FROM b EXCEPT (SELECT * FROM c)"),
            ("WITH c AS (TABLE a) TABLE c", "WITH c AS (SELECT * FROM a) SELECT * FROM c"),
            ("SELECT 1 WHERE 1 IN (TABLE a) OR EXISTS (TABLE b)", "SELECT 1 WHERE 1 IN (SELECT * FROM a) OR EXISTS (SELECT * FROM b)"),
            ("SELECT ROW(1, (2)) < ROW(1, f(3, 4)), ROW(5)", "SELECT (1, (2)) < (1, f(3, 4)), ROW(5)"),
            (
                "SELECT WHERE EXISTS (SELECT)",
                "SELECT FROM (VALUES (1)) AS \"one_row\" WHERE EXISTS (SELECT FROM (VALUES (1)) AS \"one_row\")",
            ),
            (
                "SELECT trim(TRAILING FROM a), trim(FROM b), trim(BOTH 'x' FROM c)",
                "SELECT trim(TRAILING a), trim(b), trim(BOTH 'x' FROM c)",
            ),
            ("SELECT 1 FROM ROWS FROM (f(1), g(2)) AS r (a, b)", "SELECT 1 FROM \"rows from\"(f(1), g(2)) AS r (a, b)"),
            ("SELECT a ISNULL, b NOTNULL, (1) ISNULL", "SELECT a IS NULL, b IS NOT NULL, (1) IS NULL"),
        ] {
            assert_eq!(parse_query(written).unwrap().to_string(), parse_query(meant).unwrap().to_string(), "{written}");
        }
        for (written, shown) in [
            ("SELECT a IS DISTINCT FROM b AND c OR d", "SELECT a IS DISTINCT FROM (b) AND c OR d"),
            ("SELECT x AND a IS NOT DISTINCT FROM f(b, 1) + 2 OR c", "SELECT x AND a IS NOT DISTINCT FROM (f(b, 1) + 2) OR c"),
            (
                "SELECT CASE WHEN a IS DISTINCT FROM CASE b WHEN 1 THEN 2 END THEN 3 END",
                "SELECT CASE WHEN a IS DISTINCT FROM (CASE b WHEN 1 THEN 2 END) THEN 3 END",
            ),
            ("SELECT a->'x' IS DISTINCT FROM b->'x' c FROM t", "SELECT a -> 'x' IS DISTINCT FROM (b -> 'x') AS c FROM t"),
        ] {
            assert_eq!(parse_query(written).unwrap().to_string(), shown, "{written}");
            let is_or = |text: &str| matches!(parse_expression(text).unwrap(), Expr::BinaryOp { op: BinaryOperator::Or, .. });
            assert!(is_or("x AND a IS DISTINCT FROM b AND c OR d") && !is_or("a IS DISTINCT FROM (b OR c)"));
        }
        assert!(parse_query("SELECT isnull FROM t").is_ok() && parse_query("SELECT isnull(1), t.notnull FROM t").is_ok());
    }
}
