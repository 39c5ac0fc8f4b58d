//! Edge files into neighbour lists and edge features.

use graphmill_graph::path::{self, EdgeArray};
use graphmill_graph::{ArrayWriter, BookInfo, DType, EdgeTypeInfo, FeatureInfo, Place};

use super::Ingest;
use super::config::{Column as ColumnName, Keep, TensorConfig};
use super::ids::{NodeKey, column_type};
use super::plan::EdgePlan;
use super::role::{Role, weight_fault};
use super::rows::{Tally, ZEROS, fill_gap};
use super::spool::{RawEdge, Spool};
use crate::input::{Chunk, Column, ColumnRef, ColumnType, Source, Table, Wanted};
use crate::lists::{Edge, EdgeRules, EndCounts, ListsBuilder};
use crate::{Error, Result, Unit};

/// The edges of one type, read but not listed yet.
pub(super) struct PendingEdges {
    info: EdgeTypeInfo,
    sink: Sink,
    tally: Tally,
}

/// Where edges go as they are read.
enum Sink {
    /// Straight into lists, where both ends' ids are known.
    Lists(ListsBuilder, Vec<Edge>),
    /// Onto disk, until they are.
    Spool(Spool),
}

/// What one chunk of an edge file holds, by place in the wanted columns.
struct Columns {
    weight: Option<usize>,
    timestamp: Option<usize>,
    /// Features that come with the edges.
    features: Vec<(usize, FeatureWriter)>,
}

struct FeatureWriter {
    info: FeatureInfo,
    array: ArrayWriter,
    rows: u64,
}

impl PendingEdges {
    /// Whether its edges wait on disk for ids of their ends.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.sink, Sink::Spool(_))
    }
}

