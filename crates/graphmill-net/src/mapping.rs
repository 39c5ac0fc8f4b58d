//! A file in this process's memory, where huge pages can hold it.
//!
//! A page of 4 KiB is found through a table in memory, and its neighbour through another entry of it; a huge page, 2 MiB,
//! takes one entry for all. The system uses them only for what begins at a multiple of their size, in the file and in memory,
//! and for shared memory by itself only where it was set up to. It also makes them when it is asked to.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};

use rustix::io::pwrite;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// The bytes of a huge page, on all systems with pages of 4 KiB.
pub const HUGE_PAGE: usize = 2 << 20;

/// The first bytes of a file, readable and writable here.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns its memory as a boxed slice would, and gives out references by the same rules.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a file so that what is written here is written to it.
    ///
    /// # Errors
    /// When the system has no address space left, or the process has as many mappings as it may.
    ///
    /// # Safety
    /// The file must have `len` bytes for as long as this lives, in pages of the system's size: a file of other pages takes
    /// more room than it is given. Nobody else may write to it while a reference into it lives.
    pub(crate) unsafe fn shared(file: impl AsFd, len: usize) -> io::Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { Self::new(file, len, MapFlags::SHARED) }
    }

    /// Maps a file so that what is written here stays here.
    ///
    /// # Errors
    /// As for [`Self::shared`].
    ///
    /// # Safety
    /// As for [`Self::shared`].
    pub(crate) unsafe fn private(file: impl AsFd, len: usize) -> io::Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { Self::new(file, len, MapFlags::PRIVATE | MapFlags::NORESERVE) }
    }

    /// # Safety
    /// As for [`Self::shared`].
    unsafe fn new(file: impl AsFd, len: usize, flags: MapFlags) -> io::Result<Self> {
        const USE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);
        if len == 0 {
            return Ok(Self { start: NonNull::dangling(), len });
        }
        let start = if len < HUGE_PAGE {
            // SAFETY: where there is room, so that no other mapping changes.
            unsafe { mmap(ptr::null_mut(), len, USE, flags, file, 0) }?
        } else {
            let reserved = reserve(len)?;
            let (before, middle, behind) = around(&reserved, len, rustix::param::page_size());
            // SAFETY: it replaces a part of what was just reserved, which nobody else knows.
            let mapped = unsafe { mmap(middle.start as *mut c_void, len, USE, flags | MapFlags::FIXED, file, 0) };
            release(before);
            release(behind);
            // Where that failed the middle may be free, or somebody else's by now: it is not touched again.
            mapped?
        };
        // A mapping never begins at zero unless that was asked for.
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// Gives up what was written to the first `len` bytes of a private mapping, rounded up to pages.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn forget(&mut self, len: usize) -> io::Result<()> {
        let len = len.min(self.len);
        if len == 0 {
            return Ok(());
        }
        // SAFETY: the range lies in the mapping, and no reference into it lives, for this one is exclusive. The pages come
        // back with the bytes of the file, which are valid as any bytes are.
        let result = unsafe { libc::madvise(self.start.as_ptr().cast(), len, libc::MADV_DONTNEED) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The numbers of the pages that the first `len` bytes lie in.
    pub(crate) fn pages(&self, len: usize, page: usize) -> Range<usize> {
        let start = self.start.as_ptr() as usize;
        start / page..(start + len.min(self.len)).div_ceil(page)
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes are mapped here, readable; who mapped it promised that nobody writes them meanwhile.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Mapping {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and writable.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        release(self.start.as_ptr() as usize..self.start.as_ptr() as usize + self.len);
    }
}

/// Has the system hold a file that nobody else has yet in huge pages, as far as `len` bytes are whole ones; the first byte of
/// each becomes zero. Where it does not, for lack of memory in one piece or because it is too old, everything works as
/// before, more slowly.
///
/// # Errors
/// When there is no memory for the file, or no address space.
pub(crate) fn use_huge_pages(file: impl AsFd, len: usize) -> io::Result<()> {
    /// Of Linux's `mman.h`; libc has it for some C libraries only.
    const MADV_COLLAPSE: libc::c_int = 25;
    let len = len / HUGE_PAGE * HUGE_PAGE;
    if len == 0 {
        return Ok(());
    }
    for start in (0..len).step_by(HUGE_PAGE) {
        // Pages are joined, so one must be there. Written and not touched: a lack of memory is an error and not a signal.
        pwrite(&file, &[0], start as u64)?;
    }
    // Privately: while a child has a shared mapping, forked in this moment, the file could not be sealed.
    // SAFETY: nobody reads through it, and what the advice changes is where bytes are, not what they are.
    let joined = unsafe {
        let mapping = Mapping::private(&file, len)?;
        libc::madvise(mapping.start.as_ptr().cast(), len, MADV_COLLAPSE)
    };
    if joined != 0 {
        tracing::debug!(error = %io::Error::last_os_error(), bytes = len, "shared memory is not in huge pages");
    }
    Ok(())
}

/// Addresses that nothing else is mapped to, with room for `len` bytes that begin at a multiple of a huge page.
fn reserve(len: usize) -> io::Result<Range<usize>> {
    let len = len.checked_add(HUGE_PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: where there is room, so that no other mapping changes.
    let start = unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), flags) }? as usize;
    Ok(start..start + len)
}

