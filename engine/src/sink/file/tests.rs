use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use arrow::{
    array::{Int64Array, StringViewArray},
    datatypes::{DataType, Field, Schema, SchemaRef},
    record_batch::RecordBatch,
};
use millpond_storage::{collection::Delta, epoch::Epoch, foreign_files::ForeignFiles, signed_batch::SignedBatch};
use rand::{Rng, SeedableRng, rngs::StdRng};
use tempfile::TempDir;

use super::{FileSink, State, manifest::Manifest, target::Target};
use crate::{
    error::EngineError,
    format::{csv::CsvFormat, csv_write},
    sink::{Sink, SinkConnector, SinkOptions, SinkSpec},
    source::{ReadOutcome, SourceOptions, SourceSpec, open_source},
};

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, true), Field::new("text", DataType::Utf8View, true)]))
}

fn delta(epoch: u64, rows: &[(i64, &str, i8)]) -> Arc<Delta> {
    let ids: Int64Array = rows.iter().map(|row| Some(row.0)).collect();
    let texts: StringViewArray = rows.iter().map(|row| Some(row.1)).collect();
    let batch = RecordBatch::try_new(schema(), vec![Arc::new(ids), Arc::new(texts)]).unwrap();
    let signs = rows.iter().any(|row| row.2 != 1).then(|| rows.iter().map(|row| row.2).collect());
    Arc::new(Delta { from: Epoch(epoch - 1), to: Epoch(epoch), batches: vec![SignedBatch { batch, signs }], watermark_us: None })
}

fn spec(folder: &Path, others: &[(&str, &str)], append_only: bool) -> crate::error::Result<SinkSpec> {
    let own = [("connector", "file"), ("path", folder.to_str().unwrap())];
    let with = own.iter().chain(others).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    SinkSpec::new("s", &SinkOptions { with, format: None }, &schema(), append_only)
}

fn sink(spec: &SinkSpec) -> FileSink {
    let SinkConnector::File(file) = &spec.connector else { panic!("not a file sink") };
    FileSink::new(spec, file)
}

/// All manifests, by epoch.
fn manifests(folder: &Path) -> Vec<Manifest> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder.join("_manifest")).unwrap() {
        let path = entry.unwrap().path();
        let manifest = Manifest::from_text("m", &fs::read_to_string(&path).unwrap()).unwrap();
        found.insert(manifest.epoch, manifest);
    }
    found.into_values().collect()
}

/// Lines of all committed CSV or JSON files, in the order of their epochs.
fn committed_lines(folder: &Path) -> Vec<String> {
    let files = manifests(folder).into_iter().flat_map(|manifest| manifest.files);
    files.flat_map(|file| fs::read_to_string(folder.join(file.name)).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[tokio::test]
async fn rows_of_every_format_are_read_back_by_the_file_source() {
    for format in ["csv", "json", "parquet"] {
        let folder = TempDir::new().unwrap();
        let spec = spec(folder.path(), &[("format", format)], true).unwrap();
        let mut sink = sink(&spec);
        assert_eq!(sink.reached().await.unwrap(), Epoch(0));
        sink.write(&[delta(1, &[(1, "a,\"b\"\nc", 1)]), delta(2, &[(2, "", 1), (3, "é", 1)])], Epoch(2)).await.unwrap();
        sink.write(&[delta(3, &[(4, "d", 1)])], Epoch(3)).await.unwrap();
        let with = [("connector", "file"), ("path", folder.path().to_str().unwrap()), ("format", format)];
        let with = with.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let source = SourceSpec::new("r", &SourceOptions { with, format: None }, Some(schema()), None).unwrap();
        let source = open_source(&source).await.unwrap();
        let mut text = String::new();
        for split in source.discover().await.unwrap().splits {
            let mut reader = source.open(&split, 0, &[0, 1]).await.unwrap();
            while let ReadOutcome::Rows { batch, bad, .. } = reader.read(100, None).await.unwrap() {
                assert!(bad.is_empty());
                csv_write::write_rows(&CsvFormat { null: "~".into(), ..CsvFormat::default() }, &batch, &mut text).unwrap();
            }
        }
        assert_eq!(text, "1,\"a,\"\"b\"\"\nc\"\n2,\n3,é\n4,d\n", "{format}");
    }
}

#[tokio::test]
async fn a_folder_is_tried_before_it_is_relied_on() {
    let folder = TempDir::new().unwrap();
    let inner = folder.path().join("a/b");
    sink(&spec(&inner, &[("format", "csv")], true).unwrap()).check().await.unwrap();
    let names: Vec<_> = fs::read_dir(&inner).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["_manifest"]);
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let refused = sink(&spec(&file, &[("format", "csv")], true).unwrap()).check().await.unwrap_err();
    assert!(matches!(refused, EngineError::User { sqlstate: "42809", .. }), "{refused}");
}

#[tokio::test]
async fn a_changelog_says_what_each_row_is() {
    let folder = TempDir::new().unwrap();
    let spec = spec(folder.path(), &[("format", "csv"), ("header", "true"), ("type", "changelog")], false).unwrap();
    let mut sink = sink(&spec);
    sink.reached().await.unwrap();
    sink.write(&[delta(7, &[(1, "new", 1), (1, "old", -1), (2, "twice", 2)])], Epoch(9)).await.unwrap();
    assert_eq!(
        committed_lines(folder.path()),
        ["id,text,__op,__epoch", "1,old,delete,7", "1,new,insert,7", "2,twice,insert,7", "2,twice,insert,7"]
    );
}

#[tokio::test]
async fn inserts_only_drops_the_rest() {
    let folder = TempDir::new().unwrap();
    let spec = spec(folder.path(), &[("format", "json"), ("force_append_only", "true")], false).unwrap();
    let mut sink = sink(&spec);
    sink.reached().await.unwrap();
    sink.write(&[delta(1, &[(1, "x", 1), (2, "y", -1)])], Epoch(1)).await.unwrap();
    assert_eq!(committed_lines(folder.path()), ["{\"id\":1,\"text\":\"x\"}"]);
}

#[tokio::test]
async fn epochs_without_rows_leave_one_manifest() {
    let folder = TempDir::new().unwrap();
    let spec = spec(folder.path(), &[("format", "csv")], true).unwrap();
    let mut first = sink(&spec);
    first.reached().await.unwrap();
    first.write(&[delta(1, &[(1, "a", 1)])], Epoch(1)).await.unwrap();
    for epoch in 2..6 {
        first.write(&[], Epoch(epoch)).await.unwrap();
    }
    assert_eq!(manifests(folder.path()).iter().map(|manifest| manifest.epoch).collect::<Vec<_>>(), [1, 5]);
    assert_eq!(sink(&spec).reached().await.unwrap(), Epoch(5));
}

/// Where a transaction of the random test ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Crash {
    Never,
    HalfAFile,
    BeforeManifest,
    HalfAManifest,
    AfterManifest,
}

