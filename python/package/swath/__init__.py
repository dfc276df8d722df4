"""Contiguous memory: allocators, studies, sweeps and recordings.

The laboratory of Swath, as objects. What it measures is what the program ``swath`` measures, byte
for byte: both run the same code.

Examples
--------
>>> import swath
>>> result = swath.Plan.of("pbs-cases").run(form="quick")
>>> table = result.table()  # pyarrow.table(table), polars.DataFrame(table), …
>>> set(table.column("study"))
{'pbs-cases'}
"""

from ._native import __version__
from .allocators import AdaptiveBuddy, BinaryBuddy, PageBuddy, SegmentSpace
from .plans import Machine, Plan, Result, studies
from .results import Table, load
from .sources import Recording, Snapshot
from .sweeps import Points, points, sweep

__all__ = [
    "AdaptiveBuddy",
    "BinaryBuddy",
    "Machine",
    "PageBuddy",
    "Plan",
    "Points",
    "Recording",
    "Result",
    "SegmentSpace",
    "Snapshot",
    "Table",
    "__version__",
    "load",
    "points",
    "studies",
    "sweep",
]
