//! What a checkpoint consists of, and its text form.
//!
//! A manifest is JSON (in an object with its checksum), so that an operator can read it. The form is versioned and made of structs of
//! its own: changing an inner type does not change what is stored.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::epoch::Epoch;
use crate::error::{Result, StorageError};
use crate::object::ObjectChecksum;

/// Version 2 names in-flight data; what has none is still read by programs that know version 1 only.
const VERSION: u32 = 2;
const VERSION_WITHOUT_IN_FLIGHT: u32 = 1;

/// Orders manifests: the highest term, then the highest number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ManifestName {
    pub(super) term: u64,
    pub(super) number: u64,
}

impl fmt::Display for ManifestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "manifest-{}-{}", self.term, self.number)
    }
}

impl FromStr for ManifestName {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        let (term, number) = name.strip_prefix("manifest-").and_then(|rest| rest.split_once('-')).ok_or(())?;
        Ok(Self { term: term.parse().map_err(|_| ())?, number: number.parse().map_err(|_| ())? })
    }
}

/// An object that a manifest names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct NamedObject {
    /// Without the job's folder.
    pub(super) name: String,
    pub(super) known: ObjectChecksum,
}

/// A part of the state changelog.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LogObject {
    pub(super) object: NamedObject,
    pub(super) epoch: Epoch,
    /// The lowest and the highest key group in it, if they are known.
    pub(super) groups: Option<(u16, u16)>,
}

impl LogObject {
    /// Whether it may have changes of these key groups.
    pub(super) fn overlaps(&self, groups: &Range<u16>) -> bool {
        self.groups.is_none_or(|(lowest, highest)| lowest < groups.end && highest >= groups.start)
    }
}

/// A file of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ImageObject {
    /// Name of the file in the image.
    pub(super) file: String,
    pub(super) object: NamedObject,
}

/// An image of the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Image {
    /// Every change up to here is in it.
    pub(super) base: Epoch,
    /// Kind of store that can open it.
    pub(super) backend: String,
    pub(super) files: Vec<ImageObject>,
    /// Position in each writer's changelog up to which changes may be in it.
    pub(super) positions: BTreeMap<u32, u64>,
}

/// What one subtask found in flight.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct InFlightObject {
    pub(super) subtask: u32,
    pub(super) rows: u64,
    pub(super) object: NamedObject,
}

/// A complete checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Manifest {
    pub(super) name: ManifestName,
    pub(super) job: u64,
    pub(super) fingerprint: u64,
    pub(super) epoch: Epoch,
    pub(super) image: Option<Image>,
    /// In the order in which it is to be replayed.
    pub(super) log: Vec<LogObject>,
    /// What an unaligned checkpoint overtook; `None` for an aligned one.
    pub(super) in_flight: Option<Vec<InFlightObject>>,
    pub(super) upstream: Vec<(u64, Epoch)>,
    pub(super) notes: BTreeMap<String, String>,
}

impl Manifest {
    pub(super) fn new(name: ManifestName, job: u64, fingerprint: u64, epoch: Epoch) -> Self {
        Self { name, job, fingerprint, epoch, image: None, log: Vec::new(), in_flight: None, upstream: Vec::new(), notes: BTreeMap::new() }
    }

    /// All objects it names.
    pub(super) fn objects(&self) -> impl Iterator<Item = &NamedObject> {
        let files = self.image.iter().flat_map(|image| image.files.iter().map(|file| &file.object));
        files.chain(self.log.iter().map(|log| &log.object)).chain(self.in_flight.iter().flatten().map(|flight| &flight.object))
    }

    pub(super) fn in_flight_bytes(&self) -> u64 {
        self.in_flight.iter().flatten().map(|flight| flight.object.known.bytes).sum()
    }

    pub(super) fn log_bytes(&self) -> u64 {
        self.log.iter().map(|log| log.object.known.bytes).sum()
    }

