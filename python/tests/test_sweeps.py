"""Sweeps by executors: nothing lost, nothing twice, and the program's bytes."""

import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from test_results import EXAMPLES, PROGRAM, small

import swath

KEYS = {"machine.format": ["armv7", "armv8"], "about.seed": range(1, 7)}


@pytest.fixture(scope="module")
def expected() -> swath.Table:
    with ThreadPoolExecutor(1) as one:
        return swath.sweep(swath.points(small(), KEYS), one)


def test_points_are_all_combinations():
    points = swath.points(small(), KEYS)
    values = list(points)
    assert len(points) == len(values) == 12
    assert values[0] == {"machine.format": "armv7", "about.seed": 1}
    assert values[7] == {"machine.format": "armv8", "about.seed": 2}
    assert points.plan(7)["about.seed"] == 2
    some = points.where(lambda value: value["about.seed"] > 5)
    assert list(some.numbers) == [5, 11] and list(points[3:5].numbers) == [3, 4]
    grid = swath.points("pbs-tlb", {"machine.tlb_entries": {"from": 32, "to": 128, "times": 2}})
    assert [value["machine.tlb_entries"] for value in grid] == [32, 64, 128]


def test_absurd_points_are_refused():
    for keys, why in [
        ({"machine.tlb_entries": [32, 0]}, "keys.machine.tlb_entries: 0: 0 is not between"),
        ({"machine.none": [1]}, "unknown field"),
        ({}, "no key to sweep"),
        ({"about.seed": []}, "no value"),
        ({"about.seed": {"from": 1, "to": 10**12}}, "more values"),
        ({"about.seed": [float("nan")]}, "about.seed"),
    ]:
        with pytest.raises(ValueError, match=why):
            swath.sweep(swath.points(small(), keys))
    keys = {"machine.tlb_ways": [32, 64], "machine.tlb_entries": [32, 64]}
    table = pyarrow.table(swath.sweep(swath.points(small(), keys, refused="skip")))
    refused = table.filter(pyarrow.compute.equal(table["kind"], "refused")).to_pylist()
    assert [(row["machine.tlb_ways"], row["machine.tlb_entries"]) for row in refused] == [(64, 32)]


def test_processes_and_chunks_give_the_same_table(expected):
    points = swath.points(small(), KEYS)
    seen: list[int] = []
    assert swath.sweep(points, progress=lambda done, _: seen.append(done)) == expected
    assert seen[-1] == 12
    for chunk in (1, 5, 100):
        with ThreadPoolExecutor(2) as two:
            assert swath.sweep(points, two, chunk=chunk) == expected


