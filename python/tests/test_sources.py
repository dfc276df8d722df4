"""Snapshots, recordings and arrays."""

import numpy as np
import pytest

import swath


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
    from_array = plan.run(accesses=swath.Recording(np.arange(4096) % 97 * 4096))
    swath.Recording(np.arange(4096) % 97 * 4096).save(tmp_path / "array.swtrace")
    assert from_array.json() == plan.run(accesses=tmp_path / "array.swtrace").json()


def test_arrays_that_are_none_are_refused(tmp_path):
    for columns, why in [
        (([1.5],), "whole numbers"),
        (([-1],), "negative"),
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
    with pytest.raises(ValueError, match="nowhere"):
        swath.Snapshot.load(tmp_path / "nowhere")


def test_free_frames_are_an_array():
    free = swath.Snapshot(None, False).free
    assert free.shape[1] == 2 and (free[:, 1] > 0).all()
    ends = free.sum(axis=1)
    assert (free[1:, 0] > ends[:-1]).all()
