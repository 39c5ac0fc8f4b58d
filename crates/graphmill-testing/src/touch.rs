//! Asks a dataset everything it can be asked. Answers do not matter here; a panic does.

use std::hint::black_box;

use graphmill_graph::{Book, Dataset, Direction, OriginalId, Originals, Split, Tensor};

/// Calls every accessor for every id and row there is, and for some that are not.
pub fn touch_everything(dataset: &Dataset) {
    for place in 0..dataset.node_types().len() {
        touch_node_type(dataset, place);
    }
    for place in 0..dataset.edge_types().len() {
        touch_edge_type(dataset, place);
    }
    let _ = black_box(dataset.compute_fingerprint());
}

fn touch_node_type(dataset: &Dataset, place: usize) {
    touch_book(dataset.node_book(place));
    black_box(dataset.node_cumulative(place).map(|sums| sums.iter().max()));
    for id in some(dataset.node_types()[place].count as usize) {
        let _ = black_box(dataset.locate_node(place, id as u64));
        if let Ok(originals) = black_box(dataset.original_ids(place, &[id as u64])) {
            let _ = black_box(dataset.lookup(place, &originals));
        }
    }
    let keys = [OriginalId::Int(0), OriginalId::Int(i64::MIN), OriginalId::String(""), OriginalId::String("b")];
    for key in keys {
        let _ = black_box(dataset.lookup(place, &[key]));
    }
    for split in Split::ALL {
        let _ = black_box(dataset.split_ids(place, split));
    }
    for (_, partition) in dataset.partitions() {
        let nodes = partition.nodes(place);
        for row in some(nodes.rows()) {
            black_box(nodes.id(row));
            if let Some(originals) = nodes.originals() {
                touch_original(originals, row);
            }
        }
        nodes.label().into_iter().for_each(touch_tensor);
        (0..).map_while(|number| nodes.feature(number)).for_each(touch_tensor);
        black_box(nodes.weights().map(|weights| weights.iter().copied().fold(0.0, f32::max)));
        black_box(nodes.timestamps().map(|timestamps| timestamps.iter().max()));
    }
}

fn touch_edge_type(dataset: &Dataset, place: usize) {
    dataset.edge_book(place).into_iter().for_each(touch_book);
    let _ = black_box(dataset.count_cut(place));
    for (_, partition) in dataset.partitions() {
        let edges = partition.edges(place);
        for row in some(edges.feature(0).map_or(0, Tensor::rows)) {
            black_box(edges.id(row));
        }
        (0..).map_while(|number| edges.feature(number)).for_each(touch_tensor);
        for lists in [Direction::In, Direction::Out].into_iter().filter_map(|direction| edges.lists(direction)) {
            for row in some(lists.rows()) {
                let Ok(list) = lists.list(row) else { continue };
                black_box(lists.neighbors().as_slice().slice(list.clone()).map(|ids| ids.iter().max()));
                black_box(lists.edge_ids().map(|ids| ids.as_slice().slice(list.clone())));
                black_box(lists.weights().map(|weights| &weights[list.clone()]));
                black_box(lists.cumulative().map(|sums| &sums[list.clone()]));
                black_box(lists.alias().map(|table| &table[list.clone()]));
                black_box(lists.timestamps().map(|timestamps| &timestamps[list.clone()]));
            }
        }
    }
}

fn touch_book(book: &Book) {
    for id in some(book.count() as usize) {
        black_box(book.owner(id as u64));
        let _ = black_box(book.locate(id as u64));
        black_box(book.open().locate(id as u64));
    }
}

fn touch_original(originals: &Originals, row: usize) {
    if let Ok(Some(key)) = black_box(originals.get(row)) {
        let _ = black_box(originals.find(key));
    }
}

fn touch_tensor(tensor: &Tensor) {
    for row in some(tensor.rows()) {
        black_box(tensor.row(row).map(|bytes| bytes.iter().max()));
    }
}

/// Every index below `count` and three that are not.
fn some(count: usize) -> impl Iterator<Item = usize> {
    (0..count).chain([count, count + 1, usize::MAX])
}
