use std::{fs, io::Write, path::Path, sync::Arc, time::Duration};

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::parquet::arrow::ArrowWriter;
use millpond_storage::env::Clock;
use rand::{Rng, SeedableRng, rngs::StdRng};
use tempfile::TempDir;

use super::{FileSource, location::Location, options::FileFormat, options::FileSpec, place::Place};
use crate::{
    error::{EngineError, Result},
    format::{csv::CsvFormat, csv_write},
    source::{
        BadRow, FormatClause, Offset, ReadOutcome, Source, SourceOptions, SourceSpec, Split, WatermarkSpec, infer_schema, open_source_with,
    },
};

const TIME: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|(name, data_type)| Field::new(*name, data_type.clone(), true)).collect::<Vec<_>>()))
}

fn options(path: &Path, others: &[(&str, &str)]) -> SourceOptions {
    let mut with = vec![("connector".to_owned(), "file".to_owned()), ("path".to_owned(), path.display().to_string())];
    with.extend(others.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    SourceOptions { with, format: None }
}

async fn open(path: &Path, others: &[(&str, &str)], schema: &SchemaRef) -> Result<Arc<dyn Source>> {
    let spec = SourceSpec::new("s", &options(path, others), Some(schema.clone()), None)?;
    open_source_with(&spec, Clock::manual(0)).await
}

/// Rows as CSV lines with the offset behind each read, and bad rows.
#[derive(Debug, Default, PartialEq, Eq, Clone)]
struct Got {
    rows: Vec<String>,
    ends: Vec<Offset>,
    bad: Vec<BadRow>,
}

/// How a read stopped.
#[derive(Debug, PartialEq, Eq)]
enum Stop {
    AtLimit,
    Finished,
    Idle,
}

/// Reads from `from` on in steps of up to `step` rows until nothing more comes.
async fn read(
    source: &Arc<dyn Source>,
    split: &Split,
    from: Offset,
    projection: &[usize],
    limit: Option<Offset>,
    mut step: impl FnMut() -> usize,
) -> Result<(Got, Stop)> {
    let mut reader = source.open(split, from, projection).await?;
    let mut got = Got::default();
    loop {
        match reader.read(step(), limit).await? {
            ReadOutcome::Rows { batch, end, bad } => {
                let mut text = String::new();
                csv_write::write_rows(&CsvFormat { null: "~".into(), delimiter: b'|', ..CsvFormat::default() }, &batch, &mut text)?;
                let mut lines: Vec<String> = Vec::new();
                // Line ends inside values are quoted by the writer, so lines are cut at row ends only.
                let mut open = String::new();
                for line in text.lines() {
                    open.push_str(line);
                    if open.matches('"').count().is_multiple_of(2) {
                        lines.push(std::mem::take(&mut open));
                    } else {
                        open.push('\n');
                    }
                }
                assert_eq!(lines.len(), batch.num_rows());
                got.rows.extend(lines);
                got.ends.push(end);
                got.bad.extend(bad);
            }
            ReadOutcome::AtLimit => return Ok((got, Stop::AtLimit)),
            ReadOutcome::Finished => return Ok((got, Stop::Finished)),
            ReadOutcome::Pending { .. } => return Ok((got, Stop::Idle)),
        }
    }
}

async fn only_split(source: &Arc<dyn Source>) -> Split {
    let discovery = source.discover().await.unwrap();
    assert_eq!(discovery.splits.len(), 1);
    discovery.splits[0].clone()
}

async fn read_all(source: &Arc<dyn Source>, projection: &[usize]) -> (Got, Stop) {
    let split = only_split(source).await;
    read(source, &split, 0, projection, None, || 4096).await.unwrap()
}

fn message(result: Result<Arc<dyn Source>>) -> String {
    match result.expect_err("the source does not open") {
        EngineError::User { sqlstate, message, .. } => format!("{sqlstate} {message}"),
        other => panic!("not a user error: {other}"),
    }
}

#[tokio::test]
async fn csv_values_of_every_type() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("a.csv");
    fs::write(
        &file,
        concat!(
            "1,2,3,1.5,2.5,t,\"a, b\",1.25,2026-01-01,01:02:03.5,2026-01-01 00:00:00.123,2026-01-01 02:00:00+02,1 mon 2 days,\\x00ff,",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,\"{\"\"b\"\":1,\"\"a\"\":[]}\",\"{1,NULL,3}\"\n",
            ",,,,,,,,,,,,,,,,\n",
        ),
    )
    .unwrap();
    let columns = schema(&[
        ("i8", DataType::Int64),
        ("i4", DataType::Int32),
        ("i2", DataType::Int16),
        ("f8", DataType::Float64),
        ("f4", DataType::Float32),
        ("b", DataType::Boolean),
        ("t", DataType::Utf8View),
        ("n", DataType::Decimal128(10, 3)),
        ("d", DataType::Date32),
        ("ti", DataType::Time64(TimeUnit::Microsecond)),
        ("ts", TIME),
        ("tz", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        ("iv", DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano)),
        ("by", DataType::Binary),
        ("u", DataType::FixedSizeBinary(16)),
        ("j", DataType::LargeUtf8),
        ("l", DataType::List(Arc::new(Field::new("item", DataType::Int64, true)))),
    ]);
    let source = open(&file, &[], &columns).await.unwrap();
    let (got, stop) = read_all(&source, &(0..columns.fields().len()).collect::<Vec<_>>()).await;
    assert_eq!((got.bad.as_slice(), stop), (&[][..], Stop::Finished));
    assert_eq!(
        got.rows,
        [
            concat!(
                "1|2|3|1.5|2.5|true|a, b|1.250|2026-01-01|01:02:03.5|2026-01-01 00:00:00.123|2026-01-01 00:00:00+00|1 mon 2 days|\\x00ff|",
                "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11|\"{\"\"a\"\": [], \"\"b\"\": 1}\"|{1,NULL,3}"
            ),
            "~|~|~|~|~|~|~|~|~|~|~|~|~|~|~|~|~",
        ]
    );
}

