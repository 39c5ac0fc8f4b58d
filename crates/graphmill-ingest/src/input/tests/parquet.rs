use arrow_array::builder::{FixedSizeListBuilder, Float32Builder, Int64Builder, ListBuilder};
use arrow_array::types::Int32Type;
use arrow_array::{
    BooleanArray, Decimal128Array, DictionaryArray, Float32Array, Float64Array, Int16Array, Int32Array, Int64Array,
    StringArray, TimestampMillisecondArray, UInt64Array,
};
use graphmill_graph::DType;

use super::*;

const INT: ColumnType = ColumnType::Int;

fn value(column: &str) -> Wanted {
    want(name(column), ColumnType::Value(None))
}

#[test]
fn scalars_of_every_kind_are_read_as_the_nearest_type() {
    let folder = Folder::new();
    let dictionary: DictionaryArray<Int32Type> = ["5", "6", "5"].into_iter().collect();
    let columns = vec![
        ("i16", array(Int16Array::from(vec![-1, 2, 3]))),
        ("u64", array(UInt64Array::from(vec![1, 2, 3]))),
        ("f32", array(Float32Array::from(vec![0.5, 1.5, f32::NAN]))),
        ("bool", array(BooleanArray::from(vec![true, false, true]))),
        ("time", array(TimestampMillisecondArray::from(vec![10, 20, 30]))),
        ("decimal", array(Decimal128Array::from(vec![7, 8, 9]).with_precision_and_scale(38, 0).unwrap())),
        ("string", array(StringArray::from(vec!["10", "11", "nan"]))),
        ("dictionary", array(dictionary)),
    ];
    let source = folder.write_parquet("a.parquet", columns);
    let expected: [(&str, DType, Vec<u8>); 6] = [
        ("i16", DType::I32, [-1_i32, 2, 3].iter().flat_map(|n| n.to_le_bytes()).collect()),
        ("u64", DType::I64, i64_bytes(&[1, 2, 3])),
        ("bool", DType::U8, vec![1, 0, 1]),
        ("time", DType::I64, i64_bytes(&[10, 20, 30])),
        ("decimal", DType::I64, i64_bytes(&[7, 8, 9])),
        ("dictionary", DType::F32, f32_bytes(&[5.0, 6.0, 5.0])),
    ];
    let wanted: Vec<Wanted> = expected.iter().map(|(name, ..)| value(name)).collect();
    let table = Table::open(&source, false, &wanted, &BadRows::new(OnError::Stop)).unwrap();
    assert_eq!(table.rows(), Some(3));
    for (at, (column, (name, dtype, bytes))) in read(&source, &wanted).unwrap().into_iter().zip(expected).enumerate() {
        assert_eq!(table.value_shape(at), (dtype, vec![]), "{name}");
        assert_eq!(column, Column::Rows(bytes), "{name}");
    }
    let labels = [want(name("string"), ColumnType::Value(Some(DType::I8))), want(name("dictionary"), INT)];
    assert_eq!(read(&source, &labels).unwrap(), [Column::Rows(vec![10, 11, 0xff]), Column::Int(vec![5, 6, 5])]);
    let keys = [want(name("i16"), ColumnType::Text), want(name("dictionary"), ColumnType::Text)];
    assert_eq!(read(&source, &keys).unwrap(), [texts(&["-1", "2", "3"]), texts(&["5", "6", "5"])]);
}

#[test]
fn scalar_columns_stand_side_by_side_in_the_order_asked() {
    let columns = vec![
        ("a", array(Int32Array::from(vec![1, 2]))),
        ("b", array(Float64Array::from(vec![0.25, 0.5]))),
        ("c", array(Int32Array::from(vec![3, 4]))),
    ];
    let folder = Folder::new();
    let source = folder.write_parquet("a.parquet", columns);
    let pair = Wanted { columns: vec![name("c"), at(0)], kind: ColumnType::Value(Some(DType::U8)) };
    assert_eq!(read(&source, &[pair]).unwrap(), [Column::Rows(vec![3, 1, 4, 2])]);
    let table = Table::open(&source, false, &[whole(None)], &BadRows::new(OnError::Stop)).unwrap();
    assert_eq!(table.value_shape(0), (DType::F64, vec![3]));
}

