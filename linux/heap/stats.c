// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * /proc/swath_heap: a name and a value a line, for those who may open the heap.
 */
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#include "internal.h"

static const char *const FAILURE[FAILURES] = {
	[FAILED_ARGUMENT] = "failed_argument",
	[FAILED_FRAMES] = "failed_frames",
	[FAILED_RUN] = "failed_run",
	[FAILED_MIGRATION] = "failed_migration",
};

static struct pool *shown;

static void line(struct seq_file *file, const char *name, u64 value)
{
	seq_printf(file, "%s %llu\n", name, value);
}

static int show(struct seq_file *file, void *unused)
{
	struct pool *pool = shown;
	unsigned long free, largest, runs, held, buffers, used_runs;
	u64 allocations, given, taken;
	unsigned int i;

	mutex_lock(&pool->lock);
	free = pool->policy->count(pool);
	largest = pool->policy->largest(pool);
	runs = pool->policy->runs(pool);
	held = pool->nr_held;
	buffers = pool->nr_buffers;
	used_runs = pool->nr_runs;
	allocations = pool->allocations;
	given = pool->given;
	taken = pool->taken;
	mutex_unlock(&pool->lock);

	seq_printf(file, "policy %s%s\n", pool->policy->name, pool->on_demand ? "-on-demand" : "");
	line(file, "unit_bytes", PAGE_SIZE << pool->unit_order);
	line(file, "areas", pool->nr_areas);
	line(file, "total_bytes", (u64)pool->nr_chunks * CHUNK_FRAMES << PAGE_SHIFT);
	line(file, "held_bytes", (u64)held * CHUNK_FRAMES << PAGE_SHIFT);
	line(file, "free_bytes", (u64)free << PAGE_SHIFT);
	line(file, "free_runs", runs);
	line(file, "largest_run_bytes", (u64)largest << PAGE_SHIFT);
	line(file, "buffers", buffers);
	line(file, "buffer_runs", used_runs);
	line(file, "runs_allocated", allocations);
	line(file, "chunks_given_back", given);
	line(file, "chunks_taken_again", taken);
	for (i = 0; i < FAILURES; i++)
		line(file, FAILURE[i], atomic64_read(&pool->failures[i]));
	for (i = 0; i < pool->nr_areas; i++)
		seq_printf(file, "area %#llx %#llx%s\n", PFN_PHYS(pool->areas[i].frames.pfn),
			   (u64)pool->areas[i].frames.count << PAGE_SHIFT,
			   pool->areas[i].fixed ? " reserved" : "");
	return 0;
}

int stats_init(struct pool *pool, unsigned int gid)
{
	struct proc_dir_entry *entry;

	shown = pool;
	entry = proc_create_single("swath_heap", 0440, NULL, show);
	if (!entry)
		return -ENOMEM;
	proc_set_user(entry, GLOBAL_ROOT_UID, make_kgid(&init_user_ns, gid));
	return 0;
}

void stats_exit(void)
{
	remove_proc_entry("swath_heap", NULL);
}
