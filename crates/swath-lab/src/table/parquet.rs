//! Tables as Parquet, compressed by Snappy: what DuckDB, polars and pandas read.
//!
//! The bytes follow from the rows and from the tables that they were appended in: a row group is
//! closed after the first table that fills it.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::column::reader::ColumnReader;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types;

use crate::table::column::{Column, OtherColumns, Schema, Table, Type, check_schema};

/// Rows after which a row group is closed.
const GROUP_ROWS: usize = 1 << 16;

/// A file that is not such a table, or cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {what}")]
pub struct TableError {
    /// The file.
    pub path: PathBuf,
    /// The fault.
    pub what: Fault,
}

/// Faults of a file.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The file system refuses.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is no Parquet that can be read.
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    /// It has other columns.
    #[error(transparent)]
    Columns(#[from] OtherColumns),
    /// A column has a type that no table has.
    #[error("column {0}: of a type that is not written here")]
    Type(String),
}

/// A file that is being written.
pub struct Writer {
    path: PathBuf,
    schema: Schema,
    group: Table,
    file: SerializedFileWriter<BufWriter<File>>,
}

impl Writer {
    /// Begins a file of these columns. What is at `path` is overwritten.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn create(path: &Path, schema: &[(String, Type)]) -> Result<Self, TableError> {
        let begin = || -> Result<_, Fault> {
            let fields: Result<Vec<_>, ParquetError> =
                schema.iter().map(|(name, of)| field(name, *of).map(Arc::new)).collect();
            let root = types::Type::group_type_builder("swath").with_fields(fields?).build()?;
            let properties = WriterProperties::builder()
                .set_compression(Compression::SNAPPY)
                .set_created_by(concat!("swath ", env!("CARGO_PKG_VERSION")).to_owned())
                .build();
            let file = BufWriter::new(File::create(path)?);
            Ok(SerializedFileWriter::new(file, Arc::new(root), Arc::new(properties))?)
        };
        let file = begin().map_err(|what| TableError { path: path.to_owned(), what })?;
        let (path, group) = (path.to_owned(), Table::new(schema));
        Ok(Self { path, schema: schema.to_vec(), group, file })
    }

    /// Appends a table.
    ///
    /// # Errors
    /// [`TableError`]; the file is then not to be used.
    pub fn append(&mut self, table: &Table) -> Result<(), TableError> {
        let appended = self.group.append(table).map_err(Fault::from).and_then(|()| {
            if self.group.rows() < GROUP_ROWS { Ok(()) } else { self.close_group() }
        });
        appended.map_err(|what| TableError { path: self.path.clone(), what })
    }

    /// Writes the end of the file and makes it last.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn finish(mut self) -> Result<(), TableError> {
        let mut finish = || -> Result<(), Fault> {
            if self.group.rows() > 0 {
                self.close_group()?;
            }
            self.file.finish()?;
            self.file.inner().get_ref().sync_data()?;
            Ok(())
        };
        finish().map_err(|what| TableError { path: self.path.clone(), what })
    }

    fn close_group(&mut self) -> Result<(), Fault> {
        let group = std::mem::replace(&mut self.group, Table::new(&self.schema));
        let mut writer = self.file.next_row_group()?;
        for (_, column) in group.columns() {
            write_column(&mut writer, column)?;
        }
        writer.close()?;
        Ok(())
    }
}

