//! Damaged files are errors, never panics.

use arrow_array::builder::{Float32Builder, ListBuilder};
use arrow_array::{Int64Array, StringArray};

use super::*;

/// One valid file of each kind with what to read from it.
fn files(folder: &Folder) -> Vec<(Source, Vec<Wanted>)> {
    let ids = npy("<i8", "(2, 4)", &i64_bytes(&[0, 1, 2, 3, 4, 5, 6, 7]));
    let mut lists = ListBuilder::new(Float32Builder::new());
    (0..4_u8).for_each(|row| lists.append_value([Some(f32::from(row)), Some(0.5)]));
    let columns = vec![
        ("src", array(Int64Array::from(vec![0, 1, 2, 3]))),
        ("key", array(StringArray::from(vec!["a", "b", "c", "d"]))),
        ("x", array(lists.finish())),
    ];
    let edges = || vec![want(at(0), ColumnType::Dense), want(at(1), ColumnType::Int)];
    let mut table = vec![want(at(0), ColumnType::Dense), want(at(1), ColumnType::Text)];
    table.push(want(at(2), ColumnType::Value(None)));
    vec![
        (folder.write("a.csv.gz", gzip(b"src,dst\n0,1\n2,3\n")), edges()),
        (folder.write("a.npy", &ids), edges()),
        (folder.write_npz("stored.npz", false, &[("a", ids.clone())]), edges()),
        (folder.write_npz("deflated.npz", true, &[("a", ids)]), edges()),
        (folder.write_parquet("a.parquet", columns), table),
    ]
}

#[test]
fn a_file_cut_short_anywhere_is_an_error() {
    let folder = Folder::new();
    for (source, wanted) in files(&folder) {
        let bytes = fs::read(&source.path).unwrap();
        read(&source, &wanted).unwrap();
        for length in 0..bytes.len() {
            fs::write(&source.path, &bytes[..length]).unwrap();
            let error = read(&source, &wanted).err().map(|error| error.to_string());
            let error = error.unwrap_or_else(|| panic!("{} of {length} bytes was read", source.name));
            assert!(error.starts_with(&source.name), "{error}");
        }
    }
}

#[test]
fn a_flipped_byte_anywhere_is_no_panic() {
    let folder = Folder::new();
    for (source, wanted) in files(&folder) {
        let mut bytes = fs::read(&source.path).unwrap();
        for at in 0..bytes.len() {
            for flip in [0x01, 0x80, 0xff] {
                bytes[at] ^= flip;
                fs::write(&source.path, &bytes).unwrap();
                let _ = read(&source, &wanted);
                bytes[at] ^= flip;
            }
        }
    }
}

#[test]
fn garbage_of_every_kind_is_an_error() {
    let folder = Folder::new();
    let garbage: Vec<u8> = (0..4096_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for name in ["a.csv.gz", "a.txt", "a.csv", "a.parquet", "a.npy", "a.npz"] {
        let source = folder.write(name, &garbage);
        let message = failure(&source, &[want(at(0), ColumnType::Dense)]);
        assert!(message.starts_with(name), "{message}");
    }
}

#[test]
fn a_changed_member_of_an_npz_is_found_by_its_checksum() {
    let folder = Folder::new();
    let source = folder.write_npz("a.npz", false, &[("a", npy("<i8", "(1,)", &i64_bytes(&[0x1122_3344])))]);
    let mut bytes = fs::read(&source.path).unwrap();
    let at = bytes.windows(4).position(|window| window == [0x44, 0x33, 0x22, 0x11]).unwrap();
    bytes[at] ^= 1;
    fs::write(&source.path, bytes).unwrap();
    assert!(failure(&source, &[whole(None)]).contains("the checksum does not match"));
}
