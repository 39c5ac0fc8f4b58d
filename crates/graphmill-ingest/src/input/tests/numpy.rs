use graphmill_graph::DType;
use half::f16;

use super::*;

const DENSE: ColumnType = ColumnType::Dense;

#[test]
fn a_whole_array_keeps_its_type_and_row_shape() {
    let numbers: Vec<f32> = (0..12_u8).map(f32::from).collect();
    let folder = Folder::new();
    let source = folder.write("x.npy", npy("<f4", "(2, 3, 2)", &f32_bytes(&numbers)));
    let table = Table::open(&source, false, &[whole(None)], &BadRows::new(OnError::Stop)).unwrap();
    assert_eq!(table.value_shape(0), (DType::F32, vec![3, 2]));
    assert_eq!(table.rows(), Some(2));
    assert_eq!(read(&source, &[whole(None)]).unwrap(), [Column::Rows(f32_bytes(&numbers))]);
    assert_eq!(
        read(&source, &[whole(Some(DType::U8))]).unwrap(),
        [Column::Rows((0..12).collect())],
        "whole floats are integers"
    );
}

#[test]
fn every_element_type_is_read_as_the_nearest() {
    let folder = Folder::new();
    let cases: [(&str, Vec<u8>, DType, Vec<u8>); 11] = [
        ("|b1", vec![1], DType::U8, vec![1]),
        ("|i1", vec![0xff], DType::I8, vec![0xff]),
        ("|u1", vec![200], DType::U8, vec![200]),
        ("<i2", (-2_i16).to_le_bytes().into(), DType::I32, (-2_i32).to_le_bytes().into()),
        ("<u2", 65_535_u16.to_le_bytes().into(), DType::I32, 65_535_i32.to_le_bytes().into()),
        ("<i4", (-3_i32).to_le_bytes().into(), DType::I32, (-3_i32).to_le_bytes().into()),
        ("<u4", u32::MAX.to_le_bytes().into(), DType::I64, i64::from(u32::MAX).to_le_bytes().into()),
        ("<i8", i64::MIN.to_le_bytes().into(), DType::I64, i64::MIN.to_le_bytes().into()),
        ("<u8", 7_u64.to_le_bytes().into(), DType::I64, 7_i64.to_le_bytes().into()),
        ("<f2", f16::PI.to_le_bytes().into(), DType::F16, f16::PI.to_le_bytes().into()),
        ("<f8", 0.1_f64.to_le_bytes().into(), DType::F64, 0.1_f64.to_le_bytes().into()),
    ];
    for (descr, bytes, dtype, expected) in cases {
        let source = folder.write("x.npy", npy(descr, "(1,)", &bytes));
        let table = Table::open(&source, false, &[whole(None)], &BadRows::new(OnError::Stop)).unwrap();
        assert_eq!(table.value_shape(0), (dtype, vec![]), "{descr}");
        assert_eq!(read(&source, &[whole(None)]).unwrap(), [Column::Rows(expected)], "{descr}");
    }
}

#[test]
fn an_edge_list_may_lie_or_stand() {
    let folder = Folder::new();
    let lying = folder.write("a.npy", npy("<i8", "(2, 3)", &i64_bytes(&[0, 1, 2, 10, 11, 12])));
    let standing = folder.write("b.npy", npy("<i8", "(3, 2)", &i64_bytes(&[0, 10, 1, 11, 2, 12])));
    let square = folder.write("c.npy", npy("<i8", "(2, 2)", &i64_bytes(&[0, 1, 10, 11])));
    let wanted = [want(at(0), DENSE), want(at(1), ColumnType::Int)];
    for source in [lying, standing] {
        let columns = read(&source, &wanted).unwrap();
        assert_eq!(columns, [Column::Dense(vec![0, 1, 2]), Column::Int(vec![10, 11, 12])]);
    }
    assert_eq!(read(&square, &wanted).unwrap(), [Column::Dense(vec![0, 1]), Column::Int(vec![10, 11])]);
}

