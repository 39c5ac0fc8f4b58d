//! A batch is the same whoever answers: mapped or loaded, whole or in parts, from one view or from the owners of the nodes.

use std::sync::Arc;

use graphmill_graph::{DType, Dataset, Direction, OpenOptions, Storage};
use graphmill_sample::{
    Answer, AnswerScratch, Batch, Config, Cut, Field, Layout, Machine, Need, Plan, Pool, Result, SeedList, Share,
    Split, Step, View,
};
use graphmill_testing::{Assignment, Sampling, assignments, samplings, tempdir, write};
use proptest::prelude::*;

use crate::support::{ID, dataset, placed, sampler};

/// A sampler, and a way to share its graph between partitions.
fn placed_samplings() -> impl Strategy<Value = (Sampling, Assignment)> {
    samplings().prop_flat_map(|sampling| {
        let assignment = assignments(&sampling.graph);
        (Just(sampling), assignment)
    })
}

/// All seeds, in one batch.
fn cut(seeds: &SeedList) -> Cut {
    let mut cut = Cut::default();
    cut.fill(seeds, 0..seeds.len() as u64).unwrap();
    cut
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn parts_and_storage_change_nothing((Sampling { graph, config, seeds }, assignment) in placed_samplings()) {
        let cut = cut(&seeds);
        let layouts = [Direction::In, Direction::Out];
        let whole = placed(&graph, &layouts, &Assignment::whole(&graph), Storage::Ram);
        let expected = sampler(&whole, &config)?.sample(cut.seeds(&seeds), ID)?;
        let walked = [config.direction.unwrap()];
        for (layouts, storage) in [(&layouts[..], Storage::Ram), (&walked[..], Storage::Mmap)] {
            let parted = placed(&graph, layouts, &assignment, storage);
            let found = sampler(&parted, &config)?.sample(cut.seeds(&seeds), ID)?;
            prop_assert_eq!(found.layout().entries(), expected.layout().entries());
            prop_assert_eq!(found.bytes(), expected.bytes());
        }
    }

    #[test]
    fn in_half_precision_a_batch_is_the_same_with_features_rounded(Sampling { graph, config, seeds } in samplings()) {
        let (cut, whole) = (cut(&seeds), dataset(&graph));
        let sampled = |feature_dtype| {
            let config = Config { feature_dtype, ..config.clone() };
            sampler(&whole, &config)?.sample(cut.seeds(&seeds), ID)
        };
        let (stored, halved) = (sampled(None)?, sampled(Some(DType::F16))?);
        prop_assert_ne!(stored.plan().config_word(), halved.plan().config_word());
        for entry in stored.layout().entries() {
            let (from, to) = (stored.tensor(entry.field).unwrap(), halved.tensor(entry.field).unwrap());
            prop_assert_eq!(from.shape, to.shape);
            let is_feature = matches!(entry.field, Field::Feature(..) | Field::EdgeFeature(..));
            if !(is_feature && from.dtype == DType::F32) {
                prop_assert_eq!((from.dtype, from.bytes), (to.dtype, to.bytes));
                continue;
            }
            let numbers: &[f32] = bytemuck::cast_slice(from.bytes);
            let expected: Vec<u16> = numbers.iter().map(|&number| half::f16::from_f32(number).to_bits()).collect();
            prop_assert_eq!((to.dtype, to.bytes), (DType::F16, bytemuck::cast_slice(&expected)));
        }
    }

    #[test]
    fn owners_answer_like_the_whole((Sampling { graph, config, seeds }, assignment) in placed_samplings()) {
        // Rows are gathered where the nodes are, by whoever drives the machine.
        let config = Config { features: Vec::new(), edge_features: Vec::new(), labels: false, ..config };
        let folder = tempdir();
        let path = folder.path().join("dataset");
        write(&graph, &path, &[config.direction.unwrap()], &assignment)?;
        let part = |part: u32| OpenOptions { storage: Storage::Mmap, partitions: Some(vec![part]) };
        let owners: Vec<Dataset> =
            (0..assignment.parts()).map(|owner| Dataset::open_with(&path, &part(owner))).collect::<std::result::Result<_, _>>()?;
        let whole = Dataset::open(&path)?;

        let cut = cut(&seeds);
        let plan = Arc::new(Plan::new(config.clone(), &whole)?);
        let views: Vec<View> = owners.iter().map(View::new).collect();
        let mut machine = Machine::new(&plan);
        machine.begin(&plan, cut.seeds(&seeds), ID)?;
        while machine.step(&plan)? == Step::Need {
            for (need, answer) in machine.needs() {
                ask_owners(&whole, &views, &need, answer)?;
            }
        }
        let layout = Layout::of(&plan, &machine);
        let mut buffer = Pool::new(1).take(layout.bytes())?;
        layout.write(&plan, &machine, buffer.bytes_mut())?;
        let found = Batch::new(ID, machine.batch_size(&plan), Arc::clone(&plan), layout, buffer);
        let expected = sampler(&whole, &config)?.sample(cut.seeds(&seeds), ID)?;
        prop_assert_eq!(found.layout().entries(), expected.layout().entries());
        prop_assert_eq!(found.bytes(), expected.bytes());
    }
}

/// Splits a question by owner, has each share answered where its nodes are, and merges the answers.
fn ask_owners(whole: &Dataset, views: &[View], need: &Need<'_>, answer: &mut Answer) -> Result<()> {
    let info = &whole.edge_types()[need.edge_type];
    let owner_type = whole.manifest().node_type(info.name.list_owner(need.direction))?;
    let mut split = Split::default();
    let book = whole.node_book(owner_type).open();
    split.split(need, views.len(), book, |partition| Ok(partition as usize))?;
    for (share, view) in split.shares().iter_mut().zip(views).filter(|(share, _)| !share.ids.is_empty()) {
        let Share { ids, others, answer } = share;
        view.answer(&Need { ids, others, ..*need }, answer, &mut AnswerScratch::default())?;
    }
    split.merge(need.ask, answer)
}
