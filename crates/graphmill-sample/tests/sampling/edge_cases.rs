//! The edge cases of `docs/sampling.md`, section 8, and what is refused.

use graphmill_graph::{Direction, EdgeTypeName};
use graphmill_sample::{Config, Expand, Fanouts, Field, Hops, Negatives, Seeds, Supervision, Task, TypeFanouts};
use graphmill_testing::sample as sample_graph;

use crate::support::{ID, dataset, sample, sample_pairs, sampler};

fn papers(fanouts: &[i64]) -> Config {
    Config { task: Task::Nodes { node_type: Some("paper".to_owned()) }, ..Config::neighbors(fanouts) }
}

fn refusal(config: &Config) -> String {
    sampler(&dataset(&sample_graph()), config).unwrap_err().to_string()
}

#[test]
fn an_isolated_seed_has_no_edges_and_later_hops_are_empty() {
    // Nobody cites paper 2 and nobody writes it.
    let batch = sample(&dataset(&sample_graph()), &papers(&[3, 3, 3]), &[2]).unwrap();
    assert_eq!(batch.num_edges(), 0);
    assert_eq!(batch.ints(Field::Node(1)), [2]);
    assert_eq!(batch.ints(Field::NumSampledNodes(1)), [1, 0, 0, 0]);
    assert_eq!(batch.ints(Field::NumSampledEdges(0)), [0, 0, 0]);
}

#[test]
fn no_hops_give_the_seeds_and_their_rows() {
    let config = Config { features: vec!["bytes".to_owned()], labels: true, ..papers(&[]) };
    let batch = sample(&dataset(&sample_graph()), &config, &[4, 0, 4]).unwrap();
    assert_eq!(batch.ints(Field::Node(1)), [4, 0]);
    assert_eq!(batch.ints(Field::SeedIndex), [0, 1, 0]);
    assert_eq!(batch.ints(Field::Seed), [4, 0, 4]);
    assert_eq!(batch.tensor(Field::Feature(1, 0)).unwrap().bytes, [13, 14, 15, 1, 2, 3]);
    assert_eq!(batch.ints(Field::Label(1)).len(), 2);
    assert_eq!(batch.batch_size(), 2);
}

#[test]
fn no_seeds_give_an_empty_batch() {
    let batch = sample(&dataset(&sample_graph()), &papers(&[2, 2]), &[]).unwrap();
    assert_eq!((batch.num_nodes(), batch.num_edges(), batch.batch_size()), (0, 0, 0));
}

#[test]
fn an_unknown_seed_is_named_and_the_sampler_goes_on() {
    let mut sampler = sampler(&dataset(&sample_graph()), &papers(&[-1])).unwrap();
    let error = sampler.sample(Seeds::Nodes(&[4, 5]), ID).unwrap_err().to_string();
    assert_eq!(error, "node id 5 is out of range: there are 5 of type `paper`");
    assert!(sampler.sample(Seeds::Nodes(&[4, u64::MAX]), ID).is_err());
    let batch = sampler.sample(Seeds::Nodes(&[4]), ID).unwrap();
    assert_eq!(batch.ints(Field::Node(1)), [4, 1]);
}

#[test]
fn an_unknown_end_of_a_pair_is_named() {
    let edge_type = Some(EdgeTypeName::new("author", "writes", "paper"));
    let config = Config { task: Task::Links { edge_type, negatives: None }, ..Config::neighbors(&[1]) };
    let error = sample_pairs(&dataset(&sample_graph()), &config, &[(0, 1), (3, 1)]).unwrap_err().to_string();
    assert_eq!(error, "node id 3 is out of range: there are 3 of type `author`");
}

#[test]
fn a_batch_that_grows_too_large_is_refused_and_the_sampler_goes_on() {
    let config = Config { max_edges: 2, ..papers(&[-1, -1]) };
    let mut sampler = sampler(&dataset(&sample_graph()), &config).unwrap();
    let error = sampler.sample(Seeds::Nodes(&[0]), ID).unwrap_err().to_string();
    let expected = "batch 5 of epoch 3 has more than 2 edges; lower the fanouts or the batch size, or raise max_edges of the configuration";
    assert_eq!(error, expected);
    assert_eq!(sampler.sample(Seeds::Nodes(&[2]), ID).unwrap().num_edges(), 0);
}

#[test]
fn a_huge_fanout_with_replacement_is_refused_before_it_is_drawn() {
    let hops = Hops { fanouts: Fanouts::Same(vec![4_000_000_000]), replace: true, weighted: false };
    let config = Config { expand: Expand::Neighbors(hops), ..papers(&[]) };
    let error = sample(&dataset(&sample_graph()), &config, &[0]).unwrap_err().to_string();
    assert!(error.contains("more than 100000000 edges"), "{error}");
}

