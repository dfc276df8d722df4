//! The choice of the pages that lie in the longest runs of frames.

/// Pages that were chosen.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Choice {
    /// Number of them.
    pub(crate) pages: usize,
    /// Number of their runs.
    pub(crate) runs: usize,
    /// Pages of their longest run.
    pub(crate) longest: usize,
    /// True if the runs have room for as many blocks as one run of the pages wanted.
    pub(crate) has_room: bool,
}

/// Of pages of `step` frames, whose frames ascend, chooses `wanted` in few runs, with room for as many blocks
/// of `block` pages as one run of them has, or as many as there can be; 0 for blocks of any length. Whole
/// runs from the longest on, then the beginning of another; only where room for the blocks wants it the
/// ends of the longest runs are left, as far as no block fills them.
///
/// For every run but the first it chooses up to `block` pages more, though no more than half of `wanted` in
/// all: that is what the borders between runs cost those who want long blocks.
///
/// The chosen runs stand at the front of `runs`, in order, each with its length and the place of its first
/// page. There is room for as many runs as there are pages.
///
/// O(n log n) for n pages.
pub(crate) fn choose(
    pages: &[[u64; 2]],
    runs: &mut [[u64; 2]],
    step: u64,
    wanted: usize,
    block: usize,
) -> Choice {
    let mut found = 0;
    for (index, page) in pages.iter().enumerate() {
        if index > 0 && page[0] == pages[index - 1][0] + step {
            runs[found - 1][0] += 1;
        } else {
            runs[found] = [1, index as u64];
            found += 1;
        }
    }
    let runs = &mut runs[..found];
    runs.sort_unstable_by_key(|&[len, start]| (core::cmp::Reverse(len), start));
    // The pages that blocks fill are chosen in any case; of the others there are `spare`.
    let blocks = wanted.checked_div(block).unwrap_or(0);
    let fit = |run: &[u64; 2], left: usize| (run[0] as usize / block.max(1)).min(left);
    let (mut left, mut needed) = (blocks, 0);
    for run in runs.iter().take_while(|run| run[0] >= block.max(1) as u64) {
        needed += usize::from(left > 0);
        left -= fit(run, left);
    }
    let (fitting, mut more) = (blocks - left, wanted / 2);
    let mut bonus = |runs: usize| {
        let bonus = (block * runs).min(more);
        more -= bonus;
        bonus
    };
    let mut spare = wanted - fitting * block + bonus(needed.saturating_sub(1));
    let mut choice = Choice { has_room: left == 0, ..Choice::default() };
    let mut left = fitting;
    for (index, run) in runs.iter_mut().enumerate() {
        if left == 0 && spare == 0 {
            break;
        }
        spare += bonus(usize::from(index >= needed.max(1)));
        let filled = fit(run, left);
        let beside = spare.min(run[0] as usize - filled * block);
        (left, spare) = (left - filled, spare - beside);
        let len = filled * block + beside;
        run[0] = len as u64;
        choice.pages += len;
        choice.runs += 1;
        choice.longest = choice.longest.max(len);
    }
    runs[..choice.runs].sort_unstable_by_key(|&[_, start]| start);
    choice
}

#[cfg(test)]
mod tests {
    use super::{Choice, choose};

    /// The choice and the chosen chunks, by number of frame / 512.
    fn choice(chunks: &[u64], count: usize, block: usize) -> (Choice, Vec<u64>) {
        let pages: Vec<[u64; 2]> = chunks.iter().map(|&chunk| [chunk * 512, chunk]).collect();
        let mut runs = vec![[0; 2]; pages.len()];
        let choice = choose(&pages, &mut runs, 512, count, block);
        let runs = &runs[..choice.runs];
        let places = runs.iter().map(|&[len, start]| start as usize..(start + len) as usize);
        let chosen: Vec<u64> = places.flat_map(|run| &pages[run]).map(|page| page[1]).collect();
        assert_eq!(chosen.len(), choice.pages);
        let lens: Vec<usize> = chosen.chunk_by(|a, b| a + 1 == *b).map(<[u64]>::len).collect();
        assert!(lens.iter().map(|&len| len as u64).eq(runs.iter().map(|run| run[0])));
        assert_eq!(choice.longest, lens.into_iter().max().unwrap_or(0));
        (choice, chosen)
    }

