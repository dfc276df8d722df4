// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The allocators of swath-frame over a pool's areas. Their frees cannot fail: what comes back was
 * allocated. If one does, the pool's counts are wrong, and the kernel says so.
 */
#define pr_fmt(fmt) "swath_heap: " fmt

#include <linux/slab.h>
#include <linux/string.h>

#include "internal.h"

static int errno_of(swath_result result)
{
	switch (result.status) {
	case SWATH_OK:
		return 0;
	case SWATH_OUT_OF_FRAMES:
	case SWATH_NO_BLOCK:
	case SWATH_TOO_LARGE:
		return -ENOSPC;
	case SWATH_STORAGE:
		return -ENOMEM;
	default:
		return -EINVAL;
	}
}

static void expect(swath_result result)
{
	WARN(result.status != SWATH_OK, "swath_heap: %s at %#llx\n",
	     swath_status_text(result.status), (unsigned long long)result.at);
}

/*
 * One bitmap over all areas (CLMalloc, section 4): a frame's number there is its chunk's number
 * and its place in the chunk. A run lies in one area, whose frames follow one another in
 * physical memory.
 */

static swath_extent *extents_of(const struct pool *pool)
{
	swath_extent *extents = kmalloc_array(pool->nr_areas, sizeof(*extents), GFP_KERNEL);
	unsigned int i;

	for (i = 0; extents && i < pool->nr_areas; i++)
		extents[i] = (swath_extent){ pool->areas[i].frames.pfn,
					     pool->areas[i].frames.count };
	return extents;
}

static swath_segments_config bitmap_config(const struct pool *pool)
{
	return (swath_segments_config){ SWATH_SEGMENTS_PRE_ALLOCATED, pool->unit_order };
}

static size_t bitmap_bytes(struct pool *pool)
{
	swath_extent *extents = extents_of(pool);
	size_t bytes = 0;

	if (extents)
		bytes = swath_segments_storage_bytes(extents, pool->nr_areas, bitmap_config(pool));
	kfree(extents);
	return bytes;
}

/* Takes one chunk out, wherever it stands. */
static int bitmap_take_chunk(struct pool *pool, unsigned long chunk)
{
	swath_segment_request request = swath_segment_request_of(CHUNK_FRAMES);
	swath_segment segment;

	request.lower = chunk * CHUNK_FRAMES;
	request.upper = (chunk + 1) * CHUNK_FRAMES;
	return errno_of(swath_segments_allocate(pool->object, &request, &segment));
}

static int bitmap_create(struct pool *pool)
{
	swath_extent *extents = extents_of(pool);
	unsigned long chunk;
	swath_segments *object;
	int err;

	if (!extents)
		return -ENOMEM;
	err = errno_of(swath_segments_create(extents, pool->nr_areas, bitmap_config(pool),
					     pool->storage, pool->storage_bytes, &object));
	kfree(extents);
	pool->object = object;
	for (chunk = 0; !err && chunk < pool->nr_chunks; chunk++)
		err = bitmap_take_chunk(pool, chunk);
	return err;
}

static unsigned long bitmap_number(const struct pool *pool, unsigned long pfn)
{
	return chunk_of(pool, pfn) * CHUNK_FRAMES + pfn % CHUNK_FRAMES;
}

/* The first number whose frame lies at @pfn_end or beyond. */
static unsigned long bitmap_upper(const struct pool *pool, unsigned long pfn_end)
{
	unsigned long upper = 0;
	unsigned int i;

	for (i = 0; i < pool->nr_areas && pool->areas[i].frames.pfn < pfn_end; i++)
		upper = pool->areas[i].chunk * CHUNK_FRAMES +
			min(pool->areas[i].frames.count, pfn_end - pool->areas[i].frames.pfn);
	return upper;
}

/*
 * Sets @to behind the first stretch from a frame on within which a run of @count frames meets
 * the limits that reach beyond a chunk, and @from to its start; returns where to look next.
 */