impl Ingest<'_> {
    /// Reads all files of an edge type. Ends whose ids are known are looked up at once, others are collected.
    pub(super) fn read_edges(&mut self, plan: &EdgePlan) -> Result<PendingEdges> {
        let config = &plan.config;
        let mut info = EdgeTypeInfo::new(plan.name.clone(), 0, self.plan.layout.directions(config.role));
        info.role = config.role;
        info.weights = config.weight.is_some();
        info.timestamps = config.timestamp.is_some();
        info.edge_ids = config.edge_ids.unwrap_or(info.weights || !config.features.is_empty());

        let settled = [plan.src, plan.dst].iter().all(|&end| self.ids[end].is_settled());
        let sink = if settled {
            Sink::Lists(self.lists(plan, info.clone()), Vec::new())
        } else {
            Sink::Spool(Spool::new(&self.scratch)?)
        };
        let mut pending = PendingEdges { info, sink, tally: Tally::default() };
        let sources = self.fetcher.sources(&config.files.list(), self.job)?;
        let mut columns = None;
        let stage = self.job.stage(&format!("reading {}", plan.name), Unit::Edges, None);
        for source in sources {
            let (wanted, found) = wanted(plan, &source, self);
            let mut table = Table::open(&source, config.header, &wanted, &self.bad)?;
            let columns = self.columns_for(&pending.info, &mut columns, found, &table, &source)?;
            pending.tally.begin(&source.name);
            while let Some(chunk) = table.next()? {
                self.take_chunk(plan, &chunk, columns, &mut pending)?;
                stage.advance(chunk.rows.len() as u64)?;
            }
            pending.tally.end(table.rows());
        }
        drop(stage);
        for (_, mut feature) in columns.into_iter().flat_map(|columns: Columns| columns.features) {
            fill_gap(&mut feature.array, &feature.info, ZEROS, &mut feature.rows, pending.tally.rows())?;
            feature.array.finish()?;
            pending.info.features.push(feature.info);
        }
        Ok(pending)
    }

    /// Looks up what is still to be looked up and writes the lists of the edge type at `place`.
    pub(super) fn list_edges(&mut self, place: usize, plan: &EdgePlan, pending: PendingEdges) -> Result<EdgeTypeInfo> {
        let PendingEdges { info, sink, tally } = pending;
        let lists = match sink {
            Sink::Lists(lists, _) => lists,
            Sink::Spool(spool) => {
                let mut lists = self.lists(plan, info.clone());
                let stage = self.job.stage(&format!("mapping {}", plan.name), Unit::Edges, None);
                let mut edges = Vec::new();
                spool.for_each(|raw| {
                    self.look_up(plan, raw, &tally, &mut edges)?;
                    if edges.len() == 1 << 14 {
                        stage.advance(edges.len() as u64)?;
                        lists.push(&edges)?;
                        edges.clear();
                    }
                    Ok(())
                })?;
                stage.advance(edges.len() as u64)?;
                lists.push(&edges)?;
                lists
            }
        };
        let mut listed = lists.finish(tally.rows(), &self.writer, &mut self.anchors[place], self.job)?;
        listed.features = info.features;
        for (name, tensor) in &plan.config.features {
            if let Some(files) = &tensor.files {
                let feature = self.edge_feature_file(plan, name, tensor, &files.list(), tally.rows())?;
                listed.features.push(feature);
            }
        }
        listed.features.sort_by(|a, b| a.name.cmp(&b.name));
        if !listed.features.is_empty() {
            listed.book = Some(BookInfo::whole(listed.id_count));
        }
        Ok(listed)
    }

    fn lists(&self, plan: &EdgePlan, info: EdgeTypeInfo) -> ListsBuilder {
        let counts = EndCounts { src: self.ids[plan.src].count(), dst: self.ids[plan.dst].count() };
        let rules = EdgeRules {
            undirected: plan.config.undirected,
            drop_duplicates: plan.config.duplicates == Keep::Drop,
            drop_self_loops: plan.config.self_loops == Keep::Drop,
        };
        ListsBuilder::new(info, counts, rules, self.edge_memory, &self.scratch)
    }

    /// The columns of this file; features keep one writer over all files, so their shapes must agree.
    fn columns_for<'c>(
        &self,
        info: &EdgeTypeInfo,
        columns: &'c mut Option<Columns>,
        found: Places,
        table: &Table,
        source: &Source,
    ) -> Result<&'c mut Columns> {
        let shape_of = |place| table.value_shape(place);
        if let Some(columns) = columns {
            for (place, feature) in &columns.features {
                if shape_of(*place) != (feature.info.dtype, feature.info.shape.clone()) {
                    return Err(Error::input(
                        &source.name,
                        format!("feature `{}` has another shape", feature.info.name),
                    ));
                }
            }
            return Ok(columns);
        }
        let mut features = Vec::new();
        for (name, place) in found.features {
            let (dtype, shape) = shape_of(place);
            let feature = FeatureInfo { name, dtype, shape };
            let array = self.writer.array(Place::Part(0), &path::edge(&info.name, EdgeArray::Feature(&feature)))?;
            features.push((place, FeatureWriter { info: feature, array, rows: 0 }));
        }
        Ok(columns.insert(Columns { weight: found.weight, timestamp: found.timestamp, features }))
    }

    fn take_chunk(
        &mut self,
        plan: &EdgePlan,
        chunk: &Chunk,
        columns: &mut Columns,
        pending: &mut PendingEdges,
    ) -> Result<()> {
        let (src, dst) = (&chunk.columns[0], &chunk.columns[1]);
        for (index, &row) in chunk.rows.iter().enumerate() {
            pending.tally.meet(row);
            let weight = columns.weight.map_or(0.0, |place| f32::from_le_bytes(element(&chunk.columns[place], index)));
            if let Some(reason) = weight_fault(weight) {
                self.bad.report(pending.tally.file(), row, reason)?;
                continue;
            }
            let timestamp =
                columns.timestamp.map_or(0, |place| i64::from_le_bytes(element(&chunk.columns[place], index)));
            let id = pending.tally.global(row);
            let raw = RawEdge { src: NodeKey::at(src, index), dst: NodeKey::at(dst, index), id, timestamp, weight };
            match &mut pending.sink {
                Sink::Lists(_, edges) => self.look_up(plan, raw, &pending.tally, edges)?,
                Sink::Spool(spool) => {
                    self.ids[plan.src].meet(raw.src)?;
                    self.ids[plan.dst].meet(raw.dst)?;
                    spool.push(raw)?;
                }
            }
        }
        if let Sink::Lists(lists, edges) = &mut pending.sink {
            lists.push(edges)?;
            edges.clear();
        }
        for (place, feature) in &mut columns.features {
            let Column::Rows(bytes) = &chunk.columns[*place] else { continue };
            let width = feature.info.row_bytes().unwrap_or_default() as usize;
            for (index, &row) in chunk.rows.iter().enumerate() {
                fill_gap(&mut feature.array, &feature.info, ZEROS, &mut feature.rows, pending.tally.global(row))?;
                feature.array.write(&bytes[index * width..(index + 1) * width])?;
                feature.rows += 1;
            }
        }
        Ok(())
    }

    /// Adds the edge with its ends' ids, or reports the row.
    fn look_up(&self, plan: &EdgePlan, raw: RawEdge<'_>, tally: &Tally, edges: &mut Vec<Edge>) -> Result<()> {
        let src = self.ids[plan.src].find(&plan.name.src, raw.src)?;
        let dst = self.ids[plan.dst].find(&plan.name.dst, raw.dst)?;
        match (src, dst) {
            (Ok(src), Ok(dst)) => {
                edges.push(Edge { src, dst, id: raw.id, timestamp: raw.timestamp, weight: raw.weight });
                Ok(())
            }
            (Err(reason), _) | (_, Err(reason)) => {
                let (file, row) = tally.locate(raw.id);
                self.bad.report(file, row, reason)
            }
        }
    }

    fn edge_feature_file(
        &mut self,
        plan: &EdgePlan,
        name: &str,
        tensor: &TensorConfig,
        files: &[String],
        rows: u64,
    ) -> Result<FeatureInfo> {
        let path = |info: &FeatureInfo| path::edge(&plan.name, EdgeArray::Feature(info));
        let (info, found) = self.copy_rows(name, tensor, Role::Feature, files, &path)?;
        if found != rows {
            return Err(Error::input(
                files.join(", "),
                format!("expected a row for each of the {rows} edge rows of `{}`, found {found}", plan.name),
            ));
        }
        Ok(info)
    }
}

