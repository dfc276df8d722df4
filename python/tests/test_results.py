"""Plans, results and tables: what the program gives, byte for byte."""

import _thread
import json
import os
import pickle
import subprocess
import threading
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import swath

PROGRAM = os.environ.get("SWATH_PROGRAM", "")
EXAMPLES = Path(__file__).parent.parent / "examples"


def small() -> swath.Plan:
    """A plan of some ten milliseconds."""
    return swath.Plan.of("pbs-tlb").replace(
        {
            "repeats": {"full": 20, "quick": 2},
            "memory.blocks.block_frames": [4, 16],
            "accesses.table4.workloads": ["matrix-transpose"],
        }
    )


def program(*args: str, cwd: str) -> None:
    if not PROGRAM:
        pytest.skip("the program is not built")
    subprocess.run([PROGRAM, *args], cwd=cwd, check=True, stdout=subprocess.DEVNULL)


def test_a_result_is_the_programs_byte_for_byte(tmp_path):
    (tmp_path / "plan.toml").write_text(small().text)
    program("study", "--plan", "plan.toml", "--quick", "--seed", "9", cwd=str(tmp_path))
    written = (tmp_path / "report" / "pbs-tlb" / "results.json").read_bytes()
    for threads in (1, 2):
        assert small().run(seed=9, threads=threads).json() == written
    assert small().run(seed=8).json() != written


def test_a_report_is_one_frame():
    result = small().run()
    parsed = json.loads(result.json())
    rows = pyarrow.table(result.table()).to_pylist()
    series = [row for row in rows if row["kind"] == "series"]
    points = [(one["figure"], one["design"], p[1]) for one in parsed["series"] for p in one["points"]]
    assert [(row["place"], row["subject"], row["value"]) for row in series] == points
    claims = [row for row in rows if row["kind"] == "claim"]
    assert [row["subject"] for row in claims] == [claim["says"] for claim in parsed["claims"]]
    verdicts = [row["verdict"].replace(" ", "-") for row in claims]
    assert verdicts == [claim["verdict"] for claim in parsed["claims"]]


def test_load_gives_every_series_and_claim(tmp_path):
    program("study", "pbs-cases", "cl-order", "--quick", cwd=str(tmp_path))
    table = pyarrow.table(swath.load(tmp_path / "report"))
    count = 0
    for study in ("pbs-cases", "cl-order"):
        for name in ("results.json", "host.json"):
            path = tmp_path / "report" / study / name
            if path.exists():
                parsed = json.loads(path.read_text())
                count += sum(len(one["points"]) for one in parsed["series"]) + len(parsed["claims"])
    assert table.num_rows == count
    (tmp_path / "report" / "cl-order" / "results.json").write_text("{")
    with pytest.warns(UserWarning, match="cl-order"):
        assert set(swath.load(tmp_path / "report").column("study")) == {"pbs-cases"}
    with pytest.raises(OSError):
        swath.load(tmp_path / "nowhere")


def test_a_table_is_arrows_parquets_and_pickles(tmp_path):
    table = small().run().table()
    arrow = pyarrow.table(table)
    assert arrow.column_names == table.column_names and arrow.num_rows == len(table) > 0
    for name in table.column_names:
        assert arrow[name].to_pylist() == table.column(name)
    assert pickle.loads(pickle.dumps(table)) == table
    table.write_parquet(tmp_path / "t.parquet")
    assert swath.Table.read_parquet(tmp_path / "t.parquet") == table
    assert pyarrow.parquet.read_table(tmp_path / "t.parquet").equals(arrow)
    assert len(swath.Table.concat([table, table])) == 2 * len(table)
    with pytest.raises(ValueError, match="no column"):
        table.column("none")


@pytest.mark.parametrize("frames", ["pandas", "polars"])
def test_a_table_is_a_data_frame(frames):
    pytest.importorskip(frames)
    table = small().run().table()
    frame = getattr(table, f"to_{frames}")()
    assert len(frame) == len(table) and list(frame.columns) == table.column_names


def test_plans_refuse_by_key():
    plan = swath.Plan.of("pbs-tlb")
    assert plan["machine.tlb_entries"] == 32
    assert plan.replace(machine=swath.Machine(tlb_entries=64))["machine.tlb_entries"] == 64
    assert plan.replace({"machine.tlb_entries": np.int64(64)})["machine"]["tlb_entries"] == 64
    assert plan == swath.Plan.of("pbs-tlb")
    for keys, why in [
        ({"machine.tlb_entries": 0}, "0 is not between"),
        ({"machine.tlb_entrys": 1}, "tlb_entrys"),
        ({"machine.tlb_ways": 64}, "tlb_ways"),
        ({"repeats.full.x": 1}, "no \"x\" below"),
    ]:
        with pytest.raises(ValueError, match=why):
            plan.replace(keys)
    with pytest.raises(ValueError, match="no study"):
        swath.Plan.of("no")
    with pytest.raises(KeyError, match="machine.none"):
        plan["machine.none"]
    with pytest.raises(TypeError, match="not object"):
        plan.replace({"machine": object()})
    with pytest.raises(ValueError, match="uses none"):
        swath.Plan.of("pbs-cases").run(memory=[(0, 1)])
    with pytest.raises(ValueError, match="threads"):
        plan.run(threads=10**6)
    with pytest.raises(ValueError, match="neither"):
        plan.run("slow")  # type: ignore[arg-type]


def test_an_interrupt_ends_a_run():
    plan = small().replace({"repeats": {"full": 1000, "quick": 1000}})
    # As Ctrl-C does, once it runs.
    threading.Timer(0.2, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        plan.run()


def test_memory_that_cannot_be_is_refused():
    keys = {"memory.blocks.free_share": 0.001, "memory.blocks.block_frames": [1 << 10]}
    with pytest.raises(ValueError, match="has no frame"):
        small().replace({**keys, "memory.blocks.free_per_requested": 1000.0}).run()


def test_the_lock_is_free_meanwhile():
    plan = small().replace({"repeats": {"full": 20, "quick": 40}})
    done, counted = threading.Event(), 0

    def work() -> None:
        plan.run(threads=1)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set():
        counted += 1
    thread.join()
    # With the lock held this thread would count once or twice.
    assert counted > 100
