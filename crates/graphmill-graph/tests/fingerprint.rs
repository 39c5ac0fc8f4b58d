//! Two graphs that differ anywhere have different names.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use graphmill_graph::{DType, Direction, EdgeRole, EdgeTypeName, LabelKind, Split};
use graphmill_testing::{
    Assignment, ModelEdges, ModelGraph, ModelNodes, ModelOriginals, ModelTensor, fingerprint, sample, tempdir, write,
};

#[test]
fn any_change_of_the_content_changes_the_fingerprint() {
    let mut named = HashMap::from([(fingerprint(&sample()), "nothing".to_owned())]);
    let mut changes = Changes { what: Vec::new(), changed: Vec::new() };
    changes.of_the_graph();
    for name in sample().nodes.keys() {
        changes.of_node_type(name);
    }
    for name in sample().edges.keys() {
        changes.of_edge_type(name);
    }
    assert!(changes.changed.len() > 300, "only {} changes", changes.changed.len());
    for (what, graph) in changes.what.into_iter().zip(changes.changed) {
        if let Some(other) = named.insert(fingerprint(&graph), what.clone()) {
            panic!("the same fingerprint after a change of {what} and of {other}");
        }
    }
}

#[test]
fn a_change_of_the_content_changes_what_the_writer_states() {
    let folder = tempdir();
    let mut changes = Changes { what: Vec::new(), changed: Vec::new() };
    changes.of_edge_type(&EdgeTypeName::new("author", "writes", "paper"));
    for (number, graph) in changes.changed.iter().enumerate() {
        let assignment = Assignment::ranges(graph, 2);
        let manifest = write(graph, &folder.path().join(number.to_string()), &[Direction::Out], &assignment).unwrap();
        assert_eq!(manifest.fingerprint, fingerprint(graph), "after a change of {}", changes.what[number]);
    }
}

/// Graphs that differ from the sample, and from each other, in one thing.
struct Changes {
    what: Vec<String>,
    changed: Vec<ModelGraph>,
}

impl Changes {
    fn add(&mut self, what: impl Into<String>, change: impl FnOnce(&mut ModelGraph)) {
        let mut graph = sample();
        change(&mut graph);
        assert_ne!(graph, sample());
        self.what.push(what.into());
        self.changed.push(graph);
    }

    fn of_the_graph(&mut self) {
        self.add("a type more", |graph| drop(graph.nodes.insert("w".to_owned(), ModelNodes::default())));
        self.add("a type's name", |graph| {
            let nodes = graph.nodes.remove("venue/press").unwrap();
            graph.nodes.insert("venue press".to_owned(), nodes);
            let edges = graph.edges.remove(&EdgeTypeName::new("paper", "in", "venue/press")).unwrap();
            graph.edges.insert(EdgeTypeName::new("paper", "in", "venue press"), edges);
        });
        self.add("a relation's name", |graph| {
            let edges = graph.edges.remove(&EdgeTypeName::new("paper", "in", "venue/press")).unwrap();
            graph.edges.insert(EdgeTypeName::new("paper", "at", "venue/press"), edges);
        });
        self.add("being homogeneous", |graph| graph.homogeneous = true);
    }

    fn of_node_type(&mut self, name: &str) {
        let nodes = sample().nodes[name].clone();
        let mut add = |what: String, change: &dyn Fn(&mut ModelNodes)| {
            self.add(format!("{name}: {what}"), |graph| change(graph.nodes.get_mut(name).unwrap()));
        };
        add("the count".to_owned(), &|nodes| nodes.count += 1);
        tensor_changes(&nodes.features, |what, features| add(what, &|nodes| nodes.features = features.clone()));
        if let Some(label) = &nodes.label {
            for (row, bytes) in label.rows.iter().enumerate() {
                for at in 0..bytes.len() {
                    add(format!("label byte {row}, {at}"), &|nodes| nodes.label.as_mut().unwrap().rows[row][at] ^= 1);
                }
            }
            add("the label's dtype".to_owned(), &|nodes| nodes.label.as_mut().unwrap().dtype = DType::BF16);
            let other = if label.kind == LabelKind::Multi { LabelKind::Single } else { LabelKind::Multi };
            add("the label's kind".to_owned(), &|nodes| nodes.label.as_mut().unwrap().kind = other);
            add("the label's width".to_owned(), &|nodes| nodes.label.as_mut().unwrap().width += 1);
        }
        add("having a label".to_owned(), &|nodes| match nodes.label {
            Some(_) => nodes.label = None,
            None => nodes.label.clone_from(&sample().nodes["author"].label),
        });
        for row in 0..nodes.weights.as_ref().map_or(0, Vec::len) {
            add(format!("weight {row}"), &|nodes| nodes.weights.as_mut().unwrap()[row] ^= 1);
        }
        add("having weights".to_owned(), &|nodes| {
            nodes.weights = if nodes.weights.is_some() { None } else { Some(vec![0; nodes.count as usize]) };
        });
        for row in 0..nodes.timestamps.as_ref().map_or(0, Vec::len) {
            add(format!("timestamp {row}"), &|nodes| nodes.timestamps.as_mut().unwrap()[row] ^= 1);
        }
        add("having timestamps".to_owned(), &|nodes| {
            nodes.timestamps = if nodes.timestamps.is_some() { None } else { Some(vec![0; nodes.count as usize]) };
        });
        for split in Split::ALL {
            let at = split as usize;
            add(format!("having {split}"), &|nodes| {
                nodes.splits[at] = if nodes.splits[at].is_some() { None } else { Some([].into()) };
            });
            for id in 0..nodes.split(split).map_or(0, |_| nodes.count) {
                add(format!("node {id} in {split}"), &|nodes| {
                    let members = nodes.splits[at].as_mut().unwrap();
                    if !members.remove(&id) {
                        members.insert(id);
                    }
                });
            }
        }
        for row in 0..nodes.count as usize {
            add(format!("original id {row}"), &|nodes| match &mut nodes.originals {
                Some(ModelOriginals::Ints(keys)) => keys[row] += 1,
                Some(ModelOriginals::Strings(keys)) => keys[row].push('!'),
                None => unreachable!("both types with nodes have original ids"),
            });
        }
        add("having original ids".to_owned(), &|nodes| {
            nodes.originals = if nodes.originals.is_some() { None } else { Some(ModelOriginals::Ints(Vec::new())) };
        });
    }

