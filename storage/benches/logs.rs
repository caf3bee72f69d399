//! Rates of the codecs, the epoch log and collections: `cargo bench -p millpond-storage --bench logs [-- codecs | epoch_log | collections]`.
#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use std::{hint::black_box, sync::Arc, time::Instant};

use arrow::{
    array::{ArrayRef, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringViewArray, TimestampMicrosecondArray},
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use millpond_storage::{
    collection::{Collection, CollectionKey, CollectionSpec, ScanRequest},
    encoding::{batch::write_batch, key::KeyCodec, row::RowCodec},
    epoch::Epoch,
    epoch_log::{EpochLog, LogRecord, SignedBatch},
    memory::MemoryBudget,
    rocks::RocksShared,
};
use rand::{Rng, SeedableRng, rngs::StdRng};

const ROWS: usize = 4096;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8View, true),
        Field::new("url", DataType::Utf8View, true),
        Field::new("price", DataType::Decimal128(18, 2), true),
        Field::new("score", DataType::Float64, true),
        Field::new("a", DataType::Int64, true),
        Field::new("b", DataType::Int64, true),
        Field::new("at", DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None), true),
    ]))
}

fn rows(first: i64, count: usize) -> RecordBatch {
    let rng = &mut StdRng::seed_from_u64(first as u64);
    let ids: Vec<i64> = (first..first + count as i64).collect();
    let mut numbers = || (0..count).map(|_| rng.random_range(0..1_000_000)).collect::<Int64Array>();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(ids.clone())),
        Arc::new(StringViewArray::from_iter_values(ids.iter().map(|id| format!("name {id}")))),
        Arc::new(StringViewArray::from_iter_values(ids.iter().map(|id| format!("https://example.com/item/{id}?query=1")))),
        Arc::new(Decimal128Array::from_iter_values(ids.iter().map(|id| i128::from(*id) * 7)).with_precision_and_scale(18, 2).unwrap()),
        Arc::new(ids.iter().map(|id| Some(*id as f64)).collect::<Float64Array>()),
        Arc::new(numbers()),
        Arc::new(numbers()),
        Arc::new(TimestampMicrosecondArray::from(ids)),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

/// Seconds that this thread has had a processor: comparable on a busy machine, too.
fn processor_seconds() -> f64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    schedstat.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

/// Prints how often a second `rows` rows are done.
fn rate(name: &str, rows: usize, mut work: impl FnMut()) {
    work();
    let started = processor_seconds();
    let mut times = 0;
    while processor_seconds() - started < 0.3 {
        (0..10).for_each(|_| work());
        times += 10;
    }
    let seconds = processor_seconds() - started;
    println!("{name:40} {:10.2} M rows/s", (rows * times) as f64 / seconds / 1e6);
}

fn codecs() {
    let batch = rows(0, ROWS);
    let types: Vec<DataType> = batch.schema().fields().iter().map(|field| field.data_type().clone()).collect();
    let one = KeyCodec::ascending(&types[..1]).unwrap();
    let two = KeyCodec::ascending(&types[..2]).unwrap();
    let row = RowCodec::new(&types).unwrap();
    let all: Vec<usize> = (0..types.len()).collect();
    rate("key encode, bigint", ROWS, || drop(black_box(one.encode(&batch.columns()[..1]).unwrap())));
    rate("key encode, bigint and text", ROWS, || drop(black_box(two.encode(&batch.columns()[..2]).unwrap())));
    let keys = two.encode(&batch.columns()[..2]).unwrap();
    rate("key decode, bigint and text", ROWS, || drop(black_box(two.decode(keys.iter()).unwrap())));
    rate("row encode, 8 columns", ROWS, || drop(black_box(row.encode(batch.columns()).unwrap())));
    let encoded = row.encode(batch.columns()).unwrap();
    rate("row decode, 8 columns", ROWS, || drop(black_box(row.decode(encoded.iter(), &all).unwrap())));
    rate("row decode, 2 of 8 columns", ROWS, || drop(black_box(row.decode(encoded.iter(), &[0, 5]).unwrap())));
    let mut out = Vec::new();
    rate("batch encode, 8 columns", ROWS, || {
        out.clear();
        write_batch(&batch, &mut out).unwrap();
    });
    println!("{:40} {:10} bytes", "batch of one row", {
        out.clear();
        write_batch(&batch.slice(0, 1), &mut out).unwrap();
        out.len()
    });
}