/// A CSV file of `rows` rows with quotes, line ends, blank lines, short and bad rows in it.
fn motley_csv(random: &mut StdRng, rows: usize) -> String {
    let mut text = String::new();
    for row in 0..rows {
        match random.random_range(0..12) {
            0 => text.push_str(&format!("{row},\"a,\"\"{row}\"\"\n{row}\",1.5\r\n")),
            1 => text.push_str(&format!("x{row},b,2\n")),
            2 => text.push_str(&format!("{row},b\n")),
            3 => text.push_str("\n\r\n"),
            4 => text.push_str(&format!("{row},{},\n", "long ".repeat(random.random_range(0..50)))),
            _ => text.push_str(&format!("{row},plain,{}\n", random.random_range(0..100))),
        }
    }
    text
}

/// The same in JSON lines.
fn motley_json(random: &mut StdRng, rows: usize) -> String {
    let mut text = String::new();
    for row in 0..rows {
        match random.random_range(0..8) {
            0 => text.push_str(&format!("{{\"b\": \"a\\n\\u00e9{row}\", \"a\": {row}}}\r\n")),
            1 => text.push_str(&format!("{{\"a\": {row}, \"b\": \n")),
            2 => text.push_str(&format!("{{\"a\": \"x{row}\"}}\n")),
            3 => text.push('\n'),
            _ => text.push_str(&format!("{{\"a\": {row}, \"b\": \"plain\", \"c\": {}}}\n", random.random_range(0..100))),
        }
    }
    text
}

/// Reading may stop at any offset that a read gave, or at a limit, and go on from there: rows and bad rows are those of one read.
async fn check_restarts(source: &Arc<dyn Source>, projection: &[usize], random: &mut StdRng, seed: u64) {
    let split = only_split(source).await;
    let (whole, stop) = read(source, &split, 0, projection, None, || 1_000_000).await.unwrap();
    assert_eq!(stop, Stop::Finished);
    let mut steps = StdRng::seed_from_u64(seed);
    let (single, _) = read(source, &split, 0, projection, None, || steps.random_range(1..7)).await.unwrap();
    assert_eq!((&single.rows, &single.bad), (&whole.rows, &whole.bad), "seed {seed}");
    let mut seen = 0;
    for (stop_at, end) in single.ends.iter().enumerate() {
        assert!(stop_at == 0 || single.ends[stop_at - 1] < *end, "offsets rise, seed {seed}");
        if random.random_range(0..4) > 0 {
            continue;
        }
        seen += 1;
        let (mut first, stop) = read(source, &split, 0, projection, Some(*end), || 5).await.unwrap();
        assert_eq!(stop, Stop::AtLimit, "seed {seed}");
        let (second, _) = read(source, &split, *end, projection, None, || 1000).await.unwrap();
        first.rows.extend(second.rows);
        first.bad.extend(second.bad);
        assert_eq!((&first.rows, &first.bad), (&whole.rows, &whole.bad), "stopped at {end}, seed {seed}");
    }
    assert!(seen > 10);
}

