//! A dataset that lies elsewhere comes to this machine whole, or the reason is said and nothing false is left.

mod web;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use graphmill_graph::{Dataset, Direction, MANIFEST_FILE, Manifest, OpenOptions, Storage};
use graphmill_ingest::download::download;
use graphmill_ingest::{Error, Job, Observer, StageObserver, Unit};
use graphmill_testing::{
    Assignment, edit_manifest, files, read, reseal, sample, seal, tempdir, touch_everything, write,
};
use tempfile::TempDir;

use web::{Mood, Web};

const PARTS: u32 = 3;

/// A dataset of three partitions to fetch, and a cache.
struct Place {
    folder: TempDir,
    manifest: Manifest,
}

impl Place {
    fn new() -> Self {
        let folder = tempdir();
        let graph = sample();
        let assignment = Assignment::assigned(&graph, PARTS, |_, id| (id % 3) as u16);
        let layouts = [Direction::In, Direction::Out];
        let manifest = write(&graph, &folder.path().join("far/g"), &layouts, &assignment).unwrap();
        Self { folder, manifest }
    }

    fn far(&self) -> PathBuf {
        self.folder.path().join("far/g")
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn url(&self) -> String {
        format!("file://{}", self.far().display())
    }

    fn web(&self, mood: Mood) -> Web {
        Web::start(&self.folder.path().join("far"), mood)
    }

    fn download(&self, url: &str, partitions: Option<&[u32]>) -> Result<PathBuf, Error> {
        download(url, &self.cache(), partitions, &Job::silent())
    }

    fn refuse(&self, url: &str) -> String {
        self.download(url, None).unwrap_err().to_string()
    }

    /// An array that has something in it.
    fn array(&self, name: &str) -> PathBuf {
        files(&self.far()).into_iter().find(|file| file.ends_with(name)).unwrap()
    }
}

/// The paths below a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let below = |file: &PathBuf| file.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
    files(folder).iter().map(below).collect()
}

fn flip(file: &Path) {
    let mut bytes = std::fs::read(file).unwrap();
    bytes[0] ^= 1;
    std::fs::remove_file(file).unwrap();
    std::fs::write(file, bytes).unwrap();
}

fn assert_same(near: &Path, far: &Path) {
    assert_eq!(names(near), names(far));
    for name in names(far) {
        assert_eq!(std::fs::read(near.join(&name)).unwrap(), std::fs::read(far.join(&name)).unwrap(), "{name}");
    }
}

#[test]
fn a_dataset_comes_whole_from_files_and_from_the_web() {
    let place = Place::new();
    let near = place.download(&place.url(), None).unwrap();
    assert_same(&near, &place.far());
    assert_eq!(read(&Dataset::open(&near).unwrap()).unwrap(), sample());

    let web = place.web(Mood::Fine);
    let cache = place.folder.path().join("other");
    // With a slash at the end, and with names that are escaped on disk.
    let near = download(&web.url("g/"), &cache, None, &Job::silent()).unwrap();
    assert_same(&near, &place.far());
    assert!(web.arrays().iter().any(|path| path.contains("venue%2Fpress")));
}

#[test]
fn only_the_books_and_the_wanted_partitions_are_fetched_and_can_be_opened() {
    let place = Place::new();
    let web = place.web(Mood::Fine);
    let near = place.download(&web.url("g"), Some(&[1, 1])).unwrap();
    let expected = |parts: &[&str]| -> Vec<String> {
        let mut paths = names(&place.far());
        paths.retain(|path| parts.iter().any(|part| path.starts_with(part)));
        paths.into_iter().map(|path| format!("g/{path}")).collect()
    };
    assert_eq!(web.arrays(), expected(&["book", "part-00001"]));
    for storage in [Storage::Mmap, Storage::Ram] {
        let options = OpenOptions { storage, partitions: Some(vec![1]) };
        let dataset = Dataset::open_with(&near, &options).unwrap();
        assert_eq!(dataset.partitions().map(|(number, _)| number).collect::<Vec<_>>(), [1]);
        touch_everything(&dataset);
    }

    assert_eq!(place.download(&web.url("g"), Some(&[0, 1])).unwrap(), near);
    assert_eq!(web.arrays(), expected(&["part-00000"]));
    place.download(&web.url("g"), None).unwrap();
    assert_eq!(web.arrays(), expected(&["part-00002"]));
    place.download(&web.url("g"), None).unwrap();
    assert!(web.arrays().is_empty());
    assert_same(&near, &place.far());
}

#[test]
fn a_partition_that_is_not_there_is_refused_before_anything_is_fetched() {
    let place = Place::new();
    let web = place.web(Mood::Fine);
    let error = place.download(&web.url("g"), Some(&[0, PARTS])).unwrap_err();
    assert_eq!(error.to_string(), "there is no partition `3`; there are: 0 to 2");
    assert!(web.arrays().is_empty());
    assert!(!place.cache().exists());
}

