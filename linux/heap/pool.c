// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Chunks that the heap holds, gives back to the system and takes again by migration.
 *
 * A request is served from held chunks; only if they have no run does it look for a window of
 * chunks, each of them whole and free or the system's, takes those, and tries again.
 */
#define pr_fmt(fmt) "swath_heap: " fmt

#include <linux/jiffies.h>
#include <linux/shrinker.h>
#include <linux/slab.h>

#include "internal.h"

/* How long a chunk is left alone that the system did not leave. */
#define REFUSED_JIFFIES		HZ

/* Windows that a request tries before it fails. */
#define WINDOWS_MAX		8

static const struct area *area_of_chunk(const struct pool *pool, unsigned long chunk)
{
	unsigned int low = 0, high = pool->nr_areas - 1;

	while (low < high) {
		unsigned int middle = (low + high + 1) / 2;

		if (pool->areas[middle].chunk <= chunk)
			low = middle;
		else
			high = middle - 1;
	}
	return &pool->areas[low];
}

unsigned long chunk_pfn(const struct pool *pool, unsigned long chunk)
{
	const struct area *area = area_of_chunk(pool, chunk);

	return area->frames.pfn + (chunk - area->chunk) * CHUNK_FRAMES;
}

/* Returns the number of the chunk in which a frame of the pool lies. */
unsigned long chunk_of(const struct pool *pool, unsigned long pfn)
{
	unsigned int low = 0, high = pool->nr_areas - 1;

	while (low < high) {
		unsigned int middle = (low + high + 1) / 2;

		if (pool->areas[middle].frames.pfn <= pfn)
			low = middle;
		else
			high = middle - 1;
	}
	return pool->areas[low].chunk + (pfn - pool->areas[low].frames.pfn) / CHUNK_FRAMES;
}

void pool_failed(struct pool *pool, enum failure why)
{
	atomic64_inc(&pool->failures[why]);
}

/* Adds @sign times its frames to the counts of the chunks of a run. */
static void count_used(struct pool *pool, struct run run, int sign)
{
	unsigned long chunk = chunk_of(pool, run.pfn);

	while (run.count) {
		unsigned long part = min(run.count, CHUNK_FRAMES - run.pfn % CHUNK_FRAMES);

		WRITE_ONCE(pool->used[chunk], pool->used[chunk] + sign * (int)part);
		run.pfn += part;
		run.count -= part;
		chunk++;
	}
}

static int try_allocate(struct pool *pool, const struct place *place, bool shorter, struct run *run)
{
	int err;

	mutex_lock(&pool->lock);
	err = pool->policy->allocate(pool, place, shorter, run);
	if (!err) {
		count_used(pool, *run, 1);
		pool->nr_runs++;
		pool->allocations++;
	}
	mutex_unlock(&pool->lock);
	return err;
}

static bool was_refused(const struct pool *pool, unsigned long chunk)
{
	unsigned long at = READ_ONCE(pool->refused[chunk]);

	return at && time_before(jiffies, at + REFUSED_JIFFIES);
}

/*
 * Returns true if a run from the first frame of a chunk on meets the limits that reach beyond
 * a chunk.
 */
static bool is_place(const struct place *place, unsigned long pfn)
{
	if (place->align > CHUNK_FRAMES && pfn % place->align)
		return false;
	return place->boundary <= CHUNK_FRAMES ||
	       pfn / place->boundary == (pfn + place->count - 1) / place->boundary;
}

/*
 * Looks for the window of chunks, within one area, in which a place may be had with the fewest
 * chunks taken from the system. What it reads may change meanwhile: who takes the chunks looks
 * again.
 */
static bool find_window(const struct pool *pool, const struct place *place, unsigned long *window,
			unsigned long *len)
{
	unsigned long chunks = DIV_ROUND_UP(place->count, CHUNK_FRAMES);
	unsigned long fewest = ULONG_MAX;
	unsigned int i;

	for (i = 0; i < pool->nr_areas; i++) {
		const struct area *area = &pool->areas[i];
		unsigned long frames = area->frames.count;
		unsigned long chunk, end, run = 0;

		if (place->pfn_end) {
			if (place->pfn_end <= area->frames.pfn)
				break;
			frames = min(frames, place->pfn_end - area->frames.pfn);
		}
		end = area->chunk + frames / CHUNK_FRAMES;
		for (chunk = area->chunk; chunk < end; chunk++) {
			unsigned long missing, first, c;

			if (READ_ONCE(pool->used[chunk]) ||
			    (!test_bit(chunk, pool->held) && was_refused(pool, chunk))) {
				run = 0;
				continue;
			}
			if (++run < chunks)
				continue;
			first = chunk + 1 - chunks;
			if (!is_place(place, area->frames.pfn +
					     (first - area->chunk) * CHUNK_FRAMES))
				continue;
			missing = 0;
			for (c = first; c <= chunk; c++)
				missing += !test_bit(c, pool->held);
			if (missing < fewest) {
				fewest = missing;
				*window = first;
				*len = chunks;
			}
		}
	}
	return fewest != ULONG_MAX;
}