/// What is reserved before, for and behind a mapping of `len` bytes, which takes whole pages.
fn around(reserved: &Range<usize>, len: usize, page: usize) -> (Range<usize>, Range<usize>, Range<usize>) {
    let start = reserved.start.next_multiple_of(HUGE_PAGE);
    let end = start + len.next_multiple_of(page);
    (reserved.start..start, start..end, end..reserved.end.next_multiple_of(page))
}

/// Unmaps a range that belongs to the caller. There is nothing to do where that fails, and no reason why it should.
fn release(range: Range<usize>) {
    if !range.is_empty() {
        // SAFETY: the caller owns the range, and no reference into it is left.
        let _ = unsafe { munmap(range.start as *mut c_void, range.len()) };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    fn file(len: usize) -> std::os::fd::OwnedFd {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, len as u64).unwrap();
        file
    }

    /// The addresses that this process has taken.
    fn taken() -> usize {
        let sizes = std::fs::read_to_string("/proc/self/statm").unwrap();
        sizes.split(' ').next().unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
    }

    #[test]
    fn large_mappings_begin_at_huge_pages_and_keep_what_was_written() {
        for len in [1, HUGE_PAGE - 1, HUGE_PAGE, 3 * HUGE_PAGE + 5000] {
            let file = file(len);
            use_huge_pages(&file, len).unwrap();
            // SAFETY: nobody else has the file.
            let mut shared = unsafe { Mapping::shared(&file, len) }.unwrap();
            shared[0] = 1;
            shared[len - 1] = 2;
            // SAFETY: as above; what follows writes one of them only while no reference into the other lives.
            let mut private = unsafe { Mapping::private(&file, len) }.unwrap();
            for mapping in [&shared, &private] {
                assert!(len < HUGE_PAGE || (mapping.as_ptr() as usize).is_multiple_of(HUGE_PAGE));
                assert_eq!((mapping.len(), mapping[len - 1]), (len, 2));
                assert!(len == 1 || mapping[0] == 1 && mapping[1..len - 1].iter().all(|&byte| byte == 0));
            }
            private[len - 1] = 3;
            assert_eq!(shared[len - 1], 2);
            private.forget(usize::MAX).unwrap();
            assert_eq!(private[len - 1], 2);
        }
    }

    proptest! {
        #[test]
        fn a_mapping_lies_within_what_is_reserved_and_the_rest_is_all_of_it(
            first in 0usize..1 << 20, len in HUGE_PAGE..1 << 40, page in prop_oneof![Just(4096usize), Just(65536)],
        ) {
            let reserved = first * page..first * page + len + HUGE_PAGE;
            let (before, middle, behind) = around(&reserved, len, page);
            prop_assert_eq!((before.start, before.end, middle.end), (reserved.start, middle.start, behind.start));
            prop_assert!(middle.start.is_multiple_of(HUGE_PAGE) && middle.len() - len < page);
            prop_assert!(middle.end <= behind.end && behind.end == reserved.end.next_multiple_of(page));
        }
    }

    #[test]
    fn neither_a_mapping_nor_what_was_reserved_around_it_stays() {
        const TIMES: usize = 10_000;
        let len = HUGE_PAGE + 1;
        let file = file(len);
        let before = taken();
        for _ in 0..TIMES {
            // SAFETY: nobody else has the file.
            drop(unsafe { Mapping::shared(&file, len) }.unwrap());
        }
        // Other tests take some too.
        assert!(taken().saturating_sub(before) < TIMES * HUGE_PAGE / 4);
    }

    #[test]
    fn what_is_empty_needs_no_memory() {
        // SAFETY: nobody else has the file.
        let mut mapping = unsafe { Mapping::shared(file(0), 0) }.unwrap();
        use_huge_pages(file(0), 0).unwrap();
        mapping.forget(1).unwrap();
        assert!(mapping.is_empty());
    }
}
