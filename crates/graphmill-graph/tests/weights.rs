//! The tables of integer weights are exact, whatever the weights are.

use graphmill_graph::alias::{self, Entry};
use graphmill_graph::weights;
use proptest::prelude::*;

/// The bits of any finite number that is not negative.
fn any_weight() -> impl Strategy<Value = u32> {
    prop_oneof![1 => Just(0u32), 1 => Just(1 << 31), 6 => 0..=f32::MAX.to_bits()]
}

/// Weights of about one magnitude, as most lists have them.
fn near_weight() -> impl Strategy<Value = u32> {
    prop_oneof![1 => Just(0u32), 6 => (1e-3f32..1.0).prop_map(f32::to_bits)]
}

fn lists() -> impl Strategy<Value = Vec<u32>> {
    prop_oneof![proptest::collection::vec(any_weight(), 0..300), proptest::collection::vec(near_weight(), 0..300)]
}

proptest! {
    #[test]
    fn sums_in_doubles_are_those_in_whole_numbers(list in lists()) {
        let weights: Vec<f32> = list.iter().copied().map(f32::from_bits).collect();
        let sums: Vec<u64> = weights::running_sums(&weights).collect();
        prop_assert_eq!(&sums, &graphmill_testing::running_sums(&list));
        prop_assert!(sums.last().is_none_or(|&sum| sum < 1 << 62));
    }

    #[test]
    fn alias_tables_in_two_sweeps_are_those_in_one(list in lists()) {
        let weights: Vec<f32> = list.iter().copied().map(f32::from_bits).collect();
        prop_assert_eq!(alias::table(&weights).collect::<Vec<_>>(), graphmill_testing::alias_table(&list));
    }

    #[test]
    fn each_place_has_the_share_of_the_cells_that_its_weight_has_of_the_sum(list in lists()) {
        let weights: Vec<f32> = list.iter().copied().map(f32::from_bits).collect();
        let sums: Vec<u64> = weights::running_sums(&weights).collect();
        let total = sums.last().copied().unwrap_or(0);
        prop_assume!(total > 0);
        // In units of 2^-32 cells, and how many cells a place has a part in.
        let mut shares = vec![(0u128, 0u128); list.len()];
        for (place, entry) in alias::table(&weights).map(Entry::from_word).enumerate() {
            prop_assert_eq!(entry.threshold > 0, weights[place] > 0.0);
            for (owner, share) in [(place, entry.threshold.into()), (entry.other as usize, (1 << 32) - u128::from(entry.threshold))] {
                shares[owner].0 += share;
                shares[owner].1 += u128::from(share > 0);
            }
        }
        let mut before = 0;
        for ((&weight, &sum), (share, cells)) in weights.iter().zip(&sums).zip(shares) {
            let expected = (u128::from(sum - before) * list.len() as u128 * (1 << 32)) / u128::from(total);
            prop_assert!(share.abs_diff(expected) <= cells, "{} of {}: {} and {}", weight, total, share, expected);
            prop_assert_eq!(share > 0, weight > 0.0);
            before = sum;
        }
    }

    #[test]
    fn each_weight_has_the_share_of_the_draws_that_it_has_of_the_sum(list in proptest::collection::vec(near_weight(), 1..300)) {
        let weights: Vec<f32> = list.iter().copied().map(f32::from_bits).collect();
        let total: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
        let sums: Vec<u64> = weights::running_sums(&weights).collect();
        let mut before = 0;
        for (&weight, &sum) in weights.iter().zip(&sums) {
            let (share, expected) = ((sum - before) as f64 / sums[sums.len() - 1].max(1) as f64, f64::from(weight) / total.max(1e-9));
            prop_assert!((share - expected).abs() <= 1e-9 * expected, "{} of {}: {} and {}", weight, total, share, expected);
            before = sum;
        }
    }
}
