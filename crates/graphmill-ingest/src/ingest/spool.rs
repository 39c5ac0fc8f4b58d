//! Edges on disk between being read and being listed, while the ids of their ends are not all known yet.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use graphmill_graph::OriginalId;

use super::ids::NodeKey;
use crate::{Error, Result};

/// One edge as the input names it.
#[derive(Debug, Clone, Copy)]
pub(super) struct RawEdge<'a> {
    pub(super) src: NodeKey<'a>,
    pub(super) dst: NodeKey<'a>,
    pub(super) id: u64,
    pub(super) timestamp: i64,
    pub(super) weight: f32,
}

/// Takes edges in order and gives them back in the same order.
pub(super) struct Spool {
    file: BufWriter<File>,
    scratch: PathBuf,
    edges: u64,
}

const DENSE: u8 = 0;
const INT: u8 = 1;
const TEXT: u8 = 2;

impl Spool {
    pub(super) fn new(scratch: &Path) -> Result<Self> {
        let file = tempfile::tempfile_in(scratch).map_err(Error::io("create a temporary file in", scratch))?;
        Ok(Self { file: BufWriter::with_capacity(1 << 20, file), scratch: scratch.to_owned(), edges: 0 })
    }

    pub(super) fn push(&mut self, edge: RawEdge<'_>) -> Result<()> {
        self.edges += 1;
        self.write(edge).map_err(Error::io("spill edges to", &self.scratch))
    }

    fn write(&mut self, edge: RawEdge<'_>) -> std::io::Result<()> {
        for key in [edge.src, edge.dst] {
            match key {
                NodeKey::Dense(id) => self.word(DENSE, id)?,
                NodeKey::Original(OriginalId::Int(key)) => self.word(INT, key.cast_unsigned())?,
                NodeKey::Original(OriginalId::String(key)) => {
                    self.word(TEXT, key.len() as u64)?;
                    self.file.write_all(key.as_bytes())?;
                }
            }
        }
        self.file.write_all(&edge.id.to_le_bytes())?;
        self.file.write_all(&edge.timestamp.to_le_bytes())?;
        self.file.write_all(&edge.weight.to_le_bytes())
    }

    fn word(&mut self, tag: u8, word: u64) -> std::io::Result<()> {
        self.file.write_all(&[tag])?;
        self.file.write_all(&word.to_le_bytes())
    }

    /// Gives the edges back.
    pub(super) fn for_each(self, mut take: impl FnMut(RawEdge<'_>) -> Result<()>) -> Result<()> {
        let failed = |error| Error::io("read edges back from", &self.scratch)(error);
        let mut file = self.file.into_inner().map_err(|error| failed(error.into_error()))?;
        file.rewind().map_err(failed)?;
        let mut file = BufReader::with_capacity(1 << 20, file);
        let (mut src, mut dst) = (Vec::new(), Vec::new());
        for _ in 0..self.edges {
            let src = read_key(&mut file, &mut src).map_err(failed)?;
            let dst = read_key(&mut file, &mut dst).map_err(failed)?;
            let id = u64::from_le_bytes(read(&mut file).map_err(failed)?);
            let timestamp = i64::from_le_bytes(read(&mut file).map_err(failed)?);
            let weight = f32::from_le_bytes(read(&mut file).map_err(failed)?);
            take(RawEdge { src, dst, id, timestamp, weight })?;
        }
        Ok(())
    }
}

fn read<const N: usize>(file: &mut impl Read) -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_key<'a>(file: &mut impl Read, text: &'a mut Vec<u8>) -> std::io::Result<NodeKey<'a>> {
    let [tag] = read(file)?;
    let word = u64::from_le_bytes(read(file)?);
    match tag {
        DENSE => Ok(NodeKey::Dense(word)),
        INT => Ok(NodeKey::Original(OriginalId::Int(word.cast_signed()))),
        _ => {
            text.resize(word as usize, 0);
            file.read_exact(text)?;
            let text = std::str::from_utf8(text).map_err(std::io::Error::other)?;
            Ok(NodeKey::Original(OriginalId::String(text)))
        }
    }
}
