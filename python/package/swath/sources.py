"""Snapshots of machines and recordings of programs, as arrays."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from . import _native

READ, WRITE, FETCH = 0, 1, 2
"""Kinds of accesses."""


class Snapshot:
    """The free frames of a machine, from ``swath snapshot``.

    Attributes
    ----------
    free
        First frame and number of frames of each free run, ascending: an array of two columns.
    """

    def __init__(self, path: str | None, unknown_free: bool, given: bool = True) -> None:
        self._path, self._given, self.unknown_free = path, given, unknown_free

    @staticmethod
    def load(path: str | os.PathLike[str], *, unknown_free: bool = False) -> Snapshot:
        """Read a snapshot; ``unknown_free`` counts frames of unknown state as free."""
        snapshot = Snapshot(os.fspath(path), unknown_free)
        _ = snapshot.free
        return snapshot

    @staticmethod
    def at(path: str | os.PathLike[str] | None) -> Snapshot:
        """Name a snapshot without reading it, or none."""
        return Snapshot(None if path is None else os.fspath(path), False, path is not None)

    @property
    def free(self) -> npt.NDArray[np.uint64]:
        data = _native.read_free(self._path, self.unknown_free)
        return np.frombuffer(data, dtype="<u8").reshape(-1, 2)

    @contextlib.contextmanager
    def file(self) -> Iterator[str | None]:
        """Have the snapshot as a file."""
        yield self._path if self._given else None


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
        given = np.asarray(addresses)
        if given.dtype.kind not in "ui":
            raise ValueError(f"addresses: whole numbers are wanted, not {given.dtype}")
        if given.dtype.kind == "i" and given.size and given.min() < 0:
            raise ValueError("addresses: one is negative")
        self.addresses: npt.NDArray[np.uint64] = np.ascontiguousarray(given.ravel(), dtype="<u8")
        self.kinds = self._column("kinds", kinds, "u1")
        self.lengths = self._column("lengths", lengths, "<u2")
        self._path: str | None = None
        self._given = True

    def _column(self, name: str, values: npt.ArrayLike, of: str) -> npt.NDArray[np.integer]:
        wide = np.asarray(values)
        most = np.iinfo(of).max
        if wide.dtype.kind not in "uib" or (wide.size and not 0 <= wide.min() <= wide.max() <= most):
            raise ValueError(f"{name}: whole numbers from 0 to {most} are wanted")
        if wide.ndim and wide.size != self.addresses.size:
            raise ValueError(f"{name}: {wide.size} for {self.addresses.size} addresses")
        column = np.broadcast_to(wide.ravel() if wide.ndim else wide, self.addresses.shape)
        return np.ascontiguousarray(column, dtype=of)

    @staticmethod
    def load(path: str | os.PathLike[str], *, limit: int | None = None) -> Recording:
        """Read a trace into arrays, or its first ``limit`` accesses."""
        most = 2**63 - 1 if limit is None else limit
        addresses, lengths, kinds = _native.read_accesses(os.fspath(path), most)
        return Recording(
            np.frombuffer(addresses, "<u8"),
            np.frombuffer(kinds, "u1"),
            np.frombuffer(lengths, "<u2"),
        )

    @staticmethod
    def at(path: str | os.PathLike[str] | None) -> Recording:
        """Name a trace without reading it, or none."""
        recording = Recording(np.empty(0, dtype=np.uint64))
        recording._path = None if path is None else os.fspath(path)
        recording._given = path is not None
        return recording

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the accesses as ``.swtrace``, for ``swath study --accesses``."""
        columns = (self.addresses, self.lengths, self.kinds)
        _native.write_accesses(os.fspath(path), *(column.tobytes() for column in columns))

    @contextlib.contextmanager
    def file(self) -> Iterator[str | None]:
        """Have the trace as a file."""
        if self._path is not None or not self._given:
            yield self._path
            return
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "array.swtrace")
            self.save(path)
            yield path

    def __len__(self) -> int:
        return self.addresses.size
