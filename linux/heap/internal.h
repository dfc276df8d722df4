/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A dma-heap whose buffers are physical runs.
 *
 *   device.c   /dev/dma_heap/swath: requests
 *   buffer.c   a buffer as a dma-buf; freed buffers are zeroed in the background
 *   pool.c     chunks of 2 MiB that the heap holds, gives back to the system, and takes again
 *   policy.c   where in them a buffer lies: an allocator of swath-frame
 *   areas.c    the physical memory that chunks are made of
 *   stats.c    /proc/swath_heap
 *
 * Each calls only those below it (stats.c reads the pool).
 */
#ifndef _SWATH_INTERNAL_H
#define _SWATH_INTERNAL_H

#include <linux/atomic.h>
#include <linux/bitmap.h>
#include <linux/dma-buf.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>
#include <linux/workqueue.h>

#include <swath.h>

/* Frames of a chunk: what the system can empty by migration, and takes back, as a whole. */
#define CHUNK_ORDER	9
#define CHUNK_FRAMES	BIT(CHUNK_ORDER)

/* Frames that follow one another in physical memory. */
struct run {
	unsigned long pfn;
	unsigned long count;
};

/**
 * struct area - physical memory of whole chunks
 * @frames: where it lies
 * @fixed:  it was reserved at boot, and is never the system's
 * @chunk:  number of its first chunk: areas ascend, and chunks are numbered through all of them
 */
struct area {
	struct run frames;
	bool fixed;
	unsigned long chunk;
};

/* What is asked of a place: in frames, 0 is no limit. */
struct place {
	unsigned long count;
	unsigned long align;
	unsigned long boundary;
	unsigned long pfn_end;
};

struct pool;

/**
 * struct policy - an allocator of runs over a pool's areas, called under the pool's lock
 * @name:     as the module's parameter has it
 * @bytes:    storage that it needs; 0 if the areas are too many or too large
 * @create:   makes it in pool->storage, no frame free
 * @allocate: takes one run, or if @shorter one that is as long as it finds; -ENOSPC if there is
 *            none, -EOPNOTSUPP if it knows no such limit
 * @free:     takes back a run that was allocated
 * @put:      makes a chunk's frames free
 * @take:     takes a whole free chunk out that is not fixed and returns its number, or -ENOSPC
 * @count:    free frames
 * @largest:  frames of the largest free run
 * @runs:     free runs
 */
struct policy {
	const char *name;
	size_t (*bytes)(struct pool *pool);
	int (*create)(struct pool *pool);
	int (*allocate)(struct pool *pool, const struct place *place, bool shorter,
			struct run *run);
	void (*free)(struct pool *pool, struct run run);
	void (*put)(struct pool *pool, unsigned long chunk);
	long (*take)(struct pool *pool);
	unsigned long (*count)(struct pool *pool);
	unsigned long (*largest)(struct pool *pool);
	unsigned long (*runs)(struct pool *pool);
};

extern const struct policy policy_bitmap;
extern const struct policy policy_pbs;

/* Requests that failed, by why. */
enum failure {
	FAILED_ARGUMENT,	/* limits that cannot be met by any state */
	FAILED_FRAMES,		/* fewer frames than were wanted, the system's among them */
	FAILED_RUN,		/* enough frames, but no run */
	FAILED_MIGRATION,	/* a run could have been had, but the system did not leave it */
	FAILURES
};

/**
 * struct pool - the chunks and who has them
 * @lock:      guards the allocator and all counts; never held while pages are zeroed, migrated,
 *             freed to the system or waited for
 * @taking:    held by who takes chunks from the system, so that two do not want the same
 * @policy:    the allocator
 * @object:    the policy's own
 * @areas:     ascending
 * @held:      a bit for each chunk: its frames are the heap's
 * @used:      frames in buffers, of each chunk
 * @refused:   jiffies at which the system last did not leave a chunk; 0 is never
 * @keep:      chunks that a shrinker leaves
 * @on_demand: a chunk without a buffer goes back at once
 *
 * Invariants: a frame that is free in the allocator lies in a held chunk and is zero. A chunk
 * with used frames is held. Chunks of fixed areas are always held.
 */
struct pool {
	struct mutex lock;	/* the allocator and all counts */
	struct mutex taking;	/* taking chunks from the system */
	const struct policy *policy;
	void *object;
	void *storage;
	size_t storage_bytes;
	struct area *areas;
	unsigned int nr_areas;
	unsigned int unit_order;
	unsigned long nr_chunks;
	unsigned long *held;
	u16 *used;
	unsigned long *refused;
	unsigned long keep;
	bool on_demand;
	struct shrinker *shrinker;

	unsigned long nr_held;
	unsigned long nr_buffers;
	unsigned long nr_runs;
	u64 allocations;
	u64 frees;
	u64 given;
	u64 taken;
	atomic64_t failures[FAILURES];
};

/* areas.c */
int areas_find(const char *sizes, const char *reserved, struct area **areas, unsigned int *count);
void areas_drop(struct area *areas, unsigned int count);
int chunk_take(unsigned long pfn);
void chunk_give(unsigned long pfn);
void frames_zero(struct run run);

/* pool.c */
int pool_create(struct pool *pool, struct area *areas, unsigned int count);
void pool_destroy(struct pool *pool);
unsigned long chunk_pfn(const struct pool *pool, unsigned long chunk);
unsigned long chunk_of(const struct pool *pool, unsigned long pfn);
int pool_allocate(struct pool *pool, const struct place *place, bool shorter, struct run *run);
void pool_free(struct pool *pool, struct run run);
void pool_trim(struct pool *pool, unsigned long keep, unsigned long most);
unsigned long pool_spare(const struct pool *pool);
unsigned long pool_free_frames(struct pool *pool);
void pool_failed(struct pool *pool, enum failure why);

/* buffer.c */
int buffers_init(void);
void buffers_exit(void);
struct dma_buf *buffer_create(struct pool *pool, size_t len, const struct place *place,
			      bool scatter, int fd_flags);
int buffer_extents(int fd, struct run **runs, unsigned int *count);

/* device.c */
int device_init(struct pool *pool, unsigned int gid, umode_t mode, u64 bytes_max);
void device_exit(void);

/* stats.c */
int stats_init(struct pool *pool, unsigned int gid);
void stats_exit(void);

#endif /* _SWATH_INTERNAL_H */