#[test]
fn a_value_may_be_some_columns_of_an_array() {
    let folder = Folder::new();
    let source = folder.write("a.npy", npy("<i8", "(2, 3)", &i64_bytes(&[1, 2, 3, 4, 5, 6])));
    let pair = Wanted { columns: vec![at(2), at(0)], kind: ColumnType::Value(Some(DType::U8)) };
    let one = want(at(1), ColumnType::Value(None));
    assert_eq!(
        read(&source, &[pair, one]).unwrap(),
        [Column::Rows(vec![3, 1, 6, 4]), Column::Rows(i64_bytes(&[2, 5]))]
    );
}

#[test]
fn numbers_are_rendered_as_text_keys() {
    let folder = Folder::new();
    let source = folder.write("a.npy", npy("<i8", "(2,)", &i64_bytes(&[-7, 30])));
    assert_eq!(read(&source, &[want(at(0), ColumnType::Text)]).unwrap(), [texts(&["-7", "30"])]);
}

#[test]
fn numbers_that_do_not_fit_are_bad_rows() {
    let folder = Folder::new();
    let source = folder.write("a.npy", npy("<i8", "(4,)", &i64_bytes(&[1, -1, 300, 2])));
    let (columns, rows, messages) =
        skipping(&source, &[want(at(0), DENSE), want(at(0), ColumnType::Value(Some(DType::U8)))]);
    assert_eq!(columns, [Column::Dense(vec![1, 2]), Column::Rows(vec![1, 2])]);
    assert_eq!(rows, [0, 3]);
    assert_eq!(messages[0], "a.npy: row 2: the array: -1 is out of range for a dense id");
    assert_eq!(messages[1], "a.npy: row 3: the array: 300 is out of range for u8");

    let large = folder.write("b.npy", npy("<u8", "(1,)", &u64::MAX.to_le_bytes()));
    assert!(failure(&large, &[whole(None)]).contains("row 1: the array: 18446744073709551615 is out of range for i64"));
    let floats = folder.write("c.npy", npy("<f4", "(2,)", &f32_bytes(&[f32::NAN, 0.5])));
    assert!(failure(&floats, &[whole(Some(DType::I32))]).contains("row 2: the array: 0.5 is not a whole number"));
    assert!(failure(&floats, &[want(at(0), DENSE)]).contains("row 1: the array: NaN is not a whole number"));
}

#[test]
fn arrays_of_the_wrong_kind_are_refused_with_advice() {
    let folder = Folder::new();
    let message = |bytes: Vec<u8>| failure(&folder.write("a.npy", bytes), &[whole(None)]);
    let fortran = npy_with_header("{'descr': '<i8', 'fortran_order': True, 'shape': (2, 2), }", &[0; 32]);
    assert!(message(fortran).contains("numpy.ascontiguousarray"));
    assert!(message(npy(">i8", "(1,)", &[0; 8])).contains("x.astype('<i8')"));
    assert!(message(npy("|O", "(1,)", &[0; 8])).contains("Python objects"));
    assert!(message(npy("<U5", "(1,)", &[0; 20])).contains("numpy type '<U5' is not supported"));
    let record = npy_with_header("{'descr': [('a', '<i8')], 'fortran_order': False, 'shape': (1,), }", &[0; 8]);
    assert!(message(record).contains("records are not supported"));
    assert!(message(npy("<i8", "()", &[0; 8])).contains("single number"));
    assert!(message(npy("<i8", "(3, 0)", &[])).contains("rows are empty"));
    assert!(message(b"PK not numpy".to_vec()).contains("magic number"));
    assert!(message(npy("<i8", "(3,)", &[0; 16])).contains("cut short"));
}

#[test]
fn a_header_that_lies_about_sizes_allocates_nothing() {
    let folder = Folder::new();
    let message = |bytes: Vec<u8>| failure(&folder.write("a.npy", bytes), &[whole(None)]);
    assert!(message(npy("<i8", "(99999999999, 99999999999, 99999999999)", &[])).contains("more than any file has"));
    assert!(message(npy("<i8", "(99999999999,)", &[])).contains("cut short"));
    assert!(message(npy("<i8", "(0, 99999999999)", &[])).contains("too wide"));
    assert!(message(b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec()).contains("claims 4294967295 bytes"));
}

