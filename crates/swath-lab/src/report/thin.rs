//! Long series with fewer points, which look the same.

use std::collections::{BTreeMap, BTreeSet};

use crate::report::axis::extent;
use crate::study::results::{FigureKind, Place, Point, Series};

/// The most points of a line that are all drawn: more than a picture has places for.
const POINTS_MAX: usize = 500;
/// The most points of a cloud, whose markers hide each other long before.
const CLOUD_MAX: usize = 150;

/// The series as it is drawn: of a long line the lowest and the highest point of each piece, of a
/// large cloud the highest point of each place. O(p log p) with p points.
pub(crate) fn thin(series: &Series, kind: FigureKind) -> Series {
    let points = &series.points;
    let kept = match kind {
        FigureKind::Lines | FigureKind::LinesLog2 if points.len() > POINTS_MAX => thin_line(points),
        FigureKind::Scatter if points.len() > CLOUD_MAX => thin_cloud(points),
        _ => points.clone(),
    };
    Series { points: kept, ..series.clone() }
}

fn thin_line(points: &[Point]) -> Vec<Point> {
    let mut kept = BTreeSet::from([0, points.len() - 1]);
    let length = points.len().div_ceil(POINTS_MAX / 2);
    for (nth, piece) in points.chunks(length).enumerate() {
        let by_height = |one: &(usize, &Point), two: &(usize, &Point)| one.1.y.total_cmp(&two.1.y);
        let ends = [
            piece.iter().enumerate().min_by(by_height),
            piece.iter().enumerate().max_by(by_height),
        ];
        kept.extend(ends.into_iter().flatten().map(|(at, _)| nth * length + at));
    }
    kept.into_iter().map(|at| points[at].clone()).collect()
}

/// The highest point of each place, in the finest grid of places in which they are few enough.
fn thin_cloud(points: &[Point]) -> Vec<Point> {
    let x_of = |point: &Point| match point.x {
        Place::At(x) => x,
        Place::In(_) => 0.0,
    };
    let xs: Vec<f64> = points.iter().map(x_of).collect();
    let ys: Vec<f64> = points.iter().map(|point| point.y).collect();
    let [across, up] = [&xs, &ys].map(|values| extent(values).unwrap_or((0.0, 1.0)));
    let step = |value: f64, (low, high): (f64, f64), steps: f64| {
        ((value / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0) * steps).round() as i64
    };
    let mut steps = 200.0;
    loop {
        let mut places: BTreeMap<(i64, i64), &Point> = BTreeMap::new();
        for point in points {
            let place = (step(x_of(point), across, steps), step(point.y, up, steps));
            let highest = places.entry(place).or_insert(point);
            if point.y > highest.y {
                *highest = point;
            }
        }
        if places.len() <= CLOUD_MAX || steps < 8.0 {
            return places.into_values().cloned().collect();
        }
        steps /= 1.25;
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    fn series(points: impl Iterator<Item = (f64, f64)>) -> Series {
        Series::new("f", "x", "y", "PBS", points)
    }

    #[test]
    fn the_ends_of_a_line_and_its_peaks_stay() {
        let peak = |x: u32| if x == 7_777 { 50.0 } else { f64::from(x % 3) };
        let long = series((0..20_000).map(|x| (f64::from(x), peak(x))));
        let thinned = thin(&long, FigureKind::Lines).points;
        assert!(thinned.len() <= POINTS_MAX + 2, "{}", thinned.len());
        assert_eq!(thinned.first(), long.points.first());
        assert_eq!(thinned.last(), long.points.last());
        assert!(thinned.contains(&long.points[7_777]));
        assert!(thinned.is_sorted_by(|one, two| match (&one.x, &two.x) {
            (Place::At(one), Place::At(two)) => one < two,
            _ => false,
        }));
    }

    #[test]
    fn a_cloud_keeps_a_point_for_each_place() {
        let cloud = series((0..20_000).map(|n| (f64::from(n % 10), f64::from(n % 4))));
        assert_eq!(thin(&cloud, FigureKind::Scatter).points.len(), 20);
        let few = series((0..10).map(|n| (1.0, f64::from(n))));
        assert_eq!(thin(&few, FigureKind::Scatter), few);
        let same = series((0..1_000).map(|_| (1.0, 1.0)));
        assert_eq!(thin(&same, FigureKind::Scatter).points.len(), 1);
    }
}
