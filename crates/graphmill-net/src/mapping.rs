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
    /// The file must have `len` bytes for as long as this lives, and nobody else may write to it while a reference into it
    /// lives.
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
        let wish = if len < HUGE_PAGE { 0 } else { address_for(len) };
        // SAFETY: where there is room, so that no other mapping changes: the address is only a wish.
        let start = unsafe { mmap(wish as *mut c_void, len, USE, flags, file, 0) }?;
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
        if self.len > 0 {
            // SAFETY: it is this one's own, and no reference into it is left. There is nothing to do where that fails.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

/// Has the system hold a file that nobody else has yet in huge pages, as far as `len` bytes are whole ones; the first byte of
/// each becomes zero. Where it does not, for lack of memory in one piece or because it is too old, everything works as
/// before, more slowly.
///
/// # Errors
/// When there is no memory for the file.
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
    // SAFETY: nobody reads through it.
    let joined = unsafe { Mapping::private(&file, len) }.and_then(|mapping| {
        // SAFETY: the range lies in the mapping; the advice changes where bytes are, not what they are.
        let result = unsafe { libc::madvise(mapping.start.as_ptr().cast(), len, MADV_COLLAPSE) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    });
    if let Err(error) = joined {
        tracing::debug!(%error, bytes = len, "shared memory is not in huge pages");
    }
    Ok(())
}

/// Where `len` bytes could begin at a multiple of a huge page, or zero. It is found by taking more and letting go of it, so
/// somebody else may be there first; then the mapping lies elsewhere, and in small pages.
fn address_for(len: usize) -> usize {
    let Some(len) = len.checked_add(HUGE_PAGE) else { return 0 };
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: where there is room, so that no other mapping changes; nobody else knows it when it is let go of.
    unsafe {
        let Ok(start) = mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), flags) else { return 0 };
        if munmap(start, len).is_ok() { (start as usize).next_multiple_of(HUGE_PAGE) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
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
                assert_eq!((mapping.len(), mapping[len - 1]), (len, 2));
                assert!(len == 1 || mapping[0] == 1 && mapping[1..len - 1].iter().all(|&byte| byte == 0));
            }
            private[len - 1] = 3;
            assert_eq!(shared[len - 1], 2);
            private.forget(usize::MAX).unwrap();
            assert_eq!(private[len - 1], 2);
        }
    }

    #[test]
    fn neither_a_mapping_nor_what_was_taken_to_find_its_place_stays() {
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