fn epoch_log() {
    for threads in [1, 8] {
        let directory = tempfile::tempdir_in(".").unwrap();
        let (log, _) = EpochLog::open(directory.path()).unwrap();
        let appends = 300;
        let started = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let log = &log;
                scope.spawn(move || {
                    for at in 0..appends {
                        let delta = vec![SignedBatch::inserts(rows(at, 1))];
                        let ticket = log.append(&[LogRecord::Dml { epoch: Epoch(1), table: thread, delta }]);
                        log.durable_blocking(ticket).unwrap();
                    }
                });
            }
        });
        let rate = (threads * appends as u64) as f64 / started.elapsed().as_secs_f64();
        println!("{:40} {rate:10.0} commits/s", format!("epoch log, {threads} sessions"));
    }
}

fn open(directory: &std::path::Path, key: CollectionKey, budget: &MemoryBudget) -> Arc<Collection> {
    let directory = directory.join("collections").join(if key == CollectionKey::AppendOnly { "2" } else { "1" });
    let id = if key == CollectionKey::AppendOnly { 2 } else { 1 };
    let spec = CollectionSpec { id, schema: schema(), key, directory, durable_deltas: true };
    Collection::open(spec, budget, RocksShared::new(256 << 20)).unwrap()
}

fn collections() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let budget = MemoryBudget::new(1 << 30);
    const COUNT: i64 = 1_000_000;
    for key in [CollectionKey::Columns(vec![0]), CollectionKey::AppendOnly] {
        let name = if key == CollectionKey::AppendOnly { "append-only" } else { "keyed" };
        let collection = open(directory.path(), key, &budget);
        let timed = |what: &str, rows: i64, work: &mut dyn FnMut()| {
            let started = processor_seconds();
            work();
            println!("{:40} {:10.2} M rows/s", format!("{name}: {what}"), rows as f64 / (processor_seconds() - started) / 1e6);
        };
        let batches: Vec<Vec<SignedBatch>> = (0..COUNT / 50_000)
            .map(|epoch| (0..13).map(|chunk| (epoch * 50_000 + chunk * 4096, 4096.min(50_000 - chunk * 4096))).collect::<Vec<_>>())
            .map(|chunks| chunks.into_iter().map(|(first, count)| SignedBatch::inserts(rows(first, count as usize))).collect())
            .collect();
        let mut epochs = batches.into_iter().zip(1..);
        timed("seal", COUNT, &mut || epochs.by_ref().for_each(|(batch, epoch)| collection.seal(Epoch(epoch), batch, None).unwrap()));
        let upper = collection.upper();
        let scan =
            |request: ScanRequest| collection.scan(upper, request).unwrap().map(|batch| batch.unwrap().batch.num_rows()).sum::<usize>();
        timed("scan of deltas", COUNT, &mut || assert_eq!(scan(ScanRequest::default()), COUNT as usize));
        timed("fold", COUNT, &mut || collection.fold_now().unwrap());
        timed("scan of the base", COUNT, &mut || assert_eq!(scan(ScanRequest::default()), COUNT as usize));
        let two = || ScanRequest { projection: Some(vec![0, 5]), ..ScanRequest::default() };
        timed("scan of the base, 2 of 8 columns", COUNT, &mut || assert_eq!(scan(two()), COUNT as usize));
        println!("{:40} {:10.1} MB", format!("{name}: bytes"), collection.bytes() as f64 / 1e6);
        if name == "keyed" {
            point_gets(&collection);
        }
    }
}

fn point_gets(collection: &Arc<Collection>) {
    let rng = &mut StdRng::seed_from_u64(1);
    let mut measure = |name: &str| {
        let upper = collection.upper();
        let mut keys = (0..20_000).map(|_| {
            let id: ArrayRef = Arc::new(Int64Array::from(vec![rng.random_range(0..1_000_000)]));
            collection.key_codec().encode(&[id]).unwrap()
        });
        let keys: Vec<_> = keys.by_ref().collect();
        let started = processor_seconds();
        for key in &keys {
            assert_eq!(collection.get(upper, key).unwrap().0.num_rows(), 1);
        }
        println!("{name:40} {:10.2} us", (processor_seconds() - started) * 1e6 / keys.len() as f64);
    };
    measure("point get, base only");
    for epoch in 0..200 {
        let changes = SignedBatch::inserts(rows(epoch * 5000, 10));
        collection.seal(Epoch(collection.upper().0 + 1), vec![changes], None).unwrap();
    }
    measure("point get, 200 small deltas");
}

/// Runs the parts named as arguments, or all.
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let wanted = |part: &str| arguments.is_empty() || arguments.iter().any(|argument| argument == part);
    if wanted("codecs") {
        codecs();
    }
    if wanted("epoch_log") {
        epoch_log();
    }
    if wanted("collections") {
        collections();
    }
}
