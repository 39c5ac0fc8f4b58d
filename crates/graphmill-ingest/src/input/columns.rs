//! The columns a table has, and how users refer to them.

use super::ColumnRef;
use crate::{Error, Result};

/// Columns a message lists.
const LISTED: usize = 20;

/// The columns of a delimited or Parquet file.
pub(super) struct Columns {
    pub(super) count: usize,
    /// Absent when delimited text has no header.
    pub(super) names: Option<Vec<String>>,
}

impl Columns {
    /// The positions of the wanted columns; of all when none is named.
    pub(super) fn positions(&self, file: &str, wanted: &[ColumnRef]) -> Result<Vec<usize>> {
        if wanted.is_empty() {
            return Ok((0..self.count).collect());
        }
        wanted.iter().map(|column| self.position(file, column)).collect()
    }

    /// A column's name in messages.
    pub(super) fn label(&self, position: usize) -> String {
        match self.names.as_ref().and_then(|names| names.get(position)) {
            Some(name) => format!("column \"{name}\""),
            None => format!("column {position}"),
        }
    }

    fn position(&self, file: &str, column: &ColumnRef) -> Result<usize> {
        match (column, &self.names) {
            (ColumnRef::Position(position), _) if *position < self.count => Ok(*position),
            (ColumnRef::Position(position), _) => {
                let reason = format!("there is no column {position} (counted from 0); {}", self.list());
                Err(Error::input(file, reason))
            }
            (ColumnRef::Name(name), None) => {
                let reason = format!(
                    "column \"{name}\" is asked for by name, but the file is read without a header; give its position, or say that there is a header"
                );
                Err(Error::input(file, reason))
            }
            (ColumnRef::Name(name), Some(names)) => {
                let mut found = names.iter().enumerate().filter(|(_, other)| *other == name);
                match (found.next(), found.next()) {
                    (Some((position, _)), None) => Ok(position),
                    (None, _) => Err(Error::input(file, format!("there is no column \"{name}\"; {}", self.list()))),
                    (Some(_), Some(_)) => {
                        let reason = format!("column \"{name}\" is there twice; give its position, counted from 0");
                        Err(Error::input(file, reason))
                    }
                }
            }
        }
    }

    fn list(&self) -> String {
        match &self.names {
            Some(names) => format!("the columns are {}", list(names)),
            None => format!("the first row has {} columns", self.count),
        }
    }
}

/// A list of names for a message, cut when it is long.
pub(super) fn list(names: &[String]) -> String {
    let shown: Vec<&str> = names.iter().take(LISTED).map(String::as_str).collect();
    let more = if names.len() > LISTED { format!(" and {} more", names.len() - LISTED) } else { String::new() };
    format!("{}{more}", shown.join(", "))
}
