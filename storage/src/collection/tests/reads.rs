//! Ranges, pages, projections, holds and netting, case by case.

use std::ops::Bound;

use super::*;

fn filled(key: CollectionKey) -> (Place, Arc<Collection>) {
    let place = Place::new(64 << 20);
    let collection = place.open(key);
    let rows = |ids: std::ops::Range<i64>| vec![signed(&ids.map(|id| (row(id, "x", 0.5), 1)).collect::<Vec<_>>())];
    collection.seal(Epoch(1), rows(0..50), None).unwrap();
    collection.fold_now().unwrap();
    collection.seal(Epoch(2), rows(50..80), None).unwrap();
    (place, collection)
}

fn ids(collection: &Arc<Collection>, at: u64, request: ScanRequest) -> Vec<i64> {
    let batches = collection.scan(Epoch(at), request).unwrap().collect::<Result<Vec<_>>>().unwrap();
    batches.iter().flat_map(|batch| rows_of(&batch.batch)).map(|row| row.id).collect()
}

#[test]
fn pages_go_on_where_the_last_ended() {
    for key in model::KEYS {
        let (_place, collection) = filled(key());
        let mut seen = Vec::new();
        let mut after_key = None;
        loop {
            let request = ScanRequest { after_key: after_key.clone(), limit: Some(7), batch_rows: 3, ..ScanRequest::default() };
            let page: Vec<ScanBatch> = collection.scan(Epoch(2), request).unwrap().collect::<Result<_>>().unwrap();
            let Some(last) = page.last() else { break };
            assert!(last.ends_key);
            assert!(page.iter().map(|batch| batch.batch.num_rows()).sum::<usize>() <= 7);
            after_key = Some(last.last_key.clone());
            seen.extend(page.iter().flat_map(|batch| rows_of(&batch.batch)).map(|row| row.id));
        }
        assert_eq!(seen, (0..80).collect::<Vec<_>>(), "{:?}", collection.key());
    }
}

#[test]
fn key_ranges_take_whole_keys_and_first_columns() {
    let (_place, collection) = filled(unique());
    let first = KeyCodec::ascending(&[DataType::Int64]).unwrap();
    let key = |id: i64| first.encode(&[Arc::new(Int64Array::from(vec![id]))]).unwrap().row(0).to_vec();
    let range = |range| ScanRequest { key_range: Some(range), ..ScanRequest::default() };
    assert_eq!(ids(&collection, 2, range((Bound::Included(key(48)), Bound::Included(key(51))))), [48, 49, 50, 51]);
    assert_eq!(ids(&collection, 2, range((Bound::Excluded(key(48)), Bound::Excluded(key(51))))), [49, 50]);
    assert_eq!(ids(&collection, 2, range((Bound::Unbounded, Bound::Excluded(key(2))))), [0, 1]);
    assert_eq!(ids(&collection, 2, range((Bound::Excluded(key(78)), Bound::Unbounded))), [79]);
    assert!(ids(&collection, 2, range((Bound::Included(key(60)), Bound::Excluded(key(40))))).is_empty());
    let (_place, appended) = filled(CollectionKey::AppendOnly);
    let ordinal = |ordinal: u64| ordinal.to_be_bytes().to_vec();
    assert_eq!(ids(&appended, 2, range((Bound::Excluded(ordinal(48)), Bound::Included(ordinal(51))))), [49, 50, 51]);
    let keys = [ordinal(3), ordinal(70), ordinal(80)].into_iter().collect();
    let (found, indexes) = appended.get(Epoch(2), &keys).unwrap();
    assert_eq!(rows_of(&found).iter().map(|row| row.id).collect::<Vec<_>>(), [3, 70]);
    assert_eq!(indexes, [Some(0), Some(1), None]);
}

#[test]
fn projections_come_in_the_order_asked_for() {
    for key in model::KEYS {
        let (_place, collection) = filled(key());
        let request = ScanRequest { projection: Some(vec![2, 0]), ..ScanRequest::default() };
        let mut count = 0;
        for batch in collection.scan(Epoch(2), request).unwrap() {
            let batch = batch.unwrap().batch;
            assert_eq!(batch.schema().fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>(), ["id", "score"]);
            assert_eq!(batch.column(0).as_primitive::<Int64Type>().value(0), count);
            count += batch.num_rows() as i64;
        }
        assert_eq!(count, 80);
        let nothing = ScanRequest { projection: Some(Vec::new()), ..ScanRequest::default() };
        let rows: usize = collection.scan(Epoch(2), nothing).unwrap().map(|batch| batch.unwrap().batch.num_rows()).sum();
        assert_eq!(rows, 80);
    }
}