#[tokio::test]
async fn text_is_read_from_any_offset_on() {
    for seed in 0..4 {
        let mut random = StdRng::seed_from_u64(seed);
        let folder = TempDir::new().unwrap();
        let columns = schema(&[("a", DataType::Int32), ("b", DataType::Utf8View), ("c", DataType::Float64)]);
        let (csv, json) = (folder.path().join("a.csv"), folder.path().join("a.json"));
        fs::write(&csv, motley_csv(&mut random, 400)).unwrap();
        fs::write(&json, motley_json(&mut random, 400)).unwrap();
        for file in [csv, json] {
            let source = open(&file, &[], &columns).await.unwrap();
            check_restarts(&source, &[0, 1, 2], &mut random, seed).await;
            check_restarts(&source, &[2, 0], &mut random, seed).await;
        }
    }
}

#[tokio::test]
async fn many_blocks_give_every_row_once() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("a.csv");
    let rows = 100_000;
    let text: String = (0..rows).map(|row| format!("{row},\"value number {row}\"\n")).collect();
    fs::write(&file, text.trim_end()).unwrap();
    let columns = schema(&[("a", DataType::Int64), ("b", DataType::Utf8View)]);
    let source = open(&file, &[], &columns).await.unwrap();
    let (got, _) = read_all(&source, &[0, 1]).await;
    assert_eq!(got.rows.len(), rows);
    assert!(got.rows.iter().enumerate().all(|(row, text)| *text == format!("{row}|value number {row}")));
    let (count, _) = read_all(&source, &[]).await;
    assert_eq!(count.rows.len(), rows);
}

#[tokio::test]
async fn bad_rows_are_reported_with_text_and_reason() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("a.csv");
    fs::write(&file, b"1,a\n2\nx,c\n99999999999,d\n5,\xff\n6,f\n7,\"open\n8,h\n").unwrap();
    let columns = schema(&[("a", DataType::Int32), ("b", DataType::Utf8View)]);
    let source = open(&file, &[], &columns).await.unwrap();
    let (got, _) = read_all(&source, &[0, 1]).await;
    assert_eq!(got.rows, ["1|a", "6|f", "8|h"]);
    let bad: Vec<(&str, &str)> = got.bad.iter().map(|row| (row.text.as_str(), row.reason.as_str())).collect();
    assert_eq!(
        bad,
        [
            ("2", "missing data: 1 of 2 columns"),
            ("x,c", "invalid input syntax for type integer: \"x\""),
            ("99999999999,d", "value \"99999999999\" is out of range for type integer"),
            ("5,\u{fffd}", "invalid byte sequence for encoding \"UTF8\": 0xff"),
            ("7,\"open", "unterminated CSV quoted field"),
        ]
    );
    let line = source.row_at(&only_split(&source).await, got.bad[1].offset).await;
    assert_eq!(line, format!("\"{}\", line 3", file.display()));
    // Whichever columns are wanted.
    for (projection, rows) in [(&[1][..], ["a", "f", "h"]), (&[0], ["1", "6", "8"])] {
        let (got_of_some, _) = read_all(&source, projection).await;
        assert_eq!(got_of_some.bad, got.bad);
        assert_eq!(got_of_some.rows, rows);
    }
}

