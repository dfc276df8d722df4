"""A sweep over MPI: ``mpiexec -n 5 python -m mpi4py.futures mpi_sweep.py SWEEP.toml OUT.parquet``."""

import sys

from mpi4py.futures import MPIPoolExecutor

import swath

if __name__ == "__main__":
    definition, out = sys.argv[1:]
    with MPIPoolExecutor() as executor:
        points = swath.Points.read(definition)
        table = swath.sweep(points, executor, journal=f"{out}.journal")
    table.write_parquet(out)