#[test]
fn lists_are_rows_and_their_length_must_not_change() {
    let mut lists = ListBuilder::new(Float32Builder::new());
    lists.append_null();
    lists.append_value([Some(1.0), Some(2.0)]);
    lists.append_value([Some(3.0)]);
    lists.append_value([Some(4.0), None]);
    lists.append_value([Some(5.0), Some(6.0)]);
    let folder = Folder::new();
    let source = folder.write_parquet("x.parquet", vec![("x", array(lists.finish()))]);
    let table = Table::open(&source, false, &[whole(None)], &BadRows::new(OnError::Stop)).unwrap();
    assert_eq!(table.value_shape(0), (DType::F32, vec![2]));
    let (columns, rows, messages) = skipping(&source, &[value("x")]);
    assert_eq!(columns, [Column::Rows(f32_bytes(&[1.0, 2.0, 5.0, 6.0]))]);
    assert_eq!(rows, [1, 4]);
    assert_eq!(messages[0], "x.parquet: row 1: column \"x\" has no value");
    assert_eq!(messages[1], "x.parquet: row 3: column \"x\" has 1 values, the first row has 2");
    assert_eq!(messages[2], "x.parquet: row 4: column \"x\" has no value");
}

#[test]
fn lists_of_fixed_size_are_rows() {
    let mut lists = FixedSizeListBuilder::new(Int64Builder::new(), 2);
    for row in [[1, 2], [3, 4]] {
        lists.values().append_slice(&row);
        lists.append(true);
    }
    let folder = Folder::new();
    let source = folder.write_parquet("x.parquet", vec![("x", array(lists.finish()))]);
    let wanted = want(name("x"), ColumnType::Value(Some(DType::U8)));
    assert_eq!(read(&source, &[wanted]).unwrap(), [Column::Rows(vec![1, 2, 3, 4])]);
    assert!(failure(&source, &[want(name("x"), INT)]).contains("expected one number in each row"));
}

#[test]
fn nulls_and_numbers_that_do_not_fit_are_bad_rows() {
    let columns = vec![
        ("id", array(Int64Array::from(vec![Some(1), None, Some(-3), Some(4)]))),
        ("name", array(StringArray::from(vec![Some("a"), Some("b"), Some("c"), Some("")]))),
    ];
    let folder = Folder::new();
    let source = folder.write_parquet("a.parquet", columns);
    let wanted = [want(name("id"), ColumnType::Dense), want(name("name"), ColumnType::Text)];
    let (columns, rows, messages) = skipping(&source, &wanted);
    assert_eq!((columns, rows), (vec![Column::Dense(vec![1]), texts(&["a"])], vec![0]));
    assert_eq!(messages[1], "a.parquet: row 3: column \"id\": -3 is out of range for a dense id");
    assert_eq!(messages[2], "a.parquet: row 4: column \"name\" has no value");
    assert!(failure(&source, &wanted).contains("a.parquet: row 2: column \"id\" has no value"));
    assert!(failure(&source, &[want(name("name"), INT)]).contains("row 1: column \"name\": \"a\" is not a number"));
}

#[test]
fn an_unknown_column_is_refused_with_those_that_exist() {
    let columns = vec![("a", array(Int32Array::from(vec![1]))), ("b", array(Int32Array::from(vec![1])))];
    let folder = Folder::new();
    let source = folder.write_parquet("a.parquet", columns);
    let message = failure(&source, &[want(name("c"), INT)]);
    assert_eq!(message, "a.parquet: there is no column \"c\"; the columns are a, b");
    assert!(failure(&source, &[want(at(2), INT)]).contains("there is no column 2"));
}

#[test]
fn more_rows_than_a_chunk_come_in_order() {
    let numbers = array(Int64Array::from((0..150_000).collect::<Vec<_>>()));
    let folder = Folder::new();
    let source = folder.write_parquet("a.parquet", vec![("id", numbers)]);
    let chunk = read_with(&source, false, &[want(at(0), INT)], &BadRows::new(OnError::Stop)).unwrap();
    assert_eq!(chunk.rows, (0..150_000).collect::<Vec<_>>());
    assert_eq!(chunk.columns, [Column::Int((0..150_000).collect())]);
}
