//! The table of whole programs as files: numbers, a page, and its picture.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::failure::{Failure, setup};

/// Processor time as a ratio to the best of the others.
#[derive(Clone, Copy)]
pub(crate) struct Ratio {
    pub(crate) mean: f64,
    /// The bounds of its 95% interval.
    pub(crate) interval: [f64; 2],
}

impl Ratio {
    /// The ratio of two series of runs, of which run i of one stands beside run i of the other: the
    /// geometric mean of the pairs' ratios, and Student's interval of it.
    pub(crate) fn of(ours: &[f64], theirs: &[f64]) -> Self {
        /// Quantiles of Student's distribution at 97.5%, by degrees of freedom from 1 on.
        const STUDENT: [f64; 10] =
            [12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
        let logs: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| (a / b).ln()).collect();
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let Some(freedom) = logs.len().checked_sub(2) else {
            return Self { mean: mean.exp(), interval: [0.0, f64::INFINITY] };
        };
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        let spread = (squares / (count - 1.0) / count).sqrt();
        let half = STUDENT[freedom.min(STUDENT.len() - 1)] * spread;
        Self { mean: mean.exp(), interval: [(mean - half).exp(), (mean + half).exp()] }
    }
}

/// One program: what each allocator took.
pub(crate) struct Line {
    pub(crate) program: &'static str,
    /// Names and ratios, ours first.
    pub(crate) cells: Vec<(&'static str, Ratio)>,
    /// Milliseconds of processor time of the best of the others, and its name.
    pub(crate) best: (f64, &'static str),
    /// Peak of resident memory as a ratio to the least of the others.
    pub(crate) peak: f64,
}

impl Line {
    fn ours(&self) -> Ratio {
        self.cells[0].1
    }
}

/// How much slower than the best of the others ours may be.
pub(crate) const BOUND: f64 = 1.05;

/// Writes the table into a folder: `programs.csv`, `programs.svg` and the page, `README.md`.
pub(crate) fn write(folder: &Path, lines: &[Line], rounds: usize) -> Result<(), Failure> {
    let failed = |error| setup(format!("cannot write to {}: {error}", folder.display()));
    fs::create_dir_all(folder).map_err(failed)?;
    for (name, text) in [
        ("programs.csv", csv(lines)),
        ("programs.svg", svg(lines)),
        ("README.md", page(lines, rounds)),
    ] {
        fs::write(folder.join(name), text).map_err(failed)?;
    }
    Ok(())
}

fn csv(lines: &[Line]) -> String {
    let mut text = String::from("program,allocator,cpu_ratio,low,high,best,best_cpu_ms\n");
    for line in lines {
        for (name, Ratio { mean, interval: [low, high] }) in &line.cells {
            let (best_ms, best) = line.best;
            _ = writeln!(
                text,
                "{},{name},{mean:.3},{low:.3},{high:.3},{best},{best_ms:.1}",
                line.program
            );
        }
    }
    text
}

fn page(lines: &[Line], rounds: usize) -> String {
    let (mut within, mut ahead) = (0, 0);
    for line in lines {
        within += usize::from(line.ours().mean <= BOUND);
        ahead += usize::from(line.ours().mean < 1.0);
    }
    let mut text = format!(
        "# Programs on `cmt_malloc`, beside the same programs on other allocators\n\n\
         Processor time as a ratio to the best of the others, by `cargo xtask bench programs --out DIR`: {rounds} \
         rounds, interleaved, with 95% intervals. Of {} programs {within} take at most {BOUND} of the best, and \
         {ahead} less than all others.\n\n![Processor time of each program with each allocator, as a ratio to \
         the best of the others](programs.svg)\n\n\
         | program | ratio | 95% interval | best of the others | its time | peak of memory |\n|---|---|---|---|---|---|\n",
        lines.len()
    );
    for line in lines {
        let Ratio { mean, interval: [low, high] } = line.ours();
        let (best_ms, best) = line.best;
        _ = writeln!(
            text,
            "| `{}` | {mean:.2} | {low:.2} to {high:.2} | {best} | {best_ms:.0} ms | {:.2} |",
            line.program, line.peak
        );
    }
    text
}

const COLOURS: [&str; 8] =
    ["#c0392b", "#7f8c8d", "#2980b9", "#27ae60", "#8e44ad", "#e67e22", "#16a085", "#2c3e50"];

/// A row for each program, a dot for each allocator on a logarithmic axis from 0.25 to 8.
fn svg(lines: &[Line]) -> String {
    let (left, width, step) = (330.0, 520.0, 16.0);
    let height = lines.len() as f64 * step + 60.0;
    let x = |ratio: f64| left + (ratio.clamp(0.25, 8.0) / 0.25).log2() / 5.0 * width;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n",
        left + width + 20.0
    );
    for mark in [0.25, 0.5, 1.0, 2.0, 4.0, 8.0] {
        let (at, colour) = (x(mark), if mark == 1.0 { "#000" } else { "#ddd" });
        _ = writeln!(
            text,
            "<line x1=\"{at:.1}\" y1=\"30\" x2=\"{at:.1}\" y2=\"{:.0}\" stroke=\"{colour}\"/>\
             <text x=\"{at:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{mark}</text>",
            height - 24.0,
            height - 8.0
        );
    }
    let names = lines.first().map_or(&[][..], |line| &line.cells);
    for (index, (name, _)) in names.iter().enumerate() {
        let at = 10.0 + 110.0 * index as f64;
        let colour = COLOURS[index % COLOURS.len()];
        _ = writeln!(
            text,
            "<circle cx=\"{at}\" cy=\"14\" r=\"4\" fill=\"{colour}\"/><text x=\"{}\" y=\"18\">{name}</text>",
            at + 8.0
        );
    }
    for (row, line) in lines.iter().enumerate() {
        let y = 42.0 + row as f64 * step;
        _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            left - 10.0,
            y + 4.0,
            line.program
        );
        let [low, high] = line.ours().interval.map(x);
        _ = writeln!(
            text,
            "<line x1=\"{low:.1}\" y1=\"{y}\" x2=\"{high:.1}\" y2=\"{y}\" stroke=\"{}\"/>",
            COLOURS[0]
        );
        for (index, (_, ratio)) in line.cells.iter().enumerate().rev() {
            let (colour, radius) = (COLOURS[index % COLOURS.len()], if index == 0 { 4 } else { 3 });
            _ = writeln!(
                text,
                "<circle cx=\"{:.1}\" cy=\"{y}\" r=\"{radius}\" fill=\"{colour}\"/>",
                x(ratio.mean)
            );
        }
    }
    text.push_str("</svg>\n");
    text
}

#[cfg(test)]
mod tests {
    use super::Ratio;

    #[test]
    fn a_ratio_is_that_of_pairs_with_students_interval() {
        let Ratio { mean, interval: [low, high] } = Ratio::of(&[2.0, 8.0], &[1.0, 1.0]);
        assert!((mean - 4.0).abs() < 1e-9);
        // Logs of 2 and 8 lie ln 2 from their mean, whose spread is ln 2.
        let half = 12.71 * 2.0_f64.ln();
        assert!((high.ln() - 4.0_f64.ln() - half).abs() < 1e-9 && (low * high - 16.0).abs() < 1e-6);
        let Ratio { interval: [low, high], .. } = Ratio::of(&[3.0; 4], &[2.0; 4]);
        assert!((low - 1.5).abs() < 1e-9 && (high - 1.5).abs() < 1e-9);
    }
}
