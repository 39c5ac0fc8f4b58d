//! A manifest that parses can still contradict itself; nothing past this point sees one that does.

use std::collections::BTreeMap;

use super::{
    BookInfo, Direction, EdgeRole, EdgeTypeInfo, LabelKind, MAX_PARTS, Manifest, NodeTypeInfo, StoredArray, check_name,
};
use crate::book;
use crate::path::{self, BookArray, EdgeArray, NodeArray};
use crate::{FeatureInfo, OriginalKind};

type Check<T = ()> = Result<T, String>;

impl Manifest {
    /// Checks every rule that the manifest alone can show, the size of every array included.
    pub(super) fn validate(&self) -> Check {
        if self.parts == 0 || self.parts > MAX_PARTS {
            return Err(format!("expected 1 to {MAX_PARTS} partitions, found {}", self.parts));
        }
        if self.partitions.len() != self.parts as usize {
            return Err(format!("expected {} partitions, found {}", self.parts, self.partitions.len()));
        }
        self.check_types()?;
        if self.homogeneous && (self.node_types.len() != 1 || self.edge_types.len() > 1) {
            return Err("a homogeneous graph has one node type and at most one edge type".to_owned());
        }
        self.check_arrays()
    }

    fn check_types(&self) -> Check {
        if !self.node_types.is_sorted_by(|a, b| a.name < b.name) {
            return Err("node types are not sorted by name, or one stands twice".to_owned());
        }
        if !self.edge_types.is_sorted_by(|a, b| a.name < b.name) {
            return Err("edge types are not sorted by name, or one stands twice".to_owned());
        }
        for info in &self.node_types {
            self.check_node_type(info).map_err(|reason| format!("node type `{}`: {reason}", info.name))?;
        }
        for info in &self.edge_types {
            self.check_edge_type(info).map_err(|reason| format!("edge type `{}`: {reason}", info.name))?;
        }
        Ok(())
    }

    fn check_node_type(&self, info: &NodeTypeInfo) -> Check {
        check_name(&info.name).map_err(|error| error.to_string())?;
        check_book(&info.book, info.count, self.parts)?;
        check_features(&info.features)?;
        if let Some(label) = info.label {
            if label.kind == LabelKind::Single && label.width != 1 {
                return Err(format!("a single label has width 1, found {}", label.width));
            }
            match label.as_feature().row_bytes() {
                Some(1..) => {}
                _ => return Err(format!("its label has {} values", label.width)),
            }
        }
        for (split, size) in info.splits.iter() {
            if size > info.count {
                return Err(format!("split {split} has {size} of {} nodes", info.count));
            }
        }
        Ok(())
    }

    fn check_edge_type(&self, info: &EdgeTypeInfo) -> Check {
        for part in [&info.name.src, &info.name.relation, &info.name.dst] {
            check_name(part).map_err(|error| error.to_string())?;
        }
        self.node_type(&info.name.src).map_err(|error| error.to_string())?;
        self.node_type(&info.name.dst).map_err(|error| error.to_string())?;
        check_features(&info.features)?;
        match info.layouts[..] {
            [_] => {}
            [first, second] if first != second => {}
            _ => return Err("expected one or two different layouts".to_owned()),
        }
        if info.role == EdgeRole::Label && !info.layouts.contains(&Direction::Out) {
            return Err("a label edge type needs the layout `out`".to_owned());
        }
        if (info.weights || !info.features.is_empty()) && !info.edge_ids {
            return Err("weights and features need edge ids".to_owned());
        }
        if !info.edge_ids && info.id_count != 0 {
            return Err(format!("it has {} edge ids but stores none", info.id_count));
        }
        if info.cut > info.count {
            return Err(format!("{} of its {} edges are cut", info.cut, info.count));
        }
        match (&info.book, info.features.is_empty()) {
            (None, true) => Ok(()),
            (Some(book), false) => check_book(book, info.id_count, self.parts),
            _ => Err("it has a book exactly when it has features".to_owned()),
        }
    }

