//! A listener survives a process that has no descriptors left. A process of its own, for the limit is the process's.

use std::fs::File;
use std::time::Duration;

use graphmill_net::{Listener, connect_data};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[tokio::test]
async fn a_connection_that_came_without_a_descriptor_left_is_taken_when_there_is_one() {
    let listener = Listener::bind(&["127.0.0.1:0".parse().unwrap()], None).await.unwrap();
    let endpoint = &listener.local_endpoints()[0];
    let _client = connect_data(endpoint, None, Duration::from_secs(20)).await.unwrap();
    listener.accept().await.unwrap();

    let limit = Rlimit { current: Some(100), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut hog = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        hog.push(file);
    }
    drop(hog.pop());
    // Takes the last descriptor for its own end.
    let _client = connect_data(endpoint, None, Duration::from_secs(20)).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(300), listener.accept()).await.is_err());
    drop(hog);
    tokio::time::timeout(Duration::from_secs(20), listener.accept()).await.unwrap().unwrap();
}
