//! Backends: made once, shared by all who ask for the same, gone with their last channel.

use graphmill_sample::Config;
use graphmill_wire::proto::{CloseChannelRequest, OpenBackendRequest};
use tonic::Code;

use crate::support::{Cluster, Opening, Store, config, eventually, json, open_backend, open_channel};

#[test]
fn opening_a_backend_twice_gives_one() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let mut control = cluster.control(0);
    cluster.run(async {
        let first = open_backend(&mut control, "mine", &config()).await.unwrap();
        assert_eq!(open_backend(&mut control, "mine", &config()).await.unwrap(), first);
        assert_ne!(open_backend(&mut control, "another", &config()).await.unwrap(), first);
        // Without a key the configuration is the key: what means the same is the same, however it is written.
        let unnamed = open_backend(&mut control, "", &config()).await.unwrap();
        let mut text: serde_json::Value = serde_json::from_str(&json(&config())).unwrap();
        text.as_object_mut().unwrap().remove("max_edges").expect("it is the default");
        let request = OpenBackendRequest { run: "test".to_owned(), key: String::new(), config: text.to_string() };
        assert_eq!(control.open_backend(request).await.unwrap().into_inner().backend, unnamed);
    });
    assert_eq!(cluster.status(0).backends.len(), 3);
}

#[test]
fn runs_that_use_the_same_key_do_not_meet() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let mut control = cluster.control(0);
    cluster.run(async {
        let request = |run: &str, seed| OpenBackendRequest {
            run: run.to_owned(),
            key: "loader 0".to_owned(),
            config: json(&Config { seed, ..config() }),
        };
        let first = control.open_backend(request("one", 1)).await.unwrap().into_inner();
        let second = control.open_backend(request("other", 2)).await.unwrap().into_inner();
        assert_ne!(first.backend, second.backend);
    });
}

#[test]
fn all_who_ask_while_a_backend_is_made_share_it() {
    let store = Store::homogeneous(2);
    let mut cluster = Cluster::prepare(&store.path, 2, |options| options);
    // Without its peer the server waits, and so does everyone who asks.
    cluster.start_one(0);
    let asking: Vec<_> = (0..8)
        .map(|_| {
            let mut control = cluster.control(0);
            cluster.spawn(async move { open_backend(&mut control, "shared", &config()).await })
        })
        .collect();
    cluster.start_one(1);
    let opened: Vec<u64> = asking.into_iter().map(|one| cluster.run(one).unwrap().expect("a backend")).collect();
    assert!(opened.iter().all(|backend| *backend == opened[0]), "{opened:?}");
    assert_eq!(cluster.status(0).backends.len(), 1);
}

#[test]
fn a_backend_that_cannot_be_made_fails_for_everyone_and_leaves_nothing() {
    let store = Store::homogeneous(2);
    let mut cluster = Cluster::prepare(&store.path, 2, |options| options);
    cluster.start_one(0);
    let wrong = Config { features: vec!["colour".to_owned()], ..config() };
    let asking: Vec<_> = (0..8)
        .map(|_| {
            let (mut control, wrong) = (cluster.control(0), wrong.clone());
            cluster.spawn(async move { open_backend(&mut control, "shared", &wrong).await })
        })
        .collect();
    cluster.start_one(1);
    for one in asking {
        let status = cluster.run(one).unwrap().expect_err("there is no such feature");
        assert!(status.code() == Code::InvalidArgument && status.message().contains("colour"), "{status}");
    }
    assert!(cluster.status(0).backends.is_empty());
    let mut control = cluster.control(0);
    cluster.run(open_backend(&mut control, "shared", &config())).expect("the key is free");
}

#[test]
fn another_configuration_under_the_same_key_is_refused_with_the_difference() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let mut control = cluster.control(0);
    let other = Config { seed: 4, labels: false, ..config() };
    cluster.run(async {
        let backend = open_backend(&mut control, "mine", &config()).await.unwrap();
        let at_backend = open_backend(&mut control, "mine", &other).await.unwrap_err();
        let opening = Opening { config: other.clone(), ..Opening::default() };
        let at_channel = open_channel(&mut control, backend, opening).await.unwrap_err();
        for status in [at_backend, at_channel] {
            assert_eq!(status.code(), Code::FailedPrecondition);
            let message = status.message();
            assert!(message.contains("seed is 3 there and 4 here"), "{message}");
            assert!(message.contains("labels is true there and false here"), "{message}");
        }
    });
    assert_eq!(cluster.status(0).registered, 0, "a channel that was refused is not there");
}

#[test]
fn the_last_channel_to_close_ends_its_backend() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let [first, second] = [1, 2].map(|_| cluster.open(0, Opening::default()));
    let mut control = cluster.control(0);
    cluster.run(control.close_channel(CloseChannelRequest { channel: first, client: vec![1; 16] })).unwrap();
    assert_eq!(cluster.status(0).backends.len(), 1);
    cluster.run(control.close_channel(CloseChannelRequest { channel: second, client: vec![1; 16] })).unwrap();
    assert!(cluster.status(0).backends.is_empty());
    assert!(cluster.stop());
}

#[test]
fn a_key_that_is_being_torn_down_is_free_again_in_a_moment() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    // Large batches, so that some are under way when their channel closes.
    let opening = Opening { batch_size: 100, max_credits: 64, ..Opening::default() };
    for round in 0..20 {
        let channel = cluster.open(0, opening.clone());
        let mut wire = cluster.wire(0, opening.client);
        let mut control = cluster.control(0);
        cluster.run(async {
            wire.credit(channel, 0, &[0, 1]).await;
            control.close_channel(CloseChannelRequest { channel, client: vec![1; 16] }).await.unwrap();
            // Either it is gone already, or the refusal says that another try will do.
            let tried = open_backend(&mut control, "", &opening.config).await;
            if let Err(status) = tried {
                assert_eq!(status.code(), Code::Unavailable, "round {round}: {status}");
                assert!(status.message().contains("being torn down"), "{status}");
            }
        });
        let mut control = cluster.control(0);
        eventually("the key is free", || cluster.run(open_backend(&mut control, "", &opening.config)).is_ok());
    }
}

#[test]
fn a_backend_that_nobody_uses_goes_with_the_lease() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start_with(&store.path, 1, |options| graphmill_server::Options {
        lease: std::time::Duration::from_millis(50),
        ..options
    });
    let mut control = cluster.control(0);
    cluster.run(open_backend(&mut control, "idle", &config())).unwrap();
    eventually("it is gone", || cluster.status(0).backends.is_empty());
}
