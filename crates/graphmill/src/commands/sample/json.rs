//! A batch as JSON (`docs/sampling.md`, section 10).

use graphmill_graph::DType;
use graphmill_sample::{Batch, Config, Expand, Field, Task, TensorView, law};
use serde_json::{Map, Value, json};

pub(super) fn of(batch: &Batch) -> Value {
    let (id, plan) = (batch.id(), batch.plan());
    let mut object = Map::new();
    let mut add = |key: &str, value: Value| object.insert(key.to_owned(), value);
    add("law", json!(law::VERSION));
    add("fingerprint", json!(plan.fingerprint().to_string()));
    add("epoch", json!(id.epoch));
    add("g", json!(id.g));
    add("repeated", json!(id.repeated));
    add("batch_size", json!(batch.batch_size()));
    add("seed", json!(batch.ints(Field::Seed)));
    add("seed_index", json!(batch.ints(Field::SeedIndex)));
    add("nodes", nodes(batch));
    add("edges", edges(batch));
    add("metadata", metadata(batch, plan.config()));
    Value::Object(object)
}

fn nodes(batch: &Batch) -> Value {
    let plan = batch.plan();
    let mut types = Map::new();
    for (place, name) in plan.node_types().enumerate() {
        let ids = batch.ints(Field::Node(place));
        if ids.is_empty() {
            continue;
        }
        let mut nodes = Map::new();
        nodes.insert("node".to_owned(), json!(ids));
        nodes.insert("num_sampled_nodes".to_owned(), json!(batch.ints(Field::NumSampledNodes(place))));
        let features = plan.features(place).enumerate();
        let features = features.map(|(feature, name)| (name.to_owned(), tensor(batch, Field::Feature(place, feature))));
        nodes.insert("features".to_owned(), Value::Object(features.collect()));
        if batch.tensor(Field::Label(place)).is_some() {
            nodes.insert("label".to_owned(), tensor(batch, Field::Label(place)));
        }
        types.insert(name.to_owned(), Value::Object(nodes));
    }
    Value::Object(types)
}

fn edges(batch: &Batch) -> Value {
    let plan = batch.plan();
    let has_edges = |place: &usize| batch.tensor(Field::Row(*place)).is_some();
    let types = plan.walked().enumerate().filter(|(place, _)| has_edges(place)).map(|(place, name)| {
        let mut edges = Map::new();
        edges.insert("type".to_owned(), json!(name));
        edges.insert("row".to_owned(), json!(batch.ints(Field::Row(place))));
        edges.insert("col".to_owned(), json!(batch.ints(Field::Col(place))));
        if batch.tensor(Field::Edge(place)).is_some() {
            edges.insert("edge".to_owned(), json!(batch.ints(Field::Edge(place))));
        }
        edges.insert("num_sampled_edges".to_owned(), json!(batch.ints(Field::NumSampledEdges(place))));
        let features = plan.edge_features(place).enumerate();
        let features =
            features.map(|(feature, name)| (name.to_owned(), tensor(batch, Field::EdgeFeature(place, feature))));
        edges.insert("features".to_owned(), Value::Object(features.collect()));
        Value::Object(edges)
    });
    Value::Array(types.collect())
}

fn metadata(batch: &Batch, config: &Config) -> Value {
    let mut object = Map::new();
    let links = [
        ("edge_label_index", Field::EdgeLabelIndex),
        ("edge_label", Field::EdgeLabel),
        ("src_index", Field::SrcIndex),
        ("dst_pos_index", Field::DstPosIndex),
        ("dst_neg_index", Field::DstNegIndex),
    ];
    for (name, field) in links {
        if batch.tensor(field).is_some() {
            object.insert(name.to_owned(), tensor(batch, field));
        }
    }
    if let [missing] = batch.ints(Field::NegativesMissing) {
        object.insert("negatives_missing".to_owned(), json!(missing));
    }
    if let Task::Anchors { supervision, .. } = &config.task {
        let mut place = 0;
        let mut next = || {
            place += 1;
            tensor(batch, Field::LabelPairs(place - 1))
        };
        let labels = supervision.iter().map(|one| {
            let positive = next();
            let negative = one.negative.as_ref().map(|_| next());
            json!({"positive": one.positive, "y_positive": positive, "negative": one.negative, "y_negative": negative})
        });
        object.insert("labels".to_owned(), Value::Array(labels.collect()));
    }
    if let Expand::Ppr(_) = config.expand {
        object.insert("ppr".to_owned(), ranking(batch));
    }
    Value::Object(object)
}

/// By seed type, then node type.
fn ranking(batch: &Batch) -> Value {
    let names: Vec<&str> = batch.plan().node_types().collect();
    let mut seeds = Map::new();
    for (from, seed_type) in names.iter().enumerate() {
        let mut types = Map::new();
        for (to, name) in names.iter().enumerate() {
            let there = !batch.ints(Field::Node(to)).is_empty() && batch.tensor(Field::PprIndex(from, to)).is_some();
            if there {
                let [index, score, hop] =
                    [Field::PprIndex(from, to), Field::PprScore(from, to), Field::PprHop(from, to)]
                        .map(|field| tensor(batch, field));
                types.insert((*name).to_owned(), json!({"index": index, "score": score, "hop": hop}));
            }
        }
        if !types.is_empty() {
            seeds.insert((*seed_type).to_owned(), Value::Object(types));
        }
    }
    Value::Object(seeds)
}

fn tensor(batch: &Batch, field: Field) -> Value {
    batch.tensor(field).map_or(Value::Null, |tensor| nested(tensor, tensor.shape, tensor.bytes))
}

/// Lists in lists, as the shape says.
fn nested(tensor: TensorView<'_>, shape: &[u64], bytes: &[u8]) -> Value {
    let Some((&extent, inner)) = shape.split_first() else { return number(tensor.dtype, bytes) };
    let size = bytes.len() / (extent as usize).max(1);
    let part = |place: usize| nested(tensor, inner, &bytes[place * size..(place + 1) * size]);
    Value::Array((0..extent as usize).map(part).collect())
}

fn number(dtype: DType, bytes: &[u8]) -> Value {
    fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
        bytes.try_into().unwrap_or([0; N])
    }
    match dtype {
        DType::U8 => json!(u8::from_le_bytes(array(bytes))),
        DType::I8 => json!(i8::from_le_bytes(array(bytes))),
        DType::I32 => json!(i32::from_le_bytes(array(bytes))),
        DType::I64 => json!(i64::from_le_bytes(array(bytes))),
        DType::F16 => json!(f32::from(half::f16::from_le_bytes(array(bytes)))),
        DType::BF16 => json!(f32::from(half::bf16::from_le_bytes(array(bytes)))),
        DType::F32 => json!(f32::from_le_bytes(array(bytes))),
        DType::F64 => json!(f64::from_le_bytes(array(bytes))),
    }
}