static unsigned long bitmap_stretch(const struct place *place, unsigned long count,
				    unsigned long end, unsigned long *from, unsigned long *to)
{
	unsigned long bound = end;

	if (place->align > CHUNK_FRAMES)
		*from = round_up(*from, place->align);
	if (place->boundary > CHUNK_FRAMES)
		bound = min(end, round_down(*from, place->boundary) + place->boundary);
	if (place->align <= CHUNK_FRAMES) {
		*to = bound;
		return bound;
	}
	*to = *from + count <= bound ? *from + count : *from;
	return *from + place->align;
}

/*
 * Allocates where an alignment or a boundary reaches beyond a chunk: the bitmap's numbers agree
 * with frames' numbers up to there only, so each stretch is asked for by itself. At most one
 * for each chunk.
 */
static int bitmap_allocate_far(struct pool *pool, const struct place *place,
			       swath_segment_request request, swath_segment *segment)
{
	unsigned long count = round_up(request.count, 1UL << pool->unit_order);
	int err = -ENOSPC;
	unsigned int i;

	for (i = 0; i < pool->nr_areas; i++) {
		unsigned long from = pool->areas[i].frames.pfn, to, next;
		unsigned long shift = from - pool->areas[i].chunk * CHUNK_FRAMES;
		unsigned long end = min(from + pool->areas[i].frames.count,
					place->pfn_end ?: ULONG_MAX);

		for (; from < end && err == -ENOSPC; from = next) {
			next = bitmap_stretch(place, count, end, &from, &to);
			if (from + count > to)
				continue;
			request.lower = from - shift;
			request.upper = to - shift;
			err = errno_of(swath_segments_allocate(pool->object, &request, segment));
		}
	}
	return err;
}

static int bitmap_allocate(struct pool *pool, const struct place *place, bool shorter,
			   struct run *run)
{
	bool far = place->align > CHUNK_FRAMES || place->boundary > CHUNK_FRAMES;
	swath_segment_request request = swath_segment_request_of(place->count);
	swath_segment segment;
	u64 physical;
	size_t area;
	int err;

	request.one_area = 1;
	request.align = clamp(place->align, 1UL, CHUNK_FRAMES);
	if (place->boundary <= CHUNK_FRAMES)
		request.boundary = place->boundary;
	if (place->pfn_end)
		request.upper = bitmap_upper(pool, place->pfn_end);
	if (shorter) {
		request.count = min(request.count, swath_segments_largest_count(pool->object));
		if (place->boundary)
			request.count = min(request.count, (u64)place->boundary);
	}
	if (!request.upper || !request.count)
		return -ENOSPC;
	for (;;) {
		if (far)
			err = bitmap_allocate_far(pool, place, request, &segment);
		else
			err = errno_of(swath_segments_allocate(pool->object, &request, &segment));
		if (err != -ENOSPC || !shorter || request.count <= 1UL << pool->unit_order)
			break;
		request.count = round_up(request.count / 2, 1UL << pool->unit_order);
	}
	if (err)
		return err;
	expect(swath_segments_locate(pool->object, segment.start, &area, &physical));
	*run = (struct run){ physical, segment.count };
	return 0;
}

static void bitmap_give(struct pool *pool, struct run run)
{
	swath_segment segment = { bitmap_number(pool, run.pfn), run.count };

	expect(swath_segments_free(pool->object, segment));
}

static void bitmap_put(struct pool *pool, unsigned long chunk)
{
	swath_segment segment = { chunk * CHUNK_FRAMES, CHUNK_FRAMES };

	expect(swath_segments_free(pool->object, segment));
}

static long bitmap_take(struct pool *pool)
{
	unsigned int i = pool->nr_areas;

	while (i--) {
		unsigned long first = pool->areas[i].chunk;
		unsigned long chunk = first + (pool->areas[i].frames.count >> CHUNK_ORDER);

		while (!pool->areas[i].fixed && chunk-- > first)
			if (test_bit(chunk, pool->held) && !pool->used[chunk] &&
			    !bitmap_take_chunk(pool, chunk))
				return chunk;
	}
	return -ENOSPC;
}