    /// Checks that exactly the arrays that must be there are, each of the size that follows from the counts.
    fn check_arrays(&self) -> Check {
        let stored = self.partitions.iter().flat_map(|partition| partition.arrays.values());
        let mut total = 0;
        stored.chain(self.book_arrays.values()).try_for_each(|stored| add(&mut total, stored.bytes))?;

        let mut books = Arrays::new("book", &self.book_arrays);
        for info in &self.node_types {
            books.book(&info.book, info.count, self.parts, |array| path::node_book(&info.name, array))?;
            if info.weights {
                books.exact(&path::node_cumulative(&info.name), info.count, 8)?;
            }
        }
        for info in &self.edge_types {
            if let Some(book) = &info.book {
                books.book(book, info.id_count, self.parts, |array| path::edge_book(&info.name, array))?;
            }
        }
        books.done()?;

        let mut edges = vec![[0u64; 2]; self.edge_types.len()];
        let mut splits = vec![[0u64; 3]; self.node_types.len()];
        for (number, stored) in self.partitions.iter().enumerate() {
            let partition = number as u32;
            let mut arrays = Arrays::new(&path::part(partition), &stored.arrays);
            for (info, sums) in self.node_types.iter().zip(&mut splits) {
                arrays.nodes(info, partition, sums)?;
            }
            for (info, sums) in self.edge_types.iter().zip(&mut edges) {
                arrays.edges(self, info, partition, sums)?;
            }
            arrays.done()?;
        }

        for (info, sums) in self.node_types.iter().zip(&splits) {
            for (split, size) in info.splits.iter() {
                if sums[split as usize] != size {
                    return Err(format!(
                        "node type `{}`: split {split} has {size} nodes, its arrays hold {}",
                        info.name, sums[split as usize]
                    ));
                }
            }
        }
        for (info, sums) in self.edge_types.iter().zip(&edges) {
            for (layout, &sum) in info.layouts.iter().zip(sums) {
                if sum != info.count {
                    return Err(format!(
                        "edge type `{}` has {} edges, its `{layout}` arrays hold {sum}",
                        info.name, info.count
                    ));
                }
            }
        }
        Ok(())
    }
}

fn check_book(info: &BookInfo, count: u64, parts: u32) -> Check {
    let parts = parts as usize;
    match info {
        BookInfo::Range { bounds } => {
            let fits = bounds.len() == parts + 1
                && bounds.is_sorted()
                && bounds.first() == Some(&0)
                && bounds.last() == Some(&count);
            if fits { Ok(()) } else { Err(format!("its bounds do not cut {count} ids into {parts} stretches")) }
        }
        BookInfo::Assigned { rows } => {
            let sum = rows.iter().try_fold(0u64, |sum, &rows| sum.checked_add(rows));
            if rows.len() == parts && sum == Some(count) {
                Ok(())
            } else {
                Err(format!("its book does not share {count} ids between {parts} partitions"))
            }
        }
    }
}

fn check_features(features: &[FeatureInfo]) -> Check {
    if !features.is_sorted_by(|a, b| a.name < b.name) {
        return Err("its features are not sorted by name, or one stands twice".to_owned());
    }
    for feature in features {
        check_name(&feature.name).map_err(|error| error.to_string())?;
        match feature.row_bytes() {
            Some(0) => return Err(format!("a row of feature `{}` is empty", feature.name)),
            Some(bytes) if bytes <= 1 << 32 => {}
            _ => return Err(format!("a row of feature `{}` is larger than 4 GiB", feature.name)),
        }
    }
    Ok(())
}

/// The arrays of one folder, ticked off as they are met.
struct Arrays<'a> {
    folder: String,
    stored: &'a BTreeMap<String, StoredArray>,
    met: usize,
}

impl<'a> Arrays<'a> {
    fn new(folder: &str, stored: &'a BTreeMap<String, StoredArray>) -> Self {
        Self { folder: folder.to_owned(), stored, met: 0 }
    }

    fn nodes(&mut self, info: &NodeTypeInfo, partition: u32, splits: &mut [u64; 3]) -> Check {
        let rows = info.book.rows(partition);
        let width = info.id_width();
        let path = |array| path::node(&info.name, array);
        if matches!(info.book, BookInfo::Assigned { .. }) {
            self.exact(&path(NodeArray::Ids(width)), rows, width.size() as u64)?;
        }
        for feature in &info.features {
            self.exact(&path(NodeArray::Feature(feature)), rows, feature.row_bytes().unwrap_or(u64::MAX))?;
        }
        if let Some(label) = info.label {
            let row = label.as_feature().row_bytes().unwrap_or(u64::MAX);
            self.exact(&path(NodeArray::Label(label.dtype)), rows, row)?;
        }
        if info.weights {
            self.exact(&path(NodeArray::Weights), rows, 4)?;
        }
        if info.timestamps {
            self.exact(&path(NodeArray::Timestamps), rows, 8)?;
        }
        for (split, _) in info.splits.iter() {
            let size = self.whole(&path(NodeArray::Split(split, width)), width.size() as u64)?;
            add(&mut splits[split as usize], size)?;
        }
        match info.original_ids {
            None => Ok(()),
            Some(OriginalKind::Int) => self.exact(&path(NodeArray::OriginalInts), rows, 8),
            Some(OriginalKind::String) => {
                self.exact(&path(NodeArray::OriginalOffsets), rows.saturating_add(1), 8)?;
                self.whole(&path(NodeArray::OriginalText), 1).map(drop)
            }
        }
    }