#[test]
fn ids_in_wide_rows_or_by_name_are_refused() {
    let folder = Folder::new();
    let source = folder.write("a.npy", npy("<i8", "(1, 2, 1)", &i64_bytes(&[1, 2])));
    assert!(failure(&source, &[want(name("id"), DENSE)]).contains("no names"));
    assert!(failure(&source, &[want(at(0), DENSE)]).contains("no column 0"));
}

#[test]
fn members_of_an_npz_are_columns() {
    let folder = Folder::new();
    let members = [
        ("edge_index", npy("<i8", "(2, 3)", &i64_bytes(&[0, 1, 2, 10, 11, 12]))),
        ("x", npy("<f4", "(3, 2)", &f32_bytes(&[0.0, 0.5, 1.0, 1.5, 2.0, 2.5]))),
        ("y", npy("<i8", "(3,)", &i64_bytes(&[7, 8, 9]))),
    ];
    for deflated in [false, true] {
        let source = folder.write_npz("g.npz", deflated, &members);
        let wanted = [
            want(name("edge_index[0]"), DENSE),
            want(name("edge_index[1]"), DENSE),
            want(name("x"), ColumnType::Value(None)),
            want(name("x[1]"), ColumnType::Value(None)),
            want(name("y"), ColumnType::Int),
        ];
        let table = Table::open(&source, false, &wanted, &BadRows::new(OnError::Stop)).unwrap();
        assert_eq!((table.rows(), table.value_shape(2)), (Some(3), (DType::F32, vec![2])));
        let expected = [
            Column::Dense(vec![0, 1, 2]),
            Column::Dense(vec![10, 11, 12]),
            Column::Rows(f32_bytes(&[0.0, 0.5, 1.0, 1.5, 2.0, 2.5])),
            Column::Rows(f32_bytes(&[0.5, 1.5, 2.5])),
            Column::Int(vec![7, 8, 9]),
        ];
        assert_eq!(read(&source, &wanted).unwrap(), expected);
        let message = failure(&source, &[whole(None)]);
        assert_eq!(message, "g.npz: say which array to read; the arrays are edge_index, x, y");
        assert!(failure(&source, &[want(name("z"), DENSE)]).contains("there is no array \"z\"; the arrays are"));
        assert!(failure(&source, &[want(name("x"), DENSE)]).contains("expected one number"));
    }
}

#[test]
fn the_only_member_of_an_npz_needs_no_name() {
    let folder = Folder::new();
    let source = folder.write_npz("e.npz", true, &[("arr_0", npy("<i8", "(2, 2)", &i64_bytes(&[1, 2, 3, 4])))]);
    assert_eq!(read(&source, &[whole(None)]).unwrap(), [Column::Rows(i64_bytes(&[1, 2, 3, 4]))]);
    assert_eq!(read(&source, &[want(at(1), DENSE)]).unwrap(), [Column::Dense(vec![3, 4])]);
}

#[test]
fn members_of_different_length_are_refused_together() {
    let folder = Folder::new();
    let members = [("a", npy("<i8", "(1,)", &i64_bytes(&[1]))), ("b", npy("<i8", "(2,)", &i64_bytes(&[1, 2])))];
    let source = folder.write_npz("e.npz", false, &members);
    let message = failure(&source, &[want(name("a"), DENSE), want(name("b"), DENSE)]);
    assert_eq!(message, "e.npz: array \"a\" has 1 rows, but array \"b\" has 2");
}

#[test]
fn more_rows_than_a_chunk_come_in_order() {
    let numbers: Vec<i64> = (0..300_000).collect();
    let bytes = npy("<i8", "(2, 150000)", &i64_bytes(&numbers));
    let folder = Folder::new();
    let sources = [folder.write("a.npy", &bytes), folder.write_npz("a.npz", true, &[("a", bytes)])];
    for source in sources {
        let chunk = read_with(&source, false, &[want(at(0), DENSE), want(at(1), DENSE)], &BadRows::new(OnError::Stop));
        let chunk = chunk.unwrap();
        assert_eq!(chunk.rows, (0..150_000).collect::<Vec<_>>());
        assert_eq!(chunk.columns, [Column::Dense((0..150_000).collect()), Column::Dense((150_000..300_000).collect())]);
    }
}