#[test]
fn another_cut_of_the_same_content_has_a_directory_of_its_own() {
    let place = Place::new();
    let graph = sample();
    let other = place.folder.path().join("far/other");
    let manifest = write(&graph, &other, &[Direction::In], &Assignment::whole(&graph)).unwrap();
    assert_eq!(manifest.fingerprint, place.manifest.fingerprint);
    let near = [place.url(), format!("file://{}", other.display())].map(|url| place.download(&url, None).unwrap());
    assert_ne!(near[0], near[1]);
    assert_same(&near[0], &place.far());
    assert_same(&near[1], &other);
    let prefix = format!("{}-", manifest.fingerprint);
    assert!(near.iter().all(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&prefix)));
}

/// Cancels its job when so many bytes have come.
#[derive(Clone)]
struct Canceller {
    come: Arc<AtomicU64>,
    enough: u64,
    cancel: Arc<AtomicBool>,
}

impl Observer for Canceller {
    fn begin(&self, _: &str, unit: Unit, total: Option<u64>) -> Box<dyn StageObserver> {
        assert_eq!(unit, Unit::Bytes);
        assert!(total.is_some());
        Box::new(self.clone())
    }
}

impl StageObserver for Canceller {
    fn advance(&self, by: u64) {
        if self.come.fetch_add(by, Ordering::Relaxed) + by >= self.enough {
            self.cancel.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn an_interrupted_download_goes_on_where_it_was() {
    let place = Place::new();
    let silent = "part-00001/nodes/paper/feature.x.f32";
    let all = place.manifest.files(None).unwrap();
    let withheld = all.iter().find(|file| file.path == silent).unwrap().bytes;
    let enough = all.iter().map(|file| file.bytes).sum::<u64>() - withheld;
    let watcher = Canceller { come: Arc::default(), enough, cancel: Arc::default() };
    let web = place.web(Mood::Silent(silent));
    let job = Job::new(&watcher, Arc::clone(&watcher.cancel));
    let error = download(&web.url("g"), &place.cache(), None, &job).unwrap_err();
    assert!(matches!(error, Error::DownloadInterrupted), "{error}");

    let near = place.cache().read_dir().unwrap().next().unwrap().unwrap().path();
    let there = names(&near);
    assert!(!there.is_empty() && there.len() < all.len(), "{there:?}");
    // Neither a manifest nor a partial file, and every file is as it should be.
    for name in &there {
        assert_eq!(std::fs::read(near.join(name)).unwrap(), std::fs::read(place.far().join(name)).unwrap(), "{name}");
        assert_ne!(name, MANIFEST_FILE);
    }
    let web = place.web(Mood::Fine);
    assert_eq!(place.download(&web.url("g"), None).unwrap(), near);
    assert_eq!(web.arrays().len(), all.len() - there.len());
    assert_same(&near, &place.far());
}

#[test]
fn what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not() {
    let place = Place::new();
    let near = place.download(&place.url(), None).unwrap();
    let [dead, living] = ["dead", "living"].map(|name| near.join(format!(".fetching-{name}")));
    std::fs::write(&dead, "half").unwrap();
    let held = std::fs::File::create(&living).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    place.download(&place.url(), None).unwrap();
    assert!(!dead.exists());
    assert!(living.exists());
}

#[test]
fn an_array_that_is_damaged_at_its_source_is_refused_by_name() {
    let place = Place::new();
    let array = place.array("part-00001/nodes/paper/feature.x.f32");
    flip(&array);
    let message = place.refuse(&place.url());
    let url = format!("file://{}", array.display());
    assert!(message.starts_with(&format!("cannot fetch {url}: expected checksum ")), "{message}");
    assert!(message.contains("it is damaged, or the dataset was replaced"), "{message}");
    let near = place.cache().read_dir().unwrap().next().unwrap().unwrap().path();
    let left = names(&near);
    let unwanted = |name: &&String| name.contains("fetching") || name.contains("feature.x") && name.contains("00001");
    assert_eq!(left.iter().find(unwanted), None);
    assert!(!near.join(MANIFEST_FILE).exists());

    // Mended, it comes.
    flip(&array);
    assert_same(&place.download(&place.url(), None).unwrap(), &place.far());

    let place = Place::new();
    std::fs::write(place.array("part-00001/nodes/paper/feature.x.f32"), "short").unwrap();
    let message = place.refuse(&place.url());
    assert!(message.contains("bytes, found 5; it is damaged"), "{message}");

    let place = Place::new();
    std::fs::remove_file(place.array("part-00001/nodes/paper/feature.x.f32")).unwrap();
    let message = place.refuse(&place.url());
    assert!(message.contains("feature.x.f32: it does not exist"), "{message}");
}

#[test]
fn a_cached_array_that_is_damaged_is_fetched_again() {
    let place = Place::new();
    let web = place.web(Mood::Fine);
    let near = place.download(&web.url("g"), None).unwrap();
    let _ = web.arrays();
    let [flipped, cut, gone] =
        ["part-00001/nodes/paper/feature.x.f32", "book/nodes/paper/owner.u8", "part-00000/nodes/paper/feature.x.f32"];
    // A server may have it open; what it sees must not change under it.
    let opened = std::fs::File::open(near.join(cut)).unwrap();
    flip(&near.join(flipped));
    std::fs::write(near.join(cut), "x").unwrap();
    std::fs::remove_file(near.join(gone)).unwrap();
    std::fs::write(near.join(MANIFEST_FILE), "{}").unwrap();
    place.download(&web.url("g"), None).unwrap();
    let mut expected = [flipped, cut, gone].map(|path| format!("g/{path}"));
    expected.sort();
    assert_eq!(web.arrays(), expected);
    assert_same(&near, &place.far());
    assert_eq!(opened.metadata().unwrap().len(), 1);
}

#[test]
fn downloads_at_the_same_time_do_not_harm_each_other() {
    let place = Place::new();
    let web = place.web(Mood::Fine);
    for _ in 0..8 {
        std::thread::scope(|scope| {
            let wanted: [Option<&[u32]>; 4] = [None, None, Some(&[0, 1]), Some(&[2])];
            let downloads = wanted.map(|wanted| {
                let (place, url) = (&place, web.url("g"));
                scope.spawn(move || {
                    let near = place.download(&url, wanted).unwrap();
                    let options = OpenOptions { storage: Storage::Ram, partitions: wanted.map(<[u32]>::to_vec) };
                    touch_everything(&Dataset::open_with(&near, &options).unwrap());
                    near
                })
            });
            for near in downloads.map(|download| download.join().unwrap()) {
                assert_same(&near, &place.far());
            }
        });
        std::fs::remove_dir_all(place.cache()).unwrap();
    }
}

#[test]
fn a_manifest_that_leads_out_of_its_directory_is_refused() {
    for hostile in ["../../evil", "/etc/evil", "nodes/../../../evil", "nodes/paper/./label.i64", "evil"] {
        for list in ["book_arrays", "partitions"] {
            let place = Place::new();
            edit_manifest(&place.far(), |manifest| {
                let arrays = match list {
                    "partitions" => &mut manifest[list][0]["arrays"],
                    _ => &mut manifest[list],
                };
                let arrays = arrays.as_object_mut().unwrap();
                // Beside the others, and in the place of one.
                let stored = arrays.values().next().unwrap().clone();
                arrays.insert(hostile.to_owned(), stored);
            });
            refused_outright(&place);
            edit_manifest(&place.far(), |manifest| {
                let arrays = match list {
                    "partitions" => &mut manifest[list][0]["arrays"],
                    _ => &mut manifest[list],
                };
                let arrays = arrays.as_object_mut().unwrap();
                let real = arrays.keys().find(|key| *key != hostile).unwrap().clone();
                arrays.remove(&real);
            });
            refused_outright(&place);
        }
    }
    // Names that would lead out are escaped, whatever they are.
    let place = Place::new();
    edit_manifest(&place.far(), |manifest| {
        manifest["node_types"][0]["name"] = "../../evil".into();
    });
    refused_outright(&place);
}

fn refused_outright(place: &Place) {
    let message = place.refuse(&place.url());
    assert!(message.contains("g/manifest.json is not a valid manifest: "), "{message}");
    assert!(!place.cache().exists());
}

#[test]
fn what_is_no_dataset_is_refused_in_words() {
    let place = Place::new();
    let manifest = place.far().join(MANIFEST_FILE);
    let whole = std::fs::read(&manifest).unwrap();

    std::fs::write(&manifest, "<html>Sign in</html>").unwrap();
    refused_outright(&place);
    std::fs::write(&manifest, seal(b"{\n  \"format\": \"zip\",\n  \"version\": 1\n}\n")).unwrap();
    refused_outright(&place);
    std::fs::write(&manifest, &whole[..whole.len() / 2]).unwrap();
    refused_outright(&place);
    let newer = String::from_utf8(whole.clone()).unwrap().replacen("\"version\": 1", "\"version\": 2", 1);
    std::fs::write(&manifest, newer).unwrap();
    assert!(place.refuse(&place.url()).contains("open it with a newer graphmill"));
    flip(&{
        std::fs::write(&manifest, &whole).unwrap();
        place.array("part-00001/nodes/paper/feature.x.f32")
    });
    // A manifest that fits again is another dataset, not a damaged one.
    reseal(&place.far());
    place.download(&place.url(), None).unwrap();

    std::fs::remove_file(&manifest).unwrap();
    let url = place.url();
    assert_eq!(
        place.refuse(&url),
        format!("cannot fetch {url}/manifest.json: it does not exist; check the bucket and the path")
    );
    assert!(place.refuse("ftp://host/g").contains("ftp:// is not supported"));
    assert!(place.refuse("file://g").contains("needs an absolute path"));
    let message = place.refuse("https://user:hush@host/g?signature=hush");
    assert!(message.starts_with("https://host/g: URLs with a query") && !message.contains("hush"), "{message}");
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let place = Place::new();
    std::fs::write(place.cache(), "a file").unwrap();
    let message = place.refuse(&place.url());
    assert!(message.starts_with(&format!("cannot create {}/", place.cache().display())), "{message}");
}