#[test]
fn equal_rows_are_not_cut_by_a_limit() {
    let place = Place::new(64 << 20);
    let collection = place.open(CollectionKey::WholeRow);
    let copies = |count: usize, id| vec![signed(&vec![(row(id, "x", -0.0), 1); count])];
    collection.seal(Epoch(1), copies(10, 1), None).unwrap();
    collection.fold_now().unwrap();
    collection.seal(Epoch(2), [copies(5, 1), copies(3, 2)].concat(), None).unwrap();
    let request = |limit| ScanRequest { limit: Some(limit), batch_rows: 4, ..ScanRequest::default() };
    assert_eq!(ids(&collection, 2, request(1)).len(), 15);
    assert_eq!(ids(&collection, 2, request(15)).len(), 15);
    assert_eq!(ids(&collection, 2, request(16)).len(), 18);
    let batches: Vec<ScanBatch> = collection.scan(Epoch(2), request(100)).unwrap().collect::<Result<_>>().unwrap();
    assert_eq!(batches.iter().map(|batch| batch.ends_key).collect::<Vec<_>>(), [false, false, false, false, true]);
    assert!(rows_of(&batches[0].batch)[0].score.unwrap().is_sign_negative());
}

#[test]
fn a_running_scan_sees_its_epoch_whatever_happens() {
    for key in model::KEYS {
        let (place, collection) = filled(key());
        let mut scan = collection.scan(Epoch(2), ScanRequest { batch_rows: 10, ..ScanRequest::default() }).unwrap();
        let first = scan.next().unwrap().unwrap();
        let change = match collection.key() {
            CollectionKey::AppendOnly => vec![(row(100, "x", 0.5), 1)],
            _ => vec![(row(60, "x", 0.5), -1), (row(100, "x", 0.5), 1)],
        };
        collection.seal(Epoch(3), vec![signed(&change)], None).unwrap();
        place.pass_time();
        collection.fold_now().unwrap();
        assert_eq!(collection.since(), Epoch(3));
        let rest = scan.flat_map(|batch| rows_of(&batch.unwrap().batch)).map(|row| row.id);
        assert_eq!(rows_of(&first.batch).iter().map(|row| row.id).chain(rest).collect::<Vec<_>>(), (0..80).collect::<Vec<_>>());
        assert!(matches!(collection.scan(Epoch(2), ScanRequest::default()), Err(StorageError::FallenBehind { asked: 2, oldest: 3 })));
    }
}

#[test]
fn holds_keep_deltas_apart_and_coarse_ones_hide_what_is_inside() {
    let place = Place::new(64 << 20);
    let collection = place.open(unique());
    let change = |id| vec![signed(&[(row(id, "x", 1.0), 1)])];
    collection.seal(Epoch(3), change(1), None).unwrap();
    let mut hold = collection.hold(Epoch(3)).unwrap();
    collection.advance(Epoch(5));
    collection.seal(Epoch(9), change(2), None).unwrap();
    place.pass_time();
    collection.fold().unwrap();
    assert_eq!((collection.since(), collection.upper()), (Epoch(3), Epoch(9)));
    let readable: Vec<u64> = (0..12).filter(|epoch| collection.readable_at(Epoch(*epoch))).collect();
    assert_eq!(readable, [3, 4, 5, 9]);
    let deltas = collection.deltas(Epoch(4), Epoch(9)).unwrap();
    assert_eq!((deltas.len(), deltas[0].from, deltas[0].to), (1, Epoch(5), Epoch(9)));
    assert!(collection.deltas(Epoch(7), Epoch(9)).is_err());
    assert!(matches!(collection.deltas(Epoch(2), Epoch(9)), Err(StorageError::FallenBehind { .. })));
    assert!(matches!(collection.hold(Epoch(2)), Err(StorageError::FallenBehind { .. })));
    hold.advance(Epoch(9));
    collection.fold().unwrap();
    assert_eq!(collection.since(), Epoch(9));
    drop(hold);
    assert_eq!(collection.lowest_hold(), None);
    // Sealed before: dropped.
    collection.seal(Epoch(9), change(4), None).unwrap();
    assert_eq!(contents(&collection, Epoch(9)).len(), 2);
}

#[test]
fn deltas_come_in_steps() {
    let place = Place::new(64 << 20);
    let collection = place.open(unique());
    for epoch in 1..=20 {
        collection.seal(Epoch(epoch), vec![signed(&[(row(epoch as i64, "x", 1.0), 1)])], None).unwrap();
    }
    let mut after = Epoch(0);
    let mut steps = 0;
    while after < Epoch(20) {
        let deltas = collection.deltas_within(after, Epoch(20), 2000).unwrap();
        after = deltas.last().unwrap().to;
        steps += 1;
    }
    assert!((2..20).contains(&steps), "{steps}");
}

