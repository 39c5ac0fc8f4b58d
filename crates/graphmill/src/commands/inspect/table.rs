//! The report as tables for people.

use std::fmt::Write as _;

use graphmill_graph::{EdgeRole, FeatureInfo, LabelInfo, OriginalKind};

use super::report::{EdgeTypeReport, NodeTypeReport, Report, Verification};
use crate::terminal::numbers;
use crate::terminal::table::{self, Column, NOTHING, Sheet};

/// More partitions than this are for machines to read.
const SHOWN_PARTITIONS: usize = 16;

pub(super) fn render(report: &Report) -> String {
    let mut sections = vec![facts(report), node_types(report)];
    if !report.edge_types.is_empty() {
        sections.push(edge_types(report));
    }
    if report.num_partitions > 1 {
        sections.push(partitions(report));
    }
    sections.extend(report.verified.as_ref().map(verification));
    sections.join("\n\n")
}

fn facts(report: &Report) -> String {
    let kind = if report.homogeneous { "homogeneous" } else { "heterogeneous" };
    let mut facts = vec![
        ("dataset", format!("{} ({kind})", report.name)),
        ("fingerprint", report.fingerprint.to_string()),
        ("size", format!("{} nodes, {} edges", numbers::count(report.num_nodes), numbers::count(report.num_edges))),
        ("partitions", partitioning(report)),
        ("walks", format!("{} edges by default", report.edge_dir)),
        ("bytes", format!("{} = {}", numbers::bytes(report.total_bytes), byte_parts(report))),
    ];
    facts.push(("written by", report.written_by.clone()));
    table::of_facts(facts)
}

fn partitioning(report: &Report) -> String {
    if report.num_partitions == 1 {
        return "1".to_owned();
    }
    format!(
        "{} by {}, {} edges cut ({})",
        report.num_partitions,
        report.method,
        numbers::count(report.edge_cut),
        numbers::percent(report.edge_cut, report.num_edges)
    )
}

fn byte_parts(report: &Report) -> String {
    let parts = [
        ("topology", report.topology_bytes),
        ("edge data", report.edge_data_bytes),
        ("features", report.feature_bytes),
        ("labels", report.label_bytes),
        ("books", report.book_bytes),
        ("other", report.other_bytes),
    ];
    let parts = parts.iter().filter(|(what, bytes)| *bytes > 0 || *what == "topology");
    parts.map(|(what, bytes)| format!("{what} {}", numbers::bytes(*bytes))).collect::<Vec<_>>().join(" + ")
}

fn node_types(report: &Report) -> String {
    let mut sheet = Sheet::new([
        Column::Text("node type"),
        Column::Number("nodes"),
        Column::Number("isolated"),
        Column::Text("features"),
        Column::Text("label"),
        Column::Text("splits"),
        Column::Text("weights"),
        Column::Text("timestamps"),
        Column::Text("original ids"),
    ]);
    for info in &report.node_types {
        sheet.add([
            info.name.clone(),
            numbers::count(info.count),
            info.isolated.map_or(NOTHING.to_owned(), numbers::count),
            listed(info.features.iter().map(feature), "\n"),
            info.label.as_ref().map_or(NOTHING.to_owned(), label),
            listed(splits(info), "\n"),
            if info.weights { "f32" } else { NOTHING }.to_owned(),
            if info.timestamps { "i64" } else { NOTHING }.to_owned(),
            info.original_ids.map_or(NOTHING, OriginalKind::name).to_owned(),
        ]);
    }
    sheet.render()
}

fn splits(info: &NodeTypeReport) -> impl Iterator<Item = String> {
    info.splits.iter().map(|(split, size)| format!("{split} {}", numbers::count(size)))
}

