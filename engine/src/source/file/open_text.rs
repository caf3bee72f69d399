//! Opening a text file: a byte order mark and the header line are read before the first row, whatever row reading starts at, because the header says
//! where the columns are.

use arrow::datatypes::SchemaRef;

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
    /// Columns to decode.
    schema: SchemaRef,
    from: Offset,
    /// Whether the file cannot grow, and where it then ends, if that was fixed before.
    bounded: (bool, Option<Offset>),
    reader: Option<TextReader>,
}

enum TextFormat {
    /// With all columns of the source, and those wanted of them.
    Csv {
        format: CsvFormat,
        columns: SchemaRef,
        wanted: Vec<usize>,
    },
    Json,
}

impl TextFile {
    /// A CSV file with the columns of `columns`, of which `wanted` are decoded.
    pub(super) fn csv(
        file: OpenLater,
        format: CsvFormat,
        columns: SchemaRef,
        wanted: &[usize],
        from: Offset,
        bounded: (bool, Option<Offset>),
    ) -> Self {
        let fields: Vec<_> = wanted.iter().map(|column| columns.field(*column).clone()).collect();
        let schema = std::sync::Arc::new(arrow::datatypes::Schema::new(fields));
        let format = TextFormat::Csv { format, columns, wanted: wanted.to_vec() };
        Self { file, format, schema, from, bounded, reader: None }
    }

    /// A file of JSON lines, of which the members named by `schema` are decoded.
    pub(super) fn json(file: OpenLater, schema: SchemaRef, from: Offset, bounded: (bool, Option<Offset>)) -> Self {
        Self { file, format: TextFormat::Json, schema, from, bounded, reader: None }
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
        let (scanner, first_row): (Box<dyn crate::format::block::RowScanner>, Offset) = match &self.format {
            TextFormat::Json => (Box::new(JsonScanner::new(&self.schema)), mark),
            TextFormat::Csv { format, columns, wanted } if format.header => {
                let Some((names, length)) = header(&file, format, end)? else { return Ok(None) };
                let wanted = places(&file, &names, columns, wanted)?;
                (Box::new(CsvScanner::new(format.clone(), names.len(), &wanted)), length)
            }
            TextFormat::Csv { format, columns, wanted } => {
                (Box::new(CsvScanner::new(format.clone(), columns.fields().len(), wanted)), mark)
            }
        };
        let lists = if matches!(self.format, TextFormat::Json) { ListSyntax::Json } else { ListSyntax::Postgres };
        let decoder = TextDecoder::new(scanner, self.schema.clone(), lists);
        Ok(Some(TextReader::new(file, decoder, self.from.max(first_row), end)))
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

/// Where the wanted columns stand in a file with a header.
fn places(file: &InputFile, names: &[String], columns: &SchemaRef, wanted: &[usize]) -> Result<Vec<usize>> {
    wanted
        .iter()
        .map(|column| {
            let name = columns.field(*column).name();
            let exact = names.iter().position(|other| other == name);
            exact.or_else(|| names.iter().position(|other| other.eq_ignore_ascii_case(name))).ok_or_else(|| EngineError::User {
                sqlstate: "42703",
                message: format!("column \"{name}\" is not in the header of file \"{}\"", file.name()),
                hint: Some(format!("The header names: {}.", names.join(", "))),
            })
        })
        .collect()
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
