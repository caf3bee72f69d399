use std::collections::{BTreeMap, BTreeSet};

use super::{
    object::{LateRows, MaterializedView, PrimaryKey, QuerySettings, Table, Watermark},
    *,
};
use crate::{
    catalog::object::Column,
    types::{SqlType, modifier},
};

fn path() -> Vec<String> {
    vec!["public".to_owned()]
}

fn plain(name: &str) -> QualifiedName {
    QualifiedName { schema: None, name: name.to_owned() }
}

fn table(id: u64, name: &str) -> Object {
    let columns = vec![
        Column { not_null: true, ..Column::new("k", SqlType::Integer, -1) },
        Column { default: Some("1".into()), ..Column::new("n", SqlType::Numeric(5, 2), modifier::of_numeric(5, 2)) },
        Column::new("s", SqlType::Varchar, modifier::of_length(4)),
        Column::new("x", SqlType::Numeric(22, 3), -1),
        Column::new("a", SqlType::array(SqlType::Text), -1),
    ];
    let body = ObjectBody::Table(Table {
        columns,
        primary_key: Some(PrimaryKey { name: format!("{name}_pkey"), columns: vec![0] }),
        checks: vec![],
        watermark: Some(Watermark { column: 0, delay_us: 5 }),
        late_rows: LateRows::Keep,
        append_only: false,
        options: BTreeMap::new(),
    });
    Object { id, schema: PUBLIC_ID, name: name.into(), comment: None, depends_on: BTreeSet::new(), sql: String::new(), body }
}

fn view(id: u64, name: &str, on: u64) -> Object {
    let body = ObjectBody::MaterializedView(MaterializedView {
        columns: vec![Column::new("k", SqlType::Integer, -1)],
        definition: "SELECT k FROM public.t".into(),
        emit_on_window_close: true,
        options: BTreeMap::new(),
        settings: QuerySettings::default(),
        unique_key: Some(vec![0]),
        join_order: Some("1;0,1 (0 1)".into()),
    });
    Object {
        id,
        schema: PUBLIC_ID,
        name: name.into(),
        comment: Some("c".into()),
        depends_on: BTreeSet::from([on]),
        sql: String::new(),
        body,
    }
}

fn sample() -> (Catalog, Vec<Vec<u8>>) {
    let mut catalog = Catalog::default();
    let mut records = Vec::new();
    for object in [table(16384, "t"), view(16385, "v", 16384), view(16386, "w", 16385)] {
        let change = CatalogChange::put(object);
        records.push(change.to_record());
        catalog = catalog.apply(&change).unwrap();
    }
    (catalog, records)
}

#[test]
fn names_are_found_by_path_and_schema() {
    let (catalog, _) = sample();
    assert_eq!(catalog.find(&plain("t"), &path()).unwrap().id, 16384);
    assert!(catalog.find(&plain("t"), &["pg_catalog".to_owned()]).is_none());
    let other = QualifiedName { schema: Some("nosuch".into()), name: "t".into() };
    assert!(catalog.find(&other, &path()).is_none());
    assert_eq!(catalog.creation_schema(&other, &path()).unwrap_err().sqlstate, sqlstate::INVALID_SCHEMA_NAME);
    let error = catalog.expect(ObjectKind::Table, &plain("v"), &path()).unwrap_err();
    assert_eq!(error.message, "\"v\" is not a table");
    assert_eq!(error.hint.unwrap(), "Use DROP MATERIALIZED VIEW to remove a materialized view.");
    let taken = catalog.apply(&CatalogChange::put(table(20000, "v"))).unwrap_err();
    assert_eq!((taken.sqlstate, taken.message.as_str()), (sqlstate::DUPLICATE_TABLE, "relation \"v\" already exists"));
}

#[test]
fn dropping_names_the_dependants() {
    let (catalog, _) = sample();
    let error = catalog.plan_drop(&[16384], false, &path()).unwrap_err();
    assert_eq!(error.message, "cannot drop table t because other objects depend on it");
    assert_eq!(error.detail.unwrap(), "materialized view v depends on table t\nmaterialized view w depends on materialized view v");
    let plan = catalog.plan_drop(&[16384], true, &path()).unwrap();
    assert_eq!(plan.ids, [16386, 16385, 16384]);
    assert_eq!(plan.notice.unwrap().0, "drop cascades to 2 other objects");
    let after = catalog.apply(&CatalogChange::remove(plan.ids)).unwrap();
    assert!(after.find(&plain("t"), &path()).is_none());
    assert_eq!(after.next_id(), 16387);
    assert!(catalog.find(&plain("t"), &path()).is_some(), "a catalog is a value");
}

#[test]
fn records_lead_back_to_the_catalog() {
    let (catalog, records) = sample();
    let whole = catalog.to_record();
    for read in [Catalog::from_records(records.iter().map(Vec::as_slice)).unwrap(), Catalog::from_records([whole.as_slice()]).unwrap()] {
        assert!(catalog.objects().eq(read.objects()));
        assert_eq!(catalog.next_id(), read.next_id());
    }
    assert!(CatalogChange::from_record(b"{\"version\":99,\"next_id\":0}").is_err());
    assert!(CatalogChange::from_record(b"garbage").is_err());
}
