"""Allocators as objects: what a study measures, and what a kernel links."""

from __future__ import annotations

from typing import Protocol

from . import _native

Run = tuple[int, int]
"""First frame and number of frames."""


class _Native(Protocol):
    @property
    def free_frames(self) -> int: ...
    @property
    def total_frames(self) -> int: ...
    def free_blocks(self) -> list[Run]: ...
    def check(self) -> None: ...


class _Frames:
    """What allocators over one range of frames have in common."""

    _inner: _Native

    def free_blocks(self) -> list[Run]:
        """Return the free blocks, ascending."""
        return self._inner.free_blocks()

    def free_runs(self) -> list[Run]:
        """Return the runs of free frames: blocks side by side are one."""
        runs: list[Run] = []
        for start, count in self.free_blocks():
            if runs and sum(runs[-1]) == start:
                runs[-1] = (runs[-1][0], runs[-1][1] + count)
            else:
                runs.append((start, count))
        return runs

    @property
    def free_frames(self) -> int:
        """Number of free frames."""
        return self._inner.free_frames

    @property
    def total_frames(self) -> int:
        """Number of frames, free or not."""
        return self._inner.total_frames

    def check(self) -> None:
        """Walk every invariant.

        Raises
        ------
        ValueError
            The invariant that does not hold.
        """
        self._inner.check()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.free_frames} of {self.total_frames} frames free>"


class PageBuddy(_Frames):
    """The page buddy system (PBS): blocks of any length at any frame.

    Parameters
    ----------
    frames
        Number of frames, all free at first.
    start
        The first frame.
    granularity, top_order
        Free lists are for the orders that are multiples of ``granularity``, up to ``top_order``.
    best_fit
        Take the shortest run of a list that is long enough, not the first.

    Examples
    --------
    >>> memory = PageBuddy(1024)
    >>> sum(frames for _, frames in memory.allocate(900))
    900
    >>> memory.free_frames
    124
    """

    _inner: _native.Frames

    def __init__(
        self,
        frames: int,
        *,
        start: int = 0,
        granularity: int = 4,
        top_order: int = 8,
        best_fit: bool = False,
    ) -> None:
        self._inner = _native.Frames(start, frames, granularity, top_order, best_fit)

    def allocate(self, frames: int) -> list[Run]:
        """Allocate frames; return the blocks that they are in.

        Raises
        ------
        MemoryError
            If fewer are free; nothing has changed.
        ValueError
            If none are asked for.
        """
        return self._inner.allocate(frames)

    def allocate_aligned(self, order: int) -> Run:
        """Allocate ``2**order`` frames whose first is a multiple of their number.

        Raises
        ------
        MemoryError
            If there is no such block.
        """
        return self._inner.allocate_aligned(order)

    def free(self, start: int, frames: int) -> None:
        """Give frames back: any that are allocated, whatever blocks they came in.

        Raises
        ------
        ValueError
            If one of them is free or not the allocator's; nothing has changed.
        """
        self._inner.free(start, frames)


class BinaryBuddy(PageBuddy):
    """The binary buddy system (BBS): blocks of powers of two, aligned to their size."""

    def __init__(self, frames: int, *, start: int = 0, top_order: int = 10) -> None:
        super().__init__(frames, start=start, granularity=1, top_order=top_order)


class AdaptiveBuddy(_Frames):
    """Adaptive-Buddy: blocks of powers of two over banks, packed so that banks can rest.

    Parameters
    ----------
    frames, start
        As for :class:`PageBuddy`.
    bank_frames
        Frames of a bank.
    packed
        Prefer the fullest bank that serves; the paper takes the one that was used last.
    """

    _inner: _native.Zone

    def __init__(
        self, frames: int, *, start: int = 0, bank_frames: int = 1 << 16, packed: bool = False
    ) -> None:
        self._inner = _native.Zone(start, frames, bank_frames, packed)

    def allocate(self, order: int = 0, *, movable: bool = True) -> int:
        """Allocate ``2**order`` frames; return the first.

        Raises
        ------
        MemoryError
            If there is no such block.
        """
        first = self._inner.allocate(order, movable)
        if first is None:
            raise MemoryError(f"no free block of order {order}")
        return first

    def free(self, start: int, order: int = 0) -> None:
        """Give ``2**order`` frames back."""
        self._inner.free(start, order)

    @property
    def banks(self) -> int:
        """Number of banks."""
        return self._inner.banks

    def bank_of(self, frame: int) -> int | None:
        """Return the bank of a frame."""
        return self._inner.bank_of(frame)


class SegmentSpace:
    """Segments over areas of frames that are laid end to end, as CLMalloc hands them out.

    Parameters
    ----------
    areas
        First frame and number of frames of each area.
    unit_order
        A segment is a whole number of units of ``2**unit_order`` frames.
    on_demand
        Take frames from the areas' buddy systems with each request, not all at the start.

    Examples
    --------
    >>> space = SegmentSpace([(0x100, 4), (0x800, 8)])
    >>> space.extents(*space.allocate(6))
    [(256, 4), (2048, 2)]
    """

    def __init__(
        self, areas: list[Run], *, unit_order: int = 0, on_demand: bool = False
    ) -> None:
        self._inner = _native.Segments(areas, unit_order, on_demand)

    def allocate(self, frames: int) -> Run:
        """Allocate a segment; return its first frame in the space of the areas, and their number.

        Raises
        ------
        MemoryError
            If there is no place for it; nothing has changed.
        """
        return self._inner.allocate(frames)

    def free(self, start: int, frames: int) -> None:
        """Give a segment back."""
        self._inner.free(start, frames)

    def extents(self, start: int, frames: int) -> list[Run]:
        """Return the frames that a segment lies in, area by area."""
        return self._inner.extents(start, frames)

    @property
    def total_frames(self) -> int:
        """Number of frames of all areas."""
        return self._inner.total_frames

    def check(self) -> None:
        """Walk every invariant; ``ValueError`` names the one that does not hold."""
        self._inner.check()
