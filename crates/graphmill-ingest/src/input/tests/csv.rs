use graphmill_graph::DType;

use super::*;

#[test]
fn ids_keys_and_values_are_read_by_name_and_position() {
    let folder = Folder::new();
    let source = folder.write("edges.csv", "src,dst,w,kind\n0,-5,0.5,a\n1,7,2,\"b,\"\"c\"\"\"\r\n");
    let wanted = [
        want(name("src"), ColumnType::Dense),
        want(at(1), ColumnType::Int),
        want(name("kind"), ColumnType::Text),
        want(name("w"), ColumnType::Value(None)),
    ];
    let columns = read(&source, &wanted).unwrap();
    let expected = [
        Column::Dense(vec![0, 1]),
        Column::Int(vec![-5, 7]),
        texts(&["a", "b,\"c\""]),
        Column::Rows(f32_bytes(&[0.5, 2.0])),
    ];
    assert_eq!(columns, expected);
}

#[test]
fn gzip_tabs_spaces_comments_and_a_byte_order_mark_change_nothing() {
    let folder = Folder::new();
    let wanted = [want(at(0), ColumnType::Dense), want(at(1), ColumnType::Dense)];
    let sources = [
        folder.write("a.csv", "s,d\n1,2\n3,4"),
        folder.write("bom.csv", "\u{feff}s,d\n 1, 2\n3 ,4\n\n"),
        folder.write("a.csv.gz", gzip(b"s,d\n1,2\n3,4\n")),
        folder.write("two-members.csv.gz", [gzip(b"s,d\n1,2\n"), gzip(b"3,4\n")].concat()),
        folder.write("a.tsv", "s\td\n1\t2\n3\t4\n"),
        folder.write("a.txt", "# edges\ns\td\n1\t2\n# more\n3\t4\n"),
        folder.write("b.txt", "s d\n1 2\n3 4\n"),
        folder.write("c.txt.gz", gzip(b"s,d\n1,2\n3,4\n")),
    ];
    for source in sources {
        let columns = read(&source, &wanted).unwrap();
        assert_eq!(columns, [Column::Dense(vec![1, 3]), Column::Dense(vec![2, 4])], "{}", source.name);
    }
}

#[test]
fn without_a_header_the_first_line_is_a_row_and_names_are_refused() {
    let folder = Folder::new();
    let source = folder.write("a.csv", "5\n6\n");
    let bad = BadRows::new(OnError::Stop);
    let chunk = read_with(&source, false, &[want(at(0), ColumnType::Int)], &bad).unwrap();
    assert_eq!((chunk.rows, chunk.columns), (vec![0, 1], vec![Column::Int(vec![5, 6])]));
    let error = read_with(&source, false, &[want(name("id"), ColumnType::Int)], &bad).unwrap_err();
    assert!(error.to_string().contains("read without a header"), "{error}");
}

#[test]
fn several_columns_stand_side_by_side_and_none_means_all() {
    let folder = Folder::new();
    let source = folder.write("x.csv", "a,b,c\n1,2,3\n4,5,6\n");
    let bad = BadRows::new(OnError::Stop);
    let some = Wanted { columns: vec![name("c"), at(0)], kind: ColumnType::Value(Some(DType::I8)) };
    let table = Table::open(&source, true, &[some.clone(), whole(None)], &bad).unwrap();
    assert_eq!(table.value_shape(0), (DType::I8, vec![2]));
    assert_eq!(table.value_shape(1), (DType::F32, vec![3]));
    assert_eq!(table.rows(), None);
    let columns = read(&source, &[some, whole(None)]).unwrap();
    assert_eq!(columns[0], Column::Rows(vec![3, 1, 6, 4]));
    assert_eq!(columns[1], Column::Rows(f32_bytes(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])));
}

#[test]
fn one_column_that_is_all_of_the_table_has_scalar_rows() {
    let folder = Folder::new();
    let source = folder.write("y.csv", "3\n");
    let table = Table::open(&source, false, &[whole(Some(DType::I32))], &BadRows::new(OnError::Stop)).unwrap();
    assert_eq!(table.value_shape(0), (DType::I32, vec![]));
}

#[test]
fn nan_is_no_label_and_no_id() {
    let folder = Folder::new();
    let source = folder.write("y.csv", "y\n4.0\nnan\nNaN\n");
    let label = |dtype| want(name("y"), ColumnType::Value(Some(dtype)));
    assert_eq!(read(&source, &[label(DType::I64)]).unwrap(), [Column::Rows(i64_bytes(&[4, -1, -1]))]);
    assert!(failure(&source, &[label(DType::U8)]).contains("row 2: column \"y\": \"nan\" is not a whole number"));
    assert!(failure(&source, &[want(name("y"), ColumnType::Int)]).contains("row 2"));
}