fn field(name: &str, of: Type) -> Result<types::Type, ParquetError> {
    let (physical, logical) = match of {
        Type::Bool => (Physical::BOOLEAN, None),
        Type::Int => (Physical::INT64, None),
        Type::Float => (Physical::DOUBLE, None),
        Type::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    types::Type::primitive_type_builder(name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build()
}

fn write_column<W: io::Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    column: &Column,
) -> Result<(), Fault> {
    let Some(mut writer) = group.next_column()? else {
        unreachable!("a group has the file's columns");
    };
    match (writer.untyped(), column) {
        (ColumnWriter::BoolColumnWriter(to), Column::Bool(values)) => {
            let (values, levels) = present(values, |value| *value);
            to.write_batch(&values, Some(&levels), None)?;
        }
        (ColumnWriter::Int64ColumnWriter(to), Column::Int(values)) => {
            let (values, levels) = present(values, |value| *value);
            to.write_batch(&values, Some(&levels), None)?;
        }
        (ColumnWriter::DoubleColumnWriter(to), Column::Float(values)) => {
            let (values, levels) = present(values, |value| *value);
            to.write_batch(&values, Some(&levels), None)?;
        }
        (ColumnWriter::ByteArrayColumnWriter(to), Column::Text(values)) => {
            let (values, levels) = present(values, |value| ByteArray::from(value.as_str()));
            to.write_batch(&values, Some(&levels), None)?;
        }
        _ => unreachable!("the file's columns have the table's types"),
    }
    writer.close()?;
    Ok(())
}

/// The values that are there, and 1 for each that is and 0 for each that is not.
fn present<T, P>(values: &[Option<T>], form: impl Fn(&T) -> P) -> (Vec<P>, Vec<i16>) {
    let levels = values.iter().map(|value| i16::from(value.is_some())).collect();
    (values.iter().flatten().map(form).collect(), levels)
}

/// A file, read group by group.
pub struct Reader {
    path: PathBuf,
    schema: Schema,
    file: SerializedFileReader<File>,
    next: usize,
}

impl Reader {
    /// Opens a file.
    ///
    /// # Errors
    /// [`TableError`], also for columns that a [`Writer`] does not write.
    pub fn open(path: &Path) -> Result<Self, TableError> {
        let open = || -> Result<_, Fault> {
            let file = SerializedFileReader::new(File::open(path)?)?;
            let schema = read_schema(file.metadata().file_metadata().schema_descr())?;
            Ok((file, schema))
        };
        let (file, schema) = open().map_err(|what| TableError { path: path.to_owned(), what })?;
        Ok(Self { path: path.to_owned(), schema, file, next: 0 })
    }

    /// Its columns.
    pub fn schema(&self) -> &[(String, Type)] {
        &self.schema
    }

    /// Refuses a file of other columns.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn check(&self, schema: &[(String, Type)]) -> Result<(), TableError> {
        let checked = check_schema(&self.schema, schema);
        checked.map_err(|what| TableError { path: self.path.clone(), what: what.into() })
    }

    fn read_group(&self, nth: usize) -> Result<Table, Fault> {
        let group = self.file.get_row_group(nth)?;
        let rows = usize::try_from(group.metadata().num_rows())
            .map_err(|_| ParquetError::General("a negative number of rows".to_owned()))?;
        let mut columns = Vec::new();
        for (at, (name, of)) in self.schema.iter().enumerate() {
            let column = read_column(group.get_column_reader(at)?, *of, rows)?;
            columns.push((name.clone(), column.ok_or_else(|| Fault::Type(name.clone()))?));
        }
        let table = Table::of(columns);
        Ok(table.ok_or_else(|| ParquetError::General("columns of several lengths".to_owned()))?)
    }
}

impl Iterator for Reader {
    type Item = Result<Table, TableError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.file.num_row_groups() {
            return None;
        }
        let group = self.read_group(self.next);
        self.next += 1;
        Some(group.map_err(|what| TableError { path: self.path.clone(), what }))
    }
}

fn read_schema(file: &types::SchemaDescriptor) -> Result<Schema, Fault> {
    let column = |column: &types::ColumnDescPtr| {
        let name = column.path().string();
        // A column in a group or a list has more levels.
        let is_plain = column.max_def_level() == 1 && column.max_rep_level() == 0;
        let of = match column.physical_type() {
            Physical::BOOLEAN => Type::Bool,
            Physical::INT64 => Type::Int,
            Physical::DOUBLE => Type::Float,
            Physical::BYTE_ARRAY => Type::Text,
            _ => return Err(Fault::Type(name)),
        };
        // A column's name may have dots in it.
        let name = column.path().parts().last().cloned().unwrap_or_default();
        if is_plain { Ok((name, of)) } else { Err(Fault::Type(column.path().string())) }
    };
    file.columns().iter().map(column).collect()
}

