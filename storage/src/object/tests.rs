//! The same promises in a folder and in an object store.

use super::*;

async fn check_storage(storage: &ObjectStorage) {
    storage.put("jobs/1/log/a", b"one").await.unwrap();
    let known = storage.put("jobs/1/log/a", b"two").await.unwrap();
    assert_eq!(storage.get("jobs/1/log/a").await.unwrap().as_deref(), Some(&b"two"[..]));
    assert_eq!(storage.get("jobs/1/log/b").await.unwrap(), None);
    assert_eq!(storage.put_create("jobs/1/manifest", b"m").await.unwrap(), Created::New);
    assert_eq!(storage.put_create("jobs/1/manifest", b"m").await.unwrap(), Created::Same);
    assert_eq!(storage.put_create("jobs/1/manifest", b"other").await.unwrap(), Created::Taken);
    assert_eq!(storage.get("jobs/1/manifest").await.unwrap().as_deref(), Some(&b"m"[..]));
    storage.put("jobs/10/x", b"").await.unwrap();
    let names = |objects: Vec<ObjectInfo>| objects.into_iter().map(|object| object.name).collect::<Vec<_>>().join(" ");
    assert_eq!(names(storage.list("jobs/1").await.unwrap()), "jobs/1/log/a jobs/1/manifest");
    assert_eq!(names(storage.list("").await.unwrap()), "jobs/1/log/a jobs/1/manifest jobs/10/x");
    assert_eq!(names(storage.list("nothing").await.unwrap()), "");
    assert_eq!(*storage.get_known("jobs/1/log/a", known).await.unwrap(), b"two"[..]);
    storage.put("jobs/1/log/a", b"six").await.unwrap();
    let error = storage.get_known("jobs/1/log/a", known).await.unwrap_err();
    assert!(matches!(&error, StorageError::Corrupt { file, .. } if file.ends_with("jobs/1/log/a")), "{error}");
    storage.delete("jobs/1/log/a").await.unwrap();
    storage.delete("jobs/1/log/a").await.unwrap();
    let error = storage.get_known("jobs/1/log/a", known).await.unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
}

#[tokio::test]
async fn in_a_folder() {
    let directory = tempfile::tempdir().unwrap();
    check_storage(&ObjectStorage::open(directory.path().join("a/b").to_str().unwrap()).unwrap()).await;
}

#[tokio::test]
async fn in_an_object_store() {
    check_storage(&ObjectStorage::memory()).await;
}

#[tokio::test]
async fn every_damage_is_noticed_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let storage = ObjectStorage::local(directory.path()).unwrap();
    storage.put("o", b"payload").await.unwrap();
    let path = directory.path().join("o");
    let good = std::fs::read(&path).unwrap();
    let mut damaged: Vec<Vec<u8>> = (0..good.len()).map(|len| good[..len].to_vec()).collect();
    damaged.extend((0..good.len()).map(|index| {
        let mut bytes = good.clone();
        bytes[index] ^= 1;
        bytes
    }));
    for bytes in damaged {
        std::fs::write(&path, &bytes).unwrap();
        let error = storage.get("o").await.unwrap_err();
        assert!(matches!(&error, StorageError::Corrupt { file, .. } if *file == path.display().to_string()), "{error}");
    }
}

#[tokio::test]
async fn a_fault_takes_the_place_of_the_operation() {
    let storage = ObjectStorage::memory();
    let faulty = storage.with_faults(Arc::new(|action, name| Err(refused(action, name, "away".into()))));
    assert_eq!(faulty.put("o", b"x").await.unwrap_err().to_string(), "object store: could not write \"o\": away");
    assert_eq!(storage.get("o").await.unwrap(), None);
}

#[test]
fn other_schemes_are_refused() {
    let error = ObjectStorage::open("gs://bucket/x").err().unwrap();
    assert!(error.to_string().contains("scheme \"gs\" is not supported"), "{error}");
}
