//! A batch as a person wants to see it: how much of what, hop by hop, and how long it took.

use std::time::Duration;

use graphmill_sample::{Batch, Expand, Field, Times};

use super::drawing;
use crate::terminal::numbers;
use crate::terminal::table::{self, Column, Sheet};

/// How long things took.
pub(super) struct Clock {
    pub(super) opened: Duration,
    pub(super) sampled: Duration,
    pub(super) times: Times,
}

pub(super) fn render(batch: &Batch, clock: &Clock) -> String {
    let mut parts = vec![summary(batch, clock), hops(batch)];
    if let Expand::Ppr(_) = batch.plan().config().expand {
        parts.push(ranking(batch));
    }
    parts.extend(pairs(batch));
    parts.extend(drawing::draw(batch));
    parts.join("\n\n")
}

fn summary(batch: &Batch, clock: &Clock) -> String {
    let Clock { opened, sampled, times } = *clock;
    let id = batch.id();
    let milliseconds = |time: Duration| format!("{:.2} ms", 1e3 * time.as_secs_f64());
    table::of_facts([
        ("batch", format!("{} of epoch {}, random seed {}", id.g, id.epoch, batch.plan().config().seed)),
        ("seeds", format!("{} ({} asked for)", batch.batch_size(), batch.ints(Field::Seed).len())),
        ("nodes", numbers::count(batch.num_nodes() as u64)),
        ("edges", numbers::count(batch.num_edges() as u64)),
        ("size", numbers::bytes(batch.bytes().len() as u64)),
        (
            "time",
            format!(
                "open {}, sample {} (draw {}, renumber {}, assemble {}, gather {})",
                milliseconds(opened),
                milliseconds(sampled),
                milliseconds(times.draw),
                milliseconds(times.renumber),
                milliseconds(times.assemble),
                milliseconds(times.gather),
            ),
        ),
    ])
}

/// Nodes and edges per hop, a row per type.
fn hops(batch: &Batch) -> String {
    let mut sheet =
        Sheet::new([Column::Text("type"), Column::Number("seeds"), Column::Text("hops"), Column::Number("all")]);
    let list =
        |numbers: &[i64]| numbers.iter().map(|&number| numbers::count(number as u64)).collect::<Vec<_>>().join(" + ");
    for (place, name) in batch.plan().node_types().enumerate() {
        if let [seeds, hops @ ..] = batch.ints(Field::NumSampledNodes(place)) {
            let all = batch.ints(Field::Node(place)).len() as u64;
            sheet.add([format!("{name} nodes"), numbers::count(*seeds as u64), list(hops), numbers::count(all)]);
        }
    }
    for (place, name) in batch.plan().walked().enumerate() {
        let all = batch.ints(Field::Row(place)).len() as u64;
        let hops = list(batch.ints(Field::NumSampledEdges(place)));
        sheet.add([format!("{name} edges"), table::NOTHING.to_owned(), hops, numbers::count(all)]);
    }
    sheet.render()
}

/// The first nodes of highest personalised `PageRank`.
fn ranking(batch: &Batch) -> String {
    const SHOWN: usize = 20;
    let mut sheet = Sheet::new([
        Column::Number("seed"),
        Column::Text("type"),
        Column::Number("node"),
        Column::Number("score"),
        Column::Number("hop"),
    ]);
    let names: Vec<&str> = batch.plan().node_types().collect();
    for (from, to) in (0..names.len()).flat_map(|from| (0..names.len()).map(move |to| (from, to))) {
        let (index, hops) = (batch.ints(Field::PprIndex(from, to)), batch.ints(Field::PprHop(from, to)));
        let scores = batch.tensor(Field::PprScore(from, to)).map(|tensor| tensor.bytes).unwrap_or_default();
        let scores = scores.chunks_exact(8).map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap_or_default()));
        let (seeds, nodes) = index.split_at(index.len() / 2);
        let (seed_ids, ids) = (batch.ints(Field::Node(from)), batch.ints(Field::Node(to)));
        for (((&seed, &node), score), hop) in seeds.iter().zip(nodes).zip(scores).zip(hops).take(SHOWN) {
            let (seed, node) = (seed_ids[seed as usize], ids[node as usize]);
            let name = names[to].to_owned();
            sheet.add([seed.to_string(), name, node.to_string(), format!("{score:.6}"), hop.to_string()]);
        }
    }
    sheet.render()
}

/// What the task added.
fn pairs(batch: &Batch) -> Option<String> {
    let mut facts = Vec::new();
    if batch.tensor(Field::EdgeLabelIndex).is_some() {
        facts.push(("pairs", numbers::count(batch.ints(Field::EdgeLabel).len() as u64)));
    }
    if batch.tensor(Field::SrcIndex).is_some() {
        let negatives = batch.ints(Field::DstNegIndex).len() as u64;
        facts.push(("negatives", numbers::count(negatives)));
    }
    if let [missing] = batch.ints(Field::NegativesMissing) {
        facts.push(("negatives not found", numbers::count(*missing as u64)));
    }
    let labels = batch.layout().entries().iter().filter(|entry| matches!(entry.field, Field::LabelPairs(_)));
    let labels: Vec<String> = labels.map(|entry| numbers::count(entry.shape[1])).collect();
    if !labels.is_empty() {
        facts.push(("labels", labels.join(" + ")));
    }
    (!facts.is_empty()).then(|| table::of_facts(facts))
}
