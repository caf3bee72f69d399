use std::sync::atomic::Ordering;

use rand::{Rng, SeedableRng, rngs::StdRng};

use super::*;
use crate::error::StorageError;

fn frame(payload: &[u8]) -> FrameBuffer {
    let mut frame = FrameBuffer::new();
    frame.payload().extend_from_slice(payload);
    frame
}

fn reopen(path: &Path) -> Result<(FrameFile, Vec<Vec<u8>>)> {
    let mut payloads = Vec::new();
    let file = FrameFile::open(path, FileFaults::default(), |_, payload| {
        payloads.push(payload.to_vec());
        Ok(())
    })?;
    Ok((file, payloads))
}

/// A file with random frames, synced now and then; returns its frames and how many of them are durable.
fn random_file(rng: &mut StdRng, path: &Path) -> (Vec<Vec<u8>>, usize) {
    let mut file = FrameFile::create(path, FileFaults::default()).unwrap();
    let mut durable = 0;
    let payloads: Vec<Vec<u8>> = (0..rng.random_range(1..12)).map(|_| vec![rng.random(); rng.random_range(0..60)]).collect();
    for (index, payload) in payloads.iter().enumerate() {
        let place = file.append(frame(payload)).unwrap();
        assert_eq!(&read_frame(&File::open(path).unwrap(), path, place).unwrap(), payload);
        if rng.random_bool(0.4) {
            file.sync().unwrap();
            durable = index + 1;
        }
    }
    (payloads, durable)
}

#[test]
fn what_was_written_is_read_and_appended_to() {
    let directory = tempfile::tempdir().unwrap();
    for seed in 0..100 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let path = directory.path().join(format!("{seed}.log"));
        let (mut payloads, _) = random_file(rng, &path);
        let (mut file, read) = reopen(&path).unwrap();
        assert_eq!(read, payloads, "seed {seed}");
        file.append(frame(b"more")).unwrap();
        payloads.push(b"more".to_vec());
        assert_eq!(reopen(&path).unwrap().1, payloads, "seed {seed}");
    }
}

#[test]
fn a_torn_tail_is_cut_and_damage_before_it_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let (mut cut, mut refused) = (0, 0);
    for seed in 0..2000 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let path = directory.path().join(format!("{seed}.log"));
        let (payloads, _) = random_file(rng, &path);
        let mut bytes = std::fs::read(&path).unwrap();
        let truncated = rng.random_bool(0.5);
        if truncated {
            bytes.truncate(rng.random_range(8..=bytes.len()));
        } else {
            let at = rng.random_range(FILE_HEADER..bytes.len());
            bytes[at] ^= 1 << rng.random_range(0..8);
        }
        std::fs::write(&path, &bytes).unwrap();
        match reopen(&path) {
            Ok((file, read)) => {
                assert!(payloads.starts_with(&read), "seed {seed}");
                assert_eq!(file.length(), std::fs::metadata(&path).unwrap().len(), "seed {seed}");
                cut += usize::from(read.len() < payloads.len());
                drop(file);
                assert_eq!(reopen(&path).unwrap().1, read, "seed {seed}");
            }
            Err(StorageError::Corrupt { file, detail }) => {
                assert!(!truncated, "seed {seed}: a cut file looks like a torn one");
                assert!(file.ends_with(&format!("{seed}.log")) && detail.contains("offset"), "seed {seed}: {detail}");
                refused += 1;
            }
            Err(other) => panic!("seed {seed}: {other}"),
        }
    }
    assert!(cut > 100 && refused > 100, "{cut} cut, {refused} refused");
}

/// Acknowledged frames are never lost to damage in front of them without an error, as long as a later sync saw them.
#[test]
fn damage_of_durable_frames_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let mut file = FrameFile::create(&path, FileFaults::default()).unwrap();
    let first = file.append(frame(b"first")).unwrap();
    file.sync().unwrap();
    file.append(frame(b"second")).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[first.offset as usize..first.end() as usize].fill(0);
    std::fs::write(&path, &bytes).unwrap();
    let error = reopen(&path).unwrap_err();
    assert_eq!(error.to_string(), format!("\"{}\" is corrupt: the record at offset 24 is damaged", path.display()));
}

/// A power loss may keep a later page and lose an earlier one.
#[test]
fn an_unsynced_frame_behind_a_lost_one_is_cut_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let mut file = FrameFile::create(&path, FileFaults::default()).unwrap();
    file.append(frame(b"kept")).unwrap();
    file.sync().unwrap();
    let lost = file.append(frame(b"lost")).unwrap();
    file.append(frame(b"later")).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[lost.offset as usize..lost.end() as usize].fill(0);
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(reopen(&path).unwrap().1, [b"kept"]);
}

#[test]
fn a_failed_write_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let faults = FileFaults::default();
    let mut file = FrameFile::create(&path, faults.clone()).unwrap();
    file.append(frame(b"one")).unwrap();
    faults.fail_writes.store(true, Ordering::SeqCst);
    assert!(matches!(file.append(frame(b"two")), Err(StorageError::Io { .. })));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), file.length());
    faults.fail_writes.store(false, Ordering::SeqCst);
    file.append(frame(b"three")).unwrap();
    assert_eq!(reopen(&path).unwrap().1, [&b"one"[..], b"three"]);
}

#[test]
fn a_file_that_was_never_begun_is_begun() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    for bytes in [&b""[..], b"mpf", &[0; 8]] {
        std::fs::write(&path, bytes).unwrap();
        assert!(reopen(&path).unwrap().1.is_empty());
    }
    for bytes in [&b"something else altogether"[..], &[0; 64]] {
        std::fs::write(&path, bytes).unwrap();
        assert!(matches!(reopen(&path), Err(StorageError::Corrupt { .. })));
    }
}

#[test]
fn a_file_that_was_noted_is_not_shortened_unseen() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let mut file = FrameFile::create(&path, FileFaults::default()).unwrap();
    file.append(frame(b"eight by")).unwrap();
    file.sync().unwrap();
    file.note_durable(false).unwrap();
    let noted = file.length();
    file.append(frame(b"not note")).unwrap();
    file.sync().unwrap();
    assert!(!file.is_noted());
    let bytes = std::fs::read(&path).unwrap();
    for length in FILE_HEADER..bytes.len() {
        std::fs::write(&path, &bytes[..length]).unwrap();
        assert_eq!(reopen(&path).is_err(), (length as u64) < noted, "{length}");
    }
    for at in 8..FILE_HEADER {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        assert!(matches!(reopen(&path), Err(StorageError::Corrupt { .. })), "{at}");
    }
}
