//! How a running job shows itself on stderr: bars on a terminal, a few plain lines elsewhere, nothing when asked.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use graphmill_ingest::{Observer, Silent, StageObserver, Unit};
use indicatif::{MultiProgress, ProgressBar, ProgressState, ProgressStyle};

use super::{numbers, output};

/// How often a stage that goes on and on says so in plain lines.
const PLAIN_INTERVAL: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_millis(100);
const NAME_WIDTH: usize = 24;

/// Shows the stages of a job.
pub(crate) enum Progress {
    Bars(MultiProgress),
    Lines,
    Silent,
}

impl Progress {
    /// What suits where stderr goes.
    pub(crate) fn detect(quiet: bool) -> Self {
        if quiet {
            Self::Silent
        } else if std::io::stderr().is_terminal() {
            Self::Bars(MultiProgress::new())
        } else {
            Self::Lines
        }
    }
}

impl Observer for Progress {
    fn begin(&self, name: &str, unit: Unit, total: Option<u64>) -> Box<dyn StageObserver> {
        match self {
            Self::Bars(screen) => Box::new(Bar::new(screen.clone(), name, unit, total)),
            Self::Lines => Box::new(Lines::new(name, unit, total)),
            Self::Silent => Box::new(Silent),
        }
    }
}

/// A stage on a terminal; it leaves one line behind.
struct Bar {
    screen: MultiProgress,
    shown: ProgressBar,
    name: String,
    unit: Unit,
}

impl Bar {
    fn new(screen: MultiProgress, name: &str, unit: Unit, total: Option<u64>) -> Self {
        let bar = screen.add(total.map_or_else(ProgressBar::new_spinner, ProgressBar::new));
        bar.set_style(style(unit, total.is_some()));
        bar.set_message(name.to_owned());
        bar.enable_steady_tick(TICK);
        Self { screen, shown: bar, name: name.to_owned(), unit }
    }
}

impl StageObserver for Bar {
    fn advance(&self, by: u64) {
        self.shown.inc(by);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        // Finishing a bar moves it to its end, which a stage that was stopped has not reached.
        let ended = ended(self.unit, self.shown.position(), self.shown.elapsed());
        self.shown.finish_and_clear();
        self.screen.remove(&self.shown);
        self.screen.suspend(|| output::note(&format!("  {:NAME_WIDTH$} {ended}", self.name)));
    }
}

fn style(unit: Unit, bounded: bool) -> ProgressStyle {
    let template = if bounded {
        "{spinner} {msg:24} {wide_bar} {percent:>3}% {done}, {rate}, {eta} left"
    } else {
        "{spinner} {msg:24} {done}, {rate}"
    };
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("━╸─")
        .with_key("done", move |state: &ProgressState, text: &mut dyn std::fmt::Write| {
            let _ = text.write_str(&amount(unit, state.pos()));
        })
        .with_key("rate", move |state: &ProgressState, text: &mut dyn std::fmt::Write| {
            let _ = match unit {
                Unit::Bytes => text.write_str(&rate(unit, state.per_sec())),
                _ => write!(text, "{}/s", numbers::approximate(state.per_sec())),
            };
        })
}

/// A stage in plain lines.
struct Lines {
    name: String,
    unit: Unit,
    total: Option<u64>,
    done: AtomicU64,
    began: Instant,
    spoke: Mutex<Instant>,
}

impl Lines {
    fn new(name: &str, unit: Unit, total: Option<u64>) -> Self {
        let began = Instant::now();
        output::note(&match total {
            Some(total) => format!("{name}: begins, {}", amount(unit, total)),
            None => format!("{name}: begins"),
        });
        Self { name: name.to_owned(), unit, total, done: AtomicU64::new(0), began, spoke: Mutex::new(began) }
    }
}

impl StageObserver for Lines {
    fn advance(&self, by: u64) {
        let done = self.done.fetch_add(by, Ordering::Relaxed) + by;
        // A thread that finds another one speaking has nothing to add.
        let Ok(mut spoke) = self.spoke.try_lock() else { return };
        if spoke.elapsed() < PLAIN_INTERVAL {
            return;
        }
        *spoke = Instant::now();
        let share = self.total.map(|total| format!(" ({})", numbers::percent(done, total))).unwrap_or_default();
        let rate = rate(self.unit, numbers::rate(done, self.began.elapsed()));
        output::note(&format!("{}: {}{share}, {rate}", self.name, amount(self.unit, done)));
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let ended = ended(self.unit, self.done.load(Ordering::Relaxed), self.began.elapsed());
        output::note(&format!("{}: {ended}", self.name));
    }
}

fn ended(unit: Unit, done: u64, time: Duration) -> String {
    if done == 0 {
        return format!("done in {}", numbers::duration(time));
    }
    let rate = rate(unit, numbers::rate(done, time));
    format!("{} in {} ({rate})", amount(unit, done), numbers::duration(time))
}

fn rate(unit: Unit, per_second: f64) -> String {
    match unit {
        Unit::Bytes => format!("{}/s", numbers::bytes(per_second as u64)),
        _ => format!("{} {}/s", numbers::approximate(per_second), unit_name(unit)),
    }
}

fn amount(unit: Unit, number: u64) -> String {
    match unit {
        Unit::Bytes => numbers::bytes(number),
        _ => format!("{} {}", numbers::count(number), unit_name(unit)),
    }
}

fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Edges => "edges",
        Unit::Nodes => "nodes",
        Unit::Rows => "rows",
        Unit::Bytes => "bytes",
        Unit::Batches => "batches",
    }
}