#[tokio::test]
async fn a_row_of_more_than_16_mib_is_bad_and_reading_goes_on() {
    let folder = TempDir::new().unwrap();
    let long = "x".repeat(17 << 20);
    let columns = schema(&[("a", DataType::Int32), ("b", DataType::Utf8View)]);
    for (ending, text) in [
        ("csv", format!("1,a\n2,{long}\n3,c\n4,\"{long}\nend\n5,e\n")),
        ("csv", format!("1,a\n2,\"open\n{long}\n3,c\n5,e\n")),
        ("json", format!("{{\"a\":1,\"b\":\"a\"}}\n{{\"a\":2,\"b\":\"{long}\"}}\n{{\"a\":3,\"b\":\"c\"}}\nx\ny\n{{\"a\":5,\"b\":\"e\"}}")),
    ] {
        let file = folder.path().join(format!("a.{ending}"));
        fs::write(&file, text).unwrap();
        let source = open(&file, &[], &columns).await.unwrap();
        let (got, _) = read_all(&source, &[0, 1]).await;
        assert_eq!(got.rows, ["1|a", "3|c", "5|e"]);
        assert!(got.bad[0].reason.contains("longer than 16777216 bytes"), "{}", got.bad[0].reason);
        assert!(got.bad[0].text.len() <= 1024);
    }
}

#[tokio::test]
async fn headers_say_where_columns_are() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("a.csv");
    fs::write(&file, "\u{feff}C,a,extra\n1.5,7,x\n2.5,8,y\n").unwrap();
    let columns = schema(&[("a", DataType::Int32), ("c", DataType::Float64)]);
    let source = open(&file, &[("header", "true")], &columns).await.unwrap();
    let (got, _) = read_all(&source, &[0, 1]).await;
    assert_eq!(got.rows, ["7|1.5", "8|2.5"]);
    let split = only_split(&source).await;
    let (rest, _) = read(&source, &split, got.ends[0] - 8, &[1], None, || 10).await.unwrap();
    assert_eq!(rest.rows, ["2.5"]);
    let columns = schema(&[("b", DataType::Int32)]);
    let failed = message(open(&file, &[("header", "true")], &columns).await);
    assert_eq!(failed, format!("42703 column \"b\" is not in the header of file \"{}\"", file.display()));
    fs::write(&file, "").unwrap();
    let source = open(&file, &[("header", "true")], &columns).await.unwrap();
    assert_eq!(read_all(&source, &[0]).await, (Got::default(), Stop::Finished));
}

#[tokio::test]
async fn a_header_that_is_taken_for_a_row_is_suspected() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("a.csv");
    let columns = schema(&[("a", DataType::Int32), ("b", DataType::Utf8View)]);
    let hint = " (if this line names the columns, the source needs header = true)";
    for (text, reason) in [
        ("\u{feff}number,_text\n1,x\nnumber,y\n", format!("invalid input syntax for type integer: \"number\"{hint}")),
        ("number\n1,x\nz,y\n", format!("missing data: 1 of 2 columns{hint}")),
        ("\nnumber,\"some text\",more\n1,x\nz,y\n", format!("extra data after last expected column: 3 instead of 2 columns{hint}")),
        ("number,2\n1,x\nz,y\n", "invalid input syntax for type integer: \"number\"".to_owned()),
        ("number,\n1,x\nz,y\n", "invalid input syntax for type integer: \"number\"".to_owned()),
    ] {
        fs::write(&file, text).unwrap();
        let source = open(&file, &[], &columns).await.unwrap();
        let (got, _) = read_all(&source, &[0, 1]).await;
        assert_eq!((got.rows.len(), got.bad.len(), &got.bad[0].reason), (1, 2, &reason), "{text}");
        // Only the first line can be one.
        assert!(!got.bad[1].reason.contains(hint), "{text}");
        let split = only_split(&source).await;
        let (rest, _) = read(&source, &split, got.bad[0].offset, &[0], None, || 10).await.unwrap();
        assert!(!rest.bad[0].reason.contains(hint), "{text}");
    }
}