    pub(super) fn image_bytes(&self) -> u64 {
        self.image.iter().flat_map(|image| &image.files).map(|file| file.object.known.bytes).sum()
    }

    /// The stored form. `writer` makes the manifests of two writers differ even if they say the same.
    pub(super) fn encode(&self, writer: &str) -> Vec<u8> {
        let stored = Stored {
            version: if self.in_flight.is_none() { VERSION_WITHOUT_IN_FLIGHT } else { VERSION },
            writer: writer.to_owned(),
            job: self.job,
            term: self.name.term,
            number: self.name.number,
            fingerprint: self.fingerprint,
            epoch: self.epoch.0,
            image: self.image.as_ref().map(|image| StoredImage {
                base: image.base.0,
                backend: image.backend.clone(),
                files: image.files.iter().map(|file| StoredFile { file: file.file.clone(), object: store(&file.object) }).collect(),
                positions: image.positions.iter().map(|(writer, position)| (*writer, *position)).collect(),
            }),
            log: self.log.iter().map(|log| StoredLog { epoch: log.epoch.0, groups: log.groups, object: store(&log.object) }).collect(),
            in_flight: self.in_flight.as_ref().map(|flights| flights.iter().map(store_flight).collect()),
            upstream: self.upstream.iter().map(|(id, epoch)| (*id, epoch.0)).collect(),
            notes: self.notes.clone(),
        };
        serde_json::to_vec_pretty(&stored).expect("numbers, strings and lists have a JSON form")
    }

    /// Reads the stored form back; `file` is named in errors.
    pub(super) fn decode(bytes: &[u8], file: &str) -> Result<Self> {
        let corrupt = |detail: String| StorageError::Corrupt { file: file.to_owned(), detail };
        let version: StoredVersion = serde_json::from_slice(bytes).map_err(|error| corrupt(error.to_string()))?;
        if !(VERSION_WITHOUT_IN_FLIGHT..=VERSION).contains(&version.version) {
            let detail = format!("it has format version {}, this program reads versions up to {VERSION}", version.version);
            return Err(StorageError::Incompatible { file: file.to_owned(), detail });
        }
        let stored: Stored = serde_json::from_slice(bytes).map_err(|error| corrupt(error.to_string()))?;
        Ok(Self {
            name: ManifestName { term: stored.term, number: stored.number },
            job: stored.job,
            fingerprint: stored.fingerprint,
            epoch: Epoch(stored.epoch),
            image: stored.image.map(|image| Image {
                base: Epoch(image.base),
                backend: image.backend,
                files: image.files.into_iter().map(|file| ImageObject { file: file.file, object: load(file.object) }).collect(),
                positions: image.positions.into_iter().collect(),
            }),
            log: stored.log.into_iter().map(load_log).collect(),
            in_flight: stored.in_flight.map(|flights| flights.into_iter().map(load_flight).collect()),
            upstream: stored.upstream.into_iter().map(|(id, epoch)| (id, Epoch(epoch))).collect(),
            notes: stored.notes,
        })
    }
}

fn store(object: &NamedObject) -> StoredObject {
    StoredObject { name: object.name.clone(), bytes: object.known.bytes, checksum: object.known.checksum }
}

fn load(object: StoredObject) -> NamedObject {
    NamedObject { name: object.name, known: ObjectChecksum { bytes: object.bytes, checksum: object.checksum } }
}

fn load_log(log: StoredLog) -> LogObject {
    LogObject { epoch: Epoch(log.epoch), groups: log.groups, object: load(log.object) }
}

fn store_flight(flight: &InFlightObject) -> StoredInFlight {
    StoredInFlight { subtask: flight.subtask, rows: flight.rows, object: store(&flight.object) }
}

fn load_flight(flight: StoredInFlight) -> InFlightObject {
    InFlightObject { subtask: flight.subtask, rows: flight.rows, object: load(flight.object) }
}

