//! Finding input files: paths are used in place, URLs are fetched into a scratch directory.
//!
//! Files of an object store are streamed to disk, whatever their size, because every format wants to be read more than
//! once or from its end.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use futures_util::StreamExt;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::runtime::Runtime;
use url::Url;

use super::Source;
use crate::store::{self, failed, fetch_error, patiently, without_credentials};
use crate::{Error, Job, Result, Unit};

/// Finds input files and fetches those that are elsewhere, each once.
pub struct Fetcher {
    base: PathBuf,
    scratch: PathBuf,
    runtime: Option<Runtime>,
    fetched: HashMap<String, PathBuf>,
}

impl Fetcher {
    /// Relative paths start at `base`; fetched files are put into `scratch`.
    pub fn new(base: &Path, scratch: &Path) -> Self {
        Self { base: base.to_owned(), scratch: scratch.to_owned(), runtime: None, fetched: HashMap::new() }
    }

    /// The file that a path or URL means, on this machine.
    pub fn source(&mut self, text: &str, job: &Job<'_>) -> Result<Source> {
        match Location::parse(&self.base, text)? {
            Location::Local(path) if path.is_file() => Ok(Source { name: text.to_owned(), path }),
            Location::Local(path) => {
                let reason = if path.exists() { "is not a file" } else { "does not exist" };
                Err(Error::input(text, format!("{} {reason}", path.display())))
            }
            Location::Remote(url) => {
                let name = without_credentials(&url);
                if let Some(path) = self.fetched.get(url.as_str()) {
                    return Ok(Source { name, path: path.clone() });
                }
                let path = self.fetch(&url, &name, job)?;
                self.fetched.insert(url.into(), path.clone());
                Ok(Source { name, path })
            }
        }
    }

    /// The files that several paths or URLs mean, in order. A `*` in the last component of a path stands for any
    /// characters; the files it matches are sorted by name, and there must be one.
    pub fn sources(&mut self, texts: &[String], job: &Job<'_>) -> Result<Vec<Source>> {
        let mut sources = Vec::with_capacity(texts.len());
        for text in texts {
            if !text.contains('*') {
                sources.push(self.source(text, job)?);
                continue;
            }
            let Location::Local(pattern) = Location::parse(&self.base, text)? else {
                return Err(Error::input(text, "a * is for local paths; list the URLs one by one"));
            };
            sources.extend(matches(text, &pattern)?);
        }
        Ok(sources)
    }

    /// Whether there is a file.
    pub fn exists(&mut self, text: &str) -> Result<bool> {
        let url = match Location::parse(&self.base, text)? {
            Location::Local(path) => return Ok(path.is_file()),
            Location::Remote(url) => url,
        };
        let (store, path) = store::open(&url)?;
        let answer = self.runtime(&url)?.block_on(patiently(&Job::silent(), &url, store.head(&path)))?;
        match answer {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(fetch_error(&url, &error)),
        }
    }

    /// The names of the folders in a folder, sorted; none when it does not exist.
    pub fn folders(&mut self, text: &str) -> Result<Vec<String>> {
        let mut names = match Location::parse(&self.base, text)? {
            Location::Local(path) if path.is_dir() => local_folders(&path)?,
            Location::Local(_) => Vec::new(),
            Location::Remote(url) => {
                let (store, path) = store::open(&url)?;
                let listing = store.list_with_delimiter(Some(&path));
                let listing = self.runtime(&url)?.block_on(patiently(&Job::silent(), &url, listing))?;
                let listing = listing.map_err(|error| fetch_error(&url, &error))?;
                listing.common_prefixes.iter().filter_map(|path| path.filename().map(str::to_owned)).collect()
            }
        };
        names.sort_unstable();
        Ok(names)
    }

    fn fetch(&mut self, url: &Url, name: &str, job: &Job<'_>) -> Result<PathBuf> {
        std::fs::create_dir_all(&self.scratch).map_err(Error::io("create", &self.scratch))?;
        let last = url.path_segments().and_then(|mut segments| segments.next_back()).unwrap_or_default();
        let path = self.scratch.join(format!("{:05}-{last}", self.fetched.len()));
        let (store, location) = store::open(url)?;
        let mut out = File::create(&path).map_err(Error::io("create", &path))?;

        let downloaded = self.runtime(url)?.block_on(async {
            let object = patiently(job, url, store.get(&location)).await?.map_err(|error| fetch_error(url, &error))?;
            let size = object.meta.size;
            let stage = job.stage(&format!("fetch {name}"), Unit::Bytes, Some(size));
            let mut stream = object.into_stream();
            let mut received = 0;
            while let Some(bytes) = patiently(job, url, stream.next()).await? {
                let bytes = bytes.map_err(|error| fetch_error(url, &error))?;
                out.write_all(&bytes).map_err(Error::io("write", &path))?;
                received += bytes.len() as u64;
                stage.advance(bytes.len() as u64)?;
            }
            if received == size { Ok(()) } else { Err(failed(url, format!("got {received} of {size} bytes"))) }
        });
        if downloaded.is_err() {
            // What is left of it would only take space; the error that matters is the first.
            let _ = std::fs::remove_file(&path);
        }
        downloaded.map(|()| path)
    }

    fn runtime(&mut self, url: &Url) -> Result<&Runtime> {
        let runtime = match self.runtime.take() {
            Some(runtime) => runtime,
            None => store::runtime(url)?,
        };
        Ok(self.runtime.insert(runtime))
    }
}

impl std::fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetcher").field("base", &self.base).field("scratch", &self.scratch).finish_non_exhaustive()
    }
}

/// Where a file is.
enum Location {
    Local(PathBuf),
    Remote(Url),
}

impl Location {
    fn parse(base: &Path, text: &str) -> Result<Self> {
        if !text.contains("://") {
            return Ok(Self::Local(base.join(text)));
        }
        let url = store::parse(text)?;
        // Only file URLs have a path here; the others name a host.
        match url.to_file_path() {
            Ok(path) if url.scheme() == "file" => Ok(Self::Local(path)),
            _ => Ok(Self::Remote(url)),
        }
    }
}

fn local_folders(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let entry = entry.map_err(Error::io("list", folder))?;
        if entry.path().is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

fn matches(text: &str, pattern: &Path) -> Result<Vec<Source>> {
    let folder = pattern.parent().unwrap_or(Path::new("."));
    let last = pattern.file_name().unwrap_or_default().to_string_lossy();
    if folder.to_string_lossy().contains('*') {
        return Err(Error::input(text, "a * may stand only in the last component of a path"));
    }
    let shown = text.rsplit_once('/').map_or("", |(shown, _)| shown);
    let mut sources = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let entry = entry.map_err(Error::io("list", folder))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if matches_pattern(&name, &last) && entry.path().is_file() {
            let name = if shown.is_empty() { name } else { format!("{shown}/{name}") };
            sources.push(Source { name, path: entry.path() });
        }
    }
    if sources.is_empty() {
        return Err(Error::input(text, format!("no file in {} matches {last}", folder.display())));
    }
    sources.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(sources)
}

/// Whether `name` is `pattern` with every `*` standing for any characters.
fn matches_pattern(name: &str, pattern: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return name == pattern };
    let Some(mut name) = name.strip_prefix(start) else { return false };
    let (middles, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    // Taking the first match of every middle leaves the most for those that follow.
    for middle in middles.split('*') {
        let Some(at) = name.find(middle) else { return false };
        name = &name[at + middle.len()..];
    }
    name.ends_with(end)
}
