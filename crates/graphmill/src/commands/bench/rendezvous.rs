//! `graphmill bench rendezvous`: many members of a run, in this process, against a coordinator in another.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use graphmill_rendezvous::client::{ConnectOptions, Connection, Joined, Member, Timeouts};
use graphmill_rendezvous::{Settings, Target};
use tokio::task::JoinSet;

use crate::context::Context;
use crate::local::Process;
use crate::terminal::{numbers, output, table};

/// Measure how fast members find each other, and find each other again
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Members
    #[arg(long, value_name = "N", default_value_t = 1000)]
    members: u32,

    /// Seconds of steady heartbeats
    #[arg(long, value_name = "T", default_value_t = 5.0)]
    seconds: f64,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was measured.
#[derive(Debug, serde::Serialize)]
struct Measured {
    members: u32,
    /// From the last call to join until all have their ranks.
    join_s: f64,
    /// Keep-alives that were answered in a second, and the processor time of the coordinator for each.
    keep_alives_per_s: f64,
    coordinator_us_per_keep_alive: f64,
    killed: u32,
    /// From the moment at which the deaths are noticed until the others have their ranks again.
    reform_s: f64,
}

/// How many connections the members share; each would have its own in life, and a thousand sockets.
const SHARED: u32 = 16;
/// Members say so often that they are alive, and may miss it so many times.
const KEEP_ALIVE: Duration = Duration::from_millis(500);
const MISSED: u32 = 6;
/// The most seconds of heartbeats: a day.
const LONGEST: f64 = 86_400.0;

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<ExitCode> {
    anyhow::ensure!((2..=50_000).contains(&args.members), "--members is {}, expected 2 to 50000", args.members);
    anyhow::ensure!((1.0..=LONGEST).contains(&args.seconds), "--seconds is {}, expected 1 to {LONGEST}", args.seconds);
    let arguments = ["rendezvous", "serve", "--quiet", "--listen", "127.0.0.1:0", "--until-stdin-closes"];
    let mut coordinator = Process::start("the coordinator", &arguments.map(str::to_owned))?;
    let target: Target = coordinator.address()?.parse().map_err(anyhow::Error::msg)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let measured = runtime.block_on(measure(args, context, &target, coordinator.id()))?;
    coordinator.end()?;
    if args.json {
        output::print_json(&measured)?;
    } else {
        output::print(&render(&measured))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn measure(args: &Args, context: &Context, target: &Target, pid: u32) -> anyhow::Result<Measured> {
    let count = args.members;
    let killed = (count / 10).max(1);
    let settings = Settings {
        keep_alive: KEEP_ALIVE,
        missed: MISSED,
        last_call: Duration::from_millis(200),
        expected: None,
        ..Settings::new(count - killed, count)
    };
    let options = ConnectOptions::default();
    let connections: Vec<_> =
        (0..SHARED.min(count)).map(|_| Connection::open(&target.place, &options)).collect::<Result<_, _>>()?;
    let member = |number: u32| {
        let connection = connections[(number % SHARED.min(count)) as usize].clone();
        Member::new(connection, "bench", "127.0.0.1", settings.clone(), Timeouts::default())
    };
    let members: Vec<Member> = (0..count).map(member).collect::<Result<_, _>>()?;

    context.note("joining");
    let (mut members, join_s) = join(members).await?;

    context.note("heartbeats");
    let heard = |members: &[Member]| members.iter().map(Member::heartbeats).sum::<u64>();
    let (began, before, heard_before) = (Instant::now(), processor_time(pid)?, heard(&members));
    tokio::time::sleep(Duration::from_secs_f64(args.seconds)).await;
    let spent = processor_time(pid)?.saturating_sub(before);
    let (keep_alives, time) = ((heard(&members) - heard_before) as f64, began.elapsed().as_secs_f64());
    anyhow::ensure!(keep_alives > 0.0, "no keep-alive was answered within {} s", args.seconds);

    context.note("a tenth is killed");
    // Dropped without a word, as a killed process is.
    members.truncate((count - killed) as usize);
    let status = async || connections[0].status("bench", Duration::from_secs(10)).await;
    let mut changes = connections[0].watch("bench", Duration::from_secs(10)).await?;
    loop {
        let seen = changes.message().await?.context("the coordinator is gone")?;
        if seen.members.len() == members.len() {
            break;
        }
        // Deaths within a moment of each other come one by one.
        if status().await?.members.len() == members.len() {
            break;
        }
    }
    let (_, reform_s) = join(members).await?;
    Ok(Measured {
        members: count,
        join_s,
        keep_alives_per_s: keep_alives / time,
        coordinator_us_per_keep_alive: 1e6 * spent.as_secs_f64() / keep_alives,
        killed,
        reform_s,
    })
}

/// Lets all join at once; the time from the last call to the last answer.
async fn join(members: Vec<Member>) -> anyhow::Result<(Vec<Member>, f64)> {
    let count = members.len();
    let mut joins = JoinSet::new();
    for member in members {
        joins.spawn(async move {
            let joined = member.next_rendezvous().await;
            (member, joined)
        });
    }
    let began = Instant::now();
    let mut ranks = vec![false; count];
    let mut back = Vec::with_capacity(count);
    while let Some(joined) = joins.join_next().await {
        let (member, joined) = joined?;
        let Joined { rank, world_size, .. } = joined?;
        anyhow::ensure!(world_size as usize == count, "a round of {world_size} was formed, expected {count}");
        ranks[rank as usize] = true;
        back.push(member);
    }
    anyhow::ensure!(ranks.iter().all(|&given| given), "a rank was not given");
    Ok((back, began.elapsed().as_secs_f64()))
}

/// What a process has had of the processor.
fn processor_time(pid: u32) -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("cannot see the coordinator")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |place: usize| fields.get(place).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    // The 14th and 15th fields, of which the first two stand before the last bracket; a tick is a hundredth of a second.
    Ok(Duration::from_millis(10 * (ticks(11) + ticks(12))))
}

fn render(measured: &Measured) -> String {
    let seconds = |time: f64| numbers::duration(Duration::from_secs_f64(time));
    table::of_facts([
        ("members", measured.members.to_string()),
        ("join", format!("{} after the last arrival", seconds(measured.join_s))),
        (
            "heartbeats",
            format!(
                "{} a second, {:.1} us of the coordinator each",
                numbers::count(measured.keep_alives_per_s as u64),
                measured.coordinator_us_per_keep_alive
            ),
        ),
        ("re-form", format!("{} after {} deaths were noticed", seconds(measured.reform_s), measured.killed)),
    ]) + "\n"
}