#[derive(Deserialize)]
struct StoredVersion {
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    writer: String,
    job: u64,
    term: u64,
    number: u64,
    fingerprint: u64,
    epoch: u64,
    image: Option<StoredImage>,
    log: Vec<StoredLog>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    in_flight: Option<Vec<StoredInFlight>>,
    upstream: Vec<(u64, u64)>,
    notes: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
struct StoredImage {
    base: u64,
    backend: String,
    files: Vec<StoredFile>,
    positions: Vec<(u32, u64)>,
}

#[derive(Serialize, Deserialize)]
struct StoredFile {
    file: String,
    object: StoredObject,
}

#[derive(Serialize, Deserialize)]
struct StoredLog {
    epoch: u64,
    /// Programs before this one did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    groups: Option<(u16, u16)>,
    object: StoredObject,
}

#[derive(Serialize, Deserialize)]
struct StoredInFlight {
    subtask: u32,
    rows: u64,
    object: StoredObject,
}

#[derive(Serialize, Deserialize)]
struct StoredObject {
    name: String,
    bytes: u64,
    checksum: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> NamedObject {
        NamedObject { name: name.into(), known: ObjectChecksum { bytes: u64::MAX, checksum: 7 } }
    }

    #[test]
    fn a_manifest_comes_back_as_it_was() {
        let mut manifest = Manifest::new(ManifestName { term: 3, number: 42 }, 9, u64::MAX - 1, Epoch(1000));
        manifest.image = Some(Image {
            base: Epoch(900),
            backend: "rocksdb".into(),
            files: vec![ImageObject { file: "000001.sst".into(), object: object("mat/3-a") }],
            positions: BTreeMap::from([(1, 17), (2, 0)]),
        });
        manifest.log = vec![
            LogObject { epoch: Epoch(901), groups: None, object: object("log/901-0-3.1") },
            LogObject { epoch: Epoch(902), groups: Some((3, 17)), object: object("log/902-0-3.1") },
        ];
        manifest.upstream = vec![(5, Epoch(77))];
        manifest.notes = BTreeMap::from([("plan".into(), "{\"a\": 1}".into())]);
        let bytes = manifest.encode("3.1");
        assert_eq!(Manifest::decode(&bytes, "m").unwrap(), manifest);
        assert_ne!(bytes, manifest.encode("3.2"));
        for len in 0..bytes.len() {
            assert!(matches!(Manifest::decode(&bytes[..len], "m"), Err(StorageError::Corrupt { file, .. }) if file == "m"));
        }
        manifest.in_flight = Some(vec![InFlightObject { subtask: 65537, rows: 12, object: object("flight/1000-65537.3.1") }]);
        let unaligned = manifest.encode("3.1");
        assert_eq!(Manifest::decode(&unaligned, "m").unwrap(), manifest);
        assert_eq!(manifest.objects().count(), 4);
        let overlapping =
            [0..3, 0..4, 17..18, 18..256].map(|groups| manifest.log.iter().map(|log| log.overlaps(&groups)).collect::<Vec<_>>());
        assert_eq!(overlapping, [[true, false], [true, true], [true, true], [true, false]]);
        let version = |bytes: &[u8]| serde_json::from_slice::<StoredVersion>(bytes).unwrap().version;
        assert_eq!((version(&bytes), version(&unaligned)), (1, 2), "programs of version 1 refuse what they cannot restore");
        let other = String::from_utf8(bytes).unwrap().replace("\"version\": 1", "\"version\": 3");
        assert!(matches!(Manifest::decode(other.as_bytes(), "m"), Err(StorageError::Incompatible { .. })));
    }

    #[test]
    fn names_are_ordered_by_term_then_number() {
        let name = |text: &str| text.parse::<ManifestName>().unwrap();
        assert!(name("manifest-2-1") > name("manifest-1-10"));
        assert!(name("manifest-1-10") > name("manifest-1-9"));
        assert_eq!(name("manifest-1-10").to_string(), "manifest-1-10");
        assert!("manifest-1".parse::<ManifestName>().is_err());
    }
}