#[tokio::test]
async fn folders_and_patterns_are_split_by_file() {
    let folder = TempDir::new().unwrap();
    fs::create_dir_all(folder.path().join("sub/_manifest")).unwrap();
    for (name, text) in
        [("b.csv", "2\n"), ("a.csv", "1\n"), ("sub/c.csv", "3\n"), ("notes.md", "x\n"), (".d.csv", "4\n"), ("sub/_manifest/e.csv", "5\n")]
    {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let columns = schema(&[("a", DataType::Int32)]);
    let ids = |source: Arc<dyn Source>| async move {
        let discovery = source.discover().await.unwrap();
        assert!(discovery.complete);
        discovery.splits.into_iter().map(|split| split.id).collect::<Vec<_>>()
    };
    let all = open(folder.path(), &[("format", "csv")], &columns).await.unwrap();
    assert_eq!(ids(all.clone()).await, ["a.csv", "b.csv", "sub/c.csv"]);
    let some = open(&folder.path().join("[bc].*"), &[("format", "csv")], &columns).await.unwrap();
    assert_eq!(ids(some.clone()).await, ["b.csv"]);
    let split = all.discover().await.unwrap().splits[2].clone();
    let (got, _) = read(&all, &split, 0, &[0], None, || 10).await.unwrap();
    assert_eq!(got.rows, ["3"]);
    let missing = folder.path().join("x.csv");
    let expected = format!("58P01 could not open file \"{}\": No such file or directory", missing.display());
    assert_eq!(message(open(&missing, &[], &columns).await), expected);
    let missing = folder.path().join("x*.csv");
    assert!(message(open(&missing, &[], &columns).await).starts_with("58P01"));
}

#[tokio::test]
async fn a_watched_file_grows() {
    let folder = TempDir::new().unwrap();
    let columns = schema(&[("a", DataType::Int32)]);
    let source = open(folder.path(), &[("format", "csv"), ("mode", "watch"), ("header", "true")], &columns).await.unwrap();
    let discovery = source.discover().await.unwrap();
    assert_eq!((discovery.splits.len(), discovery.complete), (0, false));
    let file = folder.path().join("a.csv");
    fs::write(&file, "a").unwrap();
    let split = only_split(&source).await;
    assert_eq!((split.bounded, split.end), (false, None));
    let mut reader = source.open(&split, 0, &[0]).await.unwrap();
    let mut next = async |text: &str| {
        fs::OpenOptions::new().append(true).open(&file).unwrap().write_all(text.as_bytes()).unwrap();
        match reader.read(100, None).await.unwrap() {
            ReadOutcome::Rows { batch, end, .. } => Some((batch.num_rows(), end)),
            ReadOutcome::Pending { idle: true, .. } => None,
            other => panic!("unexpected {other:?}"),
        }
    };
    assert_eq!(next("").await, None);
    assert_eq!(next("\n1\n2").await, Some((1, 4)));
    assert_eq!(next("").await, None);
    assert_eq!(next("3\n4\n").await, Some((2, 9)));
    assert_eq!(next("").await, None);
    fs::write(folder.path().join("b.csv"), "a\n1\n").unwrap();
    assert_eq!(source.discover().await.unwrap().splits.len(), 2);
}

#[tokio::test]
async fn a_bounded_file_ends_where_it_ended_when_it_was_found() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("a.csv");
    fs::write(&file, "1\n2").unwrap();
    let columns = schema(&[("a", DataType::Int32)]);
    let source = open(&file, &[], &columns).await.unwrap();
    let split = only_split(&source).await;
    fs::write(&file, "1\n2\n3\n").unwrap();
    let (got, _) = read(&source, &split, 0, &[0], None, || 10).await.unwrap();
    assert_eq!(got.rows, ["1", "2"]);
    fs::write(&file, "1").unwrap();
    let error = read(&source, &split, 0, &[0], None, || 10).await.unwrap_err();
    assert!(error.to_string().contains("was truncated while it was read"), "{error}");
}

