//! Means over seeds with 95% intervals.
//!
//! A statistic of a whole grid (a largest gain, a mean over workloads) is
//! computed once from the means over all seeds, which gives its value, and
//! once without each seed, which gives its standard error (the jackknife of
//! Quenouille and Tukey); Student's t with n - 1 degrees of freedom makes the
//! interval. For a plain mean this is the usual t interval.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::function::factorial::ln_binomial;

/// A measured number with its spread over seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The value, from the means over all seeds.
    pub value: f64,
    /// Number of seeds; 1 for what depends on none.
    pub n: u32,
    /// Ends of the 95% interval; both are the value for what depends on no
    /// seed, and there is none for what does and was measured with one.
    pub interval: Option<(f64, f64)>,
}

impl Estimate {
    /// A number that depends on no seed.
    pub const fn exact(value: f64) -> Self {
        Self { value, n: 1, interval: Some((value, value)) }
    }

    /// A statistic from its value over all `n` seeds and `without`, its values
    /// without each of them. One seed has no interval.
    pub fn jackknife(value: f64, without: &[f64]) -> Self {
        let n = without.len();
        let seeds = u32::try_from(n).unwrap_or(u32::MAX);
        if n < 2 {
            return Self { value, n: 1, interval: None };
        }
        let count = n as f64;
        let mean = without.iter().sum::<f64>() / count;
        let squares: f64 = without.iter().map(|one| (one - mean).powi(2)).sum();
        let error = ((count - 1.0) / count * squares).sqrt();
        let half = t_quantile(count - 1.0) * error;
        Self { value, n: seeds, interval: Some((value - half, value + half)) }
    }

    /// The mean of one value for each seed.
    pub fn mean(values: &[f64]) -> Self {
        let (count, sum) = (values.len() as f64, values.iter().sum::<f64>());
        let without: Vec<f64> = match values.len() {
            0 | 1 => vec![sum; values.len()],
            _ => values.iter().map(|one| (sum - one) / (count - 1.0)).collect(),
        };
        Self::jackknife(sum / count, &without)
    }

    /// The chance that two runs differ by as much or more where both measure the same, by
    /// Student's test for two samples; none if one has no interval.
    ///
    /// Seeds of a run that all gave one value say little of their spread, which is then at least
    /// `like_variance`, the variance over seeds of numbers of the same kind. Without any spread it
    /// is the chance that seeds split as they did: 2 in (n + m choose n) ways of sharing them out.
    pub fn p_same(&self, other: &Self, like_variance: f64) -> Option<f64> {
        let difference = (self.value - other.value).abs();
        let mut variance = self.pooled_variance(other)?;
        if difference == 0.0 {
            return Some(1.0);
        }
        if !(self.varies() && other.varies()) {
            variance = variance.max(like_variance);
        }
        let (n, m) = (f64::from(self.n), f64::from(other.n));
        let error = (variance * (n.recip() + m.recip())).sqrt();
        if error == 0.0 {
            let ways = ln_binomial(u64::from(self.n) + u64::from(other.n), self.n.into());
            return Some((std::f64::consts::LN_2 - ways).exp().min(1.0));
        }
        Some(2.0 * students_t(n + m - 2.0)?.sf(difference / error))
    }

    /// The variance over seeds within two runs, as their intervals have it; none if one has no
    /// interval or the two have fewer than three seeds.
    pub fn pooled_variance(&self, other: &Self) -> Option<f64> {
        let degrees = f64::from(self.n) + f64::from(other.n) - 2.0;
        let squares = self.squares()? + other.squares()?;
        (degrees > 0.0).then(|| squares / degrees)
    }

    /// Returns true if seeds gave different values.
    pub fn varies(&self) -> bool {
        self.half_width() != 0.0
    }

    /// The sum over seeds of the squared distance from the value, as the interval has it.
    fn squares(&self) -> Option<f64> {
        let count = f64::from(self.n);
        self.interval?;
        if self.n < 2 {
            return Some(0.0);
        }
        let error = self.half_width() / t_quantile(count - 1.0);
        Some(error.powi(2) * count * (count - 1.0))
    }

    /// Half of the interval's width; 0 without an interval.
    pub fn half_width(&self) -> f64 {
        self.interval.map_or(0.0, |(low, high)| (high - low) / 2.0)
    }
}

/// The most degrees of freedom: beyond them the distribution is the normal one in three digits, and
/// the library's search for a quantile has no end.
const DEGREES_MAX: f64 = 10_000.0;

/// Student's t. Degrees are at least 1, so it exists.
fn students_t(degrees: f64) -> Option<StudentsT> {
    StudentsT::new(0.0, 1.0, degrees.min(DEGREES_MAX)).ok()
}

/// The 97.5% quantile of Student's t.
fn t_quantile(degrees: f64) -> f64 {
    students_t(degrees).map_or(f64::INFINITY, |t| t.inverse_cdf(0.975))
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn the_mean_has_the_textbook_interval() {
        // Five values with mean 10 and standard deviation sqrt(2.5); t(4) = 2.7764.
        let estimate = Estimate::mean(&[8.0, 9.0, 10.0, 11.0, 12.0]);
        assert_eq!((estimate.value, estimate.n), (10.0, 5));
        let half = 2.776_445 * (2.5_f64 / 5.0).sqrt();
        let (low, high) = estimate.interval.unwrap();
        assert!((low - (10.0 - half)).abs() < 1e-5 && (high - (10.0 + half)).abs() < 1e-5);
    }

    #[test]
    fn one_seed_has_no_interval_and_equal_seeds_a_point() {
        assert_eq!(Estimate::mean(&[3.0]), Estimate { value: 3.0, n: 1, interval: None });
        assert_eq!(Estimate::mean(&[3.0; 4]).interval, Some((3.0, 3.0)));
        assert_eq!(Estimate::exact(2.0).interval, Some((2.0, 2.0)));
    }

    #[test]
    fn two_samples_have_the_textbook_chance() {
        // Means 10 and 13, sd sqrt(2.5), five of each: t(8) = 3, p = 0.017072.
        let one = Estimate::mean(&[8.0, 9.0, 10.0, 11.0, 12.0]);
        let two = Estimate::mean(&[11.0, 12.0, 13.0, 14.0, 15.0]);
        for (one, two) in [(one, two), (two, one)] {
            assert!((one.p_same(&two, 0.0).unwrap() - 0.017_072).abs() < 1e-5);
        }
        assert_eq!(one.p_same(&one, 0.0), Some(1.0));
    }

    #[test]
    fn runs_without_a_spread_differ_by_the_number_of_their_seeds() {
        let all = |value: f64, n| Estimate::mean(&vec![value; n]);
        for (n, p) in [(2, 1.0 / 3.0), (3, 0.1), (5, 2.0 / 252.0)] {
            assert!((all(1.0, n).p_same(&all(2.0, n), 0.0).unwrap() - p).abs() < 1e-9, "{n} seeds");
        }
        // A spread of its kind is taken for a number's own: t(8) = 3.
        assert!((all(10.0, 5).p_same(&all(13.0, 5), 2.5).unwrap() - 0.017_072).abs() < 1e-5);
        let one_seed = Estimate { value: 1.0, n: 1, interval: None };
        assert_eq!(one_seed.p_same(&all(2.0, 5), 0.0), None);
        assert_eq!(Estimate::exact(1.0).p_same(&Estimate::exact(2.0), 0.0), None);
    }
}
