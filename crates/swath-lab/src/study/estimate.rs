//! Means over seeds with 95% intervals.
//!
//! A statistic of a whole grid (a largest gain, a mean over workloads) is
//! computed once from the means over all seeds, which gives its value, and
//! once without each seed, which gives its standard error (the jackknife of
//! Quenouille and Tukey); Student's t with n - 1 degrees of freedom makes the
//! interval. For a plain mean this is the usual t interval.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

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

    /// Half of the interval's width; 0 without an interval.
    pub fn half_width(&self) -> f64 {
        self.interval.map_or(0.0, |(low, high)| (high - low) / 2.0)
    }
}

/// The 97.5% quantile of Student's t.
fn t_quantile(degrees: f64) -> f64 {
    // Scale and degrees are positive, so it exists.
    StudentsT::new(0.0, 1.0, degrees).map_or(f64::INFINITY, |t| t.inverse_cdf(0.975))
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
}
