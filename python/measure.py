"""What Python costs: a study beside the program's own run of it, and points of a sweep on two workers.

``python measure.py PROGRAM`` prints the tables; ``--pairs`` and ``--points`` make them shorter.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import swath

#: About a second on two processors.
STUDY = swath.Plan.of("pbs-tlb").replace({"repeats.quick": 6})

#: About ten milliseconds on one.
POINT = {
    "repeats.quick": [1],
    "memory.blocks.block_frames": [[1, 16, 256]],
    "accesses.table4.workloads": [["rotated-display"]],
}


def seconds(run: Callable[[], object]) -> float:
    """Return how long a call takes."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def spread(values: list[float], digits: int = 2) -> str:
    """Return the median, and the least and the greatest value."""
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} ({least:.{digits}f} to {most:.{digits}f})"


def beside_the_program(program: str, pairs: int) -> None:
    """Run one plan by the program, in this interpreter and in a new one, in turn."""
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder, "plan.toml")
        plan.write_text(STUDY.text, encoding="utf-8")
        study = [program, "study", "--plan", plan, "--quick", "--out", Path(folder, "report")]
        script = f"import swath; swath.Plan.read({str(plan)!r}).run().json()"
        runs: dict[str, Callable[[], object]] = {
            "program": lambda: subprocess.run(study, check=True, capture_output=True),
            "call": lambda: STUDY.run().json(),
            "interpreter": lambda: subprocess.run([sys.executable, "-c", script], check=True),
        }
        # What is read from the disk for the first time is not counted.
        for run in runs.values():
            run()
        times = [{name: seconds(run) for name, run in runs.items()} for _ in range(pairs)]
    print(f"{pairs} pairs of one study; seconds and native speed: median (least to greatest)")
    for name in runs:
        taken = [each[name] for each in times]
        ratio = [each["program"] / each[name] for each in times]
        print(f"{name:>12}  {spread(taken)} s  {spread([100 * one for one in ratio], 0)} %")


def many_points(program: str, count: int) -> None:
    """Measure points one after the other, then by two workers and by the program's two threads."""
    points = swath.points("pbs-tlb", {**POINT, "about.seed": range(1, count + 1)})
    sample = points[: min(count, 300)]
    plans = [sample.plan(number) for number in sample.numbers]
    alone = [seconds(lambda plan=plan: plan.run(threads=1)) for plan in plans]
    point = statistics.mean(alone)
    print(f"{count} points of {1000 * point:.2f} ms each on one processor (the mean of {len(sample)})")

    def by_workers(chunk: int) -> None:
        with ProcessPoolExecutor(2) as workers:
            assert swath.sweep(points, workers, chunk=chunk).num_rows > 0

    def by_program() -> None:
        with tempfile.TemporaryDirectory() as folder:
            definition = Path(folder, "sweep.toml")
            definition.write_text(points.text, encoding="utf-8")
            sweep = [program, "sweep", definition, "--jobs", "2", "--out", Path(folder, "out")]
            subprocess.run(sweep, check=True, capture_output=True)

    for name, run in [
        ("two workers", lambda: by_workers(1)),
        ("two workers, 16 points at a time", lambda: by_workers(16)),
        ("the program, two threads", by_program),
    ]:
        taken = seconds(run)
        efficiency = count * point / (2 * taken)
        cost = 1000 * (2 * taken / count - point)
        print(f"{name:>34}  {taken:7.1f} s  {100 * efficiency:5.1f} % busy  {cost:6.3f} ms more a point")


def small_points(count: int) -> None:
    """Measure points of next to nothing: what a point costs beside its work."""
    points = swath.points("pbs-cases", {"about.seed": range(1, count + 1)})
    plan = points.plan(points.numbers[0])
    alone = statistics.median(seconds(lambda: plan.run(threads=1)) for _ in range(100))
    with ProcessPoolExecutor(2) as workers:
        taken = {chunk: seconds(lambda: swath.sweep(points, workers, chunk=chunk)) for chunk in (1, 16)}
    each = ", ".join(f"{1000 * time / count:.3f} ms with {chunk} at a time" for chunk, time in taken.items())
    print(f"{count} points of {1000 * alone:.3f} ms: {each}, by two workers")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="the program swath, of the same build")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--points", type=int, default=10_000)
    given = parser.parse_args()
    beside_the_program(given.program, given.pairs)
    many_points(given.program, given.points)
    small_points(given.points)


if __name__ == "__main__":
    main()
