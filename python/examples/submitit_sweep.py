"""A sweep on Slurm, or here without it: ``python submitit_sweep.py SWEEP.toml OUT.parquet``."""

import sys

import submitit

import swath

if __name__ == "__main__":
    definition, out = sys.argv[1:]
    executor = submitit.AutoExecutor(folder=f"{out}.logs")
    executor.update_parameters(timeout_min=60, cpus_per_task=1, mem_gb=1)
    points = swath.Points.read(definition)
    # A job of Slurm is given many points at a time.
    table = swath.sweep(points, executor, chunk=6, journal=f"{out}.journal")
    table.write_parquet(out)