    fn of_edge_type(&mut self, name: &EdgeTypeName) {
        let edges = sample().edges[name].clone();
        let mut add = |what: String, change: &dyn Fn(&mut ModelEdges)| {
            self.add(format!("{name}: {what}"), |graph| {
                let edges = graph.edges.get_mut(name).unwrap();
                change(edges);
                edges.edges.sort_unstable();
            });
        };
        add("the role".to_owned(), &|edges| {
            edges.role = if edges.role == EdgeRole::Label { EdgeRole::Message } else { EdgeRole::Label };
        });
        if edges.edge_ids {
            add("the id space".to_owned(), &|edges| {
                edges.id_count += 1;
                for tensor in edges.features.values_mut() {
                    tensor.rows.push(tensor.rows[0].clone());
                }
            });
        }
        tensor_changes(&edges.features, |what, features| add(what, &|edges| edges.features = features.clone()));
        let distinct: BTreeSet<_> = edges.edges.iter().copied().collect();
        for edge in distinct {
            let place = edges.edges.iter().position(|other| *other == edge).unwrap();
            add(format!("{edge:?} being there"), &|edges| {
                edges.edges.remove(place);
            });
            add(format!("{edge:?} being there again"), &|edges| edges.edges.push(edge));
            add(format!("the source of {edge:?}"), &|edges| edges.edges[place].src = (edge.src + 1) % 3);
            add(format!("the target of {edge:?}"), &|edges| edges.edges[place].dst = (edge.dst + 1) % 5);
            if let Some(id) = edge.id {
                add(format!("the id of {edge:?}"), &|edges| edges.edges[place].id = Some((id + 1) % edges.id_count));
            }
            if let Some(weight) = edge.weight {
                add(format!("the weight of {edge:?}"), &|edges| edges.edges[place].weight = Some(weight ^ 1));
            }
            if let Some(timestamp) = edge.timestamp {
                add(format!("the time of {edge:?}"), &|edges| edges.edges[place].timestamp = Some(timestamp + 1));
            }
        }
    }
}

fn tensor_changes(
    features: &BTreeMap<String, ModelTensor>,
    mut add: impl FnMut(String, &BTreeMap<String, ModelTensor>),
) {
    for (name, tensor) in features {
        let mut add = |what: String, change: &dyn Fn(&mut BTreeMap<String, ModelTensor>)| {
            let mut changed = features.clone();
            change(&mut changed);
            add(format!("feature {name}: {what}"), &changed);
        };
        for (row, bytes) in tensor.rows.iter().enumerate() {
            for at in 0..bytes.len() {
                add(format!("byte {row}, {at}"), &|features| features.get_mut(name).unwrap().rows[row][at] ^= 1);
            }
        }
        add("its first rows' order".to_owned(), &|features| features.get_mut(name).unwrap().rows.swap(0, 1));
        let other = DType::ALL.into_iter().find(|dtype| dtype.size() == tensor.dtype.size() && *dtype != tensor.dtype);
        add("its dtype".to_owned(), &|features| features.get_mut(name).unwrap().dtype = other.unwrap());
        add("its shape".to_owned(), &|features| features.get_mut(name).unwrap().shape.push(1));
        add("being there".to_owned(), &|features| drop(features.remove(name)));
        add("its name".to_owned(), &|features| {
            let tensor = features.remove(name).unwrap();
            features.insert(format!("{name}2"), tensor);
        });
    }
}
