"""A sweep on a Dask cluster: ``python dask_sweep.py SWEEP.toml OUT.parquet [SCHEDULER]``."""

import sys

import distributed

import swath

if __name__ == "__main__":
    definition, out, *scheduler = sys.argv[1:]
    # Without a scheduler's address: two processes here.
    here = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.Client(*scheduler, **({} if scheduler else here)) as client:
        # The work of a worker that dies is done by another.
        points = swath.Points.read(definition)
        table = swath.sweep(points, client.get_executor(), journal=f"{out}.journal")
    table.write_parquet(out)
