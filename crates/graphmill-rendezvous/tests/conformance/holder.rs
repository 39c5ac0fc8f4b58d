//! State that is held here and kept elsewhere: there, not there, changed by somebody else, damaged.

use graphmill_rendezvous::keeper::{Keeper, Written};
use graphmill_rendezvous::records::{self, Changes};
use graphmill_rendezvous::{Event, Settings};

use crate::stage::{Keepers, SECOND, Stage, changes, node};

async fn begun(keeper: Keeper) -> Stage {
    let mut stage = Stage::new(Settings::new(1, 3), keeper);
    stage.happens(Event::Join(node(1), 600 * SECOND)).await;
    stage
}

#[tokio::test]
async fn a_run_that_is_new_is_empty_and_touches_nothing() {
    let keepers = Keepers::start().await;
    for (kind, keeper) in keepers.all("new").await {
        let stage = Stage::new(Settings::new(1, 1), keeper);
        assert!(stage.run.state().is_empty(), "{kind}");
        assert_eq!(stage.keeper.read().await.unwrap(), None, "{kind}");
    }
}

#[tokio::test]
async fn what_is_read_without_a_change_stays_as_it_is() {
    let keepers = Keepers::start().await;
    for (kind, keeper) in keepers.all("clean").await {
        let stage = begun(keeper).await;
        let first = stage.keeper.read().await.unwrap();
        assert_eq!(stage.keeper.read().await.unwrap(), first, "{kind}");
        assert_eq!(first.map(|(_, token)| token), stage.token, "{kind}");
    }
}

#[tokio::test]
async fn a_change_on_what_is_stale_is_not_kept_and_tells_what_is() {
    let keepers = Keepers::start().await;
    for (kind, keeper) in keepers.all("stale").await {
        let mut stage = begun(keeper).await;
        let stale = stage.token;
        stage.happens(Event::Join(node(2), 600 * SECOND)).await;
        let kept = stage.keeper.read().await.unwrap();
        // Somebody who has seen the first state alone.
        stage.run.handle(Event::Leave(node(1)), stage.now);
        let written = stage.keeper.write(changes(&mut stage.run), stale).await.unwrap();
        assert_eq!(written, Written::Stale(kept.clone()), "{kind}");
        assert_eq!(stage.keeper.read().await.unwrap(), kept, "{kind}: nothing has changed");
    }
}

#[tokio::test]
async fn damaged_records_are_an_error_that_names_them() {
    let keepers = Keepers::start().await;
    let node = r#""node":{"address":"host","process":1,"counter":1}"#;
    let set = |key: &str, value: &str| (key.to_owned(), Some(value.as_bytes().to_vec()));
    let rows: Vec<(&str, Changes, &str)> = vec![
        ("no json", vec![set("run", "{")], "`run`"),
        ("another kind", vec![set("run", "[]")], "`run`"),
        ("a field too many", vec![set("member/host_1_1", &format!(r#"{{{node},"x":1}}"#))], "`member/host_1_1`"),
        (
            "a list that is none",
            vec![set("member/host_1_1", &format!(r#"{{{node},"list":"x"}}"#))],
            "`member/host_1_1`",
        ),
        ("another member", vec![set("member/host_1_9", &format!(r#"{{{node},"list":"waiting"}}"#))], "another member"),
        ("an unknown record", vec![set("what", "")], "`what`"),
        ("a value of no round", vec![set("value/x/k", "")], "no number"),
        ("a value without a round", vec![set("value/k", "")], "no round"),
        ("a value without a key", vec![set("value/0/", "")], "bytes"),
    ];
    for (name, damage, reason) in rows {
        for (kind, keeper) in keepers.all(name).await {
            let mut stage = begun(keeper).await;
            stage.keeper.write(damage.clone(), stage.token).await.unwrap();
            let (kept, _) = stage.keeper.read().await.unwrap().unwrap();
            let error = records::read(&kept).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("cannot be read"), "{kind}: {name}: {error}");
        }
    }
}

#[test]
fn records_that_contradict_each_other_are_refused() {
    let mut run = graphmill_rendezvous::Run::new(Settings::new(2, 2));
    run.handle(Event::Join(node(1), SECOND), SECOND);
    run.handle(Event::Join(node(2), SECOND), SECOND);
    let good: records::Records = changes(&mut run).into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    assert!(records::read(&good).unwrap().unwrap().state.complete);
    let edits: [(&str, &str, &str, &str); 7] = [
        ("run", "\"version\":1", "\"version\":2", "version 2"),
        ("run", "\"round\":0", "\"round\":18446744073709551615", "so many rounds"),
        ("run", "\"max\":2", "\"max\":1", "fewer"),
        ("run", "\"min\":2,\"max\":2", "\"min\":1,\"max\":1", "more take part"),
        ("run", "\"complete\":true", "\"complete\":false", "all that can take part do"),
        ("member/host_1_1", "\"rank\":0", "\"rank\":1", "rank of its own"),
        ("member/host_1_1", ",\"rank\":0", "", "rank of its own"),
    ];
    for (key, from, to, reason) in edits {
        let mut edited = good.clone();
        let text = String::from_utf8(edited[key].clone()).unwrap();
        assert!(text.contains(from), "{text}");
        edited.insert(key.to_owned(), text.replacen(from, to, 1).into_bytes());
        let error = records::read(&edited).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}
