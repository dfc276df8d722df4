//! The choice of the chunks that lie in the longest runs of frames.

use crate::source::chunk::CHUNK_BYTES;

const PAGE_BYTES: usize = 4096;

/// Of chunks sorted by frame keeps the `count` that make the fewest runs, in order, at the front:
/// whole runs from the longest on, then the beginning of another.
pub(crate) fn choose(pairs: &mut [[u64; 2]], count: usize) {
    const STEP: u64 = (CHUNK_BYTES / PAGE_BYTES) as u64;
    let follows = |pairs: &[[u64; 2]], at: usize| at > 0 && pairs[at][0] == pairs[at - 1][0] + STEP;
    // Drops what is too much from the shortest runs, the last of them first.
    let mut len = pairs.len();
    while len > count {
        let (mut shortest, mut best) = (0..0, usize::MAX);
        let mut start = 0;
        for end in 1..=len {
            if end == len || !follows(pairs, end) {
                if end - start <= best {
                    (best, shortest) = (end - start, start..end);
                }
                start = end;
            }
        }
        let drop = best.min(len - count);
        pairs.copy_within(shortest.end..len, shortest.end - drop);
        len -= drop;
    }
}

#[cfg(test)]
mod tests {
    use super::choose;

    /// The kept chunks, by number of frame / 512.
    fn kept(chunks: &[u64], count: usize) -> Vec<u64> {
        let mut pairs: Vec<[u64; 2]> = chunks.iter().map(|&chunk| [chunk * 512, chunk]).collect();
        choose(&mut pairs, count);
        pairs[..count].iter().map(|pair| pair[1]).collect()
    }

    #[test]
    fn the_longest_runs_are_kept_in_order() {
        assert_eq!(kept(&[1, 2, 3], 3), [1, 2, 3]);
        assert_eq!(kept(&[1, 5, 6, 7, 9, 10], 5), [5, 6, 7, 9, 10]);
        assert_eq!(kept(&[1, 5, 6, 7, 9, 10], 3), [5, 6, 7]);
        // Of a run that is cut the beginning stays.
        assert_eq!(kept(&[1, 2, 3, 7, 8, 9, 10], 6).len(), 6);
        assert_eq!(kept(&[4, 8], 1), [4]);
    }
}
