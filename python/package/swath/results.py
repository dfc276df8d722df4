"""Results as tables."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

from . import _native

if TYPE_CHECKING:
    import pandas
    import polars


class Table:
    """Named columns of one type each, for data frames.

    It takes part in Arrow's PyCapsule interface, so that ``pyarrow.table(table)``,
    ``polars.DataFrame(table)`` and ``duckdb`` take it as it is, without a copy of theirs.

    A row of a result is a point of a series (``kind`` is ``series``) or a claim (``claim``):
    ``place`` is the figure, or where the paper makes the claim, ``subject`` the design, or the claim
    in words, ``x`` or ``category`` its place, ``value`` what was measured with the ends ``low`` and
    ``high`` of its 95% interval over ``n`` seeds. ``verdict`` and ``why`` judge a claim by the
    paper's own figure, ``paper_low`` to ``paper_high``. ``on_host`` says that a row depends on the
    machine that ran the study.
    """

    def __init__(self, native: _native.Table) -> None:
        self._native = native

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self._native.num_rows

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, in their order."""
        return self._native.column_names

    def column(self, name: str) -> list[Any]:
        """Return the values of a column; absent ones are ``None``."""
        return self._native.column(name)

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows as a data frame of pandas, which needs pyarrow."""
        import pyarrow

        return pyarrow.table(self).to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """Return the rows as a data frame of polars."""
        import polars

        return polars.DataFrame(self)

    def write_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write the rows as Parquet."""
        self._native.write_parquet(os.fspath(path))

    @staticmethod
    def read_parquet(path: str | os.PathLike[str]) -> Table:
        """Read rows that were written as Parquet here or by ``swath sweep``."""
        return Table(_native.Table.read_parquet(os.fspath(path)))

    @staticmethod
    def concat(tables: list[Table]) -> Table:
        """Return the rows of several tables with the same columns."""
        return Table(_native.Table.concat([table._native for table in tables]))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._native.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self._native.__arrow_c_schema__()

    def __len__(self) -> int:
        return self.num_rows

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self._native == other._native

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_bytes, (self._native.to_bytes(),)

    def __repr__(self) -> str:
        return f"<swath.Table: {self.num_rows} rows of {', '.join(self.column_names)}>"


def _of_bytes(data: bytes) -> Table:
    return Table(_native.Table.from_bytes(data))


def load(folder: str | os.PathLike[str]) -> Table:
    """Read every series and claim of a report, or the table of a sweep.

    Parameters
    ----------
    folder
        What ``swath study`` or ``swath sweep`` wrote.

    Returns
    -------
    Table
        One row for each point of a series and each claim of each study. A study that cannot be read
        is left out with a warning.
    """
    table, left_out = _native.load(os.fspath(folder))
    for what in left_out:
        warnings.warn(f"left out: {what}", stacklevel=2)
    return Table(table)
