//! Which partition owns each node.

use std::path::Path;

use graphmill_graph::random::Stream;
use graphmill_graph::{BookBuilder, DType, Dataset, NodeTypeInfo};

use super::{Method, ldg};
use crate::input::{BadRows, Column, ColumnType, OnError, Source, Table, Wanted};
use crate::{Error, Job, Result, Unit};

/// The purpose of the stream that hashes ids to partitions.
const HASH: u64 = 0x0068_6173_6800;

/// One book per node type, in manifest order.
pub(super) fn assign(source: &Dataset, parts: u32, method: &Method, job: &Job<'_>) -> Result<Vec<BookBuilder>> {
    let types = source.node_types();
    // A single partition needs no table of owners, however it was asked for.
    if parts == 1 && !matches!(method, Method::File(_)) {
        return Ok(types.iter().map(|info| BookBuilder::Range(vec![0, info.count])).collect());
    }
    match method {
        Method::Range => Ok(types.iter().map(|info| range(info, parts)).collect()),
        Method::Hash => Ok(types.iter().map(|info| hash(info, parts)).collect()),
        Method::Ldg => ldg::assign(source, parts, job),
        Method::File(files) => {
            files_cover_types(source, files)?;
            let read = |info: &NodeTypeInfo| {
                let named = |(name, _): &&(Option<String>, _)| name.as_ref().is_none_or(|name| *name == info.name);
                let (_, path) = files.iter().find(named).ok_or_else(|| {
                    Error::option(format!("no assignment for node type `{}`; pass {}=FILE", info.name, info.name))
                })?;
                read_file(path, info, parts, job)
            };
            types.iter().map(read).collect()
        }
    }
}

fn range(info: &NodeTypeInfo, parts: u32) -> BookBuilder {
    let bound = |part: u32| (u128::from(info.count) * u128::from(part) / u128::from(parts)) as u64;
    BookBuilder::Range((0..=parts).map(bound).collect())
}

fn hash(info: &NodeTypeInfo, parts: u32) -> BookBuilder {
    let stream = Stream::new(0, &[HASH]);
    let owner = (0..info.count).map(|id| stream.below(id, u64::from(parts)) as u16).collect();
    BookBuilder::Assigned { owner, parts }
}

fn files_cover_types(source: &Dataset, files: &[(Option<String>, std::path::PathBuf)]) -> Result<()> {
    for (name, path) in files {
        match name {
            Some(name) => drop(source.manifest().node_type(name)?),
            None if source.node_types().len() == 1 => {}
            None => {
                return Err(Error::option(format!(
                    "{} does not say which node type it assigns; write TYPE={}",
                    path.display(),
                    path.display()
                )));
            }
        }
    }
    Ok(())
}

fn read_file(path: &Path, info: &NodeTypeInfo, parts: u32, job: &Job<'_>) -> Result<BookBuilder> {
    let file = Source { name: path.display().to_string(), path: path.to_owned() };
    let wanted = [Wanted { columns: Vec::new(), kind: ColumnType::Value(Some(DType::I64)) }];
    let mut table = Table::open(&file, false, &wanted, &BadRows::new(OnError::Stop))?;
    let columns: u64 = table.value_shape(0).1.iter().product();
    if columns > 1 {
        let reason = format!("expected one column, the partition of each node in order, found {columns}");
        return Err(Error::input(file.name, reason));
    }
    let stage = job.stage(&format!("reading the assignment of {}", info.name), Unit::Nodes, Some(info.count));
    let mut owner = Vec::new();
    while let Some(chunk) = table.next()? {
        let [Column::Rows(bytes)] = &chunk.columns[..] else { continue };
        for part in bytes.as_chunks().0.iter().map(|part| i64::from_le_bytes(*part)) {
            if !(0..i64::from(parts)).contains(&part) {
                return Err(Error::BadRow {
                    file: file.name,
                    row: owner.len() as u64 + 1,
                    reason: format!("partition {part} does not exist: there are {parts}"),
                });
            }
            owner.push(part as u16);
        }
        stage.advance(chunk.rows.len() as u64)?;
    }
    if owner.len() as u64 != info.count {
        return Err(Error::input(
            file.name,
            format!("expected a partition for each of {} nodes of `{}`, found {}", info.count, info.name, owner.len()),
        ));
    }
    Ok(BookBuilder::Assigned { owner, parts })
}
