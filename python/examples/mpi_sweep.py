"""A sweep over MPI: ``mpiexec -n 5 python -m mpi4py.futures mpi_sweep.py``."""

from mpi4py.futures import MPIPoolExecutor

import swath

if __name__ == "__main__":
    points = swath.points("pbs-tlb", {"machine.tlb_entries": [32, 64], "about.seed": range(1, 11)})
    with MPIPoolExecutor() as executor:
        table = swath.sweep(points, executor, journal="sweep.journal")
    print(table)