fn edge_types(report: &Report) -> String {
    let mut sheet = Sheet::new([
        Column::Text("edge type"),
        Column::Number("edges"),
        Column::Number("cut"),
        Column::Text("edges have"),
        Column::Text("lists"),
        Column::Number("min"),
        Column::Number("median"),
        Column::Number("p99"),
        Column::Number("max"),
        Column::Number("empty"),
    ]);
    let cut = |info: &EdgeTypeReport| match report.num_partitions {
        1 => NOTHING.to_owned(),
        _ => numbers::count(info.cut),
    };
    for info in &report.edge_types {
        // What concerns the type as a whole stands beside its first direction only.
        let mut about = [edge_name(info), numbers::count(info.count), cut(info), listed(edge_data(info), ", ")];
        for direction in &info.layouts {
            let [name, count, cut, data] = std::mem::take(&mut about);
            let [min, median, p99, max, empty] = match info.degrees.get(direction) {
                Some(found) => [found.min, found.median, found.p99, found.max, found.zero].map(numbers::count),
                None => [NOTHING; 5].map(str::to_owned),
            };
            sheet.add([name, count, cut, data, direction.to_string(), min, median, p99, max, empty]);
        }
    }
    sheet.render()
}

fn edge_name(info: &EdgeTypeReport) -> String {
    match info.role {
        EdgeRole::Message => info.name.to_string(),
        EdgeRole::Label => format!("{} (label)", info.name),
    }
}

fn edge_data(info: &EdgeTypeReport) -> impl Iterator<Item = String> {
    let stored = [("ids", info.edge_ids), ("weights", info.weights), ("timestamps", info.timestamps)];
    let stored = stored.into_iter().filter(|(_, stored)| *stored).map(|(what, _)| what.to_owned());
    stored.chain(info.features.iter().map(feature))
}

fn partitions(report: &Report) -> String {
    let mut sheet = Sheet::new([
        Column::Number("partition"),
        Column::Number("nodes"),
        Column::Number("edges"),
        Column::Number("bytes"),
    ]);
    for part in report.partitions.iter().take(SHOWN_PARTITIONS) {
        sheet.add([
            part.partition.to_string(),
            numbers::count(part.num_nodes),
            part.num_edges.map_or(NOTHING.to_owned(), numbers::count),
            part.bytes.map_or(NOTHING.to_owned(), numbers::bytes),
        ]);
    }
    let mut text = sheet.render();
    if report.partitions.len() > SHOWN_PARTITIONS {
        let hidden = report.partitions.len() - SHOWN_PARTITIONS;
        let _ = write!(text, "\nand {} more; --json shows all", numbers::count(hidden as u64));
    }
    text
}

fn verification(verified: &Verification) -> String {
    let read = format!(
        "{} arrays, {} read in {}",
        numbers::count(verified.arrays),
        numbers::bytes(verified.bytes),
        numbers::duration(std::time::Duration::from_secs_f64(verified.seconds)),
    );
    if verified.ok {
        return format!("verified: {read}; checksums, structure and fingerprint are right");
    }
    let problems: Vec<_> = verified.problems.iter().map(|problem| format!("\n  {problem}")).collect();
    format!("damaged: {read}; {} found:{}", problem_count(problems.len()), problems.concat())
}

fn problem_count(number: usize) -> String {
    format!("{} {}", numbers::count(number as u64), if number == 1 { "problem" } else { "problems" })
}

/// `x f32[128]`.
fn feature(info: &FeatureInfo) -> String {
    let shape: Vec<_> = info.shape.iter().map(ToString::to_string).collect();
    if shape.is_empty() {
        return format!("{} {}", info.name, info.dtype);
    }
    format!("{} {}[{}]", info.name, info.dtype, shape.join(","))
}

/// `single i64`, `multi f32[112]`.
fn label(info: &LabelInfo) -> String {
    feature(&FeatureInfo { name: info.kind.name().to_owned(), ..info.as_feature() })
}

fn listed(items: impl Iterator<Item = String>, separator: &str) -> String {
    let items: Vec<_> = items.collect();
    if items.is_empty() { NOTHING.to_owned() } else { items.join(separator) }
}
