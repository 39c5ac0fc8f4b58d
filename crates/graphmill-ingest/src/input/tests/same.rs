//! The same table gives the same columns whatever file it is in.

use std::fmt::Write;

use arrow_array::{Float32Array, Int64Array, StringArray};
use graphmill_graph::DType;
use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
struct Row {
    id: i64,
    label: i8,
    x: [f32; 2],
    key: String,
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let id = prop_oneof![0..1_000_i64, any::<i64>()];
    let float = prop_oneof![-10.0..10.0_f32, prop::num::f32::NORMAL];
    let row = (id, any::<i8>(), [float.clone(), float], "[a-z ,\"\n]{0,8}[a-z]");
    prop::collection::vec(row.prop_map(|(id, label, x, key)| Row { id, label, x, key }), 1..40)
}

/// What the table is in the five kinds of files; npy holds one array only, so it comes as two files.
struct Files {
    tables: Vec<Source>,
    npz: Vec<Source>,
    npy_id: Source,
    npy_x: Source,
}

fn write(folder: &Folder, rows: &[Row]) -> Files {
    let mut text = String::from("id,label,x0,x1,key\n");
    for Row { id, label, x, key } in rows {
        writeln!(text, "{id},{label},{},{},\"{}\"", x[0], x[1], key.replace('"', "\"\"")).unwrap();
    }
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    let labels: Vec<i64> = rows.iter().map(|row| row.label.into()).collect();
    let x = |at: usize| array(rows.iter().map(|row| row.x[at]).collect::<Float32Array>());
    let columns = vec![
        ("id", array(Int64Array::from(ids.clone()))),
        ("label", array(Int64Array::from(labels.clone()))),
        ("x0", x(0)),
        ("x1", x(1)),
        ("key", array(StringArray::from_iter_values(rows.iter().map(|row| &row.key)))),
    ];
    let count = rows.len();
    let npy_id = npy("<i8", &format!("({count},)"), &i64_bytes(&ids));
    let npy_label = npy("<i8", &format!("({count},)"), &i64_bytes(&labels));
    let flat: Vec<f32> = rows.iter().flat_map(|row| row.x).collect();
    let npy_x = npy("<f4", &format!("({count}, 2)"), &f32_bytes(&flat));
    let members = [("id", npy_id.clone()), ("label", npy_label), ("x", npy_x.clone())];
    Files {
        tables: vec![
            folder.write("t.csv", &text),
            folder.write("t.csv.gz", gzip(text.as_bytes())),
            folder.write_parquet("t.parquet", columns),
        ],
        npz: vec![folder.write_npz("s.npz", false, &members), folder.write_npz("d.npz", true, &members)],
        npy_id: folder.write("id.npy", npy_id),
        npy_x: folder.write("x.npy", npy_x),
    }
}

fn read_skipping(source: &Source, wanted: &[Wanted]) -> Chunk {
    read_with(source, true, wanted, &BadRows::new(OnError::Skip)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn all_kinds_of_files_give_the_same_columns(rows in rows()) {
        let folder = Folder::new();
        let files = write(&folder, &rows);

        // Negative ids are bad rows of a dense column, and take their values with them.
        let kept: Vec<&Row> = rows.iter().filter(|row| row.id >= 0).collect();
        let numbers: Vec<u64> =
            rows.iter().enumerate().filter(|(_, row)| row.id >= 0).map(|(at, _)| at as u64).collect();
        let expected = Chunk {
            rows: numbers.clone(),
            columns: vec![
                Column::Dense(kept.iter().map(|row| row.id as u64).collect()),
                Column::Int(kept.iter().map(|row| row.id).collect()),
                Column::Text(kept.iter().map(|row| row.id.to_string()).collect::<Vec<_>>().iter().map(String::as_str).collect()),
                Column::Rows(kept.iter().map(|row| row.label as u8).collect()),
                Column::Rows(f32_bytes(&kept.iter().flat_map(|row| row.x).collect::<Vec<_>>())),
            ],
        };
        let wanted = |x: Vec<ColumnRef>| [
            want(name("id"), ColumnType::Dense),
            want(name("id"), ColumnType::Int),
            want(name("id"), ColumnType::Text),
            want(name("label"), ColumnType::Value(Some(DType::I8))),
            Wanted { columns: x, kind: ColumnType::Value(None) },
        ];
        for source in &files.tables {
            prop_assert_eq!(&read_skipping(source, &wanted(vec![name("x0"), name("x1")])), &expected, "{}", source.name);
            let keys = read(source, &[want(name("key"), ColumnType::Text)]).unwrap();
            prop_assert_eq!(&keys[0], &Column::Text(rows.iter().map(|row| row.key.as_str()).collect()));
        }
        for source in &files.npz {
            prop_assert_eq!(&read_skipping(source, &wanted(vec![name("x")])), &expected, "{}", source.name);
        }
        let ids = [want(at(0), ColumnType::Dense), want(at(0), ColumnType::Int), want(at(0), ColumnType::Text)];
        let ids = read_skipping(&files.npy_id, &ids);
        prop_assert_eq!(&ids.rows, &numbers);
        prop_assert_eq!(&ids.columns[..], &expected.columns[..3]);
        let x = read(&files.npy_x, &[whole(None)]).unwrap();
        prop_assert_eq!(&x[0], &Column::Rows(f32_bytes(&rows.iter().flat_map(|row| row.x).collect::<Vec<_>>())));
    }
}
