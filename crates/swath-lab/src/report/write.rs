//! The report as files: each study's results, rows and drawings, and the page
//! over all studies.
//!
//! A study's files go into their [folder](crate::report::folder) together, so that
//! a reader never finds those of two runs side by side.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use swath_trace::whole;

use crate::report::error::ReportError;
use crate::report::figure::{self, Palette};
use crate::report::folder::{FILE_BYTES_MAX, Folder, INDEX_FILE};
use crate::report::{film, index, page};
use crate::study::registry::built_in;
use crate::study::results::{
    Figure, FigureKind, HostResult, Place, Series, StudyResult, check_pair,
};

/// The file of a [`StudyResult`].
pub const RESULTS_FILE: &str = "results.json";
/// The file of a [`HostResult`].
pub const HOST_FILE: &str = "host.json";

/// A study's two results, as written or read.
#[derive(Clone, Debug, PartialEq)]
pub struct StudyResults {
    /// The part that follows from plan and seed.
    pub result: StudyResult,
    /// The part that depends on the machine.
    pub host: Option<HostResult>,
}

/// Writes a study's folder, `NAME`, whole: `results.json`, `host.json` if there is a host
/// result, and for each figure its rows as CSV and its drawing, if it is not a table, as
/// SVG. Checks everything before it writes anything. O(p) with p points.
///
/// # Errors
/// [`ReportError::Result`] if a result breaks its invariants,
/// [`ReportError::File`] if a file cannot be written.
pub fn write_study(
    folder: &Folder,
    result: &StudyResult,
    host: Option<&HostResult>,
) -> Result<(), ReportError> {
    let dir = folder.path().join(&result.study);
    let path = dir.join(RESULTS_FILE);
    check_pair(result, host).map_err(|source| ReportError::Result { path, source })?;
    let mut files = vec![(RESULTS_FILE.to_owned(), json(dir.join(RESULTS_FILE), result)?)];
    if let Some(host) = host {
        files.push((HOST_FILE.to_owned(), json(dir.join(HOST_FILE), host)?));
    }
    files.extend(drawings(&dir, result, host)?);
    folder.put_study(&result.study, &files)
}

/// The files of a study's figures.
fn drawings(
    dir: &Path,
    result: &StudyResult,
    host: Option<&HostResult>,
) -> Result<Vec<(String, Vec<u8>)>, ReportError> {
    let palette = palette(result, host);
    let mut files = Vec::new();
    files.extend(result.film.iter().map(|film| (film::film_file(), film::svg(film).into())));
    let mut add = |figures: &[Figure], series: &[Series]| {
        for one in figures {
            let name = one.file_stem() + ".csv";
            let path = dir.join(&name);
            let rows =
                csv_rows(one, series).map_err(|source| ReportError::File { path, source })?;
            files.push((name, rows));
            if one.kind == FigureKind::Table {
                continue;
            }
            let name = one.file_stem() + ".svg";
            match figure::draw(one, series, &palette) {
                Ok(svg) => files.push((name, figure::stand_alone(&svg).into_bytes())),
                Err(source) => {
                    return Err(ReportError::Figure { path: dir.join(name), source });
                }
            }
        }
        Ok(())
    };
    add(&result.figures, &result.series)?;
    if let Some(host) = host {
        add(&host.figures, &host.series)?;
    }
    Ok(files)
}

/// A report that was rendered from the results that were there.
#[derive(Debug)]
pub struct Rendered {
    /// The page over all studies.
    pub index: PathBuf,
    /// The studies on it, in its order.
    pub studies: Vec<String>,
    /// The errors of those that it leaves out.
    pub left_out: Vec<ReportError>,
}