/* Takes the chunks of a window that are the system's; -EBUSY if it left one of them not. */
static int take_window(struct pool *pool, unsigned long window, unsigned long len)
{
	unsigned long chunk;
	int err;

	for (chunk = window; chunk < window + len; chunk++) {
		unsigned long pfn = chunk_pfn(pool, chunk);

		if (test_bit(chunk, pool->held))
			continue;
		if (signal_pending(current))
			return -EINTR;
		err = chunk_take(pfn);
		if (err) {
			WRITE_ONCE(pool->refused[chunk], jiffies | 1);
			return -EBUSY;
		}
		frames_zero((struct run){ pfn, CHUNK_FRAMES });
		mutex_lock(&pool->lock);
		set_bit(chunk, pool->held);
		pool->nr_held++;
		pool->taken++;
		pool->policy->put(pool, chunk);
		mutex_unlock(&pool->lock);
	}
	return 0;
}

/* Gives back what no buffer is in. */
static void trim_on_demand(struct pool *pool)
{
	if (pool->on_demand)
		pool_trim(pool, 0, ULONG_MAX);
}

/**
 * pool_allocate() - allocates a run, zeroed
 * @pool:    the pool
 * @place:   what is wanted
 * @shorter: a shorter run will do: the longest that is found
 * @run:     is set
 *
 * -ENOSPC: there is no such run; -EBUSY: the system did not leave the memory for one;
 * -EOPNOTSUPP: the policy does not know such a limit; -EINVAL; -EINTR.
 */
int pool_allocate(struct pool *pool, const struct place *place, bool shorter, struct run *run)
{
	bool was_left = true;
	int windows, err;

	err = try_allocate(pool, place, shorter, run);
	if (err != -ENOSPC)
		return err;
	mutex_lock(&pool->taking);
	for (windows = 0; windows < WINDOWS_MAX && err == -ENOSPC; windows++) {
		struct place part = *place;
		unsigned long window, len;
		bool found = find_window(pool, &part, &window, &len);

		if (!found && shorter) {
			part.count = min(part.count, CHUNK_FRAMES);
			found = find_window(pool, &part, &window, &len);
		}
		if (!found)
			break;
		err = take_window(pool, window, len);
		if (err == -EBUSY) {
			was_left = false;
			err = -ENOSPC;
			continue;
		}
		if (!err)
			err = try_allocate(pool, place, shorter, run);
	}
	mutex_unlock(&pool->taking);
	trim_on_demand(pool);
	return err == -ENOSPC && !was_left ? -EBUSY : err;
}

/* Frees a run that was allocated, and is zeroed again. */
void pool_free(struct pool *pool, struct run run)
{
	mutex_lock(&pool->lock);
	count_used(pool, run, -1);
	pool->nr_runs--;
	WRITE_ONCE(pool->frees, pool->frees + 1);
	pool->policy->free(pool, run);
	mutex_unlock(&pool->lock);
	trim_on_demand(pool);
}

/* Frames that are free in held chunks, or the system's to give. */
unsigned long pool_free_frames(struct pool *pool)
{
	unsigned long frames;

	mutex_lock(&pool->lock);
	frames = pool->policy->count(pool) + (pool->nr_chunks - pool->nr_held) * CHUNK_FRAMES;
	mutex_unlock(&pool->lock);
	return frames;
}

/* Chunks that hold no buffer and may go back, about. */
unsigned long pool_spare(const struct pool *pool)
{
	unsigned long chunk, spare = 0;

	for_each_set_bit(chunk, pool->held, pool->nr_chunks)
		spare += !READ_ONCE(pool->used[chunk]) && !area_of_chunk(pool, chunk)->fixed;
	return spare;
}

/*
 * Gives chunks without a buffer back to the system, at most @most, until @keep are held; none
 * while chunks are taken: those have no buffer yet, and taking makes the system reclaim.
 */
