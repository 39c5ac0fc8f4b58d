//! The layout in which the Open Graph Benchmark publishes node-property graphs, described as a `graph.toml` would.
//!
//! Three shapes exist: one graph as CSV (`raw/edge.csv.gz` and friends), a typed graph as CSV (`raw/relations/…`), and one
//! graph as numpy archives (`raw/data.npz`, `raw/node-label.npz`). Optional files are used when they are there.

use std::collections::BTreeMap;
use std::path::Path;

use graphmill_graph::{DType, LabelKind};

use super::config::{
    Column, ColumnConfig, EdgeConfig, EdgeName, Files, GraphConfig, LabelConfig, NodeConfig, SplitConfig, SplitFile,
    TensorConfig,
};
use crate::input::{BadRows, Column as Values, ColumnRef, ColumnType, Fetcher, OnError, Source, Table, Wanted};
use crate::{Error, Job, Layout, Result};

/// Turns an `[ogb]` table into the node and edge types that the directory holds.
pub(super) fn describe(
    config: &Path,
    described: GraphConfig,
    fetcher: &mut Fetcher,
    job: &Job<'_>,
) -> Result<GraphConfig> {
    let fail = |reason: String| Error::Config { path: config.to_owned(), reason };
    if !described.nodes.is_empty() || !described.edges.is_empty() {
        return Err(fail("[ogb] describes the whole graph: leave [[nodes]] and [[edges]] out".to_owned()));
    }
    let GraphConfig { layout, ogb: Some(ogb), .. } = described else { return Ok(described) };
    let root = ogb.path.trim_end_matches('/').to_owned();
    let mut layout = Ogb { root, split: ogb.split, layout, fetcher, job };
    if layout.has("raw/relations")? || layout.has("raw/triplet-type-list.csv.gz")? {
        layout.typed()
    } else if layout.has("raw/data.npz")? {
        layout.archives()
    } else if layout.has("raw/edge.csv.gz")? {
        layout.plain()
    } else {
        Err(fail(format!("{} is no OGB directory: it has no raw/edge.csv.gz, raw/data.npz or raw/relations", ogb.path)))
    }
}

struct Ogb<'a, 'j> {
    root: String,
    split: Option<String>,
    layout: Layout,
    fetcher: &'a mut Fetcher,
    job: &'a Job<'j>,
}

impl Ogb<'_, '_> {
    fn plain(&mut self) -> Result<GraphConfig> {
        let mut node = NodeConfig { count: Some(self.number("raw/num-node-list.csv.gz")?), ..NodeConfig::default() };
        self.node_files(&mut node, "raw", "")?;
        let edge = self.edge("raw", None)?;
        Ok(self.graph(vec![node], vec![edge]))
    }

    fn archives(&mut self) -> Result<GraphConfig> {
        let data = self.path("raw/data.npz");
        let count = self.first_number(&data, ColumnRef::Name("num_nodes_list".to_owned()))?;
        let mut node = NodeConfig { count: Some(count), ..NodeConfig::default() };
        node.features.insert("x".to_owned(), member(&data, "node_feat", None));
        if self.has("raw/node-label.npz")? {
            let tensor = member(&self.path("raw/node-label.npz"), "node_label", None);
            node.labels = Some(LabelConfig { kind: LabelKind::Single, tensor });
        }
        node.splits = self.splits("")?;
        let edge = EdgeConfig {
            files: Files::One(data),
            src: Some(Column::Name("edge_index[0]".to_owned())),
            dst: Some(Column::Name("edge_index[1]".to_owned())),
            header: true,
            ..EdgeConfig::default()
        };
        Ok(self.graph(vec![node], vec![edge]))
    }

    fn typed(&mut self) -> Result<GraphConfig> {
        let counts = self.table("raw/num-node-dict.csv.gz")?;
        let [names, numbers] = &counts[..] else {
            return Err(Error::input(
                self.path("raw/num-node-dict.csv.gz"),
                "expected a row of names and one of counts",
            ));
        };
        let mut nodes = Vec::new();
        for (name, number) in names.iter().zip(numbers) {
            let count = number.parse().map_err(|_| {
                Error::input(self.path("raw/num-node-dict.csv.gz"), format!("`{number}` is no number of nodes"))
            })?;
            let mut node = NodeConfig { name: Some(name.clone()), count: Some(count), ..NodeConfig::default() };
            self.typed_node_files(&mut node, name)?;
            nodes.push(node);
        }
        let mut edges = Vec::new();
        for triplet in self.table("raw/triplet-type-list.csv.gz")? {
            let [src, relation, dst] = &triplet[..] else {
                return Err(Error::input(
                    self.path("raw/triplet-type-list.csv.gz"),
                    "expected three names in each row",
                ));
            };
            let folder = format!("raw/relations/{src}___{relation}___{dst}");
            edges.push(self.edge(&folder, Some(EdgeName::Parts(src.clone(), relation.clone(), dst.clone())))?);
        }
        Ok(self.graph(nodes, edges))
    }

    fn typed_node_files(&mut self, node: &mut NodeConfig, name: &str) -> Result<()> {
        if self.has(&format!("raw/node-feat/{name}/node-feat.csv.gz"))? {
            node.features.insert("x".to_owned(), self.csv(&format!("raw/node-feat/{name}/node-feat.csv.gz")));
        }
        if self.has(&format!("raw/node-feat/{name}/node_year.csv.gz"))? {
            node.timestamps = Some(self.csv(&format!("raw/node-feat/{name}/node_year.csv.gz")));
        }
        let labels = format!("raw/node-label/{name}/node-label.csv.gz");
        if self.has(&labels)? {
            node.labels = Some(self.label(&labels)?);
        }
        let split = format!("/{name}");
        node.splits = self.splits(&split)?;
        Ok(())
    }

