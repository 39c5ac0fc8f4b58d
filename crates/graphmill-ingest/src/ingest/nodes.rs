//! Node files into ids, features, labels, weights, timestamps and splits.

use graphmill_graph::path::{self, NodeArray};
use graphmill_graph::random::{Stream, unit};
use graphmill_graph::{FeatureInfo, LabelInfo, LabelKind, NodeTypeInfo, OriginalId, Place, PlacedWriter, Split};

use super::Ingest;
use super::config::{Column as ColumnName, ColumnConfig, IdType, SplitConfig, TensorConfig};
use super::ids::{NodeKey, column_type};
use super::plan::NodePlan;
use super::role::Role;
use super::rows::{Tally, ZEROS, shaped, value};
use super::splits::{Shares, write_fraction, write_hashed, write_ids};
use crate::input::{BadRows, Chunk, Column, ColumnRef, OnError, Table, Wanted};
use crate::{Error, Result, Unit};

/// The purpose of the stream that hashes ids to splits.
const SPLIT_HASH: u64 = 0x7370_6c69_7468;

/// A row of an `ids` file that is no node.
const NOBODY: u64 = u64::MAX;

impl Ingest<'_> {
    /// Reads the listed ids of a node type, if it has any: from then on no other ids exist.
    pub(super) fn read_ids(&mut self, place: usize, plan: &NodePlan) -> Result<()> {
        let Some(ids) = &plan.config.ids else { return Ok(()) };
        let bad = self.bad.clone();
        self.for_each_key(plan.config.id_type, ids, &bad, |ingest, _, _, key| ingest.ids[place].meet(key))?;
        self.ids[place].settle(&self.writer, &plan.name, self.key_memory)?;

        // The rows of features are in the order of this file: remember whose each row is.
        // Rows that cannot be read were reported the first time.
        let reported = BadRows::new(OnError::Skip);
        let mut order = Vec::new();
        let mut met = flags(self.ids[place].count())?;
        self.for_each_key(plan.config.id_type, ids, &reported, |ingest, tally, row, key| {
            if let Ok(id) = ingest.ids[place].find(&plan.name, key)? {
                if std::mem::replace(&mut met[id as usize], true) {
                    return ingest.bad.report(tally.file(), row, "this id stands in an earlier row too");
                }
                order.resize(tally.global(row) as usize, NOBODY);
                order.push(id);
            }
            Ok(())
        })?;
        self.orders[place] = Some(order);
        Ok(())
    }

    /// Copies the tensors of dense nodes that come in order of id; they say how many nodes there are.
    pub(super) fn copy_dense_tensors(&mut self, place: usize, plan: &NodePlan, info: &mut NodeTypeInfo) -> Result<()> {
        if plan.config.id_type != IdType::Dense {
            return Ok(());
        }
        let mut counts: Vec<(String, u64)> = plan.config.count.map(|n| ("`count`".to_owned(), n)).into_iter().collect();
        for (name, tensor, role) in tensors(plan).filter(|(_, tensor, _)| tensor.key.is_none()) {
            let files = tensor.files.as_ref().map(super::config::Files::list).unwrap_or_default();
            let path = |found: &FeatureInfo| array_path(&plan.name, found, role);
            let (found, rows) = self.copy_rows(&name, tensor, role, &files, &path)?;
            declare(info, found, role, &files)?;
            counts.push((files.join(", "), rows));
        }
        if let Some(pair) = counts.windows(2).find(|pair| pair[0].1 != pair[1].1) {
            return Err(Error::input(
                &pair[1].0,
                format!("it has {} rows for the nodes of `{}`, {} has {}", pair[1].1, plan.name, pair[0].0, pair[0].1),
            ));
        }
        if let (Some((_, count)), super::NodeIds::Dense { count: known, .. }) = (counts.first(), &mut self.ids[place]) {
            *known = Some(*count);
        }
        Ok(())
    }

    /// Places the tensors whose rows come in any order.
    pub(super) fn place_tensors(&mut self, place: usize, plan: &NodePlan, info: &mut NodeTypeInfo) -> Result<()> {
        for (name, tensor, role) in tensors(plan) {
            if tensor.key.is_some() || plan.config.id_type != IdType::Dense {
                self.place_tensor(place, plan, info, &name, tensor, role)?;
            }
        }
        Ok(())
    }

    fn place_tensor(
        &mut self,
        place: usize,
        plan: &NodePlan,
        info: &mut NodeTypeInfo,
        name: &str,
        tensor: &TensorConfig,
        role: Role,
    ) -> Result<()> {
        let files = tensor.files.as_ref().map(super::config::Files::list).unwrap_or_default();
        let mut wanted = vec![value(tensor, role.dtype(tensor))];
        if let Some(key) = &tensor.key {
            wanted.push(Wanted { columns: vec![key.reference()], kind: column_type(plan.config.id_type) });
        }
        let stage = self.job.stage(&format!("placing {name}"), Unit::Rows, None);
        let mut output = None;
        let mut placed = Vec::new();
        let mut tally = Tally::default();
        for source in self.fetcher.sources(&files, self.job)? {
            let mut table = Table::open(&source, tensor.header, &wanted, &self.bad)?;
            let found = shaped(name, &table, 0);
            let width = found.row_bytes().unwrap_or_default() as usize;
            if output.is_none() {
                output = Some((found.clone(), self.placed_array(plan, info, &found, role)?));
                placed = flags(info.count)?;
            }
            let Some((declared, array)) = &mut output else { continue };
            if *declared != found {
                return Err(Error::input(&source.name, "its rows have another shape than those before"));
            }
            tally.begin(&source.name);
            while let Some(chunk) = table.next()? {
                let Column::Rows(bytes) = &chunk.columns[0] else { continue };
                for (index, &row) in chunk.rows.iter().enumerate() {
                    tally.meet(row);
                    let from = &bytes[index * width..(index + 1) * width];
                    let whose = match role.fault(from) {
                        Some(reason) => Err(reason),
                        None => self.whose_row(place, plan, &chunk, index, &tally, row)?,
                    };
                    match whose {
                        Ok(id) if std::mem::replace(&mut placed[id as usize], true) => {
                            self.bad.report(&source.name, row, "its node has an earlier row too")?;
                        }
                        Ok(id) => {
                            let target = id as usize * width;
                            array.bytes_mut()[target..target + width].copy_from_slice(from);
                        }
                        Err(reason) => self.bad.report(&source.name, row, reason)?,
                    }
                }
                stage.advance(chunk.rows.len() as u64)?;
            }
            tally.end(table.rows());
        }
        let Some((found, array)) = output else { return Err(Error::option(format!("`{name}` has no files"))) };
        array.finish()?;
        declare(info, found, role, &files)
    }

    /// Begins a tensor whose rows come in any order; a node without a row keeps zeros, or no label.
    fn placed_array(
        &self,
        plan: &NodePlan,
        info: &NodeTypeInfo,
        found: &FeatureInfo,
        role: Role,
    ) -> Result<PlacedWriter> {
        let path = array_path(&plan.name, found, role);
        let bytes = found.row_bytes().and_then(|row| row.checked_mul(info.count));
        let bytes = bytes.ok_or_else(|| Error::option(format!("`{}` is too large", found.name)))?;
        let mut array = self.writer.placed_array(Place::Part(0), &path, bytes)?;
        if role.fill() != ZEROS {
            array.bytes_mut().fill(role.fill());
        }
        Ok(array)
    }

    /// Whose row it is: the key says, or the row of the `ids` file.
    fn whose_row(
        &self,
        place: usize,
        plan: &NodePlan,
        chunk: &Chunk,
        index: usize,
        tally: &Tally,
        row: u64,
    ) -> Result<std::result::Result<u64, String>> {
        if let Some(keys) = chunk.columns.get(1) {
            return self.ids[place].find(&plan.name, NodeKey::at(keys, index));
        }
        let order = self.orders[place].as_deref().unwrap_or_default();
        Ok(match order.get(tally.global(row) as usize) {
            Some(&id) if id != NOBODY => Ok(id),
            _ => Err(format!("there is no id in the same row of the ids of `{}`", plan.name)),
        })
    }

    /// Writes the splits of a node type.
    pub(super) fn write_splits(&mut self, place: usize, plan: &NodePlan, info: &mut NodeTypeInfo) -> Result<()> {
        let Some(splits) = &plan.config.splits else { return Ok(()) };
        match splits {
            SplitConfig::Files { train, val, test } => {
                for (split, file) in [(Split::Train, train), (Split::Val, val), (Split::Test, test)] {
                    if let Some(file) = file {
                        let ids = self.split_file(place, plan, &file.column())?;
                        write_ids(&self.writer, info, split, ids)?;
                    }
                }
                Ok(())
            }
            &SplitConfig::Fraction { train, val, test, seed } => {
                write_fraction(&self.writer, info, Shares { train, val, test }, seed, self.job)
            }
            &SplitConfig::Hash { train, val, test } => {
                write_hashed(&self.writer, info, Shares { train, val, test }, self.job, |id| {
                    self.hash(place, id).map(Some)
                })
            }
            &SplitConfig::Anchor { ref edges, train, val, test } => {
                let name = edges.resolve()?;
                let edge = self.plan.edges.iter().position(|edge| edge.name == name);
                let anchors = edge.and_then(|edge| self.anchors.get(edge)).map(Vec::as_slice).unwrap_or_default();
                write_hashed(&self.writer, info, Shares { train, val, test }, self.job, |id| {
                    if anchors.binary_search(&id).is_ok() { self.hash(place, id).map(Some) } else { Ok(None) }
                })
            }
        }
    }

    fn split_file(&mut self, place: usize, plan: &NodePlan, file: &ColumnConfig) -> Result<Vec<u64>> {
        let mut ids = Vec::new();
        let bad = self.bad.clone();
        self.for_each_key(plan.config.id_type, file, &bad, |ingest, tally, row, key| {
            match ingest.ids[place].find(&plan.name, key)? {
                Ok(id) => ids.push(id),
                Err(reason) => ingest.bad.report(tally.file(), row, reason)?,
            }
            Ok(())
        })?;
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// A number in `[0, 1)` that depends on nothing but the original id, so it stays when nodes are added.
    fn hash(&self, place: usize, id: u64) -> Result<f64> {
        let original = self.ids[place].originals().map(|originals| originals.get(id as usize)).transpose()?;
        let stream = Stream::new(SPLIT_HASH, &[]);
        Ok(match original.flatten() {
            None => stream.unit(id),
            Some(OriginalId::Int(key)) => stream.unit(key.cast_unsigned()),
            Some(OriginalId::String(key)) => {
                let mut words = vec![key.len() as u64];
                words.extend(key.as_bytes().chunks(8).map(|bytes| {
                    let mut word = [0; 8];
                    word[..bytes.len()].copy_from_slice(bytes);
                    u64::from_le_bytes(word)
                }));
                unit(Stream::new(SPLIT_HASH, &words).at(0))
            }
        })
    }

    /// Reads a column of ids over some files.
    fn for_each_key(
        &mut self,
        id_type: IdType,
        config: &ColumnConfig,
        bad: &BadRows,
        mut take: impl FnMut(&mut Self, &Tally, u64, NodeKey<'_>) -> Result<()>,
    ) -> Result<()> {
        let column = config.column.as_ref().map_or(ColumnRef::Position(0), ColumnName::reference);
        let wanted = [Wanted { columns: vec![column], kind: column_type(id_type) }];
        let mut tally = Tally::default();
        for source in self.fetcher.sources(&config.files.list(), self.job)? {
            let mut table = Table::open(&source, config.header, &wanted, bad)?;
            let stage = self.job.stage(&format!("reading {}", source.name), Unit::Rows, table.rows());
            tally.begin(&source.name);
            while let Some(chunk) = table.next()? {
                for (index, &row) in chunk.rows.iter().enumerate() {
                    tally.meet(row);
                    take(self, &tally, row, NodeKey::at(&chunk.columns[0], index))?;
                }
                stage.advance(chunk.rows.len() as u64)?;
            }
            tally.end(table.rows());
        }
        Ok(())
    }
}

/// A flag per node.
fn flags(count: u64) -> Result<Vec<bool>> {
    let mut flags = Vec::new();
    let reserved = flags.try_reserve_exact(usize::try_from(count).unwrap_or(usize::MAX));
    reserved.map_err(|_| Error::option(format!("there is no memory for {count} nodes; check `count`")))?;
    flags.resize(count as usize, false);
    Ok(flags)
}

/// Everything a node type has a row of for each node.
fn tensors(plan: &NodePlan) -> impl Iterator<Item = (String, &TensorConfig, Role)> {
    let config = &plan.config;
    let features = config.features.iter().map(|(name, tensor)| (name.clone(), tensor, Role::Feature));
    let label = config.labels.iter().map(|label| ("label".to_owned(), &label.tensor, Role::Label(label.kind)));
    let weights = config.weights.iter().map(|tensor| ("weight".to_owned(), tensor, Role::Weights));
    let timestamps = config.timestamps.iter().map(|tensor| ("timestamp".to_owned(), tensor, Role::Timestamps));
    features.chain(label).chain(weights).chain(timestamps)
}

fn array_path(name: &str, found: &FeatureInfo, role: Role) -> String {
    path::node(
        name,
        match role {
            Role::Feature => NodeArray::Feature(found),
            Role::Label(_) => NodeArray::Label(found.dtype),
            Role::Weights => NodeArray::Weights,
            Role::Timestamps => NodeArray::Timestamps,
        },
    )
}

/// Says in the manifest what was found.
fn declare(info: &mut NodeTypeInfo, found: FeatureInfo, role: Role, files: &[String]) -> Result<()> {
    let width: u64 = found.shape.iter().product();
    let wrong =
        |expected: &str| Err(Error::input(files.join(", "), format!("expected {expected} per node, found {width}")));
    match role {
        Role::Feature => info.features.push(found),
        Role::Label(LabelKind::Single) if width != 1 => return wrong("one label (or kind = \"multi\")"),
        Role::Weights if width != 1 => return wrong("one weight"),
        Role::Timestamps if width != 1 => return wrong("one timestamp"),
        Role::Label(kind) => info.label = Some(LabelInfo { kind, dtype: found.dtype, width }),
        Role::Weights => info.weights = true,
        Role::Timestamps => info.timestamps = true,
    }
    Ok(())
}