/// Where the optional columns stand among the wanted ones.
struct Places {
    weight: Option<usize>,
    timestamp: Option<usize>,
    features: Vec<(String, usize)>,
}

fn wanted(plan: &EdgePlan, source: &Source, ingest: &Ingest<'_>) -> (Vec<Wanted>, Places) {
    let config = &plan.config;
    let by_position = !config.header || source.path.extension().is_some_and(|extension| extension == "npy");
    let end = |column: &Option<ColumnName>, name: &str, position| match column {
        Some(column) => column.reference(),
        None if by_position => ColumnRef::Position(position),
        None => ColumnRef::Name(name.to_owned()),
    };
    let id_type = |end: usize| column_type(ingest.plan.nodes[end].config.id_type);
    let mut wanted = vec![
        Wanted { columns: vec![end(&config.src, "src", 0)], kind: id_type(plan.src) },
        Wanted { columns: vec![end(&config.dst, "dst", 1)], kind: id_type(plan.dst) },
    ];
    let mut add = |columns: Vec<ColumnRef>, dtype| {
        wanted.push(Wanted { columns, kind: ColumnType::Value(dtype) });
        wanted.len() - 1
    };
    let weight = config.weight.as_ref().map(|column| add(vec![column.reference()], Some(DType::F32)));
    let timestamp = config.timestamp.as_ref().map(|column| add(vec![column.reference()], Some(DType::I64)));
    let with_edges = config.features.iter().filter(|(_, tensor)| tensor.files.is_none());
    let features = with_edges
        .map(|(name, tensor)| {
            let columns = tensor.columns.iter().map(ColumnName::reference).collect();
            (name.clone(), add(columns, tensor.dtype))
        })
        .collect();
    (wanted, Places { weight, timestamp, features })
}

/// One number of a column of single numbers.
fn element<const N: usize>(column: &Column, index: usize) -> [u8; N] {
    match column {
        Column::Rows(bytes) => bytes.get(index * N..(index + 1) * N).and_then(|bytes| bytes.try_into().ok()),
        _ => None,
    }
    .unwrap_or([0; N])
}