#[tokio::test]
async fn files_in_an_object_store_are_read_like_local_ones() {
    let files = millpond_storage::foreign_files::ForeignFiles::memory();
    let text: String = (0..300_000).map(|row| format!("{row},\"value number {row}\"\n")).collect();
    assert!(text.len() > 8 << 20);
    for (name, text) in [("in/a.csv", text.as_str()), ("in/b/c.csv", "1,x\n"), ("in/_manifest/d.csv", "2,y\n"), ("other/e.csv", "3,z\n")] {
        files.put(name, bytes::Bytes::copy_from_slice(text.as_bytes())).await.unwrap();
    }
    let columns = schema(&[("a", DataType::Int64), ("b", DataType::Utf8View)]);
    let open = async |path: &str| {
        let location = Location::parse(&format!("s3://bucket/{path}"), &["csv"], Vec::new()).unwrap();
        let base = path.split('*').next().unwrap().trim_end_matches('/').to_owned();
        let spec = FileSpec { location: location.clone(), format: FileFormat::Csv(CsvFormat::default()), watch: false, replay: None };
        FileSource::open_at(Place::with_store(location, files.clone(), &base), spec, columns.clone(), Clock::manual(0)).await
    };
    let source: Arc<dyn Source> = Arc::new(open("in").await.unwrap());
    let splits = source.discover().await.unwrap().splits;
    assert_eq!(splits.iter().map(|split| split.id.as_str()).collect::<Vec<_>>(), ["a.csv", "b/c.csv"]);
    let (got, stop) = read(&source, &splits[0], 0, &[0, 1], None, || 4096).await.unwrap();
    assert_eq!((got.rows.len(), stop), (300_000, Stop::Finished));
    assert!(got.rows.iter().enumerate().all(|(row, text)| *text == format!("{row}|value number {row}")));
    let (rest, _) = read(&source, &splits[0], got.ends[40], &[0], None, || 4096).await.unwrap();
    assert_eq!(rest.rows.last().map(String::as_str), Some("299999"));
    assert!(rest.rows.len() < got.rows.len() && !rest.rows.is_empty());
    let source: Arc<dyn Source> = Arc::new(open("in/b/c.csv").await.unwrap());
    let (got, _) = read_all(&source, &[1]).await;
    assert_eq!(got.rows, ["x"]);
    let source: Arc<dyn Source> = Arc::new(open("in/*/c*").await.unwrap());
    assert_eq!(read_all(&source, &[0]).await.0.rows, ["1"]);
    let missing = open("in/nothing.csv").await.unwrap_err().to_string();
    assert_eq!(missing, "could not open file \"s3://bucket/in/nothing.csv\": No such file or directory");
}