def test_the_program_writes_the_same_rows(tmp_path, expected):
    if not PROGRAM:
        pytest.skip("the program is not built")
    points = swath.points(small(), KEYS)
    (tmp_path / "sweep.toml").write_text(points.text)
    subprocess.run(
        [PROGRAM, "sweep", "sweep.toml", "--out", "out"],
        cwd=tmp_path,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    assert swath.load(tmp_path / "out") == expected
    assert pyarrow.parquet.read_table(tmp_path / "out" / "points.parquet").equals(
        pyarrow.table(expected)
    )
    assert swath.sweep(swath.Points.read(tmp_path / "sweep.toml")) == expected


def test_a_sweep_goes_on_from_its_journal(tmp_path, expected, monkeypatch):
    points = swath.points(small(), KEYS)
    journal = tmp_path / "journal"

    class Stop(Exception):
        pass

    def stop(done: int, _: int) -> None:
        if done >= 5:
            raise Stop

    with ThreadPoolExecutor(1) as one, pytest.raises(Stop):
        swath.sweep(points, one, journal=journal, progress=stop)
    with ThreadPoolExecutor(1) as one:
        ran: list[int] = []
        submit = one.submit
        monkeypatch.setattr(
            one, "submit", lambda *job: (ran.extend(job[-1]), submit(*job))[1]
        )
        assert swath.sweep(points, one, journal=journal) == expected
        assert len(ran) == 7, "those that were written are not measured again"
        with pytest.raises(ValueError, match="no journal of these points"):
            swath.sweep(points[:3], one, journal=journal)


def test_a_journal_is_of_its_files_too(tmp_path):
    plan = swath.Plan.of("pbs-tlb-real").replace({"repeats": {"full": 2, "quick": 1}})
    trace, journal = tmp_path / "t.swtrace", tmp_path / "journal"
    for stride in (4096, 64):
        swath.Recording(np.arange(1000) * stride).save(trace)
        points = swath.points(plan, {"about.seed": [1, 2]}, accesses=trace)
        if stride == 64:
            with pytest.raises(ValueError, match="no journal of these points"):
                swath.sweep(points, journal=journal)
            os.remove(journal)
        swath.sweep(points, journal=journal)


def test_what_is_no_journal_stays(tmp_path):
    points = swath.points(small(), KEYS)
    (tmp_path / "mine").write_text("not a journal")
    with pytest.raises(ValueError, match="stays as it is"):
        swath.sweep(points, journal=tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "not a journal"


def test_an_error_cancels_what_is_not_begun(monkeypatch):
    begun: list[list[int]] = []
    cancelled = threading.Event()

    def fail(*job: object) -> list[bytes]:
        begun.append(job[-1])
        if len(begun) > 1:
            cancelled.wait(60)
        raise RuntimeError("a worker's own")

    monkeypatch.setattr(swath.sweeps, "run_points", fail)
    with ThreadPoolExecutor(1) as one:
        submit = one.submit

        def watched(*job: object) -> Future:
            future = submit(*job)
            if job[-1] == [999]:
                future.add_done_callback(lambda _: cancelled.set())
            return future

        monkeypatch.setattr(one, "submit", watched)
        with pytest.raises(RuntimeError, match="a worker's own"):
            swath.sweep(swath.points(small(), {"about.seed": range(1000)}), one)
    assert len(begun) <= 2


def test_a_worker_that_dies_is_an_error_and_the_journal_goes_on(tmp_path, expected):
    points = swath.points(small(), KEYS)

    def kill(done: int, _: int) -> None:
        if done == 4:
            for process in list(two._processes.values()):
                process.kill()

    from concurrent.futures.process import BrokenProcessPool

    with ProcessPoolExecutor(2) as two, pytest.raises(BrokenProcessPool):
        swath.sweep(points, two, journal=tmp_path / "journal", progress=kill)
        # The last may have been done before the kill was felt.
        raise BrokenProcessPool
    assert swath.sweep(points, journal=tmp_path / "journal") == expected


def test_dask_with_a_worker_killed_in_the_middle(expected):
    distributed = pytest.importorskip("distributed")
    points = swath.points(small(), KEYS)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        killed = []

        def kill(done: int, _: int) -> None:
            if not killed:
                worker = next(iter(cluster.workers.values()))
                killed.append(worker.pid)
                os.kill(worker.pid, 9)

        table = swath.sweep(points, client.get_executor(), progress=kill)
        assert killed and table == expected


@pytest.mark.parametrize(
    "needs, launch",
    [
        ("submitit", [sys.executable, "submitit_sweep.py"]),
        ("mpi4py", ["mpiexec", "-n", "3", sys.executable, "-m", "mpi4py.futures", "mpi_sweep.py"]),
    ],
)
def test_examples_give_the_same_table(tmp_path, expected, needs, launch):
    pytest.importorskip(needs)
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    program = shutil.which(launch[0], path=path)
    if program is None:
        pytest.skip(f"no {launch[0]}")
    (tmp_path / "sweep.toml").write_text(swath.points(small(), KEYS).text)
    out = tmp_path / "out.parquet"
    launch = [program, *(str(EXAMPLES / a) if a.endswith(".py") else a for a in launch[1:])]
    # Open MPI starts nothing for root unless it is told twice.
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    launch += [tmp_path / "sweep.toml", out]
    subprocess.run(launch, cwd=tmp_path, env={**os.environ, **root}, check=True, timeout=120)
    assert swath.Table.read_parquet(out) == expected
