//! Writes what a machine has found into a batch's buffer: every tensor once, in its final form.

use std::ops::Range;

use super::layout::{Field, Layout};
use crate::machine::{EdgeSpace, MISSING, Machine};
use crate::places::{LARGE, widen, widen_past_caches};
use crate::plan::{Plan, TaskPlan, TensorPlan};
use crate::view::{Gather, Source};
use crate::{Error, Result};

/// How rows of which none is missing are written.
type Widen = fn(&mut [i64], &[u32]);

/// What stands for a row that is missing.
const NO_ROW: i64 = -1;

impl Layout {
    /// Writes everything but features and labels into a buffer of the layout's size; [`Self::gathers`] says what is left.
    ///
    /// # Errors
    /// When the buffer is too small or not aligned.
    pub fn write(&self, plan: &Plan, machine: &Machine, buffer: &mut [u8]) -> Result<()> {
        let mut rest = buffer
            .get_mut(..self.bytes())
            .ok_or_else(|| Error::answer(format!("a batch of {} bytes has too small a buffer", self.bytes())))?;
        let widen: Widen = if self.bytes() >= LARGE { widen_past_caches } else { widen };
        for (index, entry) in self.entries().iter().enumerate() {
            let end = self.entries().get(index + 1).map_or(self.bytes(), |next| next.offset);
            let (section, behind) = rest.split_at_mut(end - entry.offset);
            let (tensor, padding) = section.split_at_mut(entry.bytes);
            rest = behind;
            padding.fill(0);
            if rows(plan, machine, entry.field).is_none() {
                fill(plan, machine, entry.field, tensor, widen)?;
            }
        }
        Ok(())
    }

    /// The rows of features and labels that belong into the buffer, each with its place there.
    pub fn gathers<'a>(
        &'a self,
        plan: &Plan,
        machine: &'a Machine,
    ) -> impl Iterator<Item = (Gather<'a>, Range<usize>)> {
        self.entries().iter().filter_map(move |entry| {
            Some((rows(plan, machine, entry.field)?, entry.offset..entry.offset + entry.bytes))
        })
    }
}

/// The rows that a field gathers, if it does.
fn rows<'a>(plan: &Plan, machine: &'a Machine, field: Field) -> Option<Gather<'a>> {
    match field {
        Field::Feature(node_type, feature) => {
            let TensorPlan { place: feature, half, .. } = plan.nodes[node_type].features[feature];
            let ids = machine.nodes[node_type].locals.nodes();
            Some(Gather { source: Source::Node { node_type, feature }, half, ids })
        }
        Field::Label(node_type) => {
            let ids = machine.nodes[node_type].locals.nodes();
            Some(Gather { source: Source::Label { node_type }, half: false, ids })
        }
        Field::EdgeFeature(walk, feature) => {
            let TensorPlan { place: feature, half, .. } = plan.walks[walk].features[feature];
            let edge_type = plan.walks[walk].edge_type;
            Some(Gather { source: Source::Edge { edge_type, feature }, half, ids: &machine.edges[walk].edge_ids })
        }
        _ => None,
    }
}

