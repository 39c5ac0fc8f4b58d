//! A batch is the same whoever answers: mapped or loaded, whole or in parts, from one view or from the owners of the nodes.

use std::sync::Arc;

use graphmill_graph::{Dataset, Direction, OpenOptions, Storage};
use graphmill_sample::{
    Answer, AnswerScratch, Batch, Budget, Config, Expand, Fanouts, Hops, Layout, Machine, Need, Plan, Pool, Ppr,
    Result, Seeds, Share, Split, Step, Task, View,
};
use graphmill_testing::{Assignment, assignments, tempdir, write};
use proptest::prelude::*;

use crate::neighbors::seeded_graphs;
use crate::support::{ID, placed, sample};

fn expansions() -> impl Strategy<Value = Expand> {
    let fanouts = proptest::collection::vec(-1i64..4, 0..3);
    let hops = (fanouts, any::<bool>(), any::<bool>()).prop_map(|(fanouts, replace, weighted)| Hops {
        fanouts: Fanouts::Same(fanouts),
        replace,
        weighted,
    });
    let ppr = Ppr { eps: 0.01, max_nodes: Budget::Each(5), neighbors_per_hop: 3, ..Ppr::default() };
    prop_oneof![hops.clone().prop_map(Expand::Neighbors), hops.prop_map(Expand::Induced), Just(Expand::Ppr(ppr))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn parts_and_storage_change_nothing(
        ((graph, node_type, seeds), assignment) in seeded_graphs().prop_flat_map(|seeded| {
            let assignment = assignments(&seeded.0);
            (Just(seeded), assignment)
        }),
        expand in expansions(),
    ) {
        let features = graph.nodes[&node_type].features.keys().cloned().collect();
        let task = Task::Nodes { node_type: Some(node_type) };
        let config = Config { task, expand, features, direction: Some(Direction::In), ..Config::default() };
        let layouts = [Direction::In, Direction::Out];
        let whole = placed(&graph, &layouts, &Assignment::whole(&graph), Storage::Ram);
        let expected = sample(&whole, &config, &seeds)?;
        for (layouts, storage) in [(&layouts[..], Storage::Ram), (&[Direction::In][..], Storage::Mmap)] {
            let parted = placed(&graph, layouts, &assignment, storage);
            let found = sample(&parted, &config, &seeds)?;
            prop_assert_eq!(found.layout().entries(), expected.layout().entries());
            prop_assert_eq!(found.bytes(), expected.bytes());
        }
    }

    #[test]
    fn owners_answer_like_the_whole(
        ((graph, node_type, seeds), assignment) in seeded_graphs().prop_flat_map(|seeded| {
            let assignment = assignments(&seeded.0);
            (Just(seeded), assignment)
        }),
        expand in expansions(),
    ) {
        let folder = tempdir();
        let path = folder.path().join("dataset");
        write(&graph, &path, &[Direction::In], &assignment)?;
        let part = |part: u32| OpenOptions { storage: Storage::Mmap, partitions: Some(vec![part]) };
        let owners: Vec<Dataset> =
            (0..assignment.parts()).map(|owner| Dataset::open_with(&path, &part(owner))).collect::<std::result::Result<_, _>>()?;
        let whole = Dataset::open(&path)?;
        let task = Task::Nodes { node_type: Some(node_type) };
        let config = Config { task, expand, direction: Some(Direction::In), ..Config::default() };

        let plan = Arc::new(Plan::new(config.clone(), &whole)?);
        let views: Vec<View> = owners.iter().map(View::new).collect();
        let mut machine = Machine::new(&plan);
        machine.begin(&plan, Seeds::Nodes(&seeds), ID)?;
        while machine.step(&plan)? == Step::Need {
            for (need, answer) in machine.needs() {
                ask_owners(&whole, &views, &need, answer)?;
            }
        }
        let layout = Layout::of(&plan, &machine);
        let mut buffer = Pool::new(1).take(layout.bytes());
        layout.write(&plan, &machine, buffer.bytes_mut())?;
        let found = Batch::new(ID, machine.batch_size(&plan), Arc::clone(&plan), layout, buffer);
        let expected = sample(&whole, &config, &seeds)?;
        prop_assert_eq!(found.layout().entries(), expected.layout().entries());
        prop_assert_eq!(found.bytes(), expected.bytes());
    }
}

/// Splits a question by owner, has each share answered where its nodes are, and merges the answers.
fn ask_owners(whole: &Dataset, views: &[View], need: &Need<'_>, answer: &mut Answer) -> Result<()> {
    let info = &whole.edge_types()[need.edge_type];
    let owner_type = whole.manifest().node_type(info.name.list_owner(need.direction))?;
    let mut split = Split::default();
    split.split(need, views.len(), |id| Ok(whole.locate_node(owner_type, id)?.partition as usize))?;
    for (share, view) in split.shares().iter_mut().zip(views).filter(|(share, _)| !share.ids.is_empty()) {
        let Share { ids, others, answer } = share;
        view.answer(&Need { ids, others, ..*need }, answer, &mut AnswerScratch::default())?;
    }
    split.merge(need.ask, answer)
}
