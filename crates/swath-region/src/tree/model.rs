//! The three trees of region starts against an ordered set: every set of starts
//! of a small space, random operations on large ones, every k from 5 to 40.

extern crate std;

use std::collections::BTreeSet;
use std::prelude::v1::*;
use std::{format, vec};

use swath_arch::Vpn;
use swath_arch::testing::Random;

use crate::tree::{DenseTree, LayeredTree, RegionTree, SparseTree, TreeError, dense_tree_words};

/// The model: an ordered set of starts.
struct Model {
    pages: u64,
    starts: BTreeSet<u64>,
}

impl Model {
    fn new(pages: u64) -> Self {
        Self { pages, starts: BTreeSet::from([0]) }
    }

    fn split(&mut self, page: u64) -> Result<(), TreeError> {
        match page {
            page if page >= self.pages => Err(TreeError::OutOfRange),
            page if !self.starts.insert(page) => Err(TreeError::IsStart),
            _ => Ok(()),
        }
    }

    fn union(&mut self, page: u64) -> Result<(), TreeError> {
        match page {
            0 => Err(TreeError::First),
            page if page >= self.pages => Err(TreeError::OutOfRange),
            page if !self.starts.remove(&page) => Err(TreeError::NotStart),
            _ => Ok(()),
        }
    }

    fn find(&self, page: u64) -> Option<u64> {
        (page < self.pages).then(|| *self.starts.range(..=page).next_back().unwrap())
    }

    fn next(&self, page: u64) -> Option<u64> {
        (page < self.pages).then(|| self.starts.range(page + 1..).next().copied()).flatten()
    }
}

fn look(tree: &dyn RegionTree, model: &Model, page: u64, what: &str) {
    let raw = |page: Option<Vpn>| page.map(Vpn::raw);
    assert_eq!(raw(tree.find(Vpn::new(page))), model.find(page), "find {page:#x}, {what}");
    assert_eq!(raw(tree.next(Vpn::new(page))), model.next(page), "next {page:#x}, {what}");
}

/// Random splits, unions and questions. Pages are drawn near one another, near
/// powers of 64 and anywhere, so that every level is reached in every way.
fn random_run(tree: &mut dyn RegionTree, steps: u64, seed: u64, name: &str) {
    let pages = tree.pages();
    let mut model = Model::new(pages);
    let mut random = Random::new(seed);
    for step in 0..steps {
        let what = format!("{name}, seed {seed:#x}, step {step}");
        let page = match random.below(8) {
            0 => random.below(pages + 2),
            1 => pages - 1 - random.below(pages.min(70)),
            2 | 3 => random.below(pages.min(5000)),
            4 => (1 << random.below(pages.trailing_zeros().into())) + random.below(3),
            _ => {
                let near = random.below(pages);
                model.find(near).unwrap()
            }
        };
        if random.below(2) == 0 {
            assert_eq!(tree.split(Vpn::new(page)), model.split(page), "split {page:#x}, {what}");
        } else {
            assert_eq!(tree.union(Vpn::new(page)), model.union(page), "union {page:#x}, {what}");
        }
        for near in [page, page.wrapping_sub(1), page + 1, random.below(pages), pages - 1] {
            look(tree, &model, near, &what);
        }
        if step % (steps / 8) == 0 {
            assert!(tree.check(), "{what}");
        }
    }
    for start in model.starts.clone() {
        assert_eq!(tree.union(Vpn::new(start)), model.union(start), "{name}");
    }
    assert!(tree.check(), "{name}");
    assert_eq!(tree.next(Vpn::new(0)), None);
}

macro_rules! dense {
    ($run:expr, $($k:literal)*) => {
        $({
            let mut words = vec![u64::MAX; dense_tree_words($k)];
            let words: &mut [u64; dense_tree_words($k)] = words.as_mut_slice().try_into().unwrap();
            $run(&mut DenseTree::<$k, _, _>::new(words), concat!("dense ", $k));
        })*
    };
}

fn layered(pages_log2: u32) -> LayeredTree<Vec<u32>> {
    let words = vec![u32::MAX; LayeredTree::words(pages_log2).unwrap()];
    LayeredTree::new(pages_log2, words).unwrap()
}

fn sparse(pages_log2: u32, starts: usize) -> SparseTree<Vec<u64>> {
    let words = vec![u64::MAX; SparseTree::words_needed(pages_log2, starts)];
    SparseTree::new(pages_log2, words).unwrap()
}

#[test]
fn the_layered_tree_takes_the_papers_143756_bytes_and_the_dense_one_133176() {
    assert_eq!(4 * LayeredTree::words(20).unwrap(), 143_756);
    assert_eq!(8 * dense_tree_words(20), 133_176);
    // Words for 2^40 pages: the levels, from 2^34 words to one.
    let levels: usize = [34, 28, 22, 16, 10, 4, 0].into_iter().map(|bits| 1 << bits).sum();
    assert_eq!(dense_tree_words(40), levels);
}