/// One transaction, cut off where `crash` says. Says whether the sink goes on living.
fn transaction(state: &mut State, deltas: &[Arc<Delta>], to: Epoch, crash: Crash, folder: &Path) -> bool {
    match crash {
        Crash::Never => {
            state.write(deltas, to).unwrap();
            return true;
        }
        Crash::HalfAFile => fs::write(folder.join(format!("{:020}-0.csv", to.0)), "9,ha").unwrap(),
        Crash::BeforeManifest => drop(state.write_files(deltas, to).unwrap()),
        Crash::HalfAManifest => {
            state.write_files(deltas, to).unwrap();
            fs::write(folder.join(format!("_manifest/{:020}.draft", to.0)), "{\"version\":1,\"ep").unwrap();
        }
        Crash::AfterManifest => {
            let previous = state.newest.as_ref().map_or(0, |manifest| manifest.epoch);
            let files = state.write_files(deltas, to).unwrap();
            state.target().unwrap().put_manifest(&Manifest { epoch: to.0, previous, files }).unwrap();
        }
    }
    false
}

#[test]
fn every_row_is_committed_once_wherever_it_crashes() {
    for seed in 0..8 {
        let mut random = StdRng::seed_from_u64(seed);
        let folder = TempDir::new().unwrap();
        let spec = spec(folder.path(), &[("format", "csv")], true).unwrap();
        let last = 40u64;
        let deltas: Vec<Arc<Delta>> = (1..=last)
            .map(
                |epoch| if epoch % 5 == 0 { delta(epoch, &[]) } else { delta(epoch, &[(epoch as i64, "a", 1), (-(epoch as i64), "b", 1)]) },
            )
            .collect();
        let start = || {
            let mut state = sink(&spec).state.unwrap();
            let reached = state.reached().unwrap();
            (state, reached)
        };
        let (mut state, mut reached) = start();
        while reached.0 < last {
            let to = random.random_range(reached.0 + 1..=last.min(reached.0 + 4));
            let crash = [Crash::Never, Crash::HalfAFile, Crash::BeforeManifest, Crash::HalfAManifest, Crash::AfterManifest]
                [random.random_range(0..5)];
            let part = &deltas[reached.0 as usize..to as usize];
            if transaction(&mut state, part, Epoch(to), crash, folder.path()) {
                reached = Epoch(to);
            } else {
                (state, reached) = start();
                assert!(reached.0 == to || crash != Crash::AfterManifest, "seed {seed}");
            }
        }
        let expected: Vec<String> =
            (1..=last).filter(|epoch| epoch % 5 != 0).flat_map(|epoch| [format!("{epoch},a"), format!("-{epoch},b")]).collect();
        assert_eq!(committed_lines(folder.path()), expected, "seed {seed}");
        // What no manifest names is gone.
        let named: usize = manifests(folder.path()).iter().map(|manifest| manifest.files.len()).sum();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), named + 1, "seed {seed}");
    }
}

