//! A sampler's configuration at work, shared by all channels that ask for it.

use std::time::{Duration, Instant};

use graphmill_sample::Plan;
use serde_json::Value;

use crate::Refusal;
use crate::machinery::Machinery;
use crate::sync::{Arc, Mutex, lock};

/// A backend.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) id: u64,
    pub(crate) run: String,
    pub(crate) key: String,
    pub(crate) config: Value,
    pub(crate) plan: Arc<Plan>,
    /// What makes no batch now.
    resting: Mutex<Vec<Machinery>>,
    use_of: Mutex<Use>,
}

#[derive(Debug)]
struct Use {
    channels: usize,
    batches: usize,
    /// No further channel: the last one closed, or nobody has used it for a lease.
    closing: bool,
    last: Instant,
}

impl Backend {
    pub(crate) fn new(id: u64, run: String, key: String, config: Value, plan: Plan) -> Self {
        tracing::info!(backend = id, run, key, "backend made");
        let use_of = Use { channels: 0, batches: 0, closing: false, last: Instant::now() };
        Self { id, run, key, config, plan: Arc::new(plan), resting: Mutex::default(), use_of: Mutex::new(use_of) }
    }

    /// Fails, with the difference, unless a configuration is this one.
    pub(crate) fn check(&self, config: &Value) -> Result<(), Refusal> {
        match difference(&self.config, config) {
            None => Ok(()),
            Some(difference) => Err(Refusal::mismatch(format!(
                "backend `{}` has another configuration: {difference}; use the same one, or another key",
                self.key
            ))),
        }
    }

    /// What has rested since it made a batch, or is new.
    pub(crate) fn machinery(&self) -> Machinery {
        lock(&self.use_of).batches += 1;
        let rested = lock(&self.resting).pop();
        rested.unwrap_or_else(|| Machinery::new(&self.plan))
    }

    pub(crate) fn rest(&self, machinery: Machinery) {
        lock(&self.resting).push(machinery);
    }

    /// Bytes that what rests holds.
    pub(crate) fn scratch_bytes(&self) -> usize {
        lock(&self.resting).iter().map(Machinery::scratch_bytes).sum()
    }

    pub(crate) fn channels(&self) -> usize {
        lock(&self.use_of).channels
    }

    pub(super) fn touch(&self) {
        lock(&self.use_of).last = Instant::now();
    }

    /// Fails, for now, if it is being torn down.
    pub(super) fn check_open(&self) -> Result<(), Refusal> {
        if lock(&self.use_of).closing {
            return Err(Refusal::unavailable(format!(
                "backend `{}` is being torn down; try again in a moment",
                self.key
            )));
        }
        Ok(())
    }

    /// Closes a backend that nobody has used for a lease, so that it can be forgotten; says whether it did. Who has found it
    /// before cannot open a channel on it any more.
    pub(super) fn close_unused(&self, lease: Duration) -> bool {
        let mut used = lock(&self.use_of);
        let unused = used.channels == 0 && used.batches == 0 && used.last.elapsed() > lease;
        used.closing |= unused;
        unused
    }

    /// Whether there may be another channel; counts it.
    pub(super) fn add_channel(&self) -> bool {
        let mut used = lock(&self.use_of);
        if !used.closing {
            used.channels += 1;
        }
        !used.closing
    }

    /// Whether that was the last and nothing is under way, so that the backend can be forgotten.
    pub(super) fn remove_channel(&self) -> bool {
        let mut used = lock(&self.use_of);
        used.channels -= 1;
        used.last = Instant::now();
        used.closing = used.channels == 0;
        used.closing && used.batches == 0
    }

    /// Whether that was the last thing that a closing backend waited for.
    pub(super) fn batch_ended(&self) -> bool {
        let mut used = lock(&self.use_of);
        used.batches -= 1;
        used.closing && used.batches == 0
    }
}

/// What differs between two configurations, in words; nothing if they are equal.
fn difference(ours: &Value, theirs: &Value) -> Option<String> {
    let mut differences = Vec::new();
    compare("", ours, theirs, &mut differences);
    (!differences.is_empty()).then(|| differences.join(", "))
}

fn compare(path: &str, ours: &Value, theirs: &Value, differences: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let names: std::collections::BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
            for name in names {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let (ours, theirs) = (ours.get(name).unwrap_or(&Value::Null), theirs.get(name).unwrap_or(&Value::Null));
                compare(&path, ours, theirs, differences);
            }
        }
        _ if ours == theirs => {}
        _ => differences.push(format!("{path} is {ours} there and {theirs} here")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_difference_names_each_part_that_differs() {
        let ours = json!({"seed": 1, "expand": {"neighbors": {"fanouts": [15, 10]}}, "labels": true});
        assert_eq!(difference(&ours, &ours), None);
        let theirs = json!({"seed": 1, "expand": {"neighbors": {"fanouts": [10]}}});
        let found = difference(&ours, &theirs).unwrap();
        assert_eq!(
            found,
            "expand.neighbors.fanouts is [15,10] there and [10] here, labels is true there and null here"
        );
    }
}
