"""Allocators as objects, each beside a naive model."""

import random

import pytest

import swath


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "make",
    [
        lambda: swath.PageBuddy(777),
        lambda: swath.PageBuddy(777, start=5, granularity=9, top_order=18, best_fit=True),
        lambda: swath.BinaryBuddy(777, start=64),
    ],
)
def test_buddies_against_a_set(make, seed):
    chance, memory = random.Random(seed), make()
    assert memory.free_frames == memory.total_frames == 777
    free = {frame for start, count in memory.free_runs() for frame in range(start, start + count)}
    held: list[tuple[int, int]] = []
    for _ in range(300):
        if chance.random() < 0.5:
            wanted = chance.randint(1, 120)
            if wanted > len(free):
                with pytest.raises(MemoryError, match="wanted"):
                    memory.allocate(wanted)
                continue
            blocks = memory.allocate(wanted)
            frames = [f for start, count in blocks for f in range(start, start + count)]
            assert len(frames) == len(set(frames)) == wanted and free.issuperset(frames)
            free.difference_update(frames)
            held += blocks
        elif held:
            start, count = held.pop(chance.randrange(len(held)))
            part = chance.randint(1, count)
            memory.free(start, part)
            free.update(range(start, start + part))
            if part < count:
                held.append((start + part, count - part))
        memory.check()
        runs = memory.free_runs()
        assert {f for start, count in runs for f in range(start, start + count)} == free
        assert all(sum(a) < b[0] for a, b in zip(runs, runs[1:]))
    with pytest.raises(ValueError, match="free already"):
        start = memory.free_runs()[0][0]
        memory.free(start, 1)
    assert (swath.Snapshot(memory.free_runs()).free == memory.free_runs()).all()


def test_what_no_allocator_can_be_is_refused():
    for make in (
        lambda: swath.PageBuddy(0),
        lambda: swath.PageBuddy(1 << 40),
        lambda: swath.PageBuddy(8, start=(1 << 64) - 1),
        lambda: swath.PageBuddy(8, granularity=0),
        lambda: swath.BinaryBuddy(8, top_order=200),
        lambda: swath.AdaptiveBuddy(8, bank_frames=3),
        lambda: swath.SegmentSpace([]),
        lambda: swath.SegmentSpace([(0, 4), (2, 4)]),
        lambda: swath.PageBuddy(8).allocate(0),
    ):
        with pytest.raises(ValueError):
            make()
    with pytest.raises(OverflowError):
        swath.PageBuddy(-1)


def test_adaptive_buddy_rests_banks():
    zone = swath.AdaptiveBuddy(1 << 14, bank_frames=1 << 12)
    assert zone.banks == 4
    held = [zone.allocate(3) for _ in range(200)]
    assert len(set(held)) == 200 and len({zone.bank_of(frame) for frame in held}) == 1
    zone.check()
    for frame in held:
        zone.free(frame, 3)
    zone.check()
    assert zone.free_frames == zone.total_frames == 1 << 14
    with pytest.raises(ValueError):
        zone.free(held[0], 3)
    with pytest.raises(MemoryError):
        for _ in range(100):
            zone.allocate(10)


def test_segments_lie_over_areas():
    space = swath.SegmentSpace([(0x100, 4), (0x800, 8)])
    start, count = space.allocate(6)
    assert space.extents(start, count) == [(0x100, 4), (0x800, 2)]
    space.check()
    with pytest.raises(MemoryError):
        space.allocate(7)
    space.free(start, count)
    assert space.allocate(12) == (0, 12)
    assert space.total_frames == 12
