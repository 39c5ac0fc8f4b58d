//! Which pages of a private mapping belong to this process alone, by the kernel's page map.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;

use rustix::ioctl::{Updater, ioctl, opcode};

/// The kernel's page map of the process that opened it; a forked child must open its own, for this one goes on to show the
/// parent. Kept open by whoever looks often: finding the file takes longer than a look into it.
#[derive(Debug)]
pub struct PageMap(Option<File>);

impl PageMap {
    /// The page map of this process. Where there is none, or no descriptor for it, all pages seem to be private.
    pub fn open() -> Self {
        Self(File::open(PATH).ok())
    }

    /// Whether any of `pages` is private. Says yes when the system does not tell.
    pub(crate) fn any_private(&self, pages: &Range<usize>, page: usize) -> bool {
        let Some(map) = &self.0 else { return true };
        scan(map, pages, page).or_else(|_| read(map, pages)).unwrap_or(true)
    }
}

const PATH: &str = "/proc/self/pagemap";

/// Categories of a page, as the scan names them.
const OF_FILE: u64 = 1 << 2;
const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;

/// `struct pm_scan_arg`.
#[repr(C)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_len: u64,
    most_pages: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
    returned: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// Whether [`scan`] works here. Where it does not, pages are looked at one by one, and before Linux 6.11 all huge ones of a file look
/// private that way.
pub(crate) fn scans() -> bool {
    static SCANS: OnceLock<bool> = OnceLock::new();
    // A process that has no descriptor left now may have one later.
    let Ok(map) = File::open(PATH) else { return false };
    *SCANS.get_or_init(|| {
        let page = rustix::param::page_size();
        let own = (&raw const SCANS) as usize / page;
        scan(&map, &(own..own + 1), page).is_ok()
    })
}

/// Whether any of `pages` is private: the kernel looks for the first one itself. It can since Linux 6.7.
///
/// # Errors
/// When the system cannot do that.
fn scan(map: &File, pages: &Range<usize>, page: usize) -> io::Result<bool> {
    const PAGEMAP_SCAN: u32 = opcode::read_write::<Scan>(b'f', 16);
    let mut found = Region::default();
    let mut request = Scan {
        size: size_of::<Scan>() as u64,
        flags: 0,
        start: (pages.start * page) as u64,
        end: (pages.end * page) as u64,
        walk_end: 0,
        regions: (&raw mut found) as u64,
        regions_len: 1,
        most_pages: 1,
        inverted: OF_FILE,
        all_of: OF_FILE,
        any_of: PRESENT | SWAPPED,
        returned: PRESENT | SWAPPED,
    };
    // SAFETY: the request is laid out as the kernel defines it, and names one region of memory to be written, which outlives
    // the call.
    unsafe { ioctl(map, Updater::<PAGEMAP_SCAN, Scan>::new(&mut request)) }?;
    Ok(found.end != 0)
}

/// The same by looking at the word that the page map has for each page.
///
/// # Errors
/// When the page map cannot be read.
#[allow(clippy::host_endian_bytes, reason = "the kernel writes words of this host")]
fn read(map: &File, pages: &Range<usize>) -> io::Result<bool> {
    const WORD: usize = size_of::<u64>();
    const WORDS_AT_ONCE: usize = 1024;
    let mut words = [0; WORDS_AT_ONCE * WORD];
    for first in pages.clone().step_by(WORDS_AT_ONCE) {
        let words = &mut words[..WORDS_AT_ONCE.min(pages.end - first) * WORD];
        map.read_exact_at(words, (first * WORD) as u64)?;
        let (words, _) = words.as_chunks::<WORD>();
        if words.iter().any(|word| is_private(u64::from_ne_bytes(*word))) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a word of the page map is of a page that belongs to this process alone: it is there, or was swapped out, and is
/// not a page of a file or of shared memory.
fn is_private(word: u64) -> bool {
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const OF_FILE: u64 = 1 << 61;
    word & (PRESENT | SWAPPED) != 0 && word & OF_FILE == 0
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use memmap2::MmapOptions;

    use super::*;

    #[test]
    fn both_ways_find_the_one_edited_page_and_nothing_else() {
        let page = rustix::param::page_size();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; 3000 * page]).unwrap();
        // SAFETY: nobody else has the file.
        let mut memory = unsafe { MmapOptions::new().map_copy(&file) }.unwrap();
        assert!(memory.iter().all(|byte| *byte == 7));
        let first = memory.as_ptr() as usize / page;
        let map = File::open(PATH).unwrap();
        let found = |pages: Range<usize>| {
            let read = read(&map, &pages).unwrap();
            match scan(&map, &pages, page) {
                Ok(scanned) => assert_eq!(scanned, read, "{pages:?}"),
                Err(error) => eprintln!("this kernel does not scan: {error}"),
            }
            read
        };
        assert!(!found(first..first + 3000));
        memory[2500 * page + 5] = 8;
        assert!(found(first..first + 3000));
        assert!(found(first + 2500..first + 2501));
        assert!(!found(first..first + 2500));
        assert!(!found(first + 2501..first + 3000));
    }
}
