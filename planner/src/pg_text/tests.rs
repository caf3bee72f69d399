//! Tests of the text forms: what PostgreSQL 15 answers to the same text.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, Int32Array, StringViewArray, StructArray};
use arrow::datatypes::{DataType, Field, IntervalUnit as ArrowIntervalUnit, TimeUnit, i256};

use super::*;

const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);
const INTERVAL: DataType = DataType::Interval(ArrowIntervalUnit::MonthDayNano);

fn timestamptz() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

fn list(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("item", item, true)))
}

fn in_zone(name: &str) -> TextSettings {
    TextSettings { time_zone: Zone::parse(name).expect("a zone"), ..TextSettings::default() }
}

/// Reads a text and writes it again.
fn round(text: &str, data_type: &DataType, settings: &TextSettings) -> Result<String, TextError> {
    let value = parse_text(text, data_type, settings)?;
    let array = value.to_array().expect("an array of one row");
    let mut out = Vec::new();
    write_text(array.as_ref(), 0, settings, &mut out)?;
    // The column-wise form must agree.
    let column = parse_text_array(&StringViewArray::from(vec![Some(text), None]), data_type, settings)?;
    assert_eq!(column.slice(0, 1).to_data(), array.to_data(), "column-wise reading of {text:?}");
    assert!(column.is_null(1));
    Ok(String::from_utf8(out).expect("text"))
}

fn check(data_type: &DataType, settings: &TextSettings, cases: &[(&str, &str)]) {
    for (text, want) in cases {
        match round(text, data_type, settings) {
            Ok(got) => assert_eq!(&got, want, "{text:?} as {}", sql_type_name(data_type)),
            Err(error) => panic!("{text:?} as {}: {error:?}", sql_type_name(data_type)),
        }
    }
}

fn check_errors(data_type: &DataType, cases: &[(&str, &str, &str)]) {
    for (text, sqlstate, message) in cases {
        let error = round(text, data_type, &TextSettings::default()).expect_err(text);
        assert_eq!((error.sqlstate, error.message.as_str()), (*sqlstate, *message), "{text:?} as {}", sql_type_name(data_type));
    }
}

#[test]
fn integers_and_booleans() {
    let settings = TextSettings::default();
    check(&DataType::Int32, &settings, &[("0", "0"), (" -17 ", "-17"), ("+5", "5"), ("2147483647", "2147483647"), ("0007", "7")]);
    check(&DataType::Int64, &settings, &[("-9223372036854775808", "-9223372036854775808"), ("9223372036854775807", "9223372036854775807")]);
    check_errors(
        &DataType::Int16,
        &[
            ("40000", "22003", "value \"40000\" is out of range for type smallint"),
            ("1.5", "22P02", "invalid input syntax for type smallint: \"1.5\""),
            ("", "22P02", "invalid input syntax for type smallint: \"\""),
        ],
    );
    check_errors(&DataType::Int64, &[("9223372036854775808", "22003", "value \"9223372036854775808\" is out of range for type bigint")]);
    check(&DataType::Boolean, &settings, &[("TRUE", "t"), (" y ", "t"), ("1", "t"), ("of", "f"), ("on", "t"), ("n", "f"), ("fal", "f")]);
    check_errors(&DataType::Boolean, &[("o", "22P02", "invalid input syntax for type boolean: \"o\"")]);
}

