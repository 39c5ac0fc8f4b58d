//! A web server with a folder, which counts what it is asked and can be told to misbehave.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the server does with the files whose path contains some text.
#[derive(Clone, Copy)]
pub(crate) enum Mood {
    Fine,
    /// Says how long the file is and sends nothing.
    Silent(&'static str),
}

pub(crate) struct Web {
    pub(crate) address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Web {
    pub(crate) fn start(folder: &Path, mood: Mood) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (log, folder) = (Arc::clone(&asked), folder.to_owned());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (log, folder) = (Arc::clone(&log), folder.clone());
                std::thread::spawn(move || answer(&stream.unwrap(), &folder, mood, &log));
            }
        });
        Self { address, asked }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// The paths of the arrays it was asked for since it was last asked this, sorted.
    pub(crate) fn arrays(&self) -> Vec<String> {
        let mut paths: Vec<String> = std::mem::take(&mut *self.asked.lock().unwrap());
        paths.retain(|path| !path.ends_with("manifest.json"));
        paths.sort();
        paths
    }
}

fn answer(mut stream: &TcpStream, folder: &Path, mood: Mood, log: &Mutex<Vec<String>>) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let Some(request) = lines.next() else { return };
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    let path = decoded(request.split(' ').nth(1).unwrap().trim_start_matches('/'));
    log.lock().unwrap().push(path.clone());
    let found = std::fs::read(PathBuf::from(folder).join(&path)).ok();
    let status = if found.is_some() { "200 OK" } else { "404 Not Found" };
    let body = found.unwrap_or_default();
    // The client may be gone.
    let _ = write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    if matches!(mood, Mood::Silent(text) if path.contains(text)) {
        std::thread::sleep(Duration::from_secs(30));
    }
    let _ = stream.write_all(&body);
}

/// A path without its percent signs.
fn decoded(path: &str) -> String {
    let mut pieces = path.split('%');
    let mut text = pieces.next().unwrap().to_owned();
    for piece in pieces {
        text.push(char::from(u8::from_str_radix(&piece[..2], 16).unwrap()));
        text.push_str(&piece[2..]);
    }
    text
}
