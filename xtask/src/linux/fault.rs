//! Faults to plant in a copy of the module, each with what must find it: a check that never fails shows nothing.

use anyhow::Result;

use super::module::Source;

/// One fault.
pub(super) struct Fault {
    pub(super) what: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
    /// Words of the report.
    pub(super) found_by: &'static str,
}

impl Fault {
    pub(super) fn plant(&self, source: &Source) -> Result<()> {
        source.replace(self.file, self.from, self.to)
    }
}

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        what: "a freed buffer's record stays",
        file: "linux/heap/buffer.c",
        from: "\t\tkfree(buffer);\n\t\tatomic_dec(&nr_dirty);",
        to: "\t\tatomic_dec(&nr_dirty);",
        found_by: "suspected memory leaks",
    },
    Fault {
        what: "a buffer's runs are read after they were freed",
        file: "linux/heap/buffer.c",
        from: "\t\tgive_runs(buffer);\n",
        to: "\t\tkvfree(buffer->runs);\n\t\tgive_runs(buffer);\n",
        found_by: "KASAN",
    },
    Fault {
        what: "two locks in the other order",
        file: "linux/heap/pool.c",
        from: "\tmutex_lock(&pool->lock);\n\tframes = ",
        to: "\tmutex_lock(&pool->lock);\n\tmutex_lock(&pool->taking);\n\tmutex_unlock(&pool->taking);\n\tframes = ",
        found_by: "possible circular locking dependency",
    },
    Fault {
        what: "sleep under a spinlock",
        file: "linux/heap/buffer.c",
        from: "\tlist_add_tail(&buffer->freed, &dirty);",
        to: "\tmight_sleep();\n\tlist_add_tail(&buffer->freed, &dirty);",
        found_by: "sleeping function called",
    },
    Fault {
        what: "a buffer is in a list twice",
        file: "linux/heap/buffer.c",
        from: "\tlist_add_tail(&buffer->freed, &dirty);",
        to: "\tlist_add_tail(&buffer->freed, &dirty);\n\tlist_add_tail(&buffer->freed, &dirty);",
        found_by: "list_debug",
    },
    Fault {
        what: "the last page of a run is not zeroed",
        file: "linux/heap/areas.c",
        from: "for (i = 0; i < run.count; i++) {",
        to: "for (i = 0; i + 1 < run.count; i++) {",
        found_by: "random",
    },
    Fault {
        what: "a run is a frame longer than what was allocated",
        file: "linux/heap/policy.c",
        from: "*run = (struct run){ physical, segment.count };",
        to: "*run = (struct run){ physical, segment.count + 1 };",
        found_by: "random",
    },
    Fault {
        what: "some runs are not given back to the allocator",
        file: "linux/heap/pool.c",
        from: "\tpool->policy->free(pool, run);",
        to: "\tif (run.count % 5)\n\t\tpool->policy->free(pool, run);",
        found_by: "full",
    },
];
