//! `graphmill objects ls`: what a server holds.

use std::process::ExitCode;

use graphmill_objects::{Entry, Key};

use super::connect::ConnectArgs;
use crate::terminal::table::{Column, Sheet};
use crate::terminal::{numbers, output};

/// Entries that are asked for at a time.
const PAGE: usize = 5000;

/// List objects
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The most to list
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    limit: usize,

    /// Print keys alone, one a line
    #[arg(long, conflicts_with = "json")]
    keys: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connect: ConnectArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let connector = args.connect.connect()?;
    let mut objects: Vec<(Key, Entry)> = Vec::new();
    while objects.len() < args.limit {
        let after = objects.last().map(|(key, _)| key.id);
        let page = connector.list(after, PAGE.min(args.limit - objects.len()))?;
        if page.is_empty() {
            break;
        }
        for entry in page {
            objects.push((connector.key_of(&entry)?, entry));
        }
    }
    if args.json {
        output::print_json(&objects.iter().map(json).collect::<Vec<_>>())?;
    } else if args.keys {
        let keys: Vec<String> = objects.iter().map(|(key, _)| key.to_string()).collect();
        if !keys.is_empty() {
            output::print(&keys.join("\n"))?;
        }
    } else if !objects.is_empty() {
        output::print(&render(&objects))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn render(objects: &[(Key, Entry)]) -> String {
    let mut sheet = Sheet::new([
        Column::Text("id"),
        Column::Number("size"),
        Column::Number("age"),
        Column::Number("expires in"),
        Column::Number("readers"),
    ]);
    for (key, entry) in objects {
        sheet.add([
            key.id.to_string(),
            numbers::bytes(entry.bytes),
            entry.age.map(numbers::duration).unwrap_or_default(),
            entry.expires.map(numbers::duration).unwrap_or_default(),
            entry.readers.filter(|&readers| readers > 0).map(|readers| readers.to_string()).unwrap_or_default(),
        ]);
    }
    sheet.render()
}

fn json((key, entry): &(Key, Entry)) -> serde_json::Value {
    serde_json::json!({
        "id": key.id.to_string(), "key": key.to_string(), "bytes": entry.bytes,
        "age_s": entry.age.map(|age| age.as_secs_f64()), "expires_s": entry.expires.map(|time| time.as_secs_f64()),
        "readers": entry.readers,
    })
}
