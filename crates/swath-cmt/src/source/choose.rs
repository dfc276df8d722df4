//! The choice of the pages that lie in the longest runs of frames.

/// Of pages of `step` frames, whose frames ascend, chooses `wanted` in the fewest runs: whole runs from
/// the longest on, then the beginning of another. Returns the number of pages that it chose and the
/// number of their runs; these stand at the front of `runs`, in order, each with its length and the
/// place of its first page. There is room for as many runs as there are pages.
///
/// For every run but the first it chooses up to `per_run` pages more, though no more than half of
/// `wanted` in all: that is what the borders between runs cost those who want long blocks.
///
/// O(n log n).
pub(crate) fn choose(
    pages: &[[u64; 2]],
    runs: &mut [[u64; 2]],
    step: u64,
    wanted: usize,
    per_run: usize,
) -> (usize, usize) {
    let mut found = 0;
    for (index, page) in pages.iter().enumerate() {
        if index > 0 && page[0] == pages[index - 1][0] + step {
            runs[found - 1][0] += 1;
        } else {
            runs[found] = [1, index as u64];
            found += 1;
        }
    }
    runs[..found].sort_unstable_by_key(|&[len, start]| (core::cmp::Reverse(len), start));
    let (mut chosen, mut target, mut count) = (0, wanted, 0);
    for run in &mut runs[..found] {
        if chosen >= target {
            break;
        }
        if count > 0 {
            target = (target + per_run).min(wanted + wanted / 2);
        }
        run[0] = run[0].min((target - chosen) as u64);
        chosen += run[0] as usize;
        count += 1;
    }
    runs[..count].sort_unstable_by_key(|&[_, start]| start);
    (chosen, count)
}

#[cfg(test)]
mod tests {
    use super::choose;

    /// The chosen chunks, by number of frame / 512.
    fn chosen(chunks: &[u64], count: usize, per_run: usize) -> Vec<u64> {
        let pages: Vec<[u64; 2]> = chunks.iter().map(|&chunk| [chunk * 512, chunk]).collect();
        let mut runs = vec![[0; 2]; pages.len()];
        let (len, found) = choose(&pages, &mut runs, 512, count, per_run);
        let runs = runs[..found].iter().map(|&[len, start]| start as usize..(start + len) as usize);
        let chosen: Vec<u64> = runs.flat_map(|run| &pages[run]).map(|page| page[1]).collect();
        assert_eq!(chosen.len(), len);
        assert_eq!(chosen.chunk_by(|a, b| a + 1 == *b).count(), found);
        chosen
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
}
