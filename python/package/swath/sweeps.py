"""Sweeps: one plan at many points, by any executor."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures import as_completed as _as_completed
from pathlib import Path
from typing import Any, Literal

from . import _native
from .plans import Form, Plan, as_json, is_quick
from .results import Table


class Points:
    """The points of a sweep: a plan at combinations of values of its keys.

    Made by :func:`points` or :meth:`read`. A slice, or :meth:`where`, gives some of them; each keeps
    its number.
    """

    def __init__(self, text: str, name: str, folder: str, chosen: Sequence[int] | None = None) -> None:
        self.text = text
        self._source = (name, text, folder)
        self._native = _native.Sweep(*self._source)
        self.numbers: Sequence[int] = range(self._native.points) if chosen is None else chosen

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Points:
        """Read the definition that ``swath sweep`` takes."""
        text = Path(path).read_text(encoding="utf-8")
        return Points(text, os.fspath(path), os.path.abspath(os.path.dirname(path)))

    @property
    def study(self) -> str:
        """The name of the study."""
        return self._native.study

    def values(self, number: int) -> dict[str, Any]:
        """Return the values of a point, by key."""
        return {key: json.loads(value) for key, value in self._native.values(number)}

    def plan(self, number: int) -> Plan:
        """Return the plan of a point."""
        return Plan(self._native.plan_text(number), f"{self._source[0]}, point {number}")

    def where(self, keep: Callable[[dict[str, Any]], bool]) -> Points:
        """Return the points whose values pass a test."""
        return self._of([number for number in self.numbers if keep(self.values(number))])

    def check(self) -> None:
        """Refuse points whose plans cannot be run, unless they are to be skipped.

        Raises
        ------
        ValueError
            The first such point: its key, line and reason.
        """
        self._native.check_points(list(self.numbers))

    def _of(self, chosen: Sequence[int]) -> Points:
        name, text, folder = self._source
        return Points(text, name, folder, chosen)

    def __getitem__(self, part: slice) -> Points:
        return self._of(self.numbers[part])

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self.values(number) for number in self.numbers)

    def __reduce__(self) -> tuple[Any, ...]:
        name, text, folder = self._source
        return Points, (text, name, folder, list(self.numbers))

    def __repr__(self) -> str:
        return f"<swath.Points: {len(self)} of {self.study}>"


def points(
    plan: Plan | str,
    keys: Mapping[str, Sequence[Any] | Mapping[str, Any]],
    *,
    form: Form = "quick",
    refused: Literal["error", "skip"] = "error",
    memory: str | os.PathLike[str] | None = None,
    unknown_free: bool = False,
    accesses: str | os.PathLike[str] | None = None,
) -> Points:
    """Return all combinations of values of a plan's keys, the last key's changing fastest.

    Parameters
    ----------
    plan
        A plan, or the name of a study.
    keys
        For each key a list of values, or a range: ``{"from": 1, "to": 64, "times": 2}``.
    form
        ``"quick"`` has fewer seeds, or less work.
    refused
        What becomes of a point whose plan is refused: an error before anything is run, or a row that
        says why.
    memory, accesses
        Files of real input in place of the plan's.
    unknown_free
        Count frames of unknown state in ``memory`` as free.

    Examples
    --------
    >>> grid = points("pbs-tlb", {"machine.tlb_entries": [32, 64], "about.seed": range(1, 11)})
    >>> len(grid)
    20
    """
    base = plan if isinstance(plan, Plan) else Plan.of(plan)
    if refused not in ("error", "skip"):
        raise ValueError(f"refused: {refused!r} is neither 'error' nor 'skip'")
    listed = [
        (key, as_json(dict(values) if isinstance(values, Mapping) else list(values)))
        for key, values in keys.items()
    ]
    files = [None if file is None else os.path.abspath(file) for file in (memory, accesses)]
    text = _native.sweep_text(
        base.text, listed, is_quick(form), refused == "skip", files[0], unknown_free, files[1]
    )
    return Points(text, f"sweep of {base.study}", os.getcwd())


@functools.lru_cache(maxsize=1)
def _definition(sweep: str, name: str, text: str, folder: str) -> _native.Sweep:
    """Read a definition once in each worker; ``sweep`` tells calls apart, as its files may change."""
    return _native.Sweep(name, text, folder)


def run_points(sweep: str, name: str, text: str, folder: str, numbers: list[int]) -> list[bytes]:
    """Measure points one after the other: the work of an executor's worker."""
    native = _definition(sweep, name, text, folder)
    return [native.run_point(number).to_bytes() for number in numbers]


def sweep(
    points: Points,
    executor: Executor | None = None,
    *,
    chunk: int = 1,
    journal: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Table:
    """Measure points, and return the table that ``swath sweep`` writes.

    Parameters
    ----------
    points
        The points.
    executor
        Anything with the interface of ``concurrent.futures``: a ``ProcessPoolExecutor`` if none is
        given, Dask's ``Client.get_executor()``, submitit's, mpi4py's.
    chunk
        Points that a worker is given, and gives back, at a time. More than one are for executors
        to whom a job costs much, as to Slurm.
    journal
        A file in which points are written down when a worker gives them back. A sweep that was
        killed goes on from it, and no point in it is measured again.
    progress
        Called with the number of points that are done, and of all.

    Returns
    -------
    Table
        The rows of the points in their order, whatever the order in which they were measured.

    Raises
    ------
    ValueError
        If a point's plan cannot be run: before any is measured.

    Notes
    -----
    An error in a worker, or an interrupt here, ends the sweep: what is not begun is cancelled, and
    what was given back is in the journal.
    """
    count = len(points)
    if count == 0:
        raise ValueError("no point")
    if chunk < 1:
        raise ValueError(f"chunk: {chunk} is less than one point")
    points.check()
    tables: dict[int, Table] = {}
    written = None
    if journal is not None:
        library = zlib.crc32(Path(_native.__file__).read_bytes())
        key = json.dumps([library, points._native.key(), list(points.numbers)])
        written = _native.Journal(os.fspath(journal), key, count)
        for nth in range(count):
            if (rows := written.recall(nth)) is not None:
                tables[nth] = Table(rows)
    lacking = [nth for nth in range(count) if nth not in tables]
    jobs: dict[Any, list[int]] = {}
    call = uuid.uuid4().hex
    with contextlib.ExitStack() as stack:
        if executor is None:
            executor = stack.enter_context(ProcessPoolExecutor())
        stack.callback(lambda: [job.cancel() for job in jobs])
        for at in range(0, len(lacking), chunk):
            part = lacking[at : at + chunk]
            numbers = [points.numbers[nth] for nth in part]
            jobs[executor.submit(run_points, call, *points._source, numbers)] = part
        for done in _in_turn(list(jobs)):
            for nth, data in zip(jobs.pop(done), done.result(), strict=True):
                rows = _native.Table.from_bytes(data)
                if written is not None:
                    written.record(nth, rows)
                tables[nth] = Table(rows)
            if progress is not None:
                progress(len(tables), count)
    return Table.concat([tables[nth] for nth in range(count)])


def _in_turn(jobs: list[Any]) -> Iterator[Any]:
    """Give jobs as they end, or in their order where they are no futures of the standard library."""
    if all(isinstance(job, Future) for job in jobs):
        yield from _as_completed(jobs)
    else:
        yield from jobs