#[test]
fn a_long_list_does_not_count_as_a_large_batch() {
    let hops = Hops { fanouts: Fanouts::Same(vec![2]), weighted: true, ..Hops::default() };
    let config = Config { expand: Expand::Neighbors(hops), max_edges: 3, ..papers(&[]) };
    // Paper 0 has three authors' edges and one citation; two and one of them are taken.
    let batch = sample(&dataset(&sample_graph()), &config, &[0]).unwrap();
    assert_eq!(batch.num_edges(), 3);
}

#[test]
fn configurations_that_do_not_fit_say_what_does_not() {
    let type_fanouts = |relation: &str, fanouts: &[i64]| TypeFanouts {
        edge_type: EdgeTypeName::new("author", relation, "paper"),
        fanouts: fanouts.to_vec(),
    };
    let per_type = |types: Vec<TypeFanouts>| Config {
        expand: Expand::Neighbors(Hops { fanouts: Fanouts::PerType(types), ..Hops::default() }),
        ..papers(&[])
    };
    let likes = EdgeTypeName::new("author", "likes", "paper");
    let writes = EdgeTypeName::new("author", "writes", "paper");
    let links = |negatives| Config {
        task: Task::Links { edge_type: Some(writes.clone()), negatives: Some(negatives) },
        ..Config::neighbors(&[1])
    };
    let anchors = |positive: &EdgeTypeName, negative: Option<EdgeTypeName>| Config {
        task: Task::Anchors {
            supervision: vec![Supervision { positive: positive.clone(), negative }],
            max_labels: None,
        },
        ..Config::neighbors(&[1])
    };
    let cases = [
        (Config::neighbors(&[1]), "seeds need a node type; there are: author, paper, venue/press"),
        (papers(&[-2]), "a fanout is -2, expected -1 for all, 0 or more"),
        (Config { features: vec!["y".to_owned()], ..papers(&[1]) }, "no node type has a feature `y`"),
        (
            Config { edge_ids: true, ..papers(&[1]) },
            "paper:cites:paper has no edge ids; ingest it with edge_ids = true",
        ),
        (Config { max_edges: 0, ..papers(&[1]) }, "max_edges is 0"),
        (per_type(vec![type_fanouts("likes", &[1])]), "author:likes:paper has label edges, which are never walked"),
        (
            per_type(vec![type_fanouts("writes", &[1]), type_fanouts("writes", &[1, 2])]),
            "give all edge types the same number",
        ),
        (per_type(vec![type_fanouts("writes", &[1]), type_fanouts("writes", &[2])]), "are given twice"),
        (Config { walk: Some(vec![likes.clone()]), ..papers(&[1]) }, "has label edges, which are never walked"),
        (links(Negatives::Binary { amount: f64::NAN, strict: false, weighted: false }), "NaN negatives per pair"),
        (links(Negatives::Triplet { amount: 0, strict: false, weighted: false }), "0 negatives per pair"),
        (
            links(Negatives::Binary { amount: 1.0, strict: false, weighted: true }),
            "node type `author` has no weights to draw negatives by",
        ),
        (anchors(&writes, None), "has message edges; supervision comes from edge types of role \"label\""),
        (anchors(&likes, Some(EdgeTypeName::new("a", "b", "c"))), "there is no edge type `a:b:c`"),
    ];
    for (config, expected) in cases {
        let found = refusal(&config);
        assert!(found.contains(expected), "{found}\n{expected}");
    }
}

#[test]
fn a_direction_that_is_not_stored_is_refused() {
    let graph = sample_graph();
    let dataset = crate::support::placed(
        &graph,
        &[Direction::In],
        &graphmill_testing::Assignment::whole(&graph),
        graphmill_graph::Storage::Mmap,
    );
    let config = Config { direction: Some(Direction::Out), ..papers(&[1]) };
    let error = sampler(&dataset, &config).unwrap_err().to_string();
    assert!(error.contains("author:writes:paper has no `out` lists"), "{error}");
}

#[test]
fn a_batch_that_is_not_wanted_any_more_is_given_up_and_the_sampler_goes_on() {
    let mut sampler = sampler(&dataset(&sample_graph()), &papers(&[2])).unwrap();
    let stopped = std::sync::atomic::AtomicBool::new(true);
    let error = sampler.sample_unless(&stopped, Seeds::Nodes(&[1]), ID).unwrap_err();
    assert_eq!(error.to_string(), "batch 5 of epoch 3 is not needed any more");
    assert!(sampler.sample(Seeds::Nodes(&[1]), ID).is_ok());
}