#[tokio::test]
async fn an_object_store_is_a_folder_like_any_other() {
    let files = ForeignFiles::memory().below("out");
    let spec = SinkSpec::new(
        "s",
        &SinkOptions {
            with: [("connector", "file"), ("path", "s3://b/out"), ("format", "csv")].map(|(n, v)| (n.to_owned(), v.to_owned())).to_vec(),
            format: None,
        },
        &schema(),
        true,
    )
    .unwrap();
    let open = || {
        let mut sink = sink(&spec);
        sink.state.as_mut().unwrap().target = Some(Target::Remote(files.clone(), tokio::runtime::Handle::current()));
        sink
    };
    let mut first = open();
    assert_eq!(first.reached().await.unwrap(), Epoch(0));
    first.write(&[delta(1, &[(1, "a", 1)])], Epoch(1)).await.unwrap();
    files.put(&format!("{:020}-0.csv", 2), bytes::Bytes::from_static(b"9,left over")).await.unwrap();
    let mut second = open();
    assert_eq!(second.reached().await.unwrap(), Epoch(1));
    second.write(&[delta(2, &[(2, "b", 1)])], Epoch(3)).await.unwrap();
    let names: Vec<String> = files.list().await.unwrap().into_iter().map(|file| file.name).collect();
    let (one, three) = (format!("{:020}", 1), format!("{:020}", 3));
    assert_eq!(
        names,
        [
            format!("{one}-0.csv"),
            format!("{three}-0.csv"),
            "_manifest/.sink".into(),
            format!("_manifest/{one}.json"),
            format!("_manifest/{three}.json")
        ]
    );
    let error = first.write(&[], Epoch(3)).await.unwrap_err().to_string();
    assert!(error.contains("is written by another process"), "{error}");
}

#[tokio::test]
async fn a_damaged_manifest_is_an_error_that_names_it() {
    let folder = TempDir::new().unwrap();
    let spec = spec(folder.path(), &[("format", "csv")], true).unwrap();
    let mut first = sink(&spec);
    first.reached().await.unwrap();
    first.write(&[delta(1, &[(1, "a", 1)])], Epoch(1)).await.unwrap();
    let file = folder.path().join(format!("_manifest/{:020}.json", 1));
    let whole = fs::read_to_string(&file).unwrap();
    for damaged in [whole.replace("\"rows\":1", "\"rows\":2"), whole[..whole.len() / 2].to_owned(), String::new()] {
        fs::write(&file, damaged).unwrap();
        let error = sink(&spec).reached().await.unwrap_err().to_string();
        assert!(error.contains("is corrupt") && error.contains("_manifest/00000000000000000001.json"), "{error}");
    }
}

#[tokio::test]
async fn two_writers_do_not_overwrite_each_other() {
    let folder = TempDir::new().unwrap();
    let spec = spec(folder.path(), &[("format", "csv")], true).unwrap();
    let (mut first, mut second) = (sink(&spec), sink(&spec));
    first.reached().await.unwrap();
    second.reached().await.unwrap();
    first.write(&[], Epoch(1)).await.unwrap();
    let error = second.write(&[], Epoch(1)).await.unwrap_err().to_string();
    assert!(error.contains("is written by another process"), "{error}");
}

#[test]
fn wrong_options_are_named() {
    let check = |others: &[(&str, &str)], append_only| {
        spec(Path::new("/x"), others, append_only).map_or_else(|error| error.to_string(), |_| "ok".into())
    };
    assert_eq!(check(&[("format", "csv")], false), "sink \"s\" is append-only, but its input updates or deletes rows");
    assert_eq!(check(&[("format", "csv"), ("type", "upsert")], true), "invalid value for parameter \"type\": \"upsert\"");
    assert_eq!(check(&[], true), "option \"format\" is required for connector \"file\"");
    assert_eq!(check(&[("format", "json"), ("header", "true")], true), "invalid option \"header\" for connector \"file\"");
    assert_eq!(
        check(&[("format", "json"), ("type", "changelog"), ("force_append_only", "on")], true),
        "options type = 'changelog' and force_append_only exclude each other"
    );
    let nowhere = SinkSpec::new("s", &SinkOptions { with: vec![("connector".into(), "blackhole".into())], format: None }, &schema(), false);
    assert!(nowhere.is_ok());
}
