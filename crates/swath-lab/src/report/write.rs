//! The report as files: each study's results, rows and drawings, and the page
//! over all studies.
//!
//! Every file is written beside its place and moved there when it is whole, so
//! an interrupted run leaves the file of the run before, or none, and never
//! half of one.

use std::fs;
use std::io::{
    Write as _, {self},
};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::report::figure::{
    FigureError, Palette, {self},
};
use crate::report::page;
use crate::study::registry::built_in;
use crate::study::results::{
    Figure, FigureKind, HostResult, Place, ResultError, Series, StudyResult, check_pair,
};
use swath_trace::output;
use swath_trace::whole::{self, WholeError};

/// The file of a [`StudyResult`].
pub const RESULTS_FILE: &str = "results.json";
/// The file of a [`HostResult`].
pub const HOST_FILE: &str = "host.json";
/// The page over all studies.
pub const INDEX_FILE: &str = "index.html";

/// The longest file of a report that is read: the largest study's results have a hundredth.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// A study's two results, as written or read.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The part that follows from plan and seed.
    pub result: StudyResult,
    /// The part that depends on the machine.
    pub host: Option<HostResult>,
}

/// A file that cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The operating system refuses.
    #[error("{path}: {source}")]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file cannot be read, or is too large to be one of a report.
    #[error(transparent)]
    Whole(#[from] WholeError),
    /// A file's text is not a result.
    #[error("{path}: {source}")]
    Json {
        /// The file.
        path: PathBuf,
        /// The fault, with line and column.
        source: serde_json::Error,
    },
    /// A result cannot be written, or one that was read is wrong in itself.
    #[error("{path}: {source}")]
    Result {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: ResultError,
    },
    /// The directory has another name than the study in it.
    #[error("{path}: holds the study {study:?}, which is not the directory's name")]
    Misplaced {
        /// The file.
        path: PathBuf,
        /// The study that it holds.
        study: String,
    },
    /// The directory's page was written by another program.
    #[error("{path}: not a page of this program; choose another --out or move it away")]
    Foreign {
        /// The page.
        path: PathBuf,
    },
    /// A figure cannot be drawn.
    #[error("{path}: {source}")]
    Figure {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: FigureError,
    },
}