#[test]
fn changes_of_an_epoch_are_netted() {
    let place = Place::new(64 << 20);
    let collection = place.open(unique());
    let (a, b, c) = (row(1, "x", 1.0), row(1, "x", 2.0), row(1, "x", 3.0));
    collection.seal(Epoch(1), vec![signed(&[(a.clone(), 1), (row(0, "y", 0.0), 1)])], None).unwrap();
    // a -> b -> c -> a is nothing, also when the changes come out of order.
    let around = [(b.clone(), 1), (a.clone(), -1), (c.clone(), 1), (b.clone(), -1), (a.clone(), 1), (c.clone(), -1)];
    collection.seal(Epoch(2), vec![signed(&around)], None).unwrap();
    assert!(collection.deltas(Epoch(1), Epoch(2)).unwrap().is_empty());
    let through = [(b.clone(), 1), (b.clone(), -1), (c.clone(), 1), (a.clone(), -1), (row(0, "a", 9.0), 1)];
    collection.seal(Epoch(3), vec![signed(&through)], Some((0, 55))).unwrap();
    let deltas = collection.deltas(Epoch(2), Epoch(3)).unwrap();
    assert_eq!(deltas[0].watermark_us, Some((0, 55)));
    assert_eq!(rows_of(&deltas[0].batches[0].batch), [row(0, "a", 9.0), a, c]);
    assert_eq!(deltas[0].batches[0].signs, Some(vec![1, -1, 1]));
    assert_eq!((collection.watermark_us(Epoch(2)), collection.watermark_us(Epoch(3))), (None, Some((0, 55))));
    collection.fold_now().unwrap();
    assert_eq!(collection.watermark_us(Epoch(3)), Some((0, 55)));
    let appended = place.try_open(CollectionSpec { id: 8, ..place.spec(CollectionKey::AppendOnly, true) });
    assert!(matches!(appended, Err(StorageError::Corrupt { .. })), "the directory is another collection's");
}

#[test]
fn a_delta_over_several_epochs_hides_those_inside() {
    let place = Place::new(64 << 20);
    let collection = place.open(unique());
    collection.seal(Epoch(3), vec![signed(&[(row(1, "x", 1.0), 1)])], None).unwrap();
    collection.seal(Epoch(6), vec![signed(&[(row(2, "x", 1.0), 1)])], None).unwrap();
    collection.advance(Epoch(8));
    drop(collection);
    let collection = place.open(unique());
    collection.advance(Epoch(8));
    assert_eq!([3, 4, 5, 6, 7, 8].map(|epoch| collection.boundary_from(Epoch(epoch)).0), [3, 6, 6, 6, 7, 8]);
    assert_eq!([3, 4, 5, 6, 7].map(|epoch| collection.readable_at(Epoch(epoch))), [true, false, false, true, true]);
}

#[test]
fn publishing_is_durable_and_hides_what_is_before() {
    let place = Place::new(64 << 20);
    let collection = place.open(unique());
    assert!(collection.published());
    collection.set_published(false).unwrap();
    collection.seal(Epoch(4), vec![signed(&[(row(1, "x", 1.0), 1)])], None).unwrap();
    assert!(!collection.readable_at(Epoch(4)));
    assert_eq!(contents(&collection, Epoch(4)).len(), 1);
    drop(collection);
    let collection = place.open(unique());
    assert!(!collection.published());
    collection.seal(Epoch(5), vec![signed(&[(row(2, "x", 1.0), 1)])], None).unwrap();
    collection.set_published(true).unwrap();
    assert_eq!(collection.since(), Epoch(5));
    assert!(!collection.readable_at(Epoch(4)) && collection.readable_at(Epoch(5)));
    drop(collection);
    assert!(place.open(unique()).published());
}

#[test]
fn a_dropped_collection_leaves_nothing() {
    for key in model::KEYS {
        let (place, collection) = filled(key());
        let mut scan = collection.scan(Epoch(2), ScanRequest { batch_rows: 10, ..ScanRequest::default() }).unwrap();
        scan.next().unwrap().unwrap();
        collection.clone().destroy().unwrap();
        assert!(collection.seal(Epoch(3), Vec::new(), None).is_err());
        assert!(collection.scan(Epoch(2), ScanRequest::default()).is_err());
        collection.fold().unwrap();
        drop((collection, scan));
        assert!(!place.directory.path().join("collections/7").exists());
        let again = place.open(key());
        assert_eq!((again.upper(), again.row_estimate()), (Epoch(0), 0));
        assert!(contents(&again, Epoch(0)).is_empty());
    }
}

