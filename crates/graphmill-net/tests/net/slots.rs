//! Shared memory as its server and its client see it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use graphmill_net::{HUGE_PAGE, HeldSlot, MappedSlot, PageMap, ReceivedSlots, SealedMemory, SharedSlot};
use graphmill_wire::proto;
use memmap2::MmapOptions;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

const BYTES: usize = 10 * 4096 + 100;

/// A slot and its descriptor as a client gets it.
fn slot() -> (SharedSlot, OwnedFd) {
    let shared = SharedSlot::create(BYTES).unwrap();
    let fd = shared.fd().try_clone_to_owned().unwrap();
    (shared, fd)
}

#[test]
fn a_client_sees_what_the_server_writes_before_and_after_it_mapped() {
    let (mut shared, fd) = slot();
    shared.bytes_mut()[BYTES - 1] = 1;
    let mapped = MappedSlot::map(fd, BYTES).unwrap();
    assert_eq!(mapped.bytes()[BYTES - 1], 1);
    shared.bytes_mut()[BYTES - 1] = 2;
    assert_eq!(mapped.bytes()[BYTES - 1], 2);
    assert_eq!((mapped.bytes().len(), shared.bytes().len()), (BYTES, BYTES));
}

#[test]
fn an_edit_stays_with_the_client_is_noticed_and_can_be_given_up() {
    let (mut shared, fd) = slot();
    shared.bytes_mut().fill(1);
    let mut mapped = MappedSlot::map(fd, BYTES).unwrap();
    assert!(!mapped.has_private_pages(&PageMap::open(), BYTES), "nothing was touched");
    assert!(mapped.bytes().iter().all(|&byte| byte == 1));
    assert!(!mapped.has_private_pages(&PageMap::open(), BYTES), "reading is not editing");

    mapped.bytes_mut()[5 * 4096] = 9;
    assert_eq!(shared.bytes()[5 * 4096], 1);
    assert!(mapped.has_private_pages(&PageMap::open(), BYTES));
    assert!(mapped.has_private_pages(&PageMap::open(), 5 * 4096 + 1));
    assert!(!mapped.has_private_pages(&PageMap::open(), 5 * 4096), "the edit lies behind");

    shared.bytes_mut().fill(2);
    assert_eq!((mapped.bytes()[5 * 4096], mapped.bytes()[5 * 4096 + 1]), (9, 1), "an edited page is the client's");
    assert_eq!(mapped.bytes()[0], 2);

    mapped.drop_private_pages(BYTES).unwrap();
    assert!(!mapped.has_private_pages(&PageMap::open(), BYTES));
    assert!(mapped.bytes().iter().all(|&byte| byte == 2));
    mapped.drop_private_pages(0).unwrap();
    mapped.drop_private_pages(usize::MAX).unwrap();
}

#[test]
fn an_edit_of_the_last_bytes_is_noticed() {
    let (_shared, fd) = slot();
    let mut mapped = MappedSlot::map(fd, BYTES).unwrap();
    mapped.bytes_mut()[BYTES - 1] = 9;
    assert!(mapped.has_private_pages(&PageMap::open(), BYTES));
    assert!(mapped.has_private_pages(&PageMap::open(), usize::MAX));
    assert!(!mapped.has_private_pages(&PageMap::open(), 0));
}

#[test]
fn whoever_gets_a_slot_cannot_write_it_or_change_its_size() {
    let (_shared, fd) = slot();
    let file = File::from(fd);
    assert!(MmapOptions::new().len(BYTES).map_raw(&file).is_err(), "mapped shared and writable");
    assert!(file.write_at(&[1], 0).is_err());
    assert!(file.set_len(0).is_err());
    assert!(file.set_len(1 << 20).is_err());
    assert!(fcntl_add_seals(&file, SealFlags::WRITE).is_err());
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let again = File::options().read(true).write(true).open(path);
    assert!(again.is_err() || again.is_ok_and(|file| MmapOptions::new().len(BYTES).map_raw(&file).is_err()));
}

#[test]
fn what_could_be_cut_short_or_changed_is_not_mapped() {
    let memfd = || {
        let fd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, BYTES as u64).unwrap();
        fd
    };
    let refusal = |fd: OwnedFd| MappedSlot::map(fd, BYTES).unwrap_err().to_string();
    assert!(refusal(memfd()).contains("expected at least"));
    for seals in [SealFlags::SHRINK, SealFlags::FUTURE_WRITE] {
        let fd = memfd();
        fcntl_add_seals(&fd, seals).unwrap();
        assert!(refusal(fd).contains("expected at least"), "{seals:?}");
    }
    assert!(refusal(tempfile::tempfile().unwrap().into()).contains("seal"));
    let (_shared, fd) = slot();
    let refused = MappedSlot::map(fd, BYTES + 1).unwrap_err().to_string();
    assert!(refused.contains("has 41060 bytes, expected 41061"), "{refused}");
}

#[test]
fn a_mapping_outlives_the_server() {
    let (mut shared, fd) = slot();
    shared.bytes_mut().fill(3);
    let mapped = MappedSlot::map(fd, BYTES).unwrap();
    drop(shared);
    assert!(mapped.bytes().iter().all(|&byte| byte == 3));
}

