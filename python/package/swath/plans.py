"""Plans of studies, and their results."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from . import _native
from .results import Table
from .sources import Recording, Snapshot

Form = Literal["quick", "full"]


def _plain(value: object) -> Any:
    """Return a value of NumPy as Python's, for JSON."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"a plan holds numbers, texts, lists and tables, not {type(value).__name__}")


def as_json(value: object) -> str:
    """Return a value of a plan as JSON."""
    return json.dumps(value, default=_plain)


def is_quick(form: Form) -> bool:
    """Return whether a form of a plan is the quick one."""
    if form not in ("quick", "full"):
        raise ValueError(f"form: {form!r} is neither 'quick' nor 'full'")
    return form == "quick"


def studies() -> list[str]:
    """Return the names of the studies that come with Swath."""
    return _native.studies()


class Machine:
    """The machine of a plan: its format, its TLB, what its allocators can do.

    Parameters
    ----------
    **keys
        Keys of a plan's ``[machine]``, as in ``Machine(format="armv8", tlb_entries=64)``. Those that
        are left out stay as the plan has them.
    """

    def __init__(self, **keys: Any) -> None:
        self.keys = keys

    def __repr__(self) -> str:
        return f"Machine({', '.join(f'{key}={value!r}' for key, value in self.keys.items())})"


class Plan:
    """The plan of a study: what it measures on which machine.

    A plan does not change; :meth:`replace` gives another one. A key or value that no study can run
    with is refused with a ``ValueError`` that names it.

    Parameters
    ----------
    text
        The plan as TOML.
    name
        What errors call it.

    Examples
    --------
    >>> plan = Plan.of("pbs-tlb").replace({"machine.tlb_entries": 64, "machine.tlb_ways": 64})
    >>> plan["machine.tlb_entries"]
    64
    """

    def __init__(self, text: str, name: str = "plan") -> None:
        self.study: str = _native.study_of(name, text)
        self.text, self.name = text, name

    @staticmethod
    def of(study: str) -> Plan:
        """Return the plan of a study that comes with Swath."""
        return Plan(_native.plan_text(study), study)

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Plan:
        """Read a plan from a file."""
        return Plan(Path(path).read_text(encoding="utf-8"), os.fspath(path))

    def __getitem__(self, key: str) -> Any:
        """Return the value of a key with its tables; ``KeyError`` if the plan has none."""
        return json.loads(_native.plan_get(self.text, key))

    def replace(
        self, keys: Mapping[str, Any] | None = None, *, machine: Machine | None = None
    ) -> Plan:
        """Return this plan with other values.

        Parameters
        ----------
        keys
            Values by key with its tables, as in ``{"machine.tlb_entries": 64}``. A number is a place
            in a list, from 0.
        machine
            Another machine.

        Returns
        -------
        Plan
            Another plan; all keys are set before it is checked.
        """
        text = self.text
        of_machine = {f"machine.{key}": value for key, value in (machine or Machine()).keys.items()}
        for key, value in {**(keys or {}), **of_machine}.items():
            text = _native.plan_set(text, key, as_json(value))
        return Plan(text, self.name)

    def run(
        self,
        form: Form = "quick",
        *,
        seed: int | None = None,
        memory: Snapshot | npt.ArrayLike | os.PathLike[str] | None = None,
        accesses: Recording | npt.ArrayLike | os.PathLike[str] | None = None,
        threads: int = 0,
    ) -> Result:
        """Run the study, without the interpreter's lock.

        Parameters
        ----------
        form
            ``"quick"`` has fewer seeds, or less work.
        seed
            Another seed than the plan's.
        memory
            Free frames in place of the plan's: a snapshot, its file, or runs as
            :class:`Snapshot` takes them.
        accesses
            Accesses in place of the plan's: a recording, a trace's file, or an array of addresses.
        threads
            As many as processors if 0.

        Returns
        -------
        Result
            That of ``swath study``, byte for byte.

        Raises
        ------
        ValueError
            If the plan cannot be run, with the key and the reason, or input is malformed.
        FileNotFoundError
            If a file is not there.
        """
        if isinstance(memory, (str, os.PathLike)):
            memory = Snapshot.load(memory)
        elif memory is not None and not isinstance(memory, Snapshot):
            memory = Snapshot(memory)
        with contextlib.ExitStack() as stack:
            if accesses is not None and not isinstance(accesses, (str, os.PathLike)):
                recording = accesses if isinstance(accesses, Recording) else Recording(accesses)
                accesses = stack.enter_context(recording.as_file())
            outcome = _native.run(
                self.name,
                self.text,
                is_quick(form),
                seed,
                None if memory is None else memory._native,
                None if accesses is None else os.fspath(accesses),
                threads,
            )
        return Result(outcome)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self[""] == other[""]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<swath.Plan of {self.study}>"


class Result:
    """The result of a study."""

    def __init__(self, native: _native.Outcome) -> None:
        self._native = native

    @property
    def study(self) -> str:
        """The study's name."""
        return self._native.study

    @property
    def finding(self) -> str:
        """The finding in words."""
        return self._native.finding

    def json(self) -> bytes:
        """Return the bytes of ``results.json``, as the program writes them."""
        return self._native.json()

    def table(self) -> Table:
        """Return every series and claim as one table."""
        return Table(self._native.table())

    def __repr__(self) -> str:
        return f"<swath.Result of {self.study}>"
