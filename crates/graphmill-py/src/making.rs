//! Datasets made from files that Python wrote.

use std::path::PathBuf;
use std::time::Duration;

use graphmill_graph::{Dataset, Replace};
use graphmill_ingest::ingest::{OnError, Options, ingest as ingest_files};
use graphmill_ingest::partition::{Method, partition};
use graphmill_ingest::{Job, Silent};
use pyo3::prelude::*;

use crate::wait::wait;

/// Memory to sort edges in.
const MEMORY: u64 = 2 << 30;

/// The time to remove what was begun in, when a signal ends the work.
const TIDYING: Duration = Duration::from_secs(2);

/// Ingests what a description names, in `folder`, to `out`; partitioned if there is to be more than one part.
#[pyfunction]
pub(crate) fn ingest(py: Python<'_>, folder: PathBuf, out: PathBuf, parts: u32) -> PyResult<()> {
    wait(py, TIDYING, move |wanted| {
        let job = Job::new(&Silent, wanted.given_up());
        let options = Options { on_error: OnError::Stop, memory: MEMORY, replace: Replace::No };
        let whole = if parts == 1 { out.clone() } else { folder.join("whole") };
        ingest_files(&folder.join("graph.toml"), &whole, &options, &job)?;
        if parts != 1 {
            let source = Dataset::open(&whole)?;
            partition(&source, parts, &Method::Ldg, &out, Replace::No, &job)?;
        }
        Ok(())
    })
}
