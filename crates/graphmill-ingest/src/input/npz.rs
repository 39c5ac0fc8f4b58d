//! The npz format: a zip archive of npy arrays, stored or deflated.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use flate2::CrcReader;
use flate2::read::DeflateDecoder;
use zip::{CompressionMethod, ZipArchive};

use super::Source;
use crate::{Error, Result};

/// The arrays of an npz file.
pub(super) struct Archive {
    path: PathBuf,
    members: Vec<Member>,
}

/// One array of an npz file.
pub(super) struct Member {
    /// The array's name, without `.npy`.
    pub(super) name: String,
    start: u64,
    stored_bytes: u64,
    bytes: u64,
    deflated: bool,
    crc: u32,
}

impl Archive {
    pub(super) fn open(source: &Source) -> Result<Self> {
        let file = File::open(&source.path).map_err(Error::io("open", &source.path))?;
        let members = members(file).map_err(|reason| Error::input(&source.name, reason))?;
        Ok(Self { path: source.path.clone(), members })
    }

    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn members(file: File) -> std::result::Result<Vec<Member>, String> {
    let malformed = |error| format!("it is not a readable npz archive: {error}");
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(malformed)?;
    let mut members = Vec::new();
    for index in 0..archive.len() {
        let entry = archive.by_index_raw(index).map_err(malformed)?;
        let name = entry.name().map_err(malformed)?.into_owned();
        let Some(name) = name.strip_suffix(".npy") else { continue };
        let deflated = match entry.compression() {
            CompressionMethod::Stored => false,
            CompressionMethod::Deflated => true,
            other => return Err(format!("member {name} is compressed with {other}; save it with numpy.savez")),
        };
        if entry.encrypted() {
            return Err(format!("member {name} is encrypted"));
        }
        let start = entry.data_start().ok_or_else(|| format!("member {name} has no data"))?;
        members.push(Member {
            name: name.to_owned(),
            start,
            stored_bytes: entry.compressed_size(),
            bytes: entry.size(),
            deflated,
            crc: entry.crc32(),
        });
    }
    Ok(members)
}

impl Member {
    /// Opens the member; each reader has a file handle of its own.
    pub(super) fn open(&self, path: &Path) -> io::Result<MemberReader> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(self.start))?;
        let stored = BufReader::with_capacity(1 << 16, file.take(self.stored_bytes));
        let data: Box<dyn Read + Send> =
            if self.deflated { Box::new(DeflateDecoder::new(stored)) } else { Box::new(stored) };
        Ok(MemberReader { data: CrcReader::new(data.take(self.bytes)), left: self.bytes, crc: self.crc })
    }

    /// Bytes of the member when inflated.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The bytes of a member, whose checksum is checked when the last of them was read.
pub(super) struct MemberReader {
    data: CrcReader<io::Take<Box<dyn Read + Send>>>,
    left: u64,
    crc: u32,
}

impl Read for MemberReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.data.read(out)?;
        self.left -= read as u64;
        if read > 0 && self.left == 0 && self.data.crc().sum() != self.crc {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the checksum does not match"));
        }
        Ok(read)
    }
}