/// Renders a report anew from the results in it: each study's rows and drawings, and the
/// page. Results stay byte for byte. O(p) with p points in all studies.
///
/// # Errors
/// As [`write_index`].
pub fn render(folder: &Folder) -> Result<Rendered, ReportError> {
    let (studies, mut left_out) = find_studies(folder.path())?;
    for StudyResults { result, host } in &studies {
        let dir = folder.path().join(&result.study);
        let drawn = drawings(&dir, result, host.as_ref()).and_then(|mut files| {
            let names = [RESULTS_FILE, HOST_FILE].iter().take(1 + usize::from(host.is_some()));
            for &name in names {
                let path = dir.join(name);
                let bytes = whole::read(&path, FILE_BYTES_MAX)?;
                files.push((name.to_owned(), bytes));
            }
            folder.put_study(&result.study, &files)
        });
        left_out.extend(drawn.err());
    }
    let mut rendered = write_index(folder)?;
    // Those of the studies that cannot be read were said twice.
    left_out.retain(|error| rendered.left_out.iter().all(|other| *other.path() != *error.path()));
    rendered.left_out.append(&mut left_out);
    Ok(rendered)
}

/// Writes a page for each study found in the directory, `NAME.html`, and `index.html` over all. A
/// study that cannot be read or drawn is left out. O(p) with p points in all studies.
///
/// # Errors
/// As [`find_studies`]; [`ReportError::Foreign`] if a page is another program's,
/// [`ReportError::File`] if one cannot be written.
pub fn write_index(folder: &Folder) -> Result<Rendered, ReportError> {
    let (found, mut left_out) = find_studies(folder.path())?;
    let mut shown = Vec::new();
    for one in &found {
        let study = &one.result.study;
        match page::page(one) {
            Ok(page) => {
                folder.put_page(&page::page_file(study), &page)?;
                shown.push(one);
            }
            Err(source) => {
                let path = folder.path().join(study).join(RESULTS_FILE);
                left_out.push(ReportError::Figure { path, source });
            }
        }
    }
    let index = folder.put_page(INDEX_FILE, &index::index(&shown))?;
    let studies = shown.iter().map(|one| one.result.study.clone()).collect();
    Ok(Rendered { index, studies, left_out })
}

/// Reads the studies below `dir`, each directory that holds a `results.json`:
/// the built-in ones in their order, then others by name. Beside them the
/// errors of those that cannot be read, such as results of another version.
/// O(p) with p points in all studies.
///
/// # Errors
/// [`ReportError::File`] if the directory cannot be read.
pub fn find_studies(dir: &Path) -> Result<(Vec<StudyResults>, Vec<ReportError>), ReportError> {
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

/// Reads the results in `place`, a study's own directory in a report.
///
/// # Errors
/// As [`find_studies`].
pub fn read_study(place: &Path) -> Result<StudyResults, ReportError> {
    let found = read_results(place)?;
    if place.file_name().is_none_or(|name| *name != *found.result.study) {
        let (path, study) = (place.join(RESULTS_FILE), found.result.study);
        return Err(ReportError::Misplaced { path, study });
    }
    Ok(found)
}

/// Reads the results in `place`, whatever its name.
///
/// # Errors
/// As [`find_studies`].
pub fn read_results(place: &Path) -> Result<StudyResults, ReportError> {
    let path = place.join(RESULTS_FILE);
    let result: StudyResult = read(&path)?;
    let host_path = place.join(HOST_FILE);
    let host: Option<HostResult> = match host_path.is_file() {
        true => Some(read(&host_path)?),
        false => None,
    };
    let wrong = |path, source| ReportError::Result { path, source };
    result.check().map_err(|source| wrong(path, source))?;
    check_pair(&result, host.as_ref()).map_err(|source| wrong(host_path, source))?;
    Ok(StudyResults { result, host })
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

/// The bytes of a study's [`RESULTS_FILE`].
///
/// # Errors
/// [`ReportError::Json`].
pub fn results_json(result: &StudyResult) -> Result<Vec<u8>, ReportError> {
    json(PathBuf::from(RESULTS_FILE), result)
}

fn json(path: PathBuf, value: &impl Serialize) -> Result<Vec<u8>, ReportError> {
    match serde_json::to_vec_pretty(value) {
        Ok(mut bytes) => {
            bytes.push(b'\n');
            Ok(bytes)
        }
        Err(source) => Err(ReportError::Json { path, source }),
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, ReportError> {
    let path = path.to_owned();
    let bytes = whole::read(&path, FILE_BYTES_MAX)?;
    serde_json::from_slice(&bytes).map_err(|source| ReportError::Json { path, source })
}
