//! The handles of a load's blocks, in pieces of neighbouring ones, so that what an owner asks for
//! in a row has handles in a row.

/// Handles of a piece.
const PIECE: u32 = 16;

/// The handles that nobody has. Pieces that were given back are handed out again, so that there
/// are about as many handles as blocks.
#[derive(Default)]
pub(crate) struct Handles {
    /// The first handle that was never handed out.
    next: u32,
    /// The first handles of pieces that were given back, and single handles.
    pieces: Vec<u32>,
    singles: Vec<u32>,
}

/// The handles of one owner, in the order in which it got them.
#[derive(Default)]
pub(crate) struct HandleRow {
    /// The first handle of each of its pieces, of which the last may be used in part.
    pieces: Vec<u32>,
    count: u32,
}

impl Handles {
    fn piece(&mut self) -> u32 {
        self.pieces.pop().unwrap_or_else(|| {
            // At most 2^30 frames are used; a piece has a handle at least that is.
            self.next += PIECE;
            self.next - PIECE
        })
    }

    /// Hands out a single handle.
    pub(crate) fn single(&mut self) -> u32 {
        if self.singles.is_empty() {
            let first = self.piece();
            self.singles.extend((first..first + PIECE).rev());
        }
        self.singles.pop().unwrap_or_default()
    }

    /// Takes a single handle back.
    pub(crate) fn give_single(&mut self, id: u32) {
        self.singles.push(id);
    }

    /// Takes the handles of an owner back.
    pub(crate) fn give(&mut self, row: HandleRow) {
        // The next owner gets them in the same order.
        self.pieces.extend(row.pieces.into_iter().rev());
    }

    /// Checks that each handle is either free or in one of the rows or among the single ones that
    /// are in use.
    pub(crate) fn check<'r>(
        &self,
        rows: impl Iterator<Item = &'r HandleRow>,
        singles: impl Iterator<Item = u32>,
    ) -> Result<(), &'static str> {
        let mut seen = vec![false; self.next as usize];
        let mut see = |id: u32| {
            let seen = seen.get_mut(id as usize).ok_or("a handle that was never handed out")?;
            if std::mem::replace(seen, true) { Err("a handle with two owners") } else { Ok(()) }
        };
        let mut pieces = self.pieces.clone();
        for row in rows {
            if row.pieces.len() as u32 != row.count.div_ceil(PIECE) {
                return Err("an owner with a piece too many or too few");
            }
            pieces.extend(&row.pieces);
        }
        pieces.into_iter().flat_map(|first| first..first + PIECE).try_for_each(&mut see)?;
        singles.chain(self.singles.iter().copied()).try_for_each(&mut see)?;
        if seen.contains(&false) {
            return Err("a handle that is neither owned nor free");
        }
        Ok(())
    }
}

impl HandleRow {
    /// Adds so many handles, and calls `got` with the first of each piece's and their number.
    pub(crate) fn extend(
        &mut self,
        handles: &mut Handles,
        count: u32,
        mut got: impl FnMut(u32, u32),
    ) {
        let mut left = count;
        while left > 0 {
            let used = self.count % PIECE;
            if used == 0 {
                self.pieces.push(handles.piece());
            }
            let more = left.min(PIECE - used);
            got(self.pieces[self.pieces.len() - 1] + used, more);
            self.count += more;
            left -= more;
        }
    }

    /// Returns the number of handles.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Returns the handle with this number, from 0.
    pub(crate) fn get(&self, number: u32) -> u32 {
        self.pieces[(number / PIECE) as usize] + number % PIECE
    }

    /// The first handle of each piece, and how many of its handles are the owner's.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (u32, u32)> {
        let left = (0..self.count).step_by(PIECE as usize).map(|passed| self.count - passed);
        self.pieces.iter().zip(left).map(|(&first, left)| (first, left.min(PIECE)))
    }
}

#[cfg(test)]
mod tests {
    use swath_arch::testing::Random;

    use super::*;

    /// Owners get and give back handles at random: each handle has one owner at a time, and there
    /// are few more than are owned at once.
    #[test]
    fn handles_have_one_owner() {
        let mut random = Random::new(1);
        let mut handles = Handles::default();
        let (mut rows, mut singles): (Vec<HandleRow>, Vec<u32>) = (Vec::new(), Vec::new());
        for _ in 0..2000 {
            match random.below(5) {
                0 if rows.len() < 20 => rows.push(HandleRow::default()),
                1 if !rows.is_empty() => {
                    handles.give(rows.swap_remove(random.below(rows.len() as u64) as usize));
                }
                2 if singles.len() < 200 => singles.push(handles.single()),
                3 if !singles.is_empty() => {
                    let which = random.below(singles.len() as u64) as usize;
                    handles.give_single(singles.swap_remove(which));
                }
                _ => {
                    let Some(row) = rows.last_mut() else { continue };
                    let (before, count) = (row.count(), random.below(40) as u32);
                    let mut got = Vec::new();
                    row.extend(&mut handles, count, |first, count| {
                        got.extend(first..first + count);
                    });
                    assert!((before..row.count()).map(|number| row.get(number)).eq(got));
                    let all = row.pieces().flat_map(|(first, count)| first..first + count);
                    assert!(all.eq((0..row.count()).map(|number| row.get(number))));
                }
            }
            handles.check(rows.iter(), singles.iter().copied()).unwrap();
        }
        assert!(handles.next > 1000 && handles.next < 20 * 40 * 20 + 200);
    }
}
