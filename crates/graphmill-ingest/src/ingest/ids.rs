//! The ids of one node type while its dataset is made: first collected, then looked up.

use std::path::Path;

use graphmill_graph::{DatasetWriter, OriginalId, OriginalKind, Originals};

use super::config::IdType;
use super::keys::{KeyCollector, KeyIndex, write_ints, write_strings};
use crate::input::{Column, ColumnType};
use crate::{Error, Result};

/// Dense ids without a stated count that are this many times fewer than the largest are taken for a mistake: a single
/// wrong id would make a dataset of any size.
const SPARSE: u64 = 1000;
const SMALL: u64 = 1 << 20;

/// What is known of a node type's ids.
pub(super) enum NodeIds {
    /// Numbers `0..count`; `seen` is one more than the largest of the `met` so far.
    Dense { count: Option<u64>, seen: u64, met: u64 },
    /// Numbers being collected.
    Ints(KeyCollector<i64>),
    /// Strings being collected.
    Strings(KeyCollector<String>),
    /// All keys are known.
    Known(KeyIndex),
}

/// A node as a row of the input names it.
#[derive(Debug, Clone, Copy)]
pub(super) enum NodeKey<'a> {
    Dense(u64),
    Original(OriginalId<'a>),
}

impl<'a> NodeKey<'a> {
    /// The key in a row of a column that was asked for by [`column_type`].
    pub(super) fn at(column: &'a Column, index: usize) -> Self {
        match column {
            Column::Dense(ids) => Self::Dense(ids[index]),
            Column::Int(keys) => Self::Original(OriginalId::Int(keys[index])),
            Column::Text(keys) => Self::Original(OriginalId::String(keys.get(index))),
            // A reader answers a key column with keys.
            Column::Rows(_) => Self::Dense(u64::MAX),
        }
    }
}

/// How to read a column of a node type's ids.
pub(super) fn column_type(id_type: IdType) -> ColumnType {
    match id_type {
        IdType::Dense => ColumnType::Dense,
        IdType::Int => ColumnType::Int,
        IdType::String => ColumnType::Text,
    }
}

impl NodeIds {
    pub(super) fn new(id_type: IdType, count: Option<u64>, memory: u64, scratch: &Path) -> Self {
        match id_type {
            IdType::Dense => Self::Dense { count, seen: 0, met: 0 },
            IdType::Int => Self::Ints(KeyCollector::new(memory, scratch)),
            IdType::String => Self::Strings(KeyCollector::new(memory, scratch)),
        }
    }

    /// Whether keys can be looked up.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self, Self::Dense { count: Some(_), .. } | Self::Known(_))
    }

    /// Takes note of a node that the input names.
    pub(super) fn meet(&mut self, key: NodeKey<'_>) -> Result<()> {
        match (self, key) {
            (Self::Dense { seen, met, .. }, NodeKey::Dense(id)) => {
                *seen = (*seen).max(id.saturating_add(1));
                *met += 1;
            }
            (Self::Ints(keys), NodeKey::Original(OriginalId::Int(key))) => keys.insert(&key)?,
            (Self::Strings(keys), NodeKey::Original(OriginalId::String(key))) => keys.insert(key)?,
            _ => {}
        }
        Ok(())
    }

    /// Ends the collection: from here on keys can be looked up.
    pub(super) fn settle(&mut self, writer: &DatasetWriter, name: &str, memory: u64) -> Result<()> {
        let unsettled = std::mem::replace(self, Self::Dense { count: Some(0), seen: 0, met: 0 });
        *self = match unsettled {
            Self::Dense { count: None, seen, met } if seen > met.saturating_mul(SPARSE).saturating_add(SMALL) => {
                return Err(Error::option(format!(
                    "the largest id of node type `{name}` is {}, but only {met} ids were read: say its `count` if \
                     that is right, or id_type = \"int\" if ids are not dense",
                    seen - 1
                )));
            }
            Self::Dense { count, seen, met } => Self::Dense { count: Some(count.unwrap_or(seen)), seen, met },
            Self::Ints(keys) => Self::Known(KeyIndex::new(write_ints(keys, writer, name)?, memory)?),
            Self::Strings(keys) => Self::Known(KeyIndex::new(write_strings(keys, writer, name)?, memory)?),
            Self::Known(index) => Self::Known(index),
        };
        Ok(())
    }

    /// How many nodes there are.
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Dense { count, seen, .. } => count.unwrap_or(*seen),
            Self::Known(index) => index.len(),
            Self::Ints(_) | Self::Strings(_) => 0,
        }
    }

    /// What the nodes were called, if not by their ids.
    pub(super) fn originals(&self) -> Option<&Originals> {
        match self {
            Self::Known(index) => Some(index.originals()),
            _ => None,
        }
    }

    /// What the manifest says of the original ids.
    pub(super) fn kind(&self) -> Option<OriginalKind> {
        self.originals().map(|originals| match originals {
            Originals::Ints(_) => OriginalKind::Int,
            Originals::Strings(_) => OriginalKind::String,
        })
    }

    /// The dense id of a node, or why there is none.
    pub(super) fn find(&self, name: &str, key: NodeKey<'_>) -> Result<std::result::Result<u64, String>> {
        match (self, key) {
            (Self::Dense { count, .. }, NodeKey::Dense(id)) => {
                let count = count.unwrap_or(u64::MAX);
                Ok(if id < count {
                    Ok(id)
                } else {
                    Err(format!("node id {id} is out of range: there are {count} of type `{name}`"))
                })
            }
            (Self::Known(index), NodeKey::Original(key)) => {
                Ok(index.find(key)?.ok_or_else(|| format!("there is no node `{key}` of type `{name}`")))
            }
            _ => Err(Error::option(format!("ids of node type `{name}` are mixed"))),
        }
    }
}