#[test]
fn whoever_holds_many_slots_or_many_bytes_is_told_to_copy() {
    const MEGABYTE: usize = 1 << 20;
    for (size, held) in [(MEGABYTE, 12), (MEGABYTE, 13), (40 * MEGABYTE, 3), (40 * MEGABYTE, 4)] {
        let (sender, mut returns) = tokio::sync::mpsc::unbounded_channel();
        let slots = ReceivedSlots::new(sender);
        let take = |slot: u32| {
            let memory = SharedSlot::create(size).unwrap().fd().try_clone_to_owned().unwrap();
            slots.accept(&proto::Slot { slot, bytes: size as u64 }, Some(memory)).unwrap();
            slots.take(slot, size).unwrap()
        };
        let mut all: Vec<HeldSlot> = (0..held).map(take).collect();
        assert_eq!(
            slots.crowded(size),
            held > 12 || (held as usize + 1) * size > 192 * MEGABYTE,
            "{held} of {size} bytes"
        );
        // What is let go goes back, and there is room again.
        all.truncate(1);
        assert!(!slots.crowded(size));
        let back: Vec<u32> = std::iter::from_fn(|| returns.try_recv().ok()).flat_map(|back| back.returned).collect();
        assert_eq!(back, (1..held).collect::<Vec<_>>());
    }
}

#[test]
fn sealed_memory_is_its_parts_and_nobody_can_change_it() {
    let memory = SealedMemory::write(&[b"one ", b"", b"object"]).unwrap();
    assert_eq!((memory.len(), memory.is_empty()), (10, false));
    let again = SealedMemory::check(memory.fd().try_clone_to_owned().unwrap(), 10).unwrap();
    let mut mapped = again.map().unwrap();
    assert_eq!(mapped.bytes(), b"one object");
    mapped.bytes_mut()[0] = b'O';
    assert_eq!(memory.map().unwrap().bytes(), b"one object", "an edit stays where it was made");
    let file = File::from(memory.fd().try_clone_to_owned().unwrap());
    assert!(file.write_at(b"x", 0).is_err() && file.set_len(3).is_err() && file.set_len(30).is_err());
    // What is mapped stays when everything else is gone.
    drop((memory, again, file));
    assert_eq!(mapped.bytes(), b"One object");
}

#[test]
fn memory_of_another_size_or_that_can_change_is_refused() {
    let memory = SealedMemory::write(&[&[7; 5000]]).unwrap();
    for wrong in [0, 4999, 5001, u64::MAX] {
        let error = SealedMemory::check(memory.fd().try_clone_to_owned().unwrap(), wrong).unwrap_err();
        assert!(error.to_string().contains("5000 bytes"), "{error}");
    }
    let (shared, fd) = slot();
    let error = SealedMemory::check(fd, BYTES as u64).unwrap_err();
    assert!(error.to_string().contains("seals"), "its server could write it: {error}");
    drop(shared);
}

/// How many bytes of the mapping that begins here are in huge pages.
fn in_huge_pages(mapping: &[u8]) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let start = format!("{:x}-", mapping.as_ptr() as usize);
    let mut lines = maps.lines().skip_while(|line| !line.starts_with(&start));
    let counted = lines.find_map(|line| line.strip_prefix("ShmemPmdMapped:"));
    counted.map_or(0, |counted| counted.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10)
}

#[test]
fn large_slots_lie_in_huge_pages_on_both_sides_and_edits_in_them_are_noticed() {
    const LARGE: usize = 16 << 20;
    let mut shared = SharedSlot::create(LARGE).unwrap();
    assert!(shared.bytes().iter().all(|&byte| byte == 0));
    shared.bytes_mut().fill(1);
    let mut mapped = MappedSlot::map(shared.fd().try_clone_to_owned().unwrap(), LARGE).unwrap();
    assert!(mapped.bytes().iter().all(|&byte| byte == 1));
    // Memory in one piece may be scarce, another test may have taken the place, and old systems are not asked.
    let is_aligned = (mapped.bytes().as_ptr() as usize).is_multiple_of(HUGE_PAGE);
    if in_huge_pages(shared.bytes()) > 0 && is_aligned {
        assert!(in_huge_pages(mapped.bytes()) > 0);
    } else {
        eprintln!("this system gives no huge pages");
    }
    assert!(!mapped.has_private_pages(&PageMap::open(), LARGE), "reading is not editing");
    mapped.bytes_mut()[LARGE / 2] = 9;
    assert!(
        mapped.has_private_pages(&PageMap::open(), LARGE) && !mapped.has_private_pages(&PageMap::open(), LARGE / 2)
    );
    shared.bytes_mut().fill(2);
    assert_eq!((mapped.bytes()[LARGE / 2], mapped.bytes()[LARGE / 2 + 1], mapped.bytes()[0]), (9, 1, 2));
    mapped.drop_private_pages(LARGE).unwrap();
    assert!(!mapped.has_private_pages(&PageMap::open(), LARGE));
    assert!(mapped.bytes().iter().all(|&byte| byte == 2));
}

#[test]
fn a_file_of_huge_pages_alone_is_not_mapped() {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let made = memfd_create("test", flags).and_then(|fd| rustix::fs::ftruncate(&fd, 4 << 20).map(|()| fd));
    let Ok(fd) = made else {
        return eprintln!("skipped: this system has no such files");
    };
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE).unwrap();
    let fd = || fd.try_clone().unwrap();
    assert!(MappedSlot::map(fd(), 3 << 20).unwrap_err().to_string().contains("file system"));
    assert!(SealedMemory::check(fd(), 4 << 20).unwrap_err().to_string().contains("file system"));
    assert!(SealedMemory::lent(fd(), 3 << 20).unwrap_err().to_string().contains("file system"));
}