void pool_trim(struct pool *pool, unsigned long keep, unsigned long most)
{
	while (most--) {
		long chunk = -ENOSPC;

		mutex_lock(&pool->lock);
		/* Asked under the lock without which no chunk becomes the heap's. */
		if (pool->nr_held > keep && !mutex_is_locked(&pool->taking))
			chunk = pool->policy->take(pool);
		if (chunk >= 0) {
			clear_bit(chunk, pool->held);
			pool->nr_held--;
			pool->given++;
		}
		mutex_unlock(&pool->lock);
		if (chunk < 0)
			return;
		chunk_give(chunk_pfn(pool, chunk));
	}
}

static unsigned long shrink_count(struct shrinker *shrinker, struct shrink_control *control)
{
	struct pool *pool = shrinker->private_data;
	unsigned long spare = pool_spare(pool), held = READ_ONCE(pool->nr_held);

	if (held <= pool->keep)
		return 0;
	return min(spare, held - pool->keep) * CHUNK_FRAMES;
}

static unsigned long shrink_scan(struct shrinker *shrinker, struct shrink_control *control)
{
	struct pool *pool = shrinker->private_data;
	unsigned long given = pool->given;

	pool_trim(pool, pool->keep, DIV_ROUND_UP(control->nr_to_scan, CHUNK_FRAMES));
	given = pool->given - given;
	return given ? given * CHUNK_FRAMES : SHRINK_STOP;
}

/**
 * pool_create() - makes a pool that holds all chunks
 * @pool:  its policy, unit_order, keep and on_demand are set
 * @areas: are the pool's from now on, if this succeeds
 * @count: how many they are
 */
int pool_create(struct pool *pool, struct area *areas, unsigned int count)
{
	const struct area *last = &areas[count - 1];
	unsigned long chunk;
	int err = -ENOMEM;

	mutex_init(&pool->lock);
	mutex_init(&pool->taking);
	pool->areas = areas;
	pool->nr_areas = count;
	pool->nr_chunks = last->chunk + (last->frames.count >> CHUNK_ORDER);
	pool->held = bitmap_zalloc(pool->nr_chunks, GFP_KERNEL);
	pool->used = kvcalloc(pool->nr_chunks, sizeof(*pool->used), GFP_KERNEL);
	pool->refused = kvcalloc(pool->nr_chunks, sizeof(*pool->refused), GFP_KERNEL);
	pool->storage_bytes = pool->policy->bytes(pool);
	if (!pool->storage_bytes) {
		pr_err("no allocator can be made for these areas with units of 2^%u frames\n",
		       pool->unit_order);
		err = -EINVAL;
		goto free;
	}
	pool->storage = kvzalloc(pool->storage_bytes, GFP_KERNEL);
	if (!pool->held || !pool->used || !pool->refused || !pool->storage)
		goto free;
	err = pool->policy->create(pool);
	if (err)
		goto free;
	for (chunk = 0; chunk < pool->nr_chunks; chunk++)
		pool->policy->put(pool, chunk);
	bitmap_fill(pool->held, pool->nr_chunks);
	pool->nr_held = pool->nr_chunks;

	err = -ENOMEM;
	pool->shrinker = shrinker_alloc(0, "swath_heap");
	if (!pool->shrinker)
		goto free;
	pool->shrinker->count_objects = shrink_count;
	pool->shrinker->scan_objects = shrink_scan;
	pool->shrinker->batch = CHUNK_FRAMES;
	pool->shrinker->private_data = pool;
	shrinker_register(pool->shrinker);
	if (pool->on_demand)
		pool_trim(pool, 0, ULONG_MAX);
	return 0;
free:
	kvfree(pool->storage);
	kvfree(pool->refused);
	kvfree(pool->used);
	bitmap_free(pool->held);
	return err;
}

/* Gives all memory back; no buffer is left. */
void pool_destroy(struct pool *pool)
{
	unsigned long chunk;

	shrinker_free(pool->shrinker);
	for_each_set_bit(chunk, pool->held, pool->nr_chunks) {
		WARN_ON(pool->used[chunk]);
		if (!area_of_chunk(pool, chunk)->fixed)
			chunk_give(chunk_pfn(pool, chunk));
	}
	kvfree(pool->storage);
	kvfree(pool->refused);
	kvfree(pool->used);
	bitmap_free(pool->held);
	kfree(pool->areas);
}
