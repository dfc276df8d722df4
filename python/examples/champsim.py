"""Reads as a trace in ChampSim's format, without compression.

``python champsim.py OUT --recording FILE.swtrace`` has those of a recorded program, ``python champsim.py OUT --pages 4000``
as many over pages of which the lower are read more often, ``--columns 800`` down the columns of an image whose rows are pages.
An instruction for each, on one page of code.
"""

import argparse

import numpy as np

import swath

#: An instruction, as ChampSim's ``trace_instruction.h`` has it.
INSTRUCTION = np.dtype(
    [
        ("ip", "<u8"),
        ("is_branch", "u1"),
        ("is_taken", "u1"),
        ("written_registers", "u1", 2),
        ("read_registers", "u1", 4),
        ("written", "<u8", 2),
        ("read", "<u8", 4),
    ]
)


def trace(addresses):
    """Return one instruction for each address that is read."""
    instructions = np.zeros(len(addresses), INSTRUCTION)
    instructions["ip"] = 0x400000 + 4 * (np.arange(len(addresses)) % 512)
    instructions["read"][:, 0] = addresses
    return instructions


def skewed(pages, count, seed):
    """Return addresses over so many pages, their density falling with the cube root of the page."""
    random = np.random.default_rng(seed)
    page = (pages * random.random(count) ** 3).astype(np.uint64)
    return (np.uint64(0x10000) + page) * np.uint64(4096) + random.integers(0, 512, count, np.uint64) * np.uint64(8)


def down(pages, count):
    """Return addresses of lines of 64 bytes, page after page, then the next line of each."""
    nth = np.arange(count, dtype=np.uint64)
    line = nth // np.uint64(pages) % np.uint64(64)
    return (np.uint64(0x10000) + nth % np.uint64(pages)) * np.uint64(4096) + line * np.uint64(64)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--recording")
    what.add_argument("--pages", type=int)
    what.add_argument("--columns", type=int)
    parser.add_argument("--count", type=int, default=400_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.recording:
        addresses = swath.Recording.load(given.recording, limit=given.count).addresses
    elif given.columns:
        addresses = down(given.columns, given.count)
    else:
        addresses = skewed(given.pages, given.count, given.seed)
    trace(addresses).tofile(given.out)
