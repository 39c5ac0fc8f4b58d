//! Which servers have which partitions, as far as they said: where a batch of one partition is best asked for. What is wrong or
//! missing here costs traffic between servers, and nothing else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Remote;
use super::control::partitions;
use super::member::Member;

/// How long servers may take to say what they have, and to be connected.
const TELLING: Duration = Duration::from_secs(2);

/// Asks the servers that did not say, all at once, and waits a little for those that answer to be connected.
pub(super) fn learn(remote: &Remote, of: impl Fn(&Member) -> bool) {
    let deadline = Instant::now() + TELLING.min(remote.options.deadline);
    let members = remote.members();
    let unknown: Vec<&Arc<Member>> = members.iter().filter(|member| !member.told_partitions() && of(member)).collect();
    if unknown.is_empty() {
        return;
    }
    let controls: Vec<_> = unknown.iter().map(|member| member.control.clone()).collect();
    let told = remote.block_on(async move { partitions(&controls, TELLING).await }).unwrap_or_default();
    for (member, told) in unknown.into_iter().zip(told) {
        let Some(told) = told else { continue };
        member.tell_partitions(told);
        while !member.is_up() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