fn fill(plan: &Plan, machine: &Machine, field: Field, tensor: &mut [u8], widen: Widen) -> Result<()> {
    if let Field::PprScore(seed_type, node_type) = field {
        if let Some(ranked) = machine.ranking().of(seed_type, node_type) {
            tensor.copy_from_slice(bytemuck::cast_slice(&ranked.scores));
        }
        return Ok(());
    }
    let out: &mut [i64] = bytemuck::try_cast_slice_mut(tensor)
        .map_err(|_| Error::answer("the buffer is not aligned for 64-bit numbers"))?;
    let links = &machine.links;
    match field {
        Field::Seed => write_ids(out, &machine.seeds),
        Field::SeedIndex => write_rows(out, &machine.seed_rows),
        Field::Node(node_type) => write_ids(out, machine.nodes[node_type].locals.nodes()),
        Field::NumSampledNodes(node_type) => write_steps(out, &machine.nodes[node_type].bounds),
        Field::Row(walk) => widen(out, &machine.edges[walk].rows),
        Field::Col(walk) => write_expanded(out, &machine.edges[walk], widen),
        Field::Edge(walk) => write_ids(out, &machine.edges[walk].edge_ids),
        Field::NumSampledEdges(walk) => write_steps(out, &machine.edges[walk].bounds),
        Field::EdgeLabelIndex => {
            let (src, dst) = out.split_at_mut(out.len() / 2);
            write_both(src, &links.src_rows, &links.negative_src_rows);
            write_both(dst, &links.dst_rows, &links.negative_dst_rows);
        }
        Field::EdgeLabel => {
            let negatives = matches!(&plan.task, TaskPlan::Links(links) if links.negatives.is_some());
            let (positive, negative) = out.split_at_mut(links.src_rows.len());
            negative.fill(0);
            match &links.classes {
                None => positive.fill(1),
                Some(classes) => positive.copy_from_slice(classes),
            }
            if negatives && links.classes.is_some() {
                for class in positive {
                    *class = class.wrapping_add(1);
                }
            }
        }
        Field::SrcIndex => write_rows(out, &links.src_rows),
        Field::DstPosIndex => write_rows(out, &links.dst_rows),
        Field::DstNegIndex => write_rows(out, &links.negative_dst_rows),
        Field::NegativesMissing => out.fill(links.missing as i64),
        Field::LabelPairs(place) => {
            let pairs = &machine.labels[place];
            write_both(out, &pairs.anchors, &pairs.labels);
        }
        Field::PprIndex(seed_type, node_type) => {
            if let Some(ranked) = machine.ranking().of(seed_type, node_type) {
                write_both(out, &ranked.seeds, &ranked.nodes);
            }
        }
        Field::PprHop(seed_type, node_type) => {
            if let Some(ranked) = machine.ranking().of(seed_type, node_type) {
                out.copy_from_slice(&ranked.hops);
            }
        }
        Field::PprScore(..) | Field::Feature(..) | Field::Label(_) | Field::EdgeFeature(..) => {}
    }
    Ok(())
}

fn write_ids(out: &mut [i64], ids: &[u64]) {
    out.copy_from_slice(bytemuck::cast_slice(ids));
}

fn write_rows(out: &mut [i64], rows: &[u32]) {
    for (out, &row) in out.iter_mut().zip(rows) {
        *out = if row == MISSING { NO_ROW } else { row.into() };
    }
}

fn write_both(out: &mut [i64], first: &[u32], second: &[u32]) {
    let (one, two) = out.split_at_mut(first.len());
    write_rows(one, first);
    write_rows(two, second);
}

/// Differences of running totals.
fn write_steps(out: &mut [i64], bounds: &[usize]) {
    let mut before = 0;
    for (out, &bound) in out.iter_mut().zip(bounds) {
        *out = (bound - before) as i64;
        before = bound;
    }
}

/// The row of each expanded node, as often as it has edges.
///
/// How many that is cannot be foreseen, so a few are written as if they were as many as few may be; those of the next node
/// are written over what was too much. That is done in a block that stays in the nearest cache.
fn write_expanded(out: &mut [i64], edges: &EdgeSpace, widen: Widen) {
    const FEW: usize = 16;
    const BLOCK: usize = 1024;
    let expanded = edges.expanded.iter().cloned().flatten();
    let (mut block, mut filled, mut rest) = ([0; BLOCK + FEW], 0, out);
    for (row, &count) in expanded.zip(&edges.counts) {
        let (row, mut left) = (row as u32, count as usize);
        loop {
            let now = left.min(FEW);
            if let Some(few) = block[filled..].first_chunk_mut::<FEW>() {
                few.fill(row);
            }
            (filled, left) = (filled + now, left - now);
            if filled >= BLOCK {
                let (full, behind) = rest.split_at_mut(BLOCK);
                widen(full, &block[..BLOCK]);
                block.copy_within(BLOCK..filled, 0);
                (filled, rest) = (filled - BLOCK, behind);
            }
            if left == 0 {
                break;
            }
        }
    }
    widen(rest, &block[..filled]);
}