fn write_parquet(file: &Path, columns: Vec<(&str, arrow::array::ArrayRef)>, group_rows: usize) {
    let batch = arrow::record_batch::RecordBatch::try_from_iter(columns).unwrap();
    let properties =
        datafusion::parquet::file::properties::WriterProperties::builder().set_max_row_group_row_count(Some(group_rows)).build();
    let mut writer = ArrowWriter::try_new(fs::File::create(file).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[tokio::test]
async fn parquet_is_read_from_any_row_on() {
    use arrow::array::{Int64Array, StringArray, TimestampNanosecondArray, UInt16Array};
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("a.parquet");
    let rows = 1000;
    write_parquet(
        &file,
        vec![
            ("a", Arc::new((0..rows).map(|row| (row % 7 != 0).then_some(row)).collect::<Int64Array>())),
            ("b", Arc::new((0..rows).map(|row| Some(format!("text {row}"))).collect::<StringArray>())),
            ("c", Arc::new((0..rows).map(|row| Some(row as u16)).collect::<UInt16Array>())),
            ("d", Arc::new(TimestampNanosecondArray::from_iter_values((0..rows).map(|row| row * 1_000_000_000)))),
        ],
        150,
    );
    let inferred = infer_schema(&options(&file, &[])).await.unwrap();
    assert_eq!(inferred, schema(&[("a", DataType::Int64), ("b", DataType::Utf8View), ("c", DataType::Int32), ("d", TIME)]));
    let source = open(&file, &[], &inferred).await.unwrap();
    let (got, _) = read_all(&source, &[3, 0, 1]).await;
    assert_eq!(got.rows[8], "1970-01-01 00:00:08|8|text 8");
    assert_eq!((got.rows.len(), got.ends.last()), (1000, Some(&1000)));
    let mut random = StdRng::seed_from_u64(1);
    check_restarts(&source, &[0, 1, 2, 3], &mut random, 1).await;
    // A declared type that does not hold every value refuses rows.
    let narrow = schema(&[("A", DataType::Int16), ("c", DataType::Utf8View)]);
    let wide = folder.path().join("b.parquet");
    write_parquet(
        &wide,
        vec![("a", Arc::new(Int64Array::from(vec![Some(1), Some(70_000), None]))), ("c", Arc::new(Int64Array::from(vec![1, 2, 3])))],
        10,
    );
    let source = open(&wide, &[], &narrow).await.unwrap();
    let (got, _) = read_all(&source, &[0, 1]).await;
    assert_eq!(got.rows, ["1|1", "~|3"]);
    assert_eq!((got.bad[0].text.as_str(), got.bad[0].offset), ("row 2", 2));
    let (of_the_other, _) = read_all(&source, &[1]).await;
    assert_eq!((of_the_other.rows, of_the_other.bad), (vec!["1".to_owned(), "3".to_owned()], got.bad));
    assert_eq!(source.row_at(&only_split(&source).await, 2).await, format!("\"{}\", row 2", wide.display()));
}

#[tokio::test]
async fn corrupt_parquet_is_an_error_that_names_the_file() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("a.parquet");
    let column = || Arc::new((0..2000).map(|row| Some(row * 77_777 % 1999)).collect::<arrow::array::Int64Array>());
    write_parquet(&file, vec![("a", column())], 100);
    let whole = fs::read(&file).unwrap();
    let columns = schema(&[("a", DataType::Int64)]);
    for length in [0, 3, 10, whole.len() / 2, whole.len() - 1] {
        fs::write(&file, &whole[..length]).unwrap();
        let failed = message(open(&file, &[], &columns).await);
        assert!(failed.starts_with("XX001 could not read file") && failed.contains("a.parquet"), "{failed}");
    }
    // Damage in the pages is met while reading; whatever it does, it is an error with the name or a wrong value, never a panic.
    let mut random = StdRng::seed_from_u64(7);
    for _ in 0..200 {
        let mut damaged = whole.clone();
        let at = random.random_range(0..whole.len());
        damaged[at] ^= 1 << random.random_range(0..8);
        fs::write(&file, damaged).unwrap();
        match open(&file, &[], &columns).await {
            Ok(source) => {
                let split = only_split(&source).await;
                if let Err(error) = read(&source, &split, 0, &[0], None, || 4096).await {
                    assert!(error.to_string().contains("a.parquet"), "{error}");
                }
            }
            Err(error) => assert!(error.to_string().contains("a.parquet"), "{error}"),
        }
    }
}

#[tokio::test]
async fn replay_keeps_the_pace_of_event_time() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("a.csv");
    fs::write(&file, "1,2026-01-01 00:00:00\n2,2026-01-01 00:01:00\n3,2026-01-01 00:00:30\n4,\n5,2026-01-01 00:10:00\n").unwrap();
    let columns = schema(&[("a", DataType::Int32), ("ts", TIME)]);
    let clock = Clock::manual(1_000_000);
    let settings = options(&file, &[("replay_speed", "60")]).resolved(clock.wall_micros());
    assert_eq!(settings.with.last(), Some(&("replay_start".to_owned(), "1970-01-01 00:00:01+00".to_owned())));
    let watermark = Some(WatermarkSpec { column: 1, delay: 0 });
    let spec = SourceSpec::new("s", &settings, Some(columns.clone()), watermark).unwrap();
    let source = open_source_with(&spec, clock.clone()).await.unwrap();
    let split = only_split(&source).await;
    // The time column is decoded for the replay although nobody wants it.
    let mut reader = source.open(&split, 0, &[0]).await.unwrap();
    let mut next = async || match reader.read(10, None).await.unwrap() {
        ReadOutcome::Rows { batch, .. } => (batch.num_rows() * 10 + batch.num_columns()) as i64,
        ReadOutcome::Pending { retry_after_us, idle: false } => -(retry_after_us as i64),
        ReadOutcome::Finished => 0,
        other => panic!("unexpected {other:?}"),
    };
    assert_eq!(next().await, 11);
    assert_eq!(next().await, -1_000_000);
    clock.advance(Duration::from_millis(999));
    assert_eq!(next().await, -1_000);
    clock.advance(Duration::from_millis(1));
    assert_eq!(next().await, 31);
    assert_eq!(next().await, -1_000_000);
    // With a limit rows come at once: another reader had them.
    let (got, stop) = read(&source, &split, 0, &[0], Some(1000), || 10).await.unwrap();
    assert_eq!((got.rows.len(), stop), (5, Stop::Finished));
    clock.advance(Duration::from_secs(9));
    assert_eq!(next().await, 11);
    assert_eq!(next().await, 0);
    let error = SourceSpec::new("s", &settings, Some(columns), None).unwrap_err();
    assert_eq!(error.to_string(), "option \"replay_speed\" needs a time column");
}

