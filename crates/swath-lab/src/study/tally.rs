//! Totals over the verdicts of many claims, for the page and the last line of a run.

use std::fmt;

use crate::study::claim::Claim;
use crate::study::verdict::Verdict;

/// Verdicts of many claims, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    counts: [u64; Verdict::ALL.len()],
    /// Worked examples that come out, and all of them.
    pub examples: (u64, u64),
    /// Claims that hold with a parameter that was chosen after looking.
    pub fitted: u64,
}

impl Tally {
    /// Counts claims; worked examples apart.
    pub fn of<'c>(claims: impl IntoIterator<Item = &'c Claim>) -> Self {
        let mut tally = Self::default();
        for claim in claims {
            if claim.is_example() {
                tally.examples.0 += u64::from(claim.holds());
                tally.examples.1 += 1;
            } else {
                tally.counts[claim.verdict() as usize] += 1;
                tally.fitted += u64::from(claim.holds() && !claim.fitted().is_empty());
            }
        }
        tally
    }

    /// Number of claims with this verdict.
    pub const fn count(&self, verdict: Verdict) -> u64 {
        self.counts[verdict as usize]
    }

    /// Number of claims on which there could be a verdict: all but identities
    /// and those of another machine or load.
    pub const fn comparable(&self) -> u64 {
        self.count(Verdict::Holds)
            + self.count(Verdict::Differs)
            + self.count(Verdict::Undecided)
            + self.count(Verdict::NotMeasured)
    }
}

impl Tally {
    /// The counts by verdict, those that hold with a fitted parameter, and the worked examples.
    pub fn to_json(&self) -> serde_json::Value {
        let counts = Verdict::ALL
            .iter()
            .map(|verdict| (verdict.title().replace(' ', "-"), self.count(*verdict).into()));
        let mut json: serde_json::Map<_, _> = counts.collect();
        json.insert("fitted".to_owned(), self.fitted.into());
        let (held, of) = self.examples;
        json.insert("examples".to_owned(), serde_json::json!({ "hold": held, "of": of }));
        json.into()
    }
}

impl std::ops::Add for Tally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let mut sum = self;
        sum.counts.iter_mut().zip(other.counts).for_each(|(one, two)| *one += two);
        sum.examples.0 += other.examples.0;
        sum.examples.1 += other.examples.1;
        sum.fitted += other.fitted;
        sum
    }
}

impl fmt::Display for Tally {
    /// In one line: "8 of 10 claims hold (2 with fitted parameters), 1 differs, 1 undecided".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (held, of) = self.examples;
        let claims = self.counts.iter().sum::<u64>();
        if claims > 0 {
            let (holds, comparable) = (self.count(Verdict::Holds), self.comparable());
            match comparable {
                0 => write!(f, "no claim to be judged")?,
                1 => write!(f, "{holds} of 1 claim holds")?,
                _ => write!(f, "{holds} of {comparable} claims hold")?,
            }
            match self.fitted {
                0 => {}
                fitted => write!(f, " ({fitted} with fitted parameters)")?,
            }
            for verdict in &Verdict::ALL[1..] {
                match self.count(*verdict) {
                    0 => {}
                    n => write!(f, ", {n} {}", verdict.title())?,
                }
            }
        }
        match (claims, of) {
            (0, 0) => write!(f, "no claims"),
            (_, 0) => Ok(()),
            (0, _) => write!(f, "{held} of {of} worked examples hold"),
            _ => write!(f, "; {held} of {of} worked examples hold"),
        }
    }
}

#[cfg(test)]
mod unit {
    use super::*;
    use crate::study::claim::Statement;
    use crate::study::grid::{Grid, metrics};

    fn judged(statement: Statement<Grid>) -> Claim {
        let mut grid = Grid::new(&["design"], 2);
        let run = || metrics([("rate", 11.0)]);
        grid.add(vec!["PBS".into()], &[run(), run()]);
        let select =
            |grid: &Grid| grid.evidence(|view| view.select().is("design", "PBS").one("rate"));
        statement.measured(select).judge(&grid)
    }

    #[test]
    fn tallies_count_examples_and_identities_apart() {
        let of = || Statement::at_least("p", "s", 10.0, 0.0);
        let all = [judged(of()), judged(of().example()), judged(of().identity("2 x 64 x 256"))];
        let tally = Tally::of(&all);
        assert_eq!((tally.comparable(), tally.examples), (1, (1, 1)));
        assert_eq!(
            tally.to_string(),
            "1 of 1 claim holds, 1 identity; 1 of 1 worked examples hold"
        );
        let fitted = Tally::of(&[judged(of()), judged(of().fitted("columns of 128 bytes"))]);
        assert_eq!(fitted.to_string(), "2 of 2 claims hold (1 with fitted parameters)");
        assert_eq!(Tally::default().to_string(), "no claims");
        let identity = Tally::of(&[judged(of().identity("2 x 64 x 256"))]);
        assert_eq!(identity.to_string(), "no claim to be judged, 1 identity");
    }
}
