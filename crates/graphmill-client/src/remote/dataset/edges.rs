//! Edges and degrees.

use graphmill_graph::{Direction, EdgeTypeName};
use graphmill_sample::room;
use graphmill_wire::proto::{DegreesRequest, DegreesResponse, EdgeIndexRequest, EdgeIndexResponse};

use super::ask::Service;
use super::grow::grow;
use super::values::compress;
use super::{EdgeIndex, EdgeLayout, RemoteDataset, expect, named, pieces};
use crate::{Error, Result};

impl RemoteDataset {
    /// How many edges a type has.
    pub fn edge_size(&self, edge_type: Option<&EdgeTypeName>) -> Result<u64> {
        Ok(self.edge_type(edge_type)?.count)
    }

    /// All edges of a type.
    pub fn edge_index(&self, edge_type: Option<&EdgeTypeName>, layout: EdgeLayout) -> Result<EdgeIndex> {
        let info = self.edge_type(edge_type)?;
        let direction = match layout {
            EdgeLayout::Coo => None,
            EdgeLayout::Csr => Some(Direction::Out),
            EdgeLayout::Csc => Some(Direction::In),
        };
        let Some(direction) = direction else {
            let (sources, targets) = self.edge_arrays(edge_type, EdgeLayout::Coo, info.count, info.count)?;
            return Ok(EdgeIndex::Coo { sources, targets });
        };
        let count = self.manifest().node_types[self.manifest().node_type(info.name.list_owner(direction))?].count;
        let (offsets, lists) = if info.layouts.contains(&direction) {
            self.edge_arrays(edge_type, layout, count + 1, info.count)?
        } else {
            let (sources, targets) = self.edge_arrays(edge_type, EdgeLayout::Coo, info.count, info.count)?;
            match direction {
                Direction::Out => compress(&sources, &targets, count)?,
                Direction::In => compress(&targets, &sources, count)?,
            }
        };
        Ok(match direction {
            Direction::Out => EdgeIndex::Csr { offsets, targets: lists },
            Direction::In => EdgeIndex::Csc { offsets, sources: lists },
        })
    }

    fn edge_arrays(
        &self,
        edge_type: Option<&EdgeTypeName>,
        layout: EdgeLayout,
        first: u64,
        second: u64,
    ) -> Result<(Vec<u64>, Vec<u64>)> {
        const DOING: &str = "send edges";
        let request = EdgeIndexRequest { edge_type: named(edge_type), layout: layout.to_string() };
        let call = |mut service: Service, request| async move { service.edge_index(request).await };
        let add = move |arrays: &mut (Vec<u64>, Vec<u64>), part: EdgeIndexResponse| {
            Ok(grow(&mut arrays.0, part.first, "numbers", first)?
                + grow(&mut arrays.1, part.second, "numbers", second)?)
        };
        // Tried first, so that nothing is sent that there is no memory for.
        drop(room::<u64>("numbers", first.saturating_add(second))?);
        let arrays = self.read(DOING, request, call, add)?;
        expect(DOING, "numbers", arrays.0.len() as u64, first)?;
        expect(DOING, "numbers", arrays.1.len() as u64, second)?;
        Ok(arrays)
    }

    /// How many edges of a type some nodes have, or all of them: `out` counts edges that begin at a node, `in` those that end
    /// there.
    pub fn degrees(
        &self,
        edge_type: Option<&EdgeTypeName>,
        direction: Direction,
        ids: Option<&[u64]>,
    ) -> Result<Vec<u64>> {
        const DOING: &str = "count edges";
        let info = self.edge_type(edge_type)?;
        let owner = self.manifest().node_type(info.name.list_owner(direction))?;
        let request = DegreesRequest {
            edge_type: named(edge_type),
            direction: direction.to_string(),
            ids: Vec::new(),
            all: ids.is_none(),
        };
        let read = |request, count: u64| {
            let call = |mut service: Service, request| async move { service.degrees(request).await };
            let add = move |all: &mut Vec<u64>, part: DegreesResponse| grow(all, part.degrees, "degrees", count);
            drop(room::<u64>("degrees", count)?);
            let found = self.read(DOING, request, call, add)?;
            expect(DOING, "degrees", found.len() as u64, count)?;
            Ok::<_, Error>(found)
        };
        let Some(ids) = ids else { return read(request, self.manifest().node_types[owner].count) };
        let mut degrees = Vec::with_capacity(ids.len());
        for ids in pieces(ids) {
            degrees.extend(read(DegreesRequest { ids: ids.to_vec(), ..request.clone() }, ids.len() as u64)?);
        }
        Ok(degrees)
    }
}
