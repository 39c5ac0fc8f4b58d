use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::super::Fetcher;
use super::*;
use crate::{Error, Job, Observer, StageObserver, Unit};

fn fetcher(folder: &Folder) -> Fetcher {
    Fetcher::new(folder.0.path(), &folder.0.path().join("scratch"))
}

#[test]
fn paths_start_at_the_base_and_file_urls_are_used_in_place() {
    let folder = Folder::new();
    let file = folder.write("a.csv", "x");
    let mut fetcher = fetcher(&folder);
    let source = fetcher.source("a.csv", &Job::silent()).unwrap();
    assert_eq!((source.name.as_str(), &source.path), ("a.csv", &file.path));
    let url = url::Url::from_file_path(&file.path).unwrap();
    assert_eq!(fetcher.source(url.as_str(), &Job::silent()).unwrap().path, file.path);
    assert!(fetcher.exists("a.csv").unwrap());
    assert!(!fetcher.exists("b.csv").unwrap());
    let error = fetcher.source("b.csv", &Job::silent()).unwrap_err().to_string();
    assert!(error.starts_with("b.csv: ") && error.ends_with("b.csv does not exist"), "{error}");
}

#[test]
fn a_star_matches_files_sorted_by_name() {
    let folder = Folder::new();
    for name in ["part-10.csv", "part-02.csv", "part-01.csv", "part-01.csv.bak", "other.csv"] {
        folder.write(name, "");
    }
    let mut fetcher = fetcher(&folder);
    let mut names = |pattern: &str| -> Result<Vec<String>> {
        let sources = fetcher.sources(&[pattern.to_owned()], &Job::silent())?;
        Ok(sources.into_iter().map(|source| source.name).collect())
    };
    assert_eq!(names("part-*.csv").unwrap(), ["part-01.csv", "part-02.csv", "part-10.csv"]);
    assert_eq!(names("p*-*0*.c*").unwrap(), ["part-01.csv", "part-01.csv.bak", "part-02.csv", "part-10.csv"]);
    assert_eq!(names("part-01.csv").unwrap(), ["part-01.csv"]);
    let error = names("edge-*.csv").unwrap_err().to_string();
    assert!(error.starts_with("edge-*.csv: no file in"), "{error}");
    assert!(names("s3://bucket/part-*.csv").unwrap_err().to_string().contains("local paths"));
}

#[test]
fn folders_are_listed_by_name_without_files() {
    let folder = Folder::new();
    folder.write("file", "");
    for name in ["time", "random"] {
        fs::create_dir(folder.0.path().join(name)).unwrap();
    }
    let mut fetcher = fetcher(&folder);
    assert_eq!(fetcher.folders(".").unwrap(), ["random", "time"]);
    assert!(fetcher.folders("none").unwrap().is_empty());
}

#[test]
fn strange_urls_are_refused_without_their_secrets() {
    let folder = Folder::new();
    let mut fetcher = fetcher(&folder);
    let mut message = |url: &str| fetcher.source(url, &Job::silent()).unwrap_err().to_string();
    assert!(message("ftp://host/a.csv").contains("ftp:// is not supported"));
    let message = message("https://user:hush@host/a.csv?signature=hush");
    assert!(message.starts_with("https://host/a.csv: URLs with a query"), "{message}");
    assert!(!message.contains("hush") && !message.contains("user"), "{message}");
}

/// A web server with one file, which counts what it is asked.
struct Server {
    address: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(body: Vec<u8>, claimed_bytes: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(std::result::Result::ok);
                let Some(request) = lines.next() else { continue };
                let headers: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                let found = request.contains("/data/edges.csv");
                let status = if found { "200 OK" } else { "404 Not Found" };
                let length = if found { claimed_bytes } else { 0 };
                write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n").unwrap();
                if found && request.starts_with("GET") {
                    let _ = stream.write_all(&body);
                }
                log.lock().unwrap().push(format!("{request} {}", headers.join(" ")));
            }
        });
        Self { address, requests }
    }
}

#[derive(Default, Clone)]
struct Bytes(Arc<AtomicU64>);

impl Observer for Bytes {
    fn begin(&self, _: &str, unit: Unit, _: Option<u64>) -> Box<dyn StageObserver> {
        assert_eq!(unit, Unit::Bytes);
        Box::new(self.clone())
    }
}

impl StageObserver for Bytes {
    fn advance(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }
}

#[test]
fn a_url_is_fetched_once_with_progress_and_read_like_a_file() {
    let text: String = "src,dst\n".chars().chain((0..50_000).flat_map(|_| "12,34\n".chars())).collect();
    let server = Server::start(text.clone().into_bytes(), text.len());
    let folder = Folder::new();
    let mut fetcher = fetcher(&folder);
    let url = format!("http://user:hush@{}/data/edges.csv", server.address);
    let bytes = Bytes::default();
    let job = Job::new(&bytes, Arc::default());
    let source = fetcher.source(&url, &job).unwrap();
    assert_eq!(source.name, format!("http://{}/data/edges.csv", server.address));
    assert_eq!(bytes.0.load(Ordering::Relaxed), text.len() as u64);
    assert_eq!(fs::read_to_string(&source.path).unwrap(), text);
    let columns = read(&source, &[want(name("dst"), ColumnType::Dense)]).unwrap();
    assert_eq!(columns, [Column::Dense(vec![34; 50_000])]);
    assert_eq!(fetcher.source(&url, &job).unwrap().path, source.path);
    assert_eq!(server.requests.lock().unwrap().iter().filter(|request| request.starts_with("GET")).count(), 1);

    assert!(fetcher.exists(&url).unwrap());
    let missing = format!("http://{}/data/none.csv", server.address);
    assert!(!fetcher.exists(&missing).unwrap());
    let error = fetcher.source(&missing, &job).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot fetch {missing}: it does not exist; check the bucket and the path"));
}

#[test]
fn a_cut_download_is_an_error_and_leaves_no_file() {
    let server = Server::start(b"src,dst\n".to_vec(), 100);
    let folder = Folder::new();
    let error = fetcher(&folder).source(&format!("http://{}/data/edges.csv", server.address), &Job::silent());
    assert!(matches!(error, Err(Error::Fetch { .. })), "{error:?}");
    assert_eq!(fs::read_dir(folder.0.path().join("scratch")).unwrap().count(), 0);
}

#[test]
fn a_silent_server_does_not_outlast_a_cancelled_job() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/data/edges.csv", listener.local_addr().unwrap());
    let cancel = Arc::new(AtomicBool::new(true));
    let error = fetcher(&Folder::new()).source(&url, &Job::new(&crate::Silent, cancel)).unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
}

#[test]
fn a_refused_connection_is_reported_soon_and_without_the_password() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let start = std::time::Instant::now();
    let error = fetcher(&Folder::new()).source(&format!("http://user:hush@{address}/a.csv"), &Job::silent());
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot fetch http://{address}/a.csv: ")), "{error}");
    assert!(!error.contains("hush"), "{error}");
    assert!(start.elapsed().as_secs() < 30, "took {:?}", start.elapsed());
}