    fn chosen(chunks: &[u64], count: usize, block: usize) -> Vec<u64> {
        choice(chunks, count, block).1
    }

    /// The blocks of so many chunks that runs of some have room for.
    fn room(chunks: &[u64], block: usize) -> usize {
        chunks.chunk_by(|a, b| a + 1 == *b).map(|run| run.len() / block).sum()
    }

    #[test]
    fn the_longest_runs_are_chosen_in_order() {
        assert_eq!(chosen(&[1, 2, 3], 3, 0), [1, 2, 3]);
        assert_eq!(chosen(&[1, 5, 6, 7, 9, 10], 5, 0), [5, 6, 7, 9, 10]);
        assert_eq!(chosen(&[1, 5, 6, 7, 9, 10], 3, 0), [5, 6, 7]);
        // Of a run that is cut the beginning stays.
        assert_eq!(chosen(&[1, 2, 3, 7, 8, 9, 10], 6, 0), [1, 2, 7, 8, 9, 10]);
        assert_eq!(chosen(&[4, 8], 1, 0), [4]);
        assert_eq!(chosen(&[4, 8], 3, 0), [4, 8]);
        assert_eq!(chosen(&[], 3, 0), [0; 0]);
    }

    #[test]
    fn a_further_run_brings_more_up_to_half() {
        assert_eq!(chosen(&[1, 2, 3, 4, 7, 8, 9, 10], 4, 1), [1, 2, 3, 4]);
        assert_eq!(chosen(&[1, 2, 3, 4, 7, 8, 9, 10], 5, 1), [1, 2, 3, 4, 7, 8]);
        assert_eq!(chosen(&[1, 2, 3, 4, 7, 8, 9, 10], 5, 9), [1, 2, 3, 4, 7, 8, 9]);
    }

    #[test]
    fn runs_of_no_use_give_way_to_those_that_hold_blocks() {
        // Seven are two blocks of three and one more; of six more, three are another block.
        let chunks = [1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 14, 21, 22, 23];
        assert_eq!(chosen(&chunks, 9, 0), [1, 2, 3, 4, 5, 6, 7, 11, 12]);
        assert_eq!(chosen(&chunks, 9, 3), [1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 14, 21, 22]);
        // The borders' share is up: the end of the longest stays behind.
        let chunks = [1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 13, 14, 15, 16, 17];
        let (choice, chosen) = choice(&chunks, 9, 3);
        assert_eq!((choice.has_room, choice.pages), (true, 13));
        assert_eq!(chosen, [1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 13, 14, 15]);
    }

    /// All sets of ten chunks.
    #[test]
    fn there_is_room_for_as_many_blocks_as_can_be() {
        for set in 0_u64..1 << 10 {
            let chunks: Vec<u64> = (0..10).filter(|chunk| set >> chunk & 1 != 0).collect();
            for count in 1..=10 {
                for block in 0..=count + 1 {
                    let place = format!("{count} of {chunks:?}, blocks of {block}");
                    let (choice, chosen) = choice(&chunks, count, block);
                    assert!(choice.pages >= count.min(chunks.len()), "{place}");
                    assert!(choice.pages <= count + count / 2, "{place}");
                    if let Some(wanted) = count.checked_div(block) {
                        let blocks = wanted.min(room(&chunks, block));
                        assert!(room(&chosen, block) >= blocks, "{place}");
                        assert_eq!(choice.has_room, blocks == wanted, "{place}");
                    }
                }
            }
        }
    }
}