#[test]
fn floats_print_the_shortest_digits() {
    let settings = TextSettings::default();
    check(
        &DataType::Float64,
        &settings,
        &[
            ("0.1", "0.1"),
            ("-0", "-0"),
            ("1e15", "1e+15"),
            ("123456789012345", "123456789012345"),
            ("100000000000000", "100000000000000"),
            ("1e-5", "1e-05"),
            ("0.0001", "0.0001"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
            ("5e-324", "5e-324"),
            ("0.30000000000000004", "0.30000000000000004"),
            ("inf", "Infinity"),
            ("-iNfInItY", "-Infinity"),
            ("nan", "NaN"),
            ("5.6843418860808015e-14", "5.684341886080802e-14"),
            ("9007199254740992", "9.007199254740992e+15"),
        ],
    );
    check(
        &DataType::Float32,
        &settings,
        &[
            ("0.1", "0.1"),
            ("1234567", "1.234567e+06"),
            ("123456", "123456"),
            ("3.4028235e38", "3.4028235e+38"),
            ("16777216", "1.6777216e+07"),
        ],
    );
    check_errors(
        &DataType::Float64,
        &[
            ("-2e999", "22003", "\"-2e999\" is out of range for type double precision"),
            ("1e-999", "22003", "\"1e-999\" is out of range for type double precision"),
            ("x", "22P02", "invalid input syntax for type double precision: \"x\""),
        ],
    );
    check_errors(&DataType::Float32, &[("1e60", "22003", "\"1e60\" is out of range for type real")]);
    let few = TextSettings { extra_float_digits: 0, ..TextSettings::default() };
    check(&DataType::Float64, &few, &[("0.30000000000000004", "0.3"), ("1e15", "1e+15"), ("123456.789", "123456.789"), ("1e-5", "1e-05")]);
    check(&DataType::Float32, &few, &[("0.1", "0.1"), ("1234567", "1.23457e+06")]);
}

#[test]
fn numeric_keeps_its_scale() {
    let settings = TextSettings::default();
    check(
        &DataType::Decimal128(8, 2),
        &settings,
        &[("1.005", "1.01"), ("-0.004", "0.00"), ("-0.005", "-0.01"), (" 12 ", "12.00"), ("1e2", "100.00"), (".5", "0.50"), ("5.", "5.00")],
    );
    check(&DataType::Decimal128(38, 0), &settings, &[("99999999999999999999999999999999999999", "99999999999999999999999999999999999999")]);
    check(
        &DataType::Decimal256(76, 20),
        &settings,
        &[
            ("1.50", "1.5"),
            ("0", "0"),
            ("-0.0", "0"),
            ("100", "100"),
            ("12345678901234567890123456789012345678901234567890.5", "12345678901234567890123456789012345678901234567890.5"),
            ("0.00000000000000000001", "0.00000000000000000001"),
        ],
    );
    check(
        &DataType::Decimal256(50, 3),
        &settings,
        &[("-1234567890123456789012345678901234567890.1235", "-1234567890123456789012345678901234567890.124")],
    );
    check_errors(
        &DataType::Decimal128(5, 2),
        &[
            ("999.995", "22003", "numeric field overflow"),
            ("1e5", "22003", "numeric field overflow"),
            ("1.2.3", "22P02", "invalid input syntax for type numeric: \"1.2.3\""),
            ("e5", "22P02", "invalid input syntax for type numeric: \"e5\""),
            ("", "22P02", "invalid input syntax for type numeric: \"\""),
        ],
    );
    check_errors(&DataType::Decimal256(76, 20), &[("1e56", "22003", "value overflows numeric format")]);
    let mut out = Vec::new();
    write_decimal128(12, -2, &mut out);
    write_decimal256(i256::MIN, 76, 0, &mut out);
    assert!(out.starts_with(b"1200-5789"));
}

#[test]
fn dates_and_times() {
    let settings = TextSettings::default();
    check(
        &DataType::Date32,
        &settings,
        &[
            ("2032-02-29", "2032-02-29"),
            ("January 8, 1999", "1999-01-08"),
            ("1/8/1999", "1999-01-08"),
            ("1999-Jan-08", "1999-01-08"),
            ("08-Jan-99", "1999-01-08"),
            ("Jan-08-1999", "1999-01-08"),
            ("19990108", "1999-01-08"),
            ("990108", "1999-01-08"),
            ("1999.008", "1999-01-08"),
            ("J2451187", "1999-01-08"),
            ("0002-11-30 BC", "0002-11-30 BC"),
            ("2031-01-02 03:04", "2031-01-02"),
            ("infinity", "infinity"),
            ("-infinity", "-infinity"),
            ("epoch", "1970-01-01"),
            ("5874897-12-31", "5874897-12-31"),
        ],
    );
    check(
        &DataType::Time64(TimeUnit::Microsecond),
        &settings,
        &[
            ("04:05:06.789", "04:05:06.789"),
            ("04:05", "04:05:00"),
            ("040506", "04:05:06"),
            ("04:05 PM", "16:05:00"),
            ("12:00 am", "00:00:00"),
            ("24:00", "24:00:00"),
            ("allballs", "00:00:00"),
            ("2031-01-02 03:04:05.0000005", "03:04:05"),
        ],
    );
    check(
        &TIMESTAMP,
        &settings,
        &[
            ("2031-12-31 24:00:00", "2032-01-01 00:00:00"),
            ("2031-01-02T03:04:05.123456", "2031-01-02 03:04:05.123456"),
            ("2031-01-02 03:04:05+05", "2031-01-02 03:04:05"),
            ("20310102T030405", "2031-01-02 03:04:05"),
            ("Wed Jan 8 1997 07:37:16 PM", "1997-01-08 19:37:16"),
            ("Dec 17 07:37:16 1997", "1997-12-17 07:37:16"),
            ("0002-11-30 10:00:00 BC", "0002-11-30 10:00:00 BC"),
            ("infinity", "infinity"),
            ("1969-12-31 23:59:59.5", "1969-12-31 23:59:59.5"),
            ("2031-1-2", "2031-01-02 00:00:00"),
        ],
    );
    check_errors(
        &TIMESTAMP,
        &[
            ("2031-02-30", "22008", "date/time field value out of range: \"2031-02-30\""),
            ("2031-02-28 25:00:00", "22008", "date/time field value out of range: \"2031-02-28 25:00:00\""),
            ("yes", "22007", "invalid input syntax for type timestamp: \"yes\""),
            ("2031-01-01 10:00 Mars/Base", "22023", "time zone \"mars/base\" not recognized"),
            ("300000-01-01", "22008", "timestamp out of range: \"300000-01-01\""),
            ("03:04", "22007", "invalid input syntax for type timestamp: \"03:04\""),
            ("", "22007", "invalid input syntax for type timestamp: \"\""),
        ],
    );
    check_errors(&DataType::Date32, &[("2031-13-01", "22008", "date/time field value out of range: \"2031-13-01\"")]);
    check_errors(&timestamptz(), &[("2031-01-01 00:00+16", "22009", "time zone displacement out of range: \"2031-01-01 00:00+16\"")]);
}

#[test]
fn time_zones_follow_the_clock_changes() {
    let chicago = in_zone("America/Chicago");
    check(
        &timestamptz(),
        &chicago,
        &[
            // The missing hour takes the offset before, the repeated one the offset after.
            ("2031-03-09 02:30", "2031-03-09 03:30:00-05"),
            ("2031-11-02 01:30", "2031-11-02 01:30:00-06"),
            ("2031-11-02 01:30-05", "2031-11-02 01:30:00-05"),
            ("2031-07-01 12:00 UTC", "2031-07-01 07:00:00-05"),
            ("2031-07-01 12:00 Europe/Berlin", "2031-07-01 05:00:00-05"),
            ("2131-07-01 12:00:00Z", "2131-07-01 07:00:00-05"),
            ("2131-01-01 12:00:00z", "2131-01-01 06:00:00-06"),
            ("2031-07-01 12:00 PST", "2031-07-01 15:00:00-05"),
        ],
    );
    check(&timestamptz(), &in_zone("Asia/Kolkata"), &[("2031-01-01 00:00", "2031-01-01 00:00:00+05:30")]);
    check(&timestamptz(), &in_zone("-7"), &[("2031-01-01 00:00Z", "2030-12-31 17:00:00-07")]);
    check(&timestamptz(), &in_zone("UTC+3"), &[("2031-01-01 00:00Z", "2030-12-31 21:00:00-03")]);
    assert_eq!(Zone::parse("europe/berlin").expect("known").name(), "Europe/Berlin");
    assert!(Zone::parse("Nowhere").is_none());
}

#[test]
fn other_date_styles() {
    let german = TextSettings { date_style: DateStyle::German, ..TextSettings::default() };
    let sql = TextSettings { date_style: DateStyle::Sql, date_order: DateOrder::Dmy, ..TextSettings::default() };
    let postgres = TextSettings { date_style: DateStyle::Postgres, ..in_zone("America/Chicago") };
    check(&TIMESTAMP, &german, &[("1997-12-17 07:37:16.5", "17.12.1997 07:37:16.5")]);
    check(&TIMESTAMP, &sql, &[("17/12/1997 07:37:16", "17/12/1997 07:37:16")]);
    check(&timestamptz(), &postgres, &[("1997-12-17 07:37:16-06", "Wed Dec 17 07:37:16 1997 CST")]);
}

#[test]
fn intervals_in_all_spellings() {
    let settings = TextSettings::default();
    check(
        &INTERVAL,
        &settings,
        &[
            ("1 year 2 months 3 days 04:05:06.789", "1 year 2 mons 3 days 04:05:06.789"),
            ("1 mon 2 days 03:04:05", "1 mon 2 days 03:04:05"),
            ("P1Y2M3DT4H5M6S", "1 year 2 mons 3 days 04:05:06"),
            ("P0001-02-03T04:05:06", "1 year 2 mons 3 days 04:05:06"),
            ("PT1.5H", "01:30:00"),
            ("1-2", "1 year 2 mons"),
            ("3 4:05:06", "3 days 04:05:06"),
            ("1 day ago", "-1 days"),
            ("-1 day +02:03", "-1 days +02:03:00"),
            ("1 month -1 day", "1 mon -1 days"),
            ("1.5 months", "1 mon 15 days"),
            ("1.5 weeks", "10 days 12:00:00"),
            ("2 hours 30m", "02:30:00"),
            ("1d 2h3m", "1 day 02:03:00"),
            ("720 hours", "720:00:00"),
            ("10", "00:00:10"),
            ("0", "00:00:00"),
            ("-00:00:00.5", "-00:00:00.5"),
            ("@ 1 minute", "00:01:00"),
            ("1 century 2 decades", "120 years"),
            ("500 ms", "00:00:00.5"),
            ("4:05", "04:05:00"),
        ],
    );
    check_errors(
        &INTERVAL,
        &[
            ("", "22007", "invalid input syntax for type interval: \"\""),
            ("1 fortnight", "22007", "invalid input syntax for type interval: \"1 fortnight\""),
            ("1 day 2 days", "22007", "invalid input syntax for type interval: \"1 day 2 days\""),
            ("1:70", "22015", "interval field value out of range: \"1:70\""),
            ("3000000000 months", "22015", "interval field value out of range: \"3000000000 months\""),
        ],
    );
    for (style, want) in [
        (IntervalStyle::PostgresVerbose, "@ 1 year 2 mons -3 days 4 hours 5 mins 6.5 secs"),
        (IntervalStyle::SqlStandard, "+1-2 -3 +4:05:06.5"),
        (IntervalStyle::Iso8601, "P1Y2M-3DT4H5M6.5S"),
    ] {
        let settings = TextSettings { interval_style: style, ..TextSettings::default() };
        check(&INTERVAL, &settings, &[("1 year 2 mons -3 days +4:05:06.5", want)]);
    }
    let minutes = parse_interval_with_unit("10", IntervalUnit::Minute, &settings).expect("an interval");
    assert_eq!(minutes.nanoseconds, 600_000_000_000);
}

#[test]
fn bytes_and_uuids() {
    let settings = TextSettings::default();
    check(
        &DataType::Binary,
        &settings,
        &[("\\x00FF", "\\x00ff"), ("\\x", "\\x"), ("key1", "\\x6b657931"), ("k\\\\y\\001", "\\x6b5c7901"), ("\\x6b 65", "\\x6b65")],
    );
    let escape = TextSettings { bytea_output: ByteaOutput::Escape, ..TextSettings::default() };
    check(&DataType::Binary, &escape, &[("\\x6b5c00ff", "k\\\\\\000\\377")]);
    check_errors(
        &DataType::Binary,
        &[
            ("\\x0", "22023", "invalid hexadecimal data: odd number of digits"),
            ("\\xgg", "22023", "invalid hexadecimal digit: \"g\""),
            ("a\\b", "22P02", "invalid input syntax for type bytea"),
        ],
    );
    let uuid = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
    check(
        &DataType::FixedSizeBinary(16),
        &settings,
        &[(uuid, uuid), ("A0EEBC999C0B4EF8BB6D6BB9BD380A11", uuid), ("{a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11}", uuid)],
    );
    check_errors(&DataType::FixedSizeBinary(16), &[("a0eebc99", "22P02", "invalid input syntax for type uuid: \"a0eebc99\"")]);
}

#[test]
fn jsonb_is_normalised() {
    let settings = TextSettings::default();
    check(
        &DataType::LargeUtf8,
        &settings,
        &[
            ("{\"bb\":1,\"a\":[1,2,{}],\"c\":null}", "{\"a\": [1, 2, {}], \"c\": null, \"bb\": 1}"),
            ("{\"a\":1,\"a\":2}", "{\"a\": 2}"),
            ("  [ 1.50 , 1e2, -0, 1.5e-3, -0.0 ] ", "[1.50, 100, 0, 0.0015, 0.0]"),
            ("\"\\u0041\\n\\/\\u00e9\\ud83d\\ude00\"", "\"A\\n/é😀\""),
            ("\"tab\\u0009\\u0001\"", "\"tab\\t\\u0001\""),
            ("[]", "[]"),
            ("true", "true"),
        ],
    );
    check_errors(
        &DataType::LargeUtf8,
        &[
            ("{", "22P02", "invalid input syntax for type json"),
            ("[1,]", "22P02", "invalid input syntax for type json"),
            ("01", "22P02", "invalid input syntax for type json"),
            ("{\"a\" 1}", "22P02", "invalid input syntax for type json"),
            ("1 2", "22P02", "invalid input syntax for type json"),
            ("\"\\u0000\"", "22P05", "unsupported Unicode escape sequence"),
            ("\"\\ud800\"", "22P02", "invalid input syntax for type json"),
            ("", "22P02", "invalid input syntax for type json"),
        ],
    );
    assert!(normalize_json(&"[".repeat(100_000)).is_err());
    assert_eq!(normalize_json(&"[".repeat(5000)).expect_err("open").detail.as_deref(), Some("The input string ended unexpectedly."));
}

#[test]
fn arrays_quote_what_they_must() {
    let settings = TextSettings::default();
    check(
        &list(DataType::Utf8View),
        &settings,
        &[
            ("{a,\"b c\",NULL,\"NULL\",\"\"}", "{a,\"b c\",NULL,\"NULL\",\"\"}"),
            ("{ \"x\\\"y\" , z\\\\ }", "{\"x\\\"y\",\"z\\\\\"}"),
            ("{}", "{}"),
            ("[1:2]={a,b}", "{a,b}"),
        ],
    );
    check(&list(DataType::Int32), &settings, &[("{1,2,NULL}", "{1,2,NULL}")]);
    check(&list(list(DataType::Int32)), &settings, &[("{{1,2},{3,NULL}}", "{{1,2},{3,NULL}}")]);
    check_errors(
        &list(DataType::Int32),
        &[
            ("1,2", "22P02", "malformed array literal: \"1,2\""),
            ("{1,2", "22P02", "malformed array literal: \"{1,2\""),
            ("{1,,2}", "22P02", "malformed array literal: \"{1,,2}\""),
            ("{1}x", "22P02", "malformed array literal: \"{1}x\""),
            ("{a}", "22P02", "invalid input syntax for type integer: \"a\""),
        ],
    );
    assert!(split_array_literal("{{1},{2,3}}").is_err());
    assert!(split_array_literal(&"{".repeat(50_000)).is_err());
}

#[test]
fn records_and_casts_to_text() {
    let settings = TextSettings::default();
    let columns: Vec<ArrayRef> =
        vec![Arc::new(Int32Array::from(vec![Some(1), None])), Arc::new(StringViewArray::from(vec![Some("a \"b\""), Some("")]))];
    let fields = vec![Field::new("a", DataType::Int32, true), Field::new("b", DataType::Utf8View, true)];
    let record = StructArray::new(fields.into(), columns, None);
    let texts = format_array(&record, &settings).expect("texts");
    assert_eq!(texts.iter().collect::<Vec<_>>(), vec![Some("(1,\"a \"\"b\"\"\")"), Some("(,\"\")")]);
    // Output of a boolean is one letter, its cast to text a word.
    let words = format_array(&BooleanArray::from(vec![Some(true), None]), &settings).expect("texts");
    assert_eq!(words.iter().collect::<Vec<_>>(), vec![Some("true"), None]);
}
