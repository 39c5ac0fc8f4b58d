//! What the graph is.

use std::sync::Arc;

use graphmill_sample::law;
use graphmill_wire::proto::{DescribeResponse, EdgeType};

use super::aside;
use crate::Refusal;
use crate::cluster::Cluster;

pub(super) async fn describe(cluster: &Cluster) -> Result<DescribeResponse, Refusal> {
    let dataset = Arc::clone(&cluster.lineup().dataset);
    aside(move || {
        let manifest = dataset.manifest();
        let text = String::from_utf8(manifest.render());
        let edge_type = |name: &graphmill_graph::EdgeTypeName| EdgeType {
            src: name.src.clone(),
            relation: name.relation.clone(),
            dst: name.dst.clone(),
        };
        let (mut node_types, mut edge_types) = (Vec::new(), Vec::new());
        if !manifest.homogeneous {
            node_types.extend(manifest.node_types.iter().map(|info| info.name.clone()));
            edge_types.extend(manifest.edge_types.iter().map(|info| edge_type(&info.name)));
        }
        Ok(DescribeResponse {
            manifest: text.map_err(|error| Refusal::internal(format!("the manifest is no text: {error}")))?,
            fingerprint: dataset.fingerprint().to_string(),
            law: law::VERSION,
            parts: dataset.parts(),
            partitions: dataset.partitions().map(|(number, _)| number).collect(),
            node_types,
            edge_types,
            edge_dir: manifest.edge_dir.to_string(),
        })
    })
    .await
}