    fn edges(&mut self, manifest: &Manifest, info: &EdgeTypeInfo, partition: u32, sums: &mut [u64; 2]) -> Check {
        let node_type = |name: &str| {
            let place = manifest.node_type(name).map_err(|error| error.to_string())?;
            Check::Ok(&manifest.node_types[place])
        };
        let path = |array| path::edge(&info.name, array);
        for (&layout, sum) in info.layouts.iter().zip(sums) {
            let owner = node_type(info.name.list_owner(layout))?;
            let neighbor = node_type(info.name.neighbor(layout))?.id_width();
            let indptr = info.indptr_width();
            let rows = owner.book.rows(partition).saturating_add(1);
            self.exact(&path(EdgeArray::Indptr(layout, indptr)), rows, indptr.size() as u64)?;
            let edges = self.whole(&path(EdgeArray::Neighbors(layout, neighbor)), neighbor.size() as u64)?;
            add(sum, edges)?;
            if info.edge_ids {
                let width = info.id_width();
                self.exact(&path(EdgeArray::EdgeIds(layout, width)), edges, width.size() as u64)?;
            }
            if info.weights {
                self.exact(&path(EdgeArray::Weights(layout)), edges, 4)?;
                self.exact(&path(EdgeArray::Cumulative(layout)), edges, 8)?;
                self.exact(&path(EdgeArray::Alias(layout)), edges, 8)?;
            }
            if info.timestamps {
                self.exact(&path(EdgeArray::Timestamps(layout)), edges, 8)?;
            }
        }
        let Some(book) = &info.book else { return Ok(()) };
        let rows = book.rows(partition);
        if matches!(book, BookInfo::Assigned { .. }) {
            let width = info.id_width();
            self.exact(&path(EdgeArray::Ids(width)), rows, width.size() as u64)?;
        }
        for feature in &info.features {
            self.exact(&path(EdgeArray::Feature(feature)), rows, feature.row_bytes().unwrap_or(u64::MAX))?;
        }
        Ok(())
    }

    fn book(&mut self, info: &BookInfo, count: u64, parts: u32, path: impl Fn(BookArray) -> String) -> Check {
        if matches!(info, BookInfo::Range { .. }) {
            return Ok(());
        }
        let shape = book::Shape::new(count, parts);
        self.exact(&path(BookArray::Owner(shape.wide)), count, shape.owner_bytes())?;
        self.exact(&path(BookArray::Rank(shape.rank)), shape.ranks(), shape.rank.size() as u64)
    }

    /// An array of exactly `rows` rows.
    fn exact(&mut self, path: &str, rows: u64, row_bytes: u64) -> Check {
        let stored = self.find(path)?;
        match rows.checked_mul(row_bytes) {
            Some(expected) if expected == stored.bytes => Ok(()),
            Some(expected) => Err(format!("{}/{path}: expected {expected} bytes, found {}", self.folder, stored.bytes)),
            None => Err(format!("{}/{path}: {rows} rows of {row_bytes} bytes are too large", self.folder)),
        }
    }

    /// An array of any number of whole elements; says how many.
    fn whole(&mut self, path: &str, element: u64) -> Check<u64> {
        let stored = self.find(path)?;
        if stored.bytes % element == 0 {
            return Ok(stored.bytes / element);
        }
        Err(format!("{}/{path}: {} bytes are no whole number of elements", self.folder, stored.bytes))
    }

    fn find(&mut self, path: &str) -> Check<StoredArray> {
        self.met += 1;
        self.stored.get(path).copied().ok_or_else(|| format!("{}/{path} is missing", self.folder))
    }

    /// Every array met is there and each is met once, so equal counts mean that none is left over.
    fn done(self) -> Check {
        if self.met == self.stored.len() {
            return Ok(());
        }
        Err(format!("{} has {} arrays, expected {}", self.folder, self.stored.len(), self.met))
    }
}

fn add(sum: &mut u64, more: u64) -> Check {
    *sum = sum.checked_add(more).ok_or("its arrays are too large")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::Split;

    #[test]
    fn split_order_is_the_index_of_its_sum() {
        assert_eq!(Split::ALL.map(|split| split as usize), [0, 1, 2]);
    }
}
