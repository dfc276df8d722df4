"""Snapshots of machines and recordings of programs, as arrays."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _native

READ, WRITE, FETCH = 0, 1, 2
"""Kinds of accesses."""


class Snapshot:
    """The free frames of a machine: from ``swath snapshot``, from arrays, or from an allocator.

    Parameters
    ----------
    free
        First frame and number of frames of each free run, ascending: an array of two columns.

    Examples
    --------
    >>> from swath import PageBuddy, Plan
    >>> memory = PageBuddy(1 << 16)
    >>> _ = memory.allocate(5000)
    >>> Snapshot(memory.free_runs()).free
    array([[ 5000, 60536]], dtype=uint64)
    """

    def __init__(self, free: npt.ArrayLike) -> None:
        runs = _whole("free", free, "<u8")
        if runs.ndim != 2 or runs.shape[1] != 2:
            raise ValueError(f"free: two columns are wanted, not the shape {runs.shape}")
        self._native = _native.Memory.of(runs.tobytes())

    @staticmethod
    def load(path: str | os.PathLike[str] | None = None, *, unknown_free: bool = False) -> Snapshot:
        """Read a snapshot; the one that comes with Swath if no path is given.

        Parameters
        ----------
        path
            The file.
        unknown_free
            Count frames of unknown state as free.
        """
        snapshot = Snapshot.__new__(Snapshot)
        file = None if path is None else os.fspath(path)
        snapshot._native = _native.Memory.load(file, unknown_free)
        return snapshot

    @property
    def free(self) -> npt.NDArray[np.uint64]:
        """First frame and number of frames of each free run: an array of two columns."""
        return np.frombuffer(self._native.runs(), dtype="<u8").reshape(-1, 2)


class Recording:
    """The accesses of a program: a trace of any format that ``swath`` reads, or arrays.

    Parameters
    ----------
    addresses
        Address of each access, in their order.
    kinds
        ``READ``, ``WRITE`` or ``FETCH`` of each, or of all.
    lengths
        Bytes of each, or of all.

    Examples
    --------
    >>> import numpy as np
    >>> columns = Recording(np.arange(1024).reshape(32, 32).T.ravel() * 64)
    >>> len(columns)
    1024
    """

    def __init__(
        self,
        addresses: npt.ArrayLike,
        kinds: npt.ArrayLike = READ,
        lengths: npt.ArrayLike = 8,
    ) -> None:
        self.addresses = _whole("addresses", addresses, "<u8").ravel()
        self.kinds = self._column("kinds", kinds, "u1")
        self.lengths = self._column("lengths", lengths, "<u2")
        self._name = "array.swtrace"

    def _column(self, name: str, values: npt.ArrayLike, of: str) -> npt.NDArray[Any]:
        column = _whole(name, values, of)
        if column.ndim and column.size != self.addresses.size:
            raise ValueError(f"{name}: {column.size} for {self.addresses.size} addresses")
        return np.ascontiguousarray(np.broadcast_to(column.ravel(), self.addresses.shape))

    @staticmethod
    def load(path: str | os.PathLike[str] | None = None, *, limit: int | None = None) -> Recording:
        """Read a trace into arrays; the one that comes with Swath if no path is given.

        Parameters
        ----------
        path
            A file of any format that ``swath study --accesses`` reads.
        limit
            Read the first accesses alone, at most so many.
        """
        most = 2**63 - 1 if limit is None else limit
        file = None if path is None else os.fspath(path)
        addresses, lengths, kinds = _native.read_accesses(file, most)
        recording = Recording(
            np.frombuffer(addresses, "<u8"),
            np.frombuffer(kinds, "u1"),
            np.frombuffer(lengths, "<u2"),
        )
        # A result names the file that its accesses are from.
        recording._name = recording._name if file is None else os.path.basename(file)
        return recording

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the accesses as ``.swtrace``, for ``swath study --accesses``."""
        columns = (self.addresses, self.lengths, self.kinds)
        _native.write_accesses(os.fspath(path), *(column.tobytes() for column in columns))

    @contextlib.contextmanager
    def as_file(self) -> Iterator[str]:
        """Have the accesses as a file for a while."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, self._name)
            self.save(path)
            yield path

    def __len__(self) -> int:
        return self.addresses.size


def _whole(name: str, values: npt.ArrayLike, of: str) -> npt.NDArray[Any]:
    """Return whole numbers as an array of a type, or refuse those that it does not hold."""
    given, most = np.asarray(values), np.iinfo(of).max
    if given.size == 0:
        given = given.astype(of)
    if given.dtype.kind not in "uib" or (given.size and not 0 <= given.min() <= given.max() <= most):
        raise ValueError(f"{name}: whole numbers from 0 to {most} are wanted")
    return np.ascontiguousarray(given, dtype=of) if given.ndim else given.astype(of)
