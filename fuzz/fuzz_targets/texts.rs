//! No text that somebody hands in makes its reader panic, and what is read as an address, a key or a configuration means the
//! same when it is written and read again.

#![no_main]
#![allow(dead_code)]

use std::fmt::{Debug, Display};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use graphmill_client::{EdgeLayout, Servers, State};
use graphmill_graph::{Dataset, Direction, EdgeTypeName, Split};
use graphmill_net::{Endpoint, Token};
use graphmill_objects::{Config as ObjectsConfig, Key, ObjectId, ServerConfig};
use graphmill_rendezvous::etcd::EtcdUrl;
use graphmill_rendezvous::{Target, check_run};
use graphmill_sample::{Config, Plan, SeedOrder};
use graphmill_testing::{Assignment, sample, tempdir, write};
use libfuzzer_sys::fuzz_target;
use settings::Settings;
use tokio::runtime::Runtime;

/// What the settings of a server expect at the root of the command line's crate.
#[path = "../../crates/graphmill/src/terminal"]
mod terminal {
    pub(crate) mod logs;
    pub(crate) mod numbers;
}
#[path = "../../crates/graphmill/src/commands/serve/settings.rs"]
mod settings;

/// What is read is written so that it is read as the same.
fn survives<T: FromStr + Display + PartialEq + Debug>(text: &str) {
    let Ok(read) = text.parse::<T>() else { return };
    let written = read.to_string();
    match written.parse::<T>() {
        Ok(again) => assert_eq!(again, read, "`{text}` was written as `{written}`"),
        Err(_) => panic!("`{text}` was written as `{written}`, which cannot be read"),
    }
}

/// A sampler's configuration is refused, or is a plan that samples.
fn sampler(text: &str) {
    static DATASET: OnceLock<Dataset> = OnceLock::new();
    let Ok(config) = serde_json::from_str::<Config>(text) else { return };
    let written = serde_json::to_string(&config).unwrap();
    assert_eq!(serde_json::from_str::<Config>(&written).unwrap(), config);
    let dataset = DATASET.get_or_init(|| {
        let (graph, folder) = (sample(), tempdir());
        let path = folder.path().join("dataset");
        write(&graph, &path, &[Direction::Out, Direction::In], &Assignment::whole(&graph)).unwrap();
        Dataset::open(&path).unwrap()
    });
    let here = Plan::new(config.clone(), dataset);
    let there = Plan::remote(config, dataset.manifest());
    assert_eq!(here.is_ok(), there.is_ok(), "both ends of a loader agree on `{text}`");
}

/// Names of files are not followed: they are not a part of the text.
fn names_files(text: &str) -> bool {
    ["file", "tls", "state", "cache"].iter().any(|word| text.contains(word))
}

thread_local! {
    static FILE: PathBuf = std::env::temp_dir().join(format!("graphmill-fuzz-{}.toml", std::process::id()));
    static RUNTIME: Runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
}

fn serve(text: &str) {
    FILE.with(|path| {
        std::fs::write(path, text).unwrap();
        let read = Settings::default().or_file(path);
        std::fs::remove_file(path).unwrap();
        let Ok(settings) = read else { return };
        let _ = (settings.drain(), settings.exit_when_idle(), settings.meets());
        if names_files(text) {
            return;
        }
        let opened: graphmill_server::OpenPartitions = Arc::new(|_, _| Err("not here".to_owned()));
        RUNTIME.with(|runtime| {
            let _inside = runtime.enter();
            let _ = settings.options(opened);
        });
    });
}

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    survives::<Key>(text);
    survives::<ObjectId>(text);
    survives::<Endpoint>(text);
    survives::<EdgeTypeName>(text);
    survives::<Split>(text);
    let _ = (text.parse::<Target>(), text.parse::<EtcdUrl>(), text.parse::<SeedOrder>(), text.parse::<EdgeLayout>());
    let _ = (check_run(text), Servers::parse(&text.split(' ').collect::<Vec<_>>()), Token::new(text));
    if let Ok(config) = ObjectsConfig::from_json(text) {
        assert_eq!(ObjectsConfig::from_json(&config.to_json()).unwrap().to_json(), config.to_json());
    }
    if let Ok(config) = ServerConfig::from_json(text) {
        assert_eq!(ServerConfig::from_json(&config.to_json()).unwrap().to_json(), config.to_json());
    }
    if let Ok(state) = serde_json::from_str::<State>(text) {
        assert_eq!(serde_json::from_str::<State>(&serde_json::to_string(&state).unwrap()).unwrap(), state);
    }
    sampler(text);
    serve(text);
});