static unsigned long bitmap_count(struct pool *pool)
{
	return swath_segments_free_count(pool->object);
}

static unsigned long bitmap_largest(struct pool *pool)
{
	return swath_segments_largest_count(pool->object);
}

static void count_segment(swath_segment run, void *context)
{
	++*(unsigned long *)context;
}

static unsigned long bitmap_runs(struct pool *pool)
{
	unsigned long runs = 0;

	expect(swath_segments_each_free(pool->object, count_segment, &runs));
	return runs;
}

const struct policy policy_bitmap = {
	.name = "bitmap",
	.bytes = bitmap_bytes,
	.create = bitmap_create,
	.allocate = bitmap_allocate,
	.free = bitmap_give,
	.put = bitmap_put,
	.take = bitmap_take,
	.count = bitmap_count,
	.largest = bitmap_largest,
	.runs = bitmap_runs,
};

/*
 * The page buddy system: free runs of any length, from orders 0, 9 and 18, the shortest that
 * serves. It knows no limit of addresses.
 */

static const swath_frames_config PBS = { .granularity = 9, .top_order = 18, .best_fit = 1 };

/* Makes the map of the areas, which the caller frees with kfree(); NULL if it cannot. */
static swath_map *pbs_map(const struct pool *pool)
{
	size_t bytes = swath_map_storage_bytes(pool->nr_areas);
	swath_range *ranges = kmalloc_array(pool->nr_areas, sizeof(*ranges), GFP_KERNEL);
	void *storage = kzalloc(bytes, GFP_KERNEL);
	swath_map *map = NULL;
	unsigned int i;

	for (i = 0; ranges && i < pool->nr_areas; i++)
		ranges[i] = (swath_range){ PFN_PHYS(pool->areas[i].frames.pfn),
					   pool->areas[i].frames.count << PAGE_SHIFT };
	if (ranges && storage &&
	    swath_map_create(ranges, pool->nr_areas, storage, bytes, &map).status != SWATH_OK)
		map = NULL;
	kfree(ranges);
	if (!map || (void *)map != storage) {
		kfree(storage);
		return NULL;
	}
	return map;
}

static size_t pbs_bytes(struct pool *pool)
{
	swath_map *map = pbs_map(pool);
	size_t bytes = map ? swath_frames_storage_bytes(map, PBS) : 0;

	kfree(map);
	return bytes;
}

static int pbs_create(struct pool *pool)
{
	swath_map *map = pbs_map(pool);
	swath_frames *object;
	int err;

	if (!map)
		return -ENOMEM;
	err = errno_of(swath_frames_create(map, PBS, 0, pool->storage, pool->storage_bytes,
					   &object));
	kfree(map);
	pool->object = object;
	return err;
}

static void pbs_free(struct pool *pool, struct run run)
{
	expect(swath_frames_free(pool->object, (swath_extent){ run.pfn, run.count }));
}

/*
 * Finds where @count frames meet the limits in a block, or the first of them; returns how many
 * do.
 */
static unsigned long pbs_fit(swath_extent block, const struct place *place, unsigned long count,
			     u64 *start)
{
	u64 align = max(place->align, 1UL), end = block.start + block.count, bound = end;
	u64 from = round_up(block.start, align);

	if (place->boundary) {
		bound = round_down(from, (u64)place->boundary) + place->boundary;
		if (bound < end && bound - from < count) {
			from = round_up(bound, align);
			bound = round_down(from, (u64)place->boundary) + place->boundary;
		}
	}
	*start = from;
	bound = min(bound, end);
	return from < bound ? min_t(u64, count, bound - from) : 0;
}

static void pbs_free_between(struct pool *pool, u64 from, u64 to)
{
	if (from < to)
		pbs_free(pool, (struct run){ from, to - from });
}

/* Blocks that a request with limits looks at, the longest first. */
#define PBS_TRIES 32

static bool pbs_serves(swath_extent block, const struct place *place, unsigned long count,
		       bool shorter)
{
	u64 start;
	unsigned long fits = pbs_fit(block, place, count, &start);

	return fits == count || (fits && shorter);
}

