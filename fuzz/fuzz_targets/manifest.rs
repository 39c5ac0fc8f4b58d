//! No bytes make the manifest's reader panic. Few mutations survive the checksum, so each input is also read with a
//! checksum that fits it.

#![no_main]

use std::path::Path;

use graphmill_graph::{MANIFEST_FILE, Manifest};
use graphmill_testing::seal;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let path = Path::new(MANIFEST_FILE);
    let _ = Manifest::parse(bytes, path);
    let Ok(manifest) = Manifest::parse(&seal(bytes), path) else { return };
    for info in &manifest.node_types {
        for partition in 0..manifest.parts {
            assert!(info.book.rows(partition) <= info.count);
        }
        assert!(info.book.balance(manifest.parts) >= 1.0);
    }
    let _ = manifest.bytes_of(|_| true).checked_add(manifest.book_bytes()).expect("all arrays fit in 64 bits");
});
