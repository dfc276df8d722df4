//! A sweep as an array job of Slurm.

/// The words of an array job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayJob {
    /// The program, as the nodes find it.
    pub program: String,
    /// The definition's file.
    pub sweep: String,
    /// The folder of results, which all nodes share.
    pub out: String,
    /// The name of the study.
    pub study: String,
    /// Number of shards, which is that of the array's tasks.
    pub shards: u32,
    /// Processors of a task.
    pub threads: u64,
    /// Bytes of memory that a task takes.
    pub memory_bytes: u64,
}

impl ArrayJob {
    /// The script, for `sbatch`. A task that is taken away goes on where it was when it is started
    /// anew, on whatever node.
    pub fn script(&self) -> String {
        let Self { study, shards, threads, .. } = self;
        let memory_mib = self.memory_bytes.div_ceil(1 << 20);
        let [program, sweep, out] = [&self.program, &self.sweep, &self.out].map(|word| quote(word));
        let logs = self.out.replace('%', "%%");
        format!(
            "#!/bin/bash
#SBATCH --job-name=swath-{study}
#SBATCH --array=1-{shards}
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task={threads}
#SBATCH --mem={memory_mib}M
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output={logs}
# Add what your cluster wants: --time, --partition, --account. Five minutes before the time is over
# the tasks are told to end; what they have measured stays, and `scontrol requeue` goes on from there.
#SBATCH --signal=B:TERM@300
#
# When all tasks have ended:
#   {program} merge {out} --out {out}/whole
set -euo pipefail
exec {program} sweep {sweep} --out {out} --shard \"$SLURM_ARRAY_TASK_ID/{shards}\" \\
    --jobs \"${{SLURM_CPUS_PER_TASK:-{threads}}}\"
",
            logs = quote(&format!("{logs}/slurm-%A-%a.out")),
        )
    }
}

/// A word as a shell reads it.
fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./%+,:@".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
