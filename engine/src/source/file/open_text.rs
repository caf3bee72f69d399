//! Opening a text file: a byte order mark and the header line are read before the first row, whatever row reading starts at, because the header says
//! where the columns are.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, SchemaRef};

use super::{
    OpenLater,
    ahead::{Block, BlockReader},
    input::InputFile,
    text::TextReader,
};
use crate::{
    error::{EngineError, Result},
    format::{
        block::MAX_ROW_BYTES,
        cell_lists::ListSyntax,
        cells,
        csv::{CsvFormat, CsvScanner},
        decode::TextDecoder,
        json::JsonScanner,
    },
    source::Offset,
};

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Bytes read in search of a header line; doubled until it is found.
const HEADER_BYTES: usize = 64 << 10;

/// A text file that is opened by its first read.
pub(super) struct TextFile {
    file: OpenLater,
    format: TextFormat,
    /// All columns of the source, and those to decode.
    columns: SchemaRef,
    wanted: Vec<usize>,
    from: Offset,
    /// Whether the file cannot grow, and where it then ends, if that was fixed before.
    bounded: (bool, Option<Offset>),
    reader: Option<TextReader>,
}

/// How the text is written.
pub(super) enum TextFormat {
    Csv(CsvFormat),
    /// One object a line.
    Json,
}

impl TextFile {
    /// A file with the columns of `columns`, of which `wanted` are decoded; the others are only checked.
    pub(super) fn new(
        file: OpenLater,
        format: TextFormat,
        columns: SchemaRef,
        wanted: &[usize],
        from: Offset,
        bounded: (bool, Option<Offset>),
    ) -> Self {
        Self { file, format, columns, wanted: wanted.to_vec(), from, bounded, reader: None }
    }

    /// Opens the file; `None` if it has no header line, because that is not yet whole or the file is empty.
    fn open(&self) -> Result<Option<TextReader>> {
        let file = self.file.open()?;
        let end = self.bounded.0.then(|| self.bounded.1.unwrap_or_else(|| file.length()));
        if file.length() < self.from || end.is_some_and(|end| file.length() < end) {
            return Err(EngineError::user("58030", format!("file \"{}\" was truncated while it was read", file.name())));
        }
        let mut front = Vec::new();
        file.read_at(0, BYTE_ORDER_MARK.len(), &mut front)?;
        let mark = if front == BYTE_ORDER_MARK { BYTE_ORDER_MARK.len() as Offset } else { 0 };
        let fields = |columns: &[usize]| columns.iter().map(|column| self.columns.field(*column).clone()).collect::<Vec<_>>();
        let schema = Arc::new(Schema::new(fields(&self.wanted)));
        let mut checked = self.checked();
        let (scanner, first_row): (Box<dyn crate::format::block::RowScanner>, Offset) = match &self.format {
            TextFormat::Json => {
                let scanned = Arc::new(Schema::new(fields(&[&self.wanted[..], &checked].concat())));
                (Box::new(JsonScanner::new(&scanned)), mark)
            }
            TextFormat::Csv(format) if format.header => {
                let Some((names, length)) = header(&file, format, end)? else { return Ok(None) };
                let name = |column: usize| self.columns.field(column).name();
                let wanted = |column: &usize| place(&names, name(*column)).ok_or_else(|| not_in_header(&file, &names, name(*column)));
                let mut places = self.wanted.iter().map(wanted).collect::<Result<Vec<_>>>()?;
                // What nobody reads need not be there.
                checked.retain(|column| match place(&names, name(*column)) {
                    Some(place) if !places.contains(&place) => {
                        places.push(place);
                        true
                    }
                    _ => false,
                });
                (Box::new(CsvScanner::new(format.clone(), names.len(), &places)), length)
            }
            TextFormat::Csv(format) => {
                let places = [&self.wanted[..], &checked].concat();
                (Box::new(CsvScanner::new(format.clone(), self.columns.fields().len(), &places)), mark)
            }
        };
        let lists = if matches!(self.format, TextFormat::Json) { ListSyntax::Json } else { ListSyntax::Postgres };
        let checked: Vec<DataType> = checked.iter().map(|column| self.columns.field(*column).data_type().clone()).collect();
        let decoder = TextDecoder::new(scanner, schema, checked, lists);
        let reader = TextReader::new(file, decoder, self.from.max(first_row), end);
        Ok(Some(match &self.format {
            TextFormat::Csv(format) if !format.header && self.from <= first_row => reader.without_header(format),
            TextFormat::Csv(_) | TextFormat::Json => reader,
        }))
    }

    /// The columns that are not decoded and yet can make a row bad. In JSON that is any: a string can be escaped wrongly.
    fn checked(&self) -> Vec<usize> {
        let can_refuse =
            |column: usize| matches!(self.format, TextFormat::Json) || cells::can_refuse(self.columns.field(column).data_type());
        (0..self.columns.fields().len()).filter(|column| !self.wanted.contains(column) && can_refuse(*column)).collect()
    }
}

/// The names in the header line and where the line ends; `None` while it is not whole, and for an empty file.
fn header(file: &InputFile, format: &CsvFormat, end: Option<Offset>) -> Result<Option<(Vec<String>, Offset)>> {
    let mut wanted = HEADER_BYTES;
    loop {
        let mut text = Vec::new();
        file.read_at(0, wanted, &mut text)?;
        let whole = text.len() < wanted;
        if text.is_empty() {
            return Ok(None);
        }
        if let Some((names, length)) = CsvScanner::header(format, &text, whole && end.is_some()) {
            return Ok(Some((names, length as Offset)));
        }
        if whole {
            return if end.is_some() { Err(no_header(file)) } else { Ok(None) };
        }
        if wanted >= MAX_ROW_BYTES {
            return Err(no_header(file));
        }
        wanted *= 2;
    }
}

fn no_header(file: &InputFile) -> EngineError {
    EngineError::user("22P04", format!("file \"{}\" does not begin with a header line", file.name()))
}

/// Where a column stands in a file with a header.
fn place(names: &[String], name: &str) -> Option<usize> {
    let exact = names.iter().position(|other| other == name);
    exact.or_else(|| names.iter().position(|other| other.eq_ignore_ascii_case(name)))
}

fn not_in_header(file: &InputFile, names: &[String], name: &str) -> EngineError {
    EngineError::User {
        sqlstate: "42703",
        message: format!("column \"{name}\" is not in the header of file \"{}\"", file.name()),
        hint: Some(format!("The header names: {}. A file that begins with its first row needs header = false.", names.join(", "))),
    }
}

impl BlockReader for TextFile {
    fn next(&mut self) -> Result<Block> {
        if self.reader.is_none() {
            self.reader = self.open()?;
        }
        match &mut self.reader {
            Some(reader) => reader.next(),
            None if self.bounded.0 => Ok(Block::End),
            None => Ok(Block::Later),
        }
    }

    fn check(&mut self) -> Result<()> {
        self.reader = self.open()?;
        Ok(())
    }
}