#[test]
fn random_operations_on_every_size() {
    let run = |tree: &mut dyn RegionTree, name: &str| random_run(tree, 2000, 0x5eed, name);
    dense!(run, 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26);
    for k in 5..=20 {
        run(&mut layered(k), &format!("layered {k}"));
    }
    for k in 5..=40 {
        run(&mut sparse(k, 2001), &format!("sparse {k}"));
    }
}

#[test]
fn long_random_runs_at_the_papers_size() {
    for seed in [1, 2, 3] {
        let run = |tree: &mut dyn RegionTree, name: &str| random_run(tree, 60_000, seed, name);
        dense!(run, 20);
        random_run(&mut layered(20), 60_000, seed, "layered");
        random_run(&mut sparse(20, 60_001), 60_000, seed, "sparse");
    }
}

/// Every set of starts among ten pages that lie on both sides of the borders of words,
/// clusters and levels, and every operation on each of them.
#[test]
fn every_set_of_starts_on_the_borders() {
    const PLACES: [u64; 10] = [1, 63, 64, 4095, 4096, 0x7ffff, 0x80000, 0xc0000, 0xffffe, 0xfffff];
    let run = |tree: &mut dyn RegionTree, name: &str| {
        let mut model = Model::new(1 << 20);
        // A Gray code changes one start at a time and meets every set.
        for step in 1_u32..1 << PLACES.len() {
            let page = PLACES[step.trailing_zeros() as usize];
            let at = Vpn::new(page);
            if model.starts.contains(&page) {
                assert_eq!(tree.split(at), Err(TreeError::IsStart), "{name}");
                assert_eq!((tree.union(at), model.union(page)), (Ok(()), Ok(())), "{name}");
            } else {
                assert_eq!(tree.union(at), Err(TreeError::NotStart), "{name}");
                assert_eq!((tree.split(at), model.split(page)), (Ok(()), Ok(())), "{name}");
            }
            for page in PLACES {
                for near in [page - 1, page, page + 1] {
                    look(tree, &model, near, name);
                }
            }
            if step % 64 == 0 {
                assert!(tree.check(), "{name}");
            }
        }
    };
    dense!(run, 20);
    run(&mut layered(20), "layered");
    run(&mut sparse(20, 11), "sparse");
}

/// The whole of a space of 32 pages: a walk over states, seen at every page. Words of
/// all widths end inside a word there.
#[test]
fn every_page_of_a_small_space_can_be_a_start() {
    let run = |tree: &mut dyn RegionTree, name: &str| {
        let mut model = Model::new(32);
        for stride in 1..32 {
            for page in (0..32).step_by(stride) {
                let at = Vpn::new(page);
                match model.starts.contains(&page) {
                    true => assert_eq!(tree.union(at), model.union(page), "{name}"),
                    false => assert_eq!(tree.split(at), model.split(page), "{name}"),
                }
                (0..33).for_each(|page| look(tree, &model, page, name));
            }
            assert!(tree.check(), "{name}");
        }
    };
    dense!(run, 5);
    run(&mut layered(5), "layered");
    run(&mut sparse(5, 32), "sparse");
}

#[test]
fn storage_that_is_too_short_is_refused() {
    let error = LayeredTree::new(20, vec![0; 35_938]).unwrap_err();
    assert_eq!((error.needed, error.given), (35_939, 35_938));
    for k in [0, 4, 21, u32::MAX] {
        assert!(LayeredTree::new(k, vec![0; 64]).is_err());
    }
    for k in [0, 4, 41, u32::MAX] {
        assert!(SparseTree::new(k, vec![0; 6500]).is_err());
    }
    assert!(SparseTree::new(40, vec![0; SparseTree::words_needed(40, 1) - 1]).is_err());
}

#[test]
fn a_sparse_tree_out_of_nodes_says_so_and_stays_as_it_was() {
    // The worst case of the bound: starts that share nothing but the root.
    let mut tree = sparse(40, 3);
    let far = |i: u64| Vpn::new(i << 36);
    assert_eq!((tree.split(far(1)), tree.split(far(2))), (Ok(()), Ok(())));
    assert_eq!(tree.free_nodes(), 0);
    assert_eq!(tree.split(far(3)), Err(TreeError::OutOfNodes));
    assert!(tree.check());
    assert_eq!(tree.find(far(3)), Some(far(2)));
    // Beside a start there is room without a node, and a union gives nodes back.
    assert_eq!(tree.split(Vpn::new(far(2).raw() + 1)), Ok(()));
    assert_eq!(tree.union(far(1)), Ok(()));
    assert_eq!(tree.split(far(3)), Ok(()));
    assert!(tree.check());
}
