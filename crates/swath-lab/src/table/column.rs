//! Tables: named columns of one type and length.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A type of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Type {
    /// True or false.
    Bool,
    /// Whole numbers of 64 bits.
    Int,
    /// Floating-point numbers of 64 bits.
    Float,
    /// Text in UTF-8.
    Text,
}

/// The values of a column, each of which may be absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Column {
    /// True or false.
    Bool(Vec<Option<bool>>),
    /// Whole numbers.
    Int(Vec<Option<i64>>),
    /// Floating-point numbers.
    Float(Vec<Option<f64>>),
    /// Texts.
    Text(Vec<Option<String>>),
}

/// Columns by name, all of one length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    names: Vec<String>,
    columns: Vec<Column>,
    rows: usize,
}

/// A value of a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Cell {
    /// None.
    Absent,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A text.
    Text(String),
}

/// Names and types of columns.
pub type Schema = Vec<(String, Type)>;

/// A table whose columns are not those that it should have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its columns are {found}, not {expected}")]
pub struct OtherColumns {
    /// Columns that it has.
    pub found: String,
    /// Columns that it should have.
    pub expected: String,
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Float => "float",
            Self::Text => "text",
        })
    }
}

impl Column {
    /// A column without a value.
    pub const fn new(of: Type) -> Self {
        match of {
            Type::Bool => Self::Bool(Vec::new()),
            Type::Int => Self::Int(Vec::new()),
            Type::Float => Self::Float(Vec::new()),
            Type::Text => Self::Text(Vec::new()),
        }
    }

    /// The type of its values.
    pub const fn of(&self) -> Type {
        match self {
            Self::Bool(_) => Type::Bool,
            Self::Int(_) => Type::Int,
            Self::Float(_) => Type::Float,
            Self::Text(_) => Type::Text,
        }
    }

    /// Number of values, absent ones included.
    pub const fn len(&self) -> usize {
        match self {
            Self::Bool(values) => values.len(),
            Self::Int(values) => values.len(),
            Self::Float(values) => values.len(),
            Self::Text(values) => values.len(),
        }
    }

    /// Returns true if there is no value.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a value; one of another type is absent, but a whole number is a floating-point
    /// number, too.
    fn push(&mut self, cell: Cell) {
        match (self, cell) {
            (Self::Bool(values), Cell::Bool(value)) => values.push(Some(value)),
            (Self::Int(values), Cell::Int(value)) => values.push(Some(value)),
            (Self::Float(values), Cell::Float(value)) => values.push(Some(value)),
            (Self::Float(values), Cell::Int(value)) => values.push(Some(value as f64)),
            (Self::Text(values), Cell::Text(value)) => values.push(Some(value)),
            (Self::Bool(values), _) => values.push(None),
            (Self::Int(values), _) => values.push(None),
            (Self::Float(values), _) => values.push(None),
            (Self::Text(values), _) => values.push(None),
        }
    }

    /// The value of a row.
    pub fn cell(&self, row: usize) -> Cell {
        let cell = match self {
            Self::Bool(values) => values.get(row).copied().flatten().map(Cell::Bool),
            Self::Int(values) => values.get(row).copied().flatten().map(Cell::Int),
            Self::Float(values) => values.get(row).copied().flatten().map(Cell::Float),
            Self::Text(values) => values.get(row).cloned().flatten().map(Cell::Text),
        };
        cell.unwrap_or(Cell::Absent)
    }

    fn append(&mut self, other: &Self) {
        match (self, other) {
            (Self::Bool(values), Self::Bool(more)) => values.extend_from_slice(more),
            (Self::Int(values), Self::Int(more)) => values.extend_from_slice(more),
            (Self::Float(values), Self::Float(more)) => values.extend_from_slice(more),
            (Self::Text(values), Self::Text(more)) => values.extend_from_slice(more),
            _ => unreachable!("the types were compared"),
        }
    }

    fn slice(&self, rows: std::ops::Range<usize>) -> Self {
        match self {
            Self::Bool(values) => Self::Bool(values[rows].to_vec()),
            Self::Int(values) => Self::Int(values[rows].to_vec()),
            Self::Float(values) => Self::Float(values[rows].to_vec()),
            Self::Text(values) => Self::Text(values[rows].to_vec()),
        }
    }
}

impl Table {
    /// A table without a row.
    pub fn new(schema: &[(String, Type)]) -> Self {
        let names = schema.iter().map(|(name, _)| name.clone()).collect();
        let columns = schema.iter().map(|&(_, of)| Column::new(of)).collect();
        Self { names, columns, rows: 0 }
    }

    /// A table of these columns, if all have one length.
    pub fn of(columns: Vec<(String, Column)>) -> Option<Self> {
        let rows = columns.first().map_or(0, |(_, column)| column.len());
        let fits = columns.iter().all(|(_, column)| column.len() == rows);
        let (names, columns) = columns.into_iter().unzip();
        fits.then_some(Self { names, columns, rows })
    }

    /// Number of rows.
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Names and types of its columns.
    pub fn schema(&self) -> Schema {
        self.columns().map(|(name, column)| (name.to_owned(), column.of())).collect()
    }

    /// Its columns with their names.
    pub fn columns(&self) -> impl Iterator<Item = (&str, &Column)> {
        self.names.iter().map(String::as_str).zip(&self.columns)
    }

    /// The column of this name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns().find(|(other, _)| *other == name).map(|(_, column)| column)
    }

    /// Appends a row: the columns' values in their order. A value that is not given or of another
    /// type is absent.
    pub fn push(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let mut cells = cells.into_iter();
        for column in &mut self.columns {
            column.push(cells.next().unwrap_or(Cell::Absent));
        }
        self.rows += 1;
    }

    /// Appends the rows of another table.
    ///
    /// # Errors
    /// [`OtherColumns`] if it has other columns.
    pub fn append(&mut self, other: &Self) -> Result<(), OtherColumns> {
        check_schema(&other.schema(), &self.schema())?;
        for (column, more) in self.columns.iter_mut().zip(&other.columns) {
            column.append(more);
        }
        self.rows += other.rows;
        Ok(())
    }

    /// The rows from the first to the last given.
    ///
    /// # Panics
    /// If the table has fewer.
    #[must_use]
    pub fn slice(&self, rows: std::ops::Range<usize>) -> Self {
        let columns = self.columns.iter().map(|column| column.slice(rows.clone())).collect();
        Self { names: self.names.clone(), columns, rows: rows.len() }
    }
}

/// Refuses columns other than `expected`.
///
/// # Errors
/// [`OtherColumns`].
pub(crate) fn check_schema(
    found: &[(String, Type)],
    expected: &[(String, Type)],
) -> Result<(), OtherColumns> {
    let words = |schema: &[(String, Type)]| {
        let words: Vec<String> = schema.iter().map(|(name, of)| format!("{name} ({of})")).collect();
        words.join(", ")
    };
    if found == expected {
        return Ok(());
    }
    Err(OtherColumns { found: words(found), expected: words(expected) })
}