/// Writes a study's files into `dir/NAME`, which is created if need be:
/// `results.json`, `host.json` (or takes an old one away), and for each figure
/// its rows as CSV and its drawing, if it is not a table, as SVG. Checks everything before it writes
/// anything. O(p) with p points.
///
/// # Errors
/// [`ReportError::Result`] if a result breaks its invariants,
/// [`ReportError::File`] if a file cannot be written.
pub fn write_study(
    dir: &Path,
    result: &StudyResult,
    host: Option<&HostResult>,
) -> Result<(), ReportError> {
    let dir = dir.join(&result.study);
    let path = dir.join(RESULTS_FILE);
    check_pair(result, host).map_err(|source| ReportError::Result { path, source })?;

    let mut files = vec![json(dir.join(RESULTS_FILE), result)?];
    if let Some(host) = host {
        files.push(json(dir.join(HOST_FILE), host)?);
    }
    let palette = palette(result, host);
    let mut add = |figures: &[Figure], series: &[Series]| {
        for one in figures {
            let path = dir.join(one.file_stem() + ".csv");
            let rows = csv_rows(one, series)
                .map_err(|source| ReportError::File { path: path.clone(), source })?;
            files.push((path, rows));
            if one.kind == FigureKind::Table {
                continue;
            }
            let path = dir.join(one.file_stem() + ".svg");
            match figure::draw(one, series, &palette) {
                Ok(svg) => files.push((path, figure::stand_alone(&svg).into_bytes())),
                Err(source) => return Err(ReportError::Figure { path, source }),
            }
        }
        Ok(())
    };
    add(&result.figures, &result.series)?;
    if let Some(host) = host {
        add(&host.figures, &host.series)?;
    }

    create_dir(&dir)?;
    for (path, bytes) in files {
        replace(&path, &bytes)?;
    }
    if host.is_none() {
        let path = dir.join(HOST_FILE);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(ReportError::File { path, source });
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Refuses a directory whose `index.html` is another program's.
///
/// # Errors
/// [`ReportError::Foreign`], or [`ReportError::File`] if it cannot be read.
pub fn check_place(dir: &Path) -> Result<(), ReportError> {
    let path = dir.join(INDEX_FILE);
    match whole::read(&path, FILE_BYTES_MAX) {
        Ok(page) if page.windows(page::MARK.len()).any(|part| part == page::MARK.as_bytes()) => {
            Ok(())
        }
        Ok(_) => Err(ReportError::Foreign { path }),
        Err(WholeError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Writes `dir/index.html` over all studies found in `dir`. Gives the page's path,
/// and the errors of the studies that it leaves out. O(p) with p points in all studies.
///
/// # Errors
/// As [`find_studies`] and [`check_place`]; [`ReportError::File`] if the page cannot be written.
pub fn write_index(dir: &Path) -> Result<(PathBuf, Vec<ReportError>), ReportError> {
    check_place(dir)?;
    let (studies, left_out) = find_studies(dir)?;
    let path = dir.join(INDEX_FILE);
    let page = match page::page(&studies) {
        Ok(page) => page,
        Err(source) => return Err(ReportError::Figure { path, source }),
    };
    create_dir(dir)?;
    replace(&path, page.as_bytes())?;
    Ok((path, left_out))
}

/// Reads the studies below `dir`, each directory that holds a `results.json`:
/// the built-in ones in their order, then others by name. Beside them the
/// errors of those that cannot be read, such as results of another version.
/// O(p) with p points in all studies.
///
/// # Errors
/// [`ReportError::File`] if the directory cannot be read.
pub fn find_studies(dir: &Path) -> Result<(Vec<Found>, Vec<ReportError>), ReportError> {
    let at = |source| ReportError::File { path: dir.to_owned(), source };
    let mut places = Vec::new();
    for entry in fs::read_dir(dir).map_err(at)? {
        let place = entry.map_err(at)?.path();
        if place.join(RESULTS_FILE).is_file() {
            places.push(place);
        }
    }
    let built_in = built_in().unwrap_or_default();
    places.sort_by_cached_key(|place| {
        let name = place.file_name().map(|name| name.to_string_lossy().into_owned());
        let mut names = built_in.iter().map(|study| &study.about().study);
        (names.position(|study| name.as_ref() == Some(study)).unwrap_or(built_in.len()), name)
    });
    let (mut found, mut left_out) = (Vec::new(), Vec::new());
    for place in places {
        match read_study(&place) {
            Ok(study) => found.push(study),
            Err(error) => left_out.push(error),
        }
    }
    Ok((found, left_out))
}

/// Reads the results in `place`, a study's own directory.
///
/// # Errors
/// As [`find_studies`].
pub fn read_study(place: &Path) -> Result<Found, ReportError> {
    let path = place.join(RESULTS_FILE);
    let result: StudyResult = read(&path)?;
    if place.file_name().is_none_or(|name| *name != *result.study) {
        let study = result.study;
        return Err(ReportError::Misplaced { path, study });
    }
    let host_path = place.join(HOST_FILE);
    let host: Option<HostResult> = match host_path.is_file() {
        true => Some(read(&host_path)?),
        false => None,
    };
    let wrong = |path, source| ReportError::Result { path, source };
    result.check().map_err(|source| wrong(path, source))?;
    check_pair(&result, host.as_ref()).map_err(|source| wrong(host_path, source))?;
    Ok(Found { result, host })
}

/// The palette over all of a study's designs.
pub(crate) fn palette(result: &StudyResult, host: Option<&HostResult>) -> Palette {
    let host = host.into_iter().flat_map(|host| &host.series);
    let all = result.series.iter().chain(host);
    Palette::new(all.map(|series| series.design.as_str()))
}

/// The rows of one figure: figure, design, x, y, number of seeds, ends of the 95% interval. Numbers are the shortest that
/// read back as the same.
fn csv_rows(figure: &Figure, series: &[Series]) -> io::Result<Vec<u8>> {
    let mut rows = csv::Writer::from_writer(Vec::new());
    rows.write_record(["figure", "design", "x", "y", "n", "low", "high"])?;
    for one in series.iter().filter(|s| s.figure == figure.id) {
        for point in &one.points {
            let x = match &point.x {
                Place::At(x) => x.to_string(),
                Place::In(category) => category.clone(),
            };
            let n = point.spread.map_or(1, |spread| spread.n).to_string();
            let exact = Some((point.y, point.y));
            let ends = point.spread.map_or(exact, |spread| spread.interval);
            let [low, high] = match ends {
                Some((low, high)) => [low.to_string(), high.to_string()],
                None => [String::new(), String::new()],
            };
            let y = point.y.to_string();
            rows.write_record([&figure.id, &one.design, &x, &y, &n, &low, &high])?;
        }
    }
    rows.into_inner().map_err(|error| error.into_error())
}

fn json(path: PathBuf, value: &impl Serialize) -> Result<(PathBuf, Vec<u8>), ReportError> {
    match serde_json::to_vec_pretty(value) {
        Ok(mut bytes) => {
            bytes.push(b'\n');
            Ok((path, bytes))
        }
        Err(source) => Err(ReportError::Json { path, source }),
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, ReportError> {
    let path = path.to_owned();
    let bytes = whole::read(&path, FILE_BYTES_MAX)?;
    serde_json::from_slice(&bytes).map_err(|source| ReportError::Json { path, source })
}

fn create_dir(dir: &Path) -> Result<(), ReportError> {
    fs::create_dir_all(dir).map_err(|source| ReportError::File { path: dir.to_owned(), source })
}

fn replace(path: &Path, bytes: &[u8]) -> Result<(), ReportError> {
    output::replace(path, |file| file.write_all(bytes))
        .map_err(|source| ReportError::File { path: path.to_owned(), source })
}