#[test]
fn what_a_crash_left_of_a_dropped_collection_goes_at_the_next_start() {
    for key in model::KEYS {
        let (place, collection) = filled(key());
        collection.fold_now().unwrap();
        drop(collection);
        let folder = place.directory.path().join("collections");
        destroy::mark_dropped(&folder.join("7")).unwrap();
        remove_dropped(&folder, &place.shared).unwrap();
        assert!(!folder.join("7.dropped").exists());
        let again = place.open(key());
        assert_eq!((again.upper(), again.row_estimate()), (Epoch(0), 0));
        assert!(contents(&again, Epoch(0)).is_empty());
    }
}

#[test]
fn a_closed_collection_is_read_and_sealed_but_not_folded() {
    let (place, collection) = filled(CollectionKey::WholeRow);
    let before = contents(&collection, Epoch(2));
    let since = collection.since();
    collection.close();
    place.pass_time();
    collection.fold_now().unwrap();
    assert_eq!((collection.since(), contents(&collection, Epoch(2))), (since, before));
}

#[test]
fn a_fold_that_is_no_longer_wanted_changes_nothing() {
    let (_place, collection) = filled(unique());
    let Base::Keyed(base) = &collection.base else { panic!("it has a key") };
    let meta = keyed::BaseMeta { epoch: Epoch(9), ..keyed::BaseMeta::default() };
    assert!(!base.fold(Vec::new(), meta, &|| false).unwrap());
    assert!(base.scan(&[], None).unwrap().0.epoch < Epoch(9));
}

#[test]
fn scans_and_holds_move_between_threads() {
    fn check<T: Send + 'static>() {}
    check::<CollectionScan>();
    check::<Hold>();
}

#[test]
fn upper_can_be_watched() {
    let place = Place::new(64 << 20);
    let collection = place.open(unique());
    let mut upper = collection.watch_upper();
    assert_eq!(*upper.borrow_and_update(), Epoch(0));
    collection.advance(Epoch(3));
    assert!(upper.has_changed().unwrap());
    assert_eq!(*upper.borrow_and_update(), Epoch(3));
}

#[test]
fn rows_have_a_size_wherever_they_are() {
    for key in [unique(), CollectionKey::WholeRow] {
        let place = Place::new(64 << 20);
        let collection = place.open(key);
        assert_eq!(collection.bytes(), 0);
        let rows: Vec<_> = (0..20_000).map(|id| (row(id, "x", 0.5), 1)).collect();
        collection.seal(Epoch(1), vec![signed(&rows)], None).unwrap();
        let sealed = collection.bytes();
        place.clock.advance(Duration::from_secs(2));
        collection.fold().unwrap();
        assert_eq!(collection.retained_bytes(), 0);
        let folded = collection.bytes();
        collection.fold_now().unwrap();
        let flushed = collection.bytes();
        assert!([sealed, folded, flushed].iter().all(|bytes| *bytes > 20_000), "{sealed} {folded} {flushed}");
    }
}

/// What nobody will read is not kept, whether it was folded before or not, and what is held is there, also after a restart.
#[test]
fn only_what_is_held_is_kept_where_nobody_reads_the_rest() {
    for key in [unique(), CollectionKey::WholeRow, CollectionKey::AppendOnly] {
        let place = Place::new(1 << 20);
        let collection = place.open(key.clone());
        let seal = |collection: &Arc<Collection>, epoch: i64| {
            let rows: Vec<_> = (0..100).map(|id| (row(100 * epoch + id, "a name", 1.0), 1)).collect();
            collection.seal(Epoch(epoch as u64), vec![signed(&rows)], None).unwrap();
        };
        seal(&collection, 1);
        collection.fold_now().unwrap();
        assert_eq!(contents(&collection, Epoch(1)).len(), 100, "{key:?}");
        collection.keep_only_held();
        (2..8).for_each(|epoch| seal(&collection, epoch));
        let hold = collection.hold(Epoch(5)).unwrap();
        collection.fold_now().unwrap();
        drop((hold, collection));

        let collection = place.open(key.clone());
        collection.keep_only_held();
        let mut hold = collection.hold(Epoch(5)).unwrap();
        assert_eq!((collection.since(), collection.upper()), (Epoch(5), Epoch(7)), "{key:?}");
        assert_eq!(contents(&collection, Epoch(5)), [], "{key:?}");
        let deltas = collection.deltas(Epoch(5), Epoch(7)).unwrap();
        assert_eq!(deltas.iter().map(|delta| rows_of(&delta.batches[0].batch).len()).collect::<Vec<_>>(), [100, 100], "{key:?}");
        seal(&collection, 8);
        hold.advance(Epoch(7));
        collection.fold_now().unwrap();
        drop((hold, collection));

        let collection = place.open(key.clone());
        assert_eq!(contents(&collection, Epoch(8)).len(), 100, "{key:?}");
        assert_eq!(texts(&contents(&collection, Epoch(8)))[0], row(800, "a name", 1.0).text(), "{key:?}");
    }
}
