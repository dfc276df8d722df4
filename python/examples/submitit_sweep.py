"""A sweep on Slurm by submitit; where there is no Slurm, it runs here."""

import submitit

import swath

if __name__ == "__main__":
    points = swath.points("pbs-tlb", {"machine.tlb_entries": [32, 64], "about.seed": range(1, 11)})
    executor = submitit.AutoExecutor(folder="slurm-logs")
    executor.update_parameters(timeout_min=60, cpus_per_task=1, mem_gb=1)
    table = swath.sweep(points, executor, chunk=5, journal="sweep.journal")
    print(table)