/* Takes a block in which @count frames meet the limits, or some of them if @shorter. */
static int pbs_find(struct pool *pool, const struct place *place, unsigned long count,
		    unsigned long slack, bool shorter, swath_extent *block)
{
	swath_extent passed[PBS_TRIES];
	unsigned int tries = 0;
	int err;

	for (;;) {
		err = errno_of(swath_frames_allocate_block(pool->object, count + slack, block));
		if (err || pbs_serves(*block, place, count, shorter))
			break;
		/* Held, so that the next one is another. */
		passed[tries++] = *block;
		err = -ENOSPC;
		if (!slack || tries == PBS_TRIES || block->count < (shorter ? 1 : count))
			break;
	}
	if (tries && err)
		err = -ENOSPC;
	while (tries--)
		pbs_free(pool, (struct run){ passed[tries].start, passed[tries].count });
	/* Of its own aligned blocks there may be one all the same. */
	if (err == -ENOSPC && place->align > 1 && (shorter || count <= place->align)) {
		err = errno_of(swath_frames_allocate_aligned(pool->object, ilog2(place->align),
							     block));
		if (!err && !pbs_serves(*block, place, count, shorter)) {
			pbs_free(pool, (struct run){ block->start, block->count });
			err = -ENOSPC;
		}
	}
	return err;
}

/* Takes a block with room for the limits, and gives back what lies before and behind. */
static int pbs_allocate(struct pool *pool, const struct place *place, bool shorter, struct run *run)
{
	unsigned long count = place->count, slack = 0, fits;
	swath_extent block;
	u64 start;
	int err;

	if (place->pfn_end)
		return -EOPNOTSUPP;
	if (place->boundary && shorter)
		count = min(count, place->boundary);
	if (place->align > 1)
		slack = place->align - 1;
	if (place->boundary)
		slack += count - 1;
	err = pbs_find(pool, place, count, slack, shorter, &block);
	if (err)
		return err;
	fits = pbs_fit(block, place, count, &start);
	pbs_free_between(pool, block.start, start);
	pbs_free_between(pool, start + fits, block.start + block.count);
	*run = (struct run){ start, fits };
	return 0;
}

static void pbs_put(struct pool *pool, unsigned long chunk)
{
	pbs_free(pool, (struct run){ chunk_pfn(pool, chunk), CHUNK_FRAMES });
}

/* The allocator chooses the chunk, so that none goes back where some may not. */
static long pbs_take(struct pool *pool)
{
	swath_extent block;
	unsigned int i;

	for (i = 0; i < pool->nr_areas; i++)
		if (pool->areas[i].fixed)
			return -ENOSPC;
	if (swath_frames_allocate_aligned(pool->object, CHUNK_ORDER, &block).status != SWATH_OK)
		return -ENOSPC;
	return chunk_of(pool, block.start);
}

static unsigned long pbs_count(struct pool *pool)
{
	return swath_frames_free_count(pool->object);
}

struct blocks {
	unsigned long runs;
	unsigned long largest;
};

static void count_block(swath_extent block, void *context)
{
	struct blocks *blocks = context;

	blocks->runs++;
	blocks->largest = max_t(unsigned long, blocks->largest, block.count);
}

static unsigned long pbs_largest(struct pool *pool)
{
	struct blocks blocks = {};

	expect(swath_frames_each_free(pool->object, count_block, &blocks));
	return blocks.largest;
}

static unsigned long pbs_runs(struct pool *pool)
{
	struct blocks blocks = {};

	expect(swath_frames_each_free(pool->object, count_block, &blocks));
	return blocks.runs;
}

const struct policy policy_pbs = {
	.name = "pbs",
	.bytes = pbs_bytes,
	.create = pbs_create,
	.allocate = pbs_allocate,
	.free = pbs_free,
	.put = pbs_put,
	.take = pbs_take,
	.count = pbs_count,
	.largest = pbs_largest,
	.runs = pbs_runs,
};