#[test]
fn wrong_options_are_named() {
    let columns = schema(&[("a", DataType::Int32)]);
    let check = |others: &[(&str, &str)], encode: Option<(&str, &[(&str, &str)])>| {
        let mut all = options(Path::new("/x/a.csv"), others);
        all.format = encode.map(|(encode, options)| FormatClause {
            format: "PLAIN".into(),
            encode: encode.into(),
            options: options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        });
        SourceSpec::new("s", &all, Some(columns.clone()), None).map_or_else(|error| error.to_string(), |_| "ok".into())
    };
    assert_eq!(check(&[], Some(("CSV", &[("without_header", "false"), ("delimiter", ";")]))), "ok");
    assert_eq!(check(&[("format", "avro")], None), "invalid value for parameter \"format\": \"avro\"");
    assert_eq!(check(&[("format", "csv")], Some(("CSV", &[]))), "conflicting or redundant options: \"format\" is given twice");
    assert_eq!(check(&[("delimiter", ",,")], None), "invalid value for parameter \"delimiter\": \",,\"");
    assert_eq!(check(&[("haeder", "true")], None), "invalid option \"haeder\" for connector \"file\"");
    assert_eq!(check(&[("format", "json"), ("header", "true")], None), "invalid option \"header\" for connector \"file\"");
    assert_eq!(check(&[("bad_rows", "ignore")], None), "invalid value for parameter \"bad_rows\": \"ignore\"");
    assert_eq!(check(&[("replay_start", "2026-01-01")], None), "option \"replay_start\" needs option \"replay_speed\"");
    let none = SourceSpec::new("s", &SourceOptions::default(), Some(columns.clone()), None).unwrap_err();
    assert_eq!(none.to_string(), "option \"connector\" is required for source");
    let undeclared = SourceSpec::new("s", &options(Path::new("/x/a.csv"), &[]), None, None).unwrap_err();
    assert_eq!(undeclared.to_string(), "the columns of a source of \"file\" must be declared");
}

#[tokio::test]
async fn files_of_a_sink_are_seen_once_they_are_committed() {
    let folder = tempfile::TempDir::new().unwrap();
    let files = millpond_storage::foreign_files::ForeignFiles::memory();
    let put = async |name: String| {
        let path = folder.path().join(&name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "1\n").unwrap();
        files.put(&format!("in/{name}"), bytes::Bytes::from_static(b"1\n")).await.unwrap();
    };
    let list = async || {
        let parse = |path: &str| Location::parse(path, &["csv"], Vec::new()).unwrap();
        let local = Place::new(parse(folder.path().to_str().unwrap())).unwrap().list().await.unwrap();
        let remote = Place::with_store(parse("s3://bucket/in"), files.clone(), "in").list().await.unwrap();
        assert_eq!(local, remote);
        local.into_iter().map(|file| file.id).collect::<Vec<_>>()
    };
    let data = |epoch: u64, number: u32| format!("{epoch:020}-{number}.csv");
    let copied = format!("copied/{}", data(9, 0));
    put(copied.clone()).await;
    put("_manifest/.sink".into()).await;
    put(data(4, 0)).await;
    put("other.csv".into()).await;
    assert_eq!(list().await, [copied.clone(), "other.csv".into()], "no transaction was committed");
    put(format!("_manifest/{:020}.draft", 4)).await;
    assert_eq!(list().await.len(), 2, "nor is one that is about to be");
    put(format!("_manifest/{:020}.json", 4)).await;
    put(data(6, 0)).await;
    put(data(6, 1)).await;
    assert_eq!(list().await, [data(4, 0), copied.clone(), "other.csv".into()]);
    put(format!("_manifest/{:020}.json", 8)).await;
    assert_eq!(list().await, [data(4, 0), data(6, 0), data(6, 1), copied, "other.csv".into()]);
}