    fn node_files(&mut self, node: &mut NodeConfig, folder: &str, split: &str) -> Result<()> {
        if self.has(&format!("{folder}/node-feat.csv.gz"))? {
            node.features.insert("x".to_owned(), self.csv(&format!("{folder}/node-feat.csv.gz")));
        }
        if self.has(&format!("{folder}/node_year.csv.gz"))? {
            node.timestamps = Some(self.csv(&format!("{folder}/node_year.csv.gz")));
        }
        let labels = format!("{folder}/node-label.csv.gz");
        if self.has(&labels)? {
            node.labels = Some(self.label(&labels)?);
        }
        node.splits = self.splits(split)?;
        Ok(())
    }

    fn edge(&mut self, folder: &str, name: Option<EdgeName>) -> Result<EdgeConfig> {
        let mut features = BTreeMap::new();
        let attributes = format!("{folder}/edge-feat.csv.gz");
        if self.has(&attributes)? {
            features.insert("edge_attr".to_owned(), self.csv(&attributes));
        }
        let files = Files::One(self.path(&format!("{folder}/edge.csv.gz")));
        Ok(EdgeConfig { name, files, header: false, features, ..EdgeConfig::default() })
    }

    /// A label is single when its file has one column.
    fn label(&mut self, file: &str) -> Result<LabelConfig> {
        let mut tensor = self.csv(file);
        let wanted = [Wanted { columns: Vec::new(), kind: ColumnType::Value(None) }];
        let source = self.source(file)?;
        let (_, shape) = Table::open(&source, false, &wanted, &BadRows::new(OnError::Stop))?.value_shape(0);
        let kind = if shape.iter().product::<u64>() == 1 { LabelKind::Single } else { LabelKind::Multi };
        if kind == LabelKind::Single {
            tensor.dtype = Some(DType::I64);
        }
        Ok(LabelConfig { kind, tensor })
    }

    /// The splits of the scheme asked for, or of the only one there is.
    fn splits(&mut self, below: &str) -> Result<Option<SplitConfig>> {
        let Some(scheme) = self.scheme()? else { return Ok(None) };
        let mut file = |name: &str| -> Result<Option<SplitFile>> {
            let file = format!("split/{scheme}{below}/{name}.csv.gz");
            if !self.has(&file)? {
                return Ok(None);
            }
            let files = Files::One(self.path(&file));
            Ok(Some(SplitFile::Column(ColumnConfig { files, column: None, header: false })))
        };
        let (train, val, test) = (file("train")?, file("valid")?, file("test")?);
        let found = train.is_some() || val.is_some() || test.is_some();
        Ok(found.then_some(SplitConfig::Files { train, val, test }))
    }

    fn scheme(&mut self) -> Result<Option<String>> {
        if self.split.is_none() {
            let schemes = self.fetcher.folders(&self.path("split"))?;
            match &schemes[..] {
                [] => return Ok(None),
                [scheme] => self.split = Some(scheme.clone()),
                _ => {
                    return Err(Error::input(
                        self.path("split"),
                        format!("there are several splits ({}); choose one with `split`", schemes.join(", ")),
                    ));
                }
            }
        }
        Ok(self.split.clone())
    }

    fn graph(&self, nodes: Vec<NodeConfig>, edges: Vec<EdgeConfig>) -> GraphConfig {
        GraphConfig { layout: self.layout, nodes, edges, ogb: None }
    }

    fn path(&self, file: &str) -> String {
        format!("{}/{file}", self.root)
    }

    fn has(&mut self, file: &str) -> Result<bool> {
        let path = self.path(file);
        self.fetcher.exists(&path)
    }

    fn source(&mut self, file: &str) -> Result<Source> {
        let path = self.path(file);
        self.fetcher.source(&path, self.job)
    }

    fn csv(&self, file: &str) -> TensorConfig {
        let files = Some(Files::One(self.path(file)));
        TensorConfig { files, columns: Vec::new(), dtype: None, key: None, header: false }
    }

    fn number(&mut self, file: &str) -> Result<u64> {
        let path = self.path(file);
        self.first_number(&path, ColumnRef::Position(0))
    }

    fn first_number(&mut self, path: &str, column: ColumnRef) -> Result<u64> {
        let source = self.fetcher.source(path, self.job)?;
        let wanted = [Wanted { columns: vec![column], kind: ColumnType::Dense }];
        let mut table = Table::open(&source, false, &wanted, &BadRows::new(OnError::Stop))?;
        match table.next()?.as_ref().and_then(|chunk| chunk.columns.first()) {
            Some(Values::Dense(numbers)) if !numbers.is_empty() => Ok(numbers[0]),
            _ => Err(Error::input(source.name, "expected a number")),
        }
    }

    /// A small file without a header, as rows of text.
    fn table(&mut self, file: &str) -> Result<Vec<Vec<String>>> {
        let source = self.source(file)?;
        crate::input::read_small_csv(&source)
    }
}

fn member(archive: &str, name: &str, dtype: Option<DType>) -> TensorConfig {
    let columns = vec![Column::Name(name.to_owned())];
    TensorConfig { files: Some(Files::One(archive.to_owned())), columns, dtype, key: None, header: true }
}
