"""A sweep on a Dask cluster: here two local processes; elsewhere the address of a scheduler."""

import distributed

import swath

if __name__ == "__main__":
    points = swath.points("pbs-tlb", {"machine.tlb_entries": [32, 64], "about.seed": range(1, 11)})
    with distributed.Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        # Work of a worker that dies is done by another, and no point is in the table twice.
        table = swath.sweep(points, client.get_executor(), journal="sweep.journal")
    print(table)
