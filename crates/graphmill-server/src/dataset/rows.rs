//! Rows of features and labels.

use std::sync::Arc;

use graphmill_graph::{Dataset, FeatureInfo};
use graphmill_sample::Source;
use graphmill_wire::proto::rows_request::Of;
use graphmill_wire::proto::{RowsRequest, RowsResponse};
use tonic::Response;

use super::aside::step_aside;
use super::parts::{BYTES, Parts, bound, parts, stretches};
use super::{aside, check};
use crate::Refusal;
use crate::cluster::Cluster;

/// Bytes of rows, and rows, that are gathered at once.
const GATHERED: (usize, usize) = (bound(4 << 20, 64), bound(1 << 20, 9));

pub(super) async fn rows(
    cluster: &Arc<Cluster>,
    request: RowsRequest,
) -> Result<Response<Parts<RowsResponse>>, Refusal> {
    let cluster = Arc::clone(cluster);
    let Wanted { source, info, kind, name } = wanted(&cluster.dataset, request.of)?;
    let (count, ids) = (cluster.book(source)?.count(), request.ids);
    let ids = aside(move || check::ids(kind, &name, count, &ids).map(|()| ids)).await?;
    let row_bytes = info.row_bytes().unwrap_or(1).max(1) as usize;
    let at_once = (GATHERED.0 / row_bytes).clamp(1, GATHERED.1);
    Ok(parts(|parts| async move {
        parts.send(RowsResponse { dtype: info.dtype.to_string(), row_shape: info.shape, rows: Vec::new() }).await?;
        for places in stretches(ids.len(), at_once) {
            let (cluster, ids) = (Arc::clone(&cluster), ids[places].to_vec());
            let rows = step_aside(async move { cluster.rows(source, &ids).await }).await?;
            for bytes in rows.chunks(BYTES) {
                parts.send(RowsResponse { rows: bytes.to_vec(), ..RowsResponse::default() }).await?;
            }
        }
        Ok(())
    }))
}

/// What is gathered, and words for messages.
struct Wanted {
    source: Source,
    info: FeatureInfo,
    kind: &'static str,
    name: String,
}

fn wanted(dataset: &Dataset, of: Option<Of>) -> Result<Wanted, Refusal> {
    match of {
        None => Err(Refusal::invalid("rows of what? name a feature of nodes, a feature of edges or the label")),
        Some(Of::NodeFeature(asked)) => {
            let node_type = check::node_type(dataset, asked.node_type.as_deref())?;
            let info = &dataset.node_types()[node_type];
            let feature = check::feature(&info.features, &asked.name)?;
            let source = Source::Node { node_type, feature };
            Ok(Wanted { source, info: info.features[feature].clone(), kind: "node", name: info.name.clone() })
        }
        Some(Of::NodeLabel(asked)) => {
            let node_type = check::node_type(dataset, asked.node_type.as_deref())?;
            let info = &dataset.node_types()[node_type];
            let label =
                info.label.ok_or_else(|| Refusal::invalid(format!("nodes of `{}` have no label", info.name)))?;
            let source = Source::Label { node_type };
            Ok(Wanted { source, info: label.as_feature(), kind: "node", name: info.name.clone() })
        }
        Some(Of::EdgeFeature(asked)) => {
            let edge_type = check::edge_type(dataset, asked.edge_type)?;
            let info = &dataset.edge_types()[edge_type];
            let feature = check::feature(&info.features, &asked.name)?;
            let source = Source::Edge { edge_type, feature };
            Ok(Wanted { source, info: info.features[feature].clone(), kind: "edge", name: info.name.to_string() })
        }
    }
}
