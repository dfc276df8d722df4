//! Shards of a sweep, put together as one run would have written them.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::report::error::ReportError;
use crate::report::folder::Folder;
use crate::sweep::definition::POINT;
use crate::sweep::folder::{self, POINTS_FILE, SWEEP_FILE};
use crate::table::column::{Cell, Table};
use crate::table::parquet::{Reader, TableError, Writer};

/// Reasons why shards cannot be merged.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// A folder is no whole shard.
    #[error("{}: no whole shard of a sweep: no {POINTS_FILE} with {SWEEP_FILE}", .0.display())]
    NoShard(PathBuf),
    /// A shard's sweep, inputs or build are not those of the first.
    #[error("{}: its {what} is not that of {}", .shard.display(), .first.display())]
    Other {
        /// The shard.
        shard: PathBuf,
        /// The first shard.
        first: PathBuf,
        /// The field that differs.
        what: String,
    },
    /// Some shards are missing.
    #[error("of {of} shards, {} {} missing: {}", .lacks.len(), if .lacks.len() == 1 { "is" } else { "are" }, list(.lacks))]
    Missing {
        /// Their numbers.
        lacks: Vec<u64>,
        /// Number of shards.
        of: u64,
    },
    /// Two folders have the same shard.
    #[error("{} and {} are the same shard", .0.display(), .1.display())]
    Twice(PathBuf, PathBuf),
    /// A shard has not the points that it should have.
    #[error("{}: point {point} is not where it should be", .shard.display())]
    Points {
        /// The shard.
        shard: PathBuf,
        /// The point.
        point: u64,
    },
    /// The folder refuses.
    #[error(transparent)]
    Folder(#[from] ReportError),
    /// A table cannot be read or written.
    #[error(transparent)]
    Table(#[from] TableError),
}

fn list(numbers: &[u64]) -> String {
    let shown: Vec<String> = numbers.iter().take(20).map(u64::to_string).collect();
    shown.join(", ") + if numbers.len() > 20 { ", …" } else { "" }
}

/// Finds the shards below `out`: the folders that [`Shard::place`](folder::Shard::place) makes
/// there. `out` itself, if there are none.
///
/// # Errors
/// [`ReportError::File`].
pub fn shards_below(out: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let at = |source| ReportError::File { path: out.to_owned(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(out).map_err(at)? {
        let path = entry.map_err(at)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("shard-") && path.is_dir() {
            found.push(path);
        }
    }
    found.sort();
    if found.is_empty() {
        found.push(out.to_owned());
    }
    Ok(found)
}

/// Writes into `out` what one run of the sweep would have written: O(r) for all rows, of which a
/// row group of each shard is in memory. Returns the number of points and of rows.
///
/// # Errors
/// [`MergeError`]; what is in `out` stays.
pub fn merge(shards: &[PathBuf], out: &Path) -> Result<(u64, u64), MergeError> {
    let mut manifests = Vec::new();
    for shard in shards {
        let manifest = folder::read_manifest(shard);
        manifests.push(manifest.ok_or_else(|| MergeError::NoShard(shard.clone()))?);
    }
    let ordered = order(shards, &manifests)?;
    let mut manifest = manifests.swap_remove(0);
    if let Some(fields) = manifest.as_object_mut() {
        fields.remove("shard");
    }
    let points = manifest["sweep"]["points"].as_u64().unwrap_or(0);
    let mut sources = Vec::new();
    for shard in &ordered {
        sources.push(Source::open(shard)?);
    }
    let folder = Folder::open(out)?;
    let mut rows = 0;
    folder::put(&folder, &manifest, |file| {
        let schema =
            sources.first().map_or_else(Vec::new, |source| source.reader.schema().to_vec());
        for source in &sources {
            source.reader.check(&schema)?;
        }
        let mut writer = Writer::create(file, &schema)?;
        let count = sources.len() as u64;
        for point in 0..points {
            let table = sources[(point % count) as usize].take(point)?;
            rows += table.rows() as u64;
            writer.append(&table)?;
        }
        for (source, nth) in sources.iter_mut().zip(points..) {
            source.check_end(nth)?;
        }
        Ok::<(), MergeError>(writer.finish()?)
    })?;
    Ok((points, rows))
}

/// The shards in their order, if there is each of them once and all are of one sweep.
fn order(shards: &[PathBuf], manifests: &[Json]) -> Result<Vec<PathBuf>, MergeError> {
    let shard_of = |manifest: &Json| match &manifest["shard"] {
        Json::Null => (1, 1),
        shard => (shard[0].as_u64().unwrap_or(0), shard[1].as_u64().unwrap_or(0)),
    };
    let Some(first) = manifests.first() else {
        return Err(MergeError::Missing { lacks: vec![1], of: 1 });
    };
    let (_, of) = shard_of(first);
    let mut places: std::collections::BTreeMap<u64, &PathBuf> = std::collections::BTreeMap::new();
    for (path, manifest) in shards.iter().zip(manifests) {
        let other = |what: &str| MergeError::Other {
            shard: path.clone(),
            first: shards[0].clone(),
            what: what.to_owned(),
        };
        for what in ["sweep", "inputs"] {
            if manifest[what] != first[what] {
                return Err(other(what));
            }
        }
        let (nth, its_of) = shard_of(manifest);
        if its_of != of {
            return Err(other("number of shards"));
        }
        if let Some(before) = places.insert(nth, path) {
            return Err(MergeError::Twice(before.clone(), path.clone()));
        }
    }
    let lacks: Vec<u64> =
        (1..=of.min(u64::from(u32::MAX))).filter(|nth| !places.contains_key(nth)).collect();
    if !lacks.is_empty() || places.len() as u64 != of {
        return Err(MergeError::Missing { lacks, of });
    }
    Ok(places.into_values().cloned().collect())
}

/// A shard's rows, taken point by point.
struct Source {
    shard: PathBuf,
    reader: Reader,
    /// Rows that were read, and how many of them were taken.
    read: Option<(Table, usize)>,
}

impl Source {
    fn open(shard: &Path) -> Result<Self, TableError> {
        let reader = Reader::open(&shard.join(POINTS_FILE))?;
        Ok(Self { shard: shard.to_owned(), reader, read: None })
    }

    /// The point of the next row.
    fn next_point(&mut self) -> Result<Option<Cell>, TableError> {
        loop {
            if let Some((table, at)) = &self.read
                && *at < table.rows()
            {
                return Ok(table.column(POINT).map(|column| column.cell(*at)));
            }
            match self.reader.next() {
                Some(table) => self.read = Some((table?, 0)),
                None => return Ok(None),
            }
        }
    }

    /// The rows of a point, which are next. A row group holds whole points.
    fn take(&mut self, point: u64) -> Result<Table, MergeError> {
        let wanted = Some(Cell::Int(point as i64));
        if self.next_point()? != wanted {
            return Err(MergeError::Points { shard: self.shard.clone(), point });
        }
        let Some((table, at)) = &mut self.read else { unreachable!("there is a next row") };
        let is_its = |row: &usize| table.column(POINT).map(|column| column.cell(*row)) == wanted;
        let end = (*at..table.rows()).take_while(is_its).count() + *at;
        let rows = table.slice(*at..end);
        *at = end;
        Ok(rows)
    }

    fn check_end(&mut self, point: u64) -> Result<(), MergeError> {
        match self.next_point()? {
            None => Ok(()),
            Some(_) => Err(MergeError::Points { shard: self.shard.clone(), point }),
        }
    }
}
