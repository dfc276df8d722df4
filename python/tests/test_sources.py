"""Snapshots, recordings and arrays."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import swath

EXAMPLES = Path(__file__).parent.parent / "examples"
DATA = Path(__file__).parent.parent.parent / "crates/swath-lab/data"

def test_arrays_are_recordings(tmp_path):
    random = np.random.default_rng(1)
    recording = swath.Recording(
        random.integers(0, 1 << 40, 5000, dtype=np.uint64),
        random.integers(0, 2, 5000),
        random.integers(1, 9, 5000),
    )
    recording.save(tmp_path / "r.swtrace")
    again = swath.Recording.load(tmp_path / "r.swtrace")
    for column in ("addresses", "kinds", "lengths"):
        assert (getattr(again, column) == getattr(recording, column)).all()
    assert len(swath.Recording.load(tmp_path / "r.swtrace", limit=7)) == 7
    plan = swath.Plan.of("pbs-tlb-real").replace({"repeats": {"full": 2, "quick": 1}})
    from_array = plan.run(accesses=np.arange(4096) % 97 * 4096)
    swath.Recording(np.arange(4096) % 97 * 4096).save(tmp_path / "array.swtrace")
    assert from_array.json() == plan.run(accesses=tmp_path / "array.swtrace").json()


def test_arrays_that_are_none_are_refused(tmp_path):
    for columns, why in [
        (([1.5],), "addresses: whole numbers"),
        (([-1],), "addresses: whole numbers"),
        (([1], [3]), "no kind 3"),
        (([1], [300]), "from 0 to 255"),
        (([1, 2], [0]), "1 for 2"),
        (([1], 0, 0), "empty"),
        (([2**64 - 1], 0, 2), "beyond the last"),
    ]:
        with pytest.raises(ValueError, match=why):
            swath.Recording(*(np.array(column) for column in columns)).save(tmp_path / "no")
    (tmp_path / "bad.swtrace").write_bytes(b"\xff" * 100)
    with pytest.raises(ValueError, match="bad.swtrace"):
        swath.Recording.load(tmp_path / "bad.swtrace")
    for load in (swath.Snapshot.load, swath.Recording.load, swath.Table.read_parquet, swath.load):
        with pytest.raises(FileNotFoundError, match="nowhere"):
            load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="bad.swtrace"):
        swath.Table.read_parquet(tmp_path / "bad.swtrace")


def test_free_frames_are_an_array():
    free = swath.Snapshot.load().free
    assert free.shape[1] == 2 and (free[:, 1] > 0).all()
    ends = free.sum(axis=1)
    assert (free[1:, 0] > ends[:-1]).all()
    assert (swath.Snapshot(free).free == free).all()
    # Runs side by side are one.
    assert swath.Snapshot([(3, 2), (5, 1)]).free.tolist() == [[3, 3]]
    for runs, why in [
        ([(1, 0)], "run 0: 0 frames"),
        ([(1, 2), (2, 1)], "run 1: frame 2"),
        ([(2**52, 1)], "run 0"),
        ([1, 2], "two columns"),
        ([(-1, 2)], "whole numbers"),
        (np.empty((0, 2)), "no free frame"),
    ]:
        with pytest.raises(ValueError, match=why):
            swath.Snapshot(runs)


def test_an_allocators_memory_is_a_studys():
    memory = swath.PageBuddy(1 << 16)
    held = [memory.allocate(7)[0] for _ in range(4000)]
    for block in held[::2]:
        memory.free(*block)
    columns = np.arange(1 << 14).reshape(128, 128).T.ravel() * 64
    plan = swath.Plan.of("pbs-tlb-real").replace({"repeats": {"full": 2, "quick": 1}})
    results = [plan.run(memory=given, accesses=columns).json() for given in (memory.free_runs(), None)]
    assert results[0] != results[1]
    assert results[0] == plan.run(
        memory=swath.Snapshot(memory.free_runs()), accesses=columns
    ).json()


def test_a_trace_for_champsim_is_read_back(tmp_path):
    sort = swath.Recording.load(DATA / "sort.swtrace", limit=5000)
    for name, arguments in [
        ("of.champsim", ["--recording", str(DATA / "sort.swtrace")]),
        ("skewed.champsim", ["--pages", "100", "--seed", "7"]),
        ("down.champsim", ["--columns", "90"]),
    ]:
        out = tmp_path / name
        command = [sys.executable, EXAMPLES / "champsim.py", out, "--count", "5000", *arguments]
        subprocess.run(command, check=True)
        assert out.stat().st_size == 5000 * 64
        again = swath.Recording.load(out)
        # Each instruction is fetched, then it reads.
        assert len(again) == 10_000
        read = again.addresses[1::2]
        if name == "of.champsim":
            assert (read == sort.addresses).all()
        else:
            pages = np.unique(read >> np.uint64(12))
            assert 80 < len(pages) <= 100