fn read_column(reader: ColumnReader, of: Type, rows: usize) -> Result<Option<Column>, Fault> {
    fn read<T: DataType>(
        mut from: parquet::column::reader::ColumnReaderImpl<T>,
        rows: usize,
    ) -> Result<Vec<Option<T::T>>, Fault> {
        let (mut values, mut levels) = (Vec::new(), Vec::new());
        while levels.len() < rows {
            let more =
                from.read_records(rows - levels.len(), Some(&mut levels), None, &mut values)?;
            if more.0 == 0 {
                break;
            }
        }
        let mut values = values.into_iter();
        Ok(levels.iter().map(|&level| if level == 1 { values.next() } else { None }).collect())
    }
    Ok(Some(match (reader, of) {
        (ColumnReader::BoolColumnReader(from), Type::Bool) => Column::Bool(read(from, rows)?),
        (ColumnReader::Int64ColumnReader(from), Type::Int) => Column::Int(read(from, rows)?),
        (ColumnReader::DoubleColumnReader(from), Type::Float) => Column::Float(read(from, rows)?),
        (ColumnReader::ByteArrayColumnReader(from), Type::Text) => {
            let texts: Result<Vec<Option<String>>, ParquetError> = read(from, rows)?
                .into_iter()
                .map(|bytes| bytes.map(|bytes| bytes.as_utf8().map(str::to_owned)).transpose())
                .collect();
            Column::Text(texts?)
        }
        _ => return Ok(None),
    }))
}

#[cfg(test)]
mod unit {
    use super::*;
    use crate::table::column::Cell;

    fn schema() -> Schema {
        [("a.b", Type::Int), ("x", Type::Float), ("name", Type::Text), ("is", Type::Bool)]
            .map(|(name, of)| (name.to_owned(), of))
            .to_vec()
    }

    /// A table with each kind of value present and absent.
    fn table(rows: i64) -> Table {
        let mut table = Table::new(&schema());
        for row in 0..rows {
            let some = |cell: Cell, nth: i64| if row % 4 == nth { Cell::Absent } else { cell };
            table.push([
                some(Cell::Int(row - 2), 0),
                some(Cell::Float(row as f64 / 3.0), 1),
                some(Cell::Text(format!("α{}", row % 7)), 2),
                some(Cell::Bool(row % 3 == 0), 3),
            ]);
        }
        table
    }

    #[test]
    fn tables_come_back_value_for_value() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("t.parquet");
        let parts = [table(3), table(0), table(70_000), table(5)];
        let mut writer = Writer::create(&path, &schema()).unwrap();
        for part in &parts {
            writer.append(part).unwrap();
        }
        writer.finish().unwrap();
        let reader = Reader::open(&path).unwrap();
        reader.check(&schema()).unwrap();
        let groups: Vec<Table> = reader.map(Result::unwrap).collect();
        assert_eq!(groups.iter().map(Table::rows).collect::<Vec<_>>(), [70_003, 5]);
        let (mut all, mut whole) = (Table::new(&schema()), Table::new(&schema()));
        parts.iter().for_each(|part| all.append(part).unwrap());
        groups.iter().for_each(|group| whole.append(group).unwrap());
        assert_eq!(all, whole);
    }

    #[test]
    fn a_file_that_is_broken_anywhere_is_an_error_or_a_table() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("t.parquet");
        let mut writer = Writer::create(&path, &schema()).unwrap();
        writer.append(&table(9)).unwrap();
        assert!(writer.append(&Table::new(&[])).is_err(), "other columns");
        writer.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            Reader::open(&path).and_then(|reader| reader.collect::<Result<Vec<_>, _>>())
        };
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "{length}");
        }
        assert_eq!(read(&bytes).unwrap(), [table(9)]);
    }
}
