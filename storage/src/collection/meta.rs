//! What a collection's directory says about it: which columns and key its files were written with, and whether it is published.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{CollectionKey, layout::Layout};
use crate::{
    durable_file::{corrupt, create_directory, io_error, replace_file, staged_path},
    encoding::{batch::BATCH_CODEC_VERSION, cursor::Cursor, data_type::write_data_type, key::KEY_CODEC_VERSION, row::ROW_CODEC_VERSION},
    epoch::Epoch,
    error::Result,
};

const META_VERSION: u8 = 1;
const FILE_NAME: &str = "collection.meta";

/// The file, as it is on disk.
#[derive(Debug)]
pub(super) struct MetaFile {
    path: PathBuf,
    fingerprint: u32,
    pub(super) published_at: Option<Epoch>,
}

impl MetaFile {
    /// Reads the file of a directory, or writes that of a new, published collection. A collection that was written with other columns
    /// or another key is refused.
    pub(super) fn open(directory: &Path, layout: &Layout) -> Result<Self> {
        create_directory(directory)?;
        let path = directory.join(FILE_NAME);
        let fingerprint = fingerprint(layout)?;
        if !path.exists() {
            // It is the first file of all.
            let others = fs::read_dir(directory).map_err(io_error("read", directory))?.filter_map(|entry| Some(entry.ok()?.path()));
            if others.into_iter().any(|other| other != staged_path(&path)) {
                return Err(corrupt(&path, "it is missing"));
            }
            let meta = Self { path, fingerprint, published_at: Some(Epoch::default()) };
            meta.write()?;
            return Ok(meta);
        }
        let bytes = fs::read(&path).map_err(io_error("read", &path))?;
        let Some((body, crc)) = bytes.split_last_chunk::<4>() else { return Err(corrupt(&path, "it is cut off")) };
        if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
            return Err(corrupt(&path, "its checksum does not match"));
        }
        let mut from = Cursor::new(body, FILE_NAME);
        let version = from.u8()?;
        if version != META_VERSION {
            return Err(corrupt(&path, format!("unknown version {version}")));
        }
        if from.u32()? != fingerprint {
            return Err(corrupt(&path, "the collection was written with other columns, another key or another encoding"));
        }
        let published_at = (from.u8()? != 0).then_some(Epoch(from.u64()?));
        Ok(Self { path, fingerprint, published_at })
    }

    /// Publishes the collection from an epoch on, or hides it.
    pub(super) fn set_published_at(&mut self, published_at: Option<Epoch>) -> Result<()> {
        self.published_at = published_at;
        self.write()
    }

    fn write(&self) -> Result<()> {
        let mut out = vec![META_VERSION];
        out.extend_from_slice(&self.fingerprint.to_le_bytes());
        out.push(u8::from(self.published_at.is_some()));
        out.extend_from_slice(&self.published_at.unwrap_or_default().0.to_le_bytes());
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        replace_file(&self.path, &out)
    }
}

/// Identifies encodings, columns and key.
fn fingerprint(layout: &Layout) -> Result<u32> {
    let mut bytes = vec![KEY_CODEC_VERSION, ROW_CODEC_VERSION, BATCH_CODEC_VERSION];
    for field in layout.schema.fields() {
        write_data_type(field.data_type(), &mut bytes)?;
    }
    match &layout.key {
        CollectionKey::Columns(columns) => {
            bytes.push(1);
            columns.iter().for_each(|column| bytes.extend_from_slice(&(*column as u32).to_le_bytes()));
        }
        CollectionKey::WholeRow => bytes.push(2),
        CollectionKey::AppendOnly => bytes.push(3),
    }
    Ok(crc32fast::hash(&bytes))
}