#[test]
fn a_bad_row_stops_with_its_number_and_the_offending_text() {
    let folder = Folder::new();
    let dense = [want(name("id"), ColumnType::Dense)];
    let value = |dtype| [want(name("id"), ColumnType::Value(Some(dtype)))];
    let message = |text: &str, wanted: &[Wanted]| {
        let message = failure(&folder.write("a.csv", format!("id,x\n0,0\n{text},0\n")), wanted);
        message.strip_prefix("a.csv: row 2: ").unwrap_or_else(|| panic!("{message}")).to_owned()
    };
    assert_eq!(message("-1", &dense), "column \"id\": \"-1\" is out of range for a dense id");
    assert_eq!(message("1.5", &dense), "column \"id\": \"1.5\" is not a whole number");
    assert_eq!(message("", &dense), "column \"id\" has no value");
    assert_eq!(
        message("99999999999999999999", &dense),
        "column \"id\": \"99999999999999999999\" is out of range for a dense id"
    );
    assert_eq!(message("1,2", &dense), "it has 3 fields, expected 2");
    assert_eq!(message("300", &value(DType::U8)), "column \"id\": \"300\" is out of range for u8");
    assert_eq!(message("1e39", &value(DType::F32)), "column \"id\": \"1e39\" is out of range for f32");
    let long = "z".repeat(50);
    assert_eq!(message(&long, &dense), format!("column \"id\": \"{}…\" is not a number", "z".repeat(40)));
    assert_eq!(message("", &[want(name("id"), ColumnType::Text)]), "column \"id\" has no value");
}

#[test]
fn skipped_rows_leave_no_trace_in_any_column_and_are_counted() {
    let folder = Folder::new();
    let source = folder.write("a.csv", "id,name,x\n0,a,1\n1,,2\n2,c,oops\n3,d,4\n4,e\n");
    let wanted = [
        want(name("id"), ColumnType::Dense),
        want(name("name"), ColumnType::Text),
        want(name("x"), ColumnType::Value(Some(DType::I64))),
    ];
    let (columns, rows, messages) = skipping(&source, &wanted);
    assert_eq!(columns, [Column::Dense(vec![0, 3]), texts(&["a", "d"]), Column::Rows(i64_bytes(&[1, 4]))]);
    assert_eq!(rows, [0, 3]);
    assert_eq!(messages[1], "a.csv: row 3: column \"x\": \"oops\" is not a number");
    assert_eq!(messages.len(), 3);
}

#[test]
fn only_the_first_messages_of_many_skipped_rows_are_kept() {
    let folder = Folder::new();
    let source = folder.write("a.csv", format!("id\n{}", "x\n".repeat(100)));
    let bad = BadRows::new(OnError::Skip);
    let chunk = read_with(&source, true, &[want(at(0), ColumnType::Dense)], &bad.clone()).unwrap();
    assert_eq!((chunk.rows.len(), bad.skipped(), bad.examples().len()), (0, 100, 5));
}

#[test]
fn an_unknown_column_is_refused_with_those_that_exist() {
    let folder = Folder::new();
    let source = folder.write("a.csv", "src,dst,dst\n0,1,2\n");
    let message = |column| failure(&source, &[want(column, ColumnType::Dense)]);
    assert_eq!(message(name("target")), "a.csv: there is no column \"target\"; the columns are src, dst, dst");
    assert_eq!(message(at(3)), "a.csv: there is no column 3 (counted from 0); the columns are src, dst, dst");
    assert!(message(name("dst")).contains("there twice"));
}

#[test]
fn an_empty_file_has_no_rows_but_a_header_must_be_there() {
    let folder = Folder::new();
    let source = folder.write("a.csv", "");
    let bad = BadRows::new(OnError::Stop);
    assert!(read_with(&source, false, &[want(at(1), ColumnType::Dense)], &bad).unwrap().rows.is_empty());
    assert!(failure(&source, &[want(at(0), ColumnType::Dense)]).contains("expected a header"));
}

#[test]
fn more_rows_than_a_chunk_come_in_order() {
    let count = 150_000_u64;
    let text = (0..count).map(|id| id.to_string()).collect::<Vec<_>>().join("\n");
    let folder = Folder::new();
    let source = folder.write("a.csv", text);
    let bad = BadRows::new(OnError::Stop);
    let chunk = read_with(&source, false, &[want(at(0), ColumnType::Dense)], &bad).unwrap();
    assert_eq!(chunk.rows, (0..count).collect::<Vec<_>>());
    assert_eq!(chunk.columns, [Column::Dense((0..count).collect())]);
}

#[test]
fn text_that_is_not_utf8_is_a_bad_row() {
    let folder = Folder::new();
    let source = folder.write("a.csv", b"id\n\xff\n");
    assert!(failure(&source, &[want(at(0), ColumnType::Text)]).contains("row 1: column \"id\" is not UTF-8 text"));
}

#[test]
fn a_small_table_is_read_as_text_whatever_its_rows_hold() {
    let folder = Folder::new();
    let source = folder.write("triplets.csv.gz", gzip(b"author,writes,paper\npaper, cites ,paper\n\nx\n"));
    let rows = super::super::read_small_csv(&source).unwrap();
    assert_eq!(rows, [vec!["author", "writes", "paper"], vec!["paper", "cites", "paper"], vec!["x"]]);
}
