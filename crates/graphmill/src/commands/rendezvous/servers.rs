//! The storage servers of a run, as they are shown.

use std::time::Duration;

use graphmill_wire::proto::StorageStatus;

use crate::terminal::numbers;
use crate::terminal::table::{self, Column, NOTHING, Sheet};

pub(super) fn render(storage: &StorageStatus) -> String {
    let settings = storage.settings.clone().unwrap_or_default();
    let spares = storage.servers.iter().filter(|server| server.assigned.is_empty()).count();
    let missing = match &storage.missing[..] {
        [] => "all served".to_owned(),
        missing => format!("{} not served", list(missing)),
    };
    let facts = [
        ("dataset", settings.fingerprint),
        ("partitions", format!("{}, each on {}; {missing}", settings.parts, settings.replicas)),
        ("servers", format!("{}, {spares} spare", storage.servers.len())),
    ];
    let mut sheet =
        Sheet::new([Column::Text("server"), Column::Text("assigned"), Column::Text("serves"), Column::Number("heard")]);
    for server in &storage.servers {
        let heard = numbers::duration(Duration::from_millis(server.age_ms));
        sheet.add([server.address.clone(), list(&server.assigned), list(&server.serving), format!("{heard} ago")]);
    }
    let servers = if storage.servers.is_empty() { String::new() } else { format!("\n\n{}", sheet.render()) };
    table::of_facts(facts) + &servers + "\n"
}

fn list(partitions: &[u32]) -> String {
    let numbers: Vec<_> = partitions.iter().map(ToString::to_string).collect();
    if numbers.is_empty() { NOTHING.to_owned() } else { numbers.join(", ") }
}

pub(super) fn as_json(storage: &StorageStatus) -> serde_json::Value {
    let settings = storage.settings.clone().unwrap_or_default();
    let servers = storage.servers.iter().map(|server| {
        serde_json::json!({
            "address": server.address, "incarnation": server.incarnation, "assigned": server.assigned,
            "serving": server.serving, "age_ms": server.age_ms,
        })
    });
    serde_json::json!({
        "fingerprint": settings.fingerprint, "law": settings.law, "parts": settings.parts,
        "replicas": settings.replicas, "shared_among": settings.servers, "missing": storage.missing,
        "servers": servers.collect::<Vec<_>>(),
    })
}
