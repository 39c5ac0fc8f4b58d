//! Rows over several files: which row of which file a number means, and tensors copied row by row.

use graphmill_graph::{ArrayWriter, DType, FeatureInfo, Place};

use super::Ingest;
use super::config::{Column as ColumnName, TensorConfig};
use super::role::Role;
use crate::input::{Column, ColumnType, Table, Wanted};
use crate::{Error, Result, Unit};

/// Numbers the rows of several files one after the other.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The first row of each file, and its name.
    files: Vec<(u64, String)>,
    /// One more than the last row met.
    end: u64,
}

impl Tally {
    /// Begins the next file.
    pub(super) fn begin(&mut self, name: &str) {
        self.files.push((self.end, name.to_owned()));
    }

    /// Ends a file of `rows` rows, if that is known: its last rows may have been skipped.
    pub(super) fn end(&mut self, rows: Option<u64>) {
        let start = self.files.last().map_or(0, |file| file.0);
        self.end = self.end.max(start + rows.unwrap_or(0));
    }

    /// Takes note of a row of the current file.
    pub(super) fn meet(&mut self, row: u64) {
        self.end = self.end.max(self.global(row) + 1);
    }

    /// The number of a row of the current file over all files.
    pub(super) fn global(&self, row: u64) -> u64 {
        self.files.last().map_or(0, |file| file.0) + row
    }

    /// How many rows all files have.
    pub(super) fn rows(&self) -> u64 {
        self.end
    }

    /// The current file.
    pub(super) fn file(&self) -> &str {
        self.files.last().map_or("", |file| &file.1)
    }

    /// The file and row that a number over all files means.
    pub(super) fn locate(&self, global: u64) -> (&str, u64) {
        let after = self.files.partition_point(|file| file.0 <= global);
        self.files.get(after.saturating_sub(1)).map_or(("", global), |(start, name)| (name, global - start))
    }
}

/// What stands in rows that were skipped.
pub(super) const ZEROS: u8 = 0;
/// All bits set: -1 in every signed type, "no label".
pub(super) const NO_LABEL: u8 = 0xff;

/// Writes rows of one byte until `rows` are written, for rows that were skipped.
pub(super) fn fill_gap(
    array: &mut ArrayWriter,
    info: &FeatureInfo,
    fill: u8,
    written: &mut u64,
    rows: u64,
) -> Result<()> {
    if *written < rows {
        let row = vec![fill; info.row_bytes().unwrap_or_default() as usize];
        while *written < rows {
            array.write(&row)?;
            *written += 1;
        }
    }
    Ok(())
}

impl Ingest<'_> {
    /// Copies tensors whose rows are in their final order; returns the shape and the number of rows.
    pub(super) fn copy_rows(
        &mut self,
        name: &str,
        tensor: &TensorConfig,
        role: Role,
        files: &[String],
        path: &dyn Fn(&FeatureInfo) -> String,
    ) -> Result<(FeatureInfo, u64)> {
        let stage = self.job.stage(&format!("copying {name}"), Unit::Rows, None);
        let wanted = [value(tensor, role.dtype(tensor))];
        let mut tally = Tally::default();
        let mut output: Option<(FeatureInfo, ArrayWriter, u64)> = None;
        for source in self.fetcher.sources(files, self.job)? {
            let mut table = Table::open(&source, tensor.header, &wanted, &self.bad)?;
            let info = shaped(name, &table, 0);
            let (info, array, written) = match &mut output {
                Some(output) if output.0 == info => (&output.0, &mut output.1, &mut output.2),
                Some(_) => return Err(Error::input(&source.name, "its rows have another shape than those before")),
                None => {
                    let array = self.writer.array(Place::Part(0), &path(&info))?;
                    let output = output.insert((info, array, 0));
                    (&output.0, &mut output.1, &mut output.2)
                }
            };
            tally.begin(&source.name);
            let width = info.row_bytes().unwrap_or_default() as usize;
            while let Some(chunk) = table.next()? {
                let Column::Rows(bytes) = &chunk.columns[0] else { continue };
                for (index, &row) in chunk.rows.iter().enumerate() {
                    tally.meet(row);
                    let values = &bytes[index * width..(index + 1) * width];
                    if let Some(reason) = role.fault(values) {
                        self.bad.report(&source.name, row, reason)?;
                        continue;
                    }
                    fill_gap(array, info, role.fill(), written, tally.global(row))?;
                    array.write(values)?;
                    *written += 1;
                }
                stage.advance(chunk.rows.len() as u64)?;
            }
            tally.end(table.rows());
        }
        let Some((info, mut array, mut written)) = output else {
            return Err(Error::option(format!("`{name}` has no files")));
        };
        fill_gap(&mut array, &info, role.fill(), &mut written, tally.rows())?;
        array.finish()?;
        Ok((info, tally.rows()))
    }
}

/// The wanted column of a tensor.
pub(super) fn value(tensor: &TensorConfig, dtype: Option<DType>) -> Wanted {
    let columns = tensor.columns.iter().map(ColumnName::reference).collect();
    Wanted { columns, kind: ColumnType::Value(dtype) }
}

/// The tensor that a table gives for a wanted column.
pub(super) fn shaped(name: &str, table: &Table, wanted: usize) -> FeatureInfo {
    let (dtype, shape) = table.value_shape(wanted);
    FeatureInfo { name: name.to_owned(), dtype, shape }
}
