//! `--lookup` and `--original-ids`: between what nodes were called in the input and their ids.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::bail;
use graphmill_graph::{Dataset, OriginalId, OriginalKind};
use serde::Serialize;

use super::Args;
use crate::terminal::output;

/// The answers, in the shape of the JSON.
#[derive(Debug, Serialize)]
struct Answers<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lookup: Vec<Found<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    original_ids: Vec<Original<'a>>,
}

#[derive(Debug, Serialize)]
struct Found<'a> {
    key: &'a str,
    id: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Original<'a> {
    id: u64,
    original: Name<'a>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Name<'a> {
    Int(i64),
    String(&'a str),
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let dataset = Dataset::open(&args.dataset)?;
    let node_type = node_type(&dataset, args.node_type.as_deref())?;
    let answers = Answers {
        lookup: lookup(&dataset, node_type, &args.lookup)?,
        original_ids: original_ids(&dataset, node_type, &args.original_ids)?,
    };
    if args.json {
        output::print_json(&answers)?;
    } else {
        output::print(&answers.lines())?;
    }
    let all_found = answers.lookup.iter().all(|found| found.id.is_some());
    Ok(if all_found { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The type asked about; a graph with one node type needs no name.
fn node_type(dataset: &Dataset, name: Option<&str>) -> anyhow::Result<usize> {
    let types = dataset.node_types();
    if name.is_none() && types.len() == 1 {
        return Ok(0);
    }
    if name.is_none() {
        let names: Vec<_> = types.iter().map(|info| info.name.as_str()).collect();
        bail!("name the node type with --type; there are: {}", names.join(", "));
    }
    Ok(dataset.resolve_node_type(name)?)
}

fn lookup<'a>(dataset: &Dataset, node_type: usize, keys: &'a [String]) -> anyhow::Result<Vec<Found<'a>>> {
    let info = &dataset.node_types()[node_type];
    let original = |key: &'a String| match info.original_ids {
        Some(OriginalKind::String) => Ok(OriginalId::String(key)),
        _ => match key.parse() {
            Ok(number) => Ok(OriginalId::Int(number)),
            Err(_) => bail!("cannot look up `{key}`: nodes of type `{}` were called by numbers", info.name),
        },
    };
    let originals = keys.iter().map(original).collect::<anyhow::Result<Vec<_>>>()?;
    let ids = dataset.lookup(node_type, &originals)?;
    Ok(keys.iter().zip(ids).map(|(key, id)| Found { key, id }).collect())
}

fn original_ids<'a>(dataset: &'a Dataset, node_type: usize, ids: &[u64]) -> anyhow::Result<Vec<Original<'a>>> {
    let names = dataset.original_ids(node_type, ids)?.into_iter().map(|original| match original {
        OriginalId::Int(number) => Name::Int(number),
        OriginalId::String(text) => Name::String(text),
    });
    Ok(ids.iter().zip(names).map(|(&id, original)| Original { id, original }).collect())
}

impl Answers<'_> {
    fn lines(&self) -> String {
        let mut lines = String::new();
        for Found { key, id } in &self.lookup {
            let id = id.map_or("not found".to_owned(), |id| id.to_string());
            let _ = writeln!(lines, "{key} -> {id}");
        }
        for Original { id, original } in &self.original_ids {
            let _ = match original {
                Name::Int(number) => writeln!(lines, "{id} -> {number}"),
                Name::String(text) => writeln!(lines, "{id} -> {text}"),
            };
        }
        lines
    }
}
