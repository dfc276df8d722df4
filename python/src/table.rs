//! Tables, as Arrow's streams.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchIterator, StringArray,
};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule};
use swath_lab::report::write::find_studies;
use swath_lab::sweep::folder::POINTS_FILE;
use swath_lab::table::column::{Cell, Column, Table as Rows, Type};
use swath_lab::table::parquet::{Reader, Writer};
use swath_lab::table::result;

use crate::error::{failed, of_table, refused, there};

/// Named columns of one type. Takes part in Arrow's PyCapsule interface.
#[pyclass(module = "swath._native", frozen)]
pub(crate) struct Table(pub(crate) Arc<Rows>);

impl From<Rows> for Table {
    fn from(rows: Rows) -> Self {
        Self(Arc::new(rows))
    }
}

fn schema(rows: &Rows) -> SchemaRef {
    let field = |(name, column): (&str, &Column)| {
        let of = match column.of() {
            Type::Bool => DataType::Boolean,
            Type::Int => DataType::Int64,
            Type::Float => DataType::Float64,
            Type::Text => DataType::Utf8,
        };
        Field::new(name, of, true)
    };
    Arc::new(Schema::new(rows.columns().map(field).collect::<Vec<_>>()))
}

fn batch(rows: &Rows) -> Result<RecordBatch, ArrowError> {
    let array = |(_, column): (&str, &Column)| -> ArrayRef {
        match column {
            Column::Bool(values) => Arc::new(values.iter().collect::<BooleanArray>()),
            Column::Int(values) => Arc::new(values.iter().collect::<Int64Array>()),
            Column::Float(values) => Arc::new(values.iter().collect::<Float64Array>()),
            Column::Text(values) => {
                Arc::new(values.iter().map(Option::as_deref).collect::<StringArray>())
            }
        }
    };
    RecordBatch::try_new(schema(rows), rows.columns().map(array).collect())
}

#[pymethods]
impl Table {
    #[getter]
    fn num_rows(&self) -> usize {
        self.0.rows()
    }

    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.0.columns().map(|(name, _)| name.to_owned()).collect()
    }

    /// The values of a column, as a list.
    fn column<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let column = self.0.column(name);
        let column = column.ok_or_else(|| refused(format!("no column {name:?}")))?;
        let value = |row: usize| -> PyResult<Bound<'py, PyAny>> {
            Ok(match column.cell(row) {
                Cell::Absent => py.None().into_bound(py),
                Cell::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
                Cell::Int(value) => value.into_pyobject(py)?.into_any(),
                Cell::Float(value) => value.into_pyobject(py)?.into_any(),
                Cell::Text(value) => value.into_pyobject(py)?.into_any(),
            })
        };
        (0..self.0.rows()).map(value).collect()
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // A producer may leave a wish for other types alone.
        let _ = requested_schema;
        let batch = py.detach(|| batch(&self.0)).map_err(failed)?;
        let schema = batch.schema();
        let batches = RecordBatchIterator::new([Ok(batch)], schema);
        PyCapsule::new_with_value(
            py,
            FFI_ArrowArrayStream::new(Box::new(batches)),
            c"arrow_array_stream",
        )
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(schema(&self.0).as_ref()).map_err(failed)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// The rows of several tables of the same columns, one after the other.
    #[staticmethod]
    fn concat(py: Python<'_>, tables: Vec<Bound<'_, Self>>) -> PyResult<Self> {
        let tables: Vec<Arc<Rows>> =
            tables.iter().map(|table| Arc::clone(&table.get().0)).collect();
        let first = tables.first().ok_or_else(|| refused("no table"))?;
        py.detach(|| {
            let mut all = Rows::new(&first.schema());
            tables.iter().try_for_each(|table| all.append(table)).map_err(refused)?;
            Ok(all.into())
        })
    }

    fn write_parquet(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| {
            let mut writer = Writer::create(&path, &self.0.schema())?;
            writer.append(&self.0)?;
            writer.finish()
        })
        .map_err(of_table)
    }

    #[staticmethod]
    fn read_parquet(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        there(&path)?;
        py.detach(|| {
            let reader = Reader::open(&path).map_err(of_table)?;
            let mut all = Rows::new(reader.schema());
            for group in reader {
                all.append(&group.map_err(of_table)?).map_err(refused)?;
            }
            Ok(all.into())
        })
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = postcard::to_allocvec(&*self.0).map_err(failed)?;
        Ok(PyBytes::new(py, &bytes))
    }

    #[staticmethod]
    fn from_bytes(bytes: &[u8]) -> PyResult<Self> {
        let rows: Rows = postcard::from_bytes(bytes).map_err(refused)?;
        Ok(rows.into())
    }

    fn __len__(&self) -> usize {
        self.0.rows()
    }

    fn __eq__(&self, other: &Bound<'_, Self>) -> bool {
        self.0 == other.get().0
    }
}

/// The rows of a report's studies, or of a sweep's folder, and what was left out of them.
#[pyfunction]
pub(crate) fn load(py: Python<'_>, folder: PathBuf) -> PyResult<(Table, Vec<String>)> {
    there(&folder)?;
    let points = folder.join(POINTS_FILE);
    if points.is_file() {
        return Ok((Table::read_parquet(py, points)?, Vec::new()));
    }
    py.detach(|| {
        let (studies, left_out) = find_studies(&folder).map_err(failed)?;
        let mut rows = Rows::new(&result::schema());
        for study in &studies {
            result::append(&mut rows, &[], &study.result);
            if let Some(host) = &study.host {
                result::append_host(&mut rows, &[], host);
            }
        }
        Ok((rows.into(), left_out.iter().map(ToString::to_string).collect()))
    })
}
