//! The text of a script, and which piece of it a token stands for.

use std::{cell::Cell, ops::Range};

use sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan};

/// A script with the starts of its lines.
pub(super) struct Script<'a> {
    text: &'a str,
    line_starts: Vec<usize>,
    /// The last place that was asked for and its byte, from which later places on the same line are counted.
    last: Cell<(u64, u64, usize)>,
}

impl<'a> Script<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, line_starts, last: Cell::new((1, 1, 0)) }
    }

    /// The byte at which the character of a location starts; the end of the text for locations beyond it.
    fn byte_of(&self, location: Location) -> usize {
        let (line, column, byte) = self.last.get();
        let (column, byte) = if location.line == line && location.column >= column {
            (column, byte)
        } else {
            let start = usize::try_from(location.line.max(1) - 1).ok().and_then(|line| self.line_starts.get(line)).copied();
            (1, start.unwrap_or(self.text.len()))
        };
        let characters = usize::try_from(location.column.max(1) - column.min(location.column.max(1))).unwrap_or(usize::MAX);
        let byte = self.text[byte..].char_indices().nth(characters).map_or(self.text.len(), |(offset, _)| byte + offset);
        self.last.set((location.line, location.column.max(1), byte));
        byte
    }

    /// The text of a span.
    pub(super) fn text_of(&self, span: Span) -> &'a str {
        let start = self.byte_of(span.start);
        let end = self.byte_of(span.end).max(start);
        &self.text[start..end]
    }

    /// The text from the first to the last of `tokens`.
    pub(super) fn slice(&self, tokens: &[TokenWithSpan]) -> &'a str {
        match tokens {
            [first, .., last] => self.text_of(Span::new(first.span.start, last.span.end)),
            [only] => self.text_of(only.span),
            [] => "",
        }
    }
}

/// The tokens of each statement that is not empty.
pub(super) fn statement_ranges(tokens: &[TokenWithSpan]) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut start = 0;
    for (index, token) in tokens.iter().enumerate() {
        if token.token == Token::SemiColon {
            ranges.push(start..index);
            start = index + 1;
        }
    }
    ranges.push(start..tokens.len());
    ranges.retain(|range| !range.is_empty());
    ranges
}
