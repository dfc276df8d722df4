// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Physical memory for the heap: movable memory that the system empties by migration, and ranges
 * that were reserved at boot (reserve_mem=SIZE:ALIGN:LABEL).
 */
#define pr_fmt(fmt) "swath_heap: " fmt

#include <linux/gfp.h>
#include <linux/highmem.h>
#include <linux/memory_hotplug.h>
#include <linux/mmzone.h>
#include <linux/nodemask.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/string.h>

#include "internal.h"

/* Takes a chunk's frames from the system, which moves what lies there. */
int chunk_take(unsigned long pfn)
{
	return alloc_contig_range(pfn, pfn + CHUNK_FRAMES, MIGRATE_MOVABLE,
				  GFP_KERNEL | __GFP_NOWARN);
}

void chunk_give(unsigned long pfn)
{
	free_contig_range(pfn, CHUNK_FRAMES);
}

void frames_zero(struct run run)
{
	unsigned long i;

	for (i = 0; i < run.count; i++) {
		clear_highpage(pfn_to_page(run.pfn + i));
		if (!(i % 64))
			cond_resched();
	}
}

/* Returns true if all of the range is ordinary memory of one zone. */
static bool is_ordinary(struct run run)
{
	struct page *first = pfn_to_online_page(run.pfn);
	unsigned long pfn;

	if (!first)
		return false;
	for (pfn = run.pfn; pfn < run.pfn + run.count; pfn += CHUNK_FRAMES) {
		struct page *page = pfn_to_online_page(pfn);

		if (!page || page_zone(page) != page_zone(first) || PageReserved(page))
			return false;
	}
	return true;
}

/* Takes the chunks of a range, all or none. */
static int range_take(struct run run)
{
	unsigned long pfn;
	int err;

	for (pfn = run.pfn; pfn < run.pfn + run.count; pfn += CHUNK_FRAMES) {
		err = chunk_take(pfn);
		if (err) {
			while (pfn > run.pfn) {
				pfn -= CHUNK_FRAMES;
				chunk_give(pfn);
			}
			return err;
		}
		if (signal_pending(current)) {
			run.count = pfn + CHUNK_FRAMES - run.pfn;
			for (pfn = run.pfn; pfn < run.pfn + run.count; pfn += CHUNK_FRAMES)
				chunk_give(pfn);
			return -EINTR;
		}
	}
	return 0;
}

static int append(struct area **areas, unsigned int *count, struct run frames, bool fixed)
{
	struct area *more = krealloc_array(*areas, *count + 1, sizeof(**areas), GFP_KERNEL);

	if (!more)
		return -ENOMEM;
	*areas = more;
	more[(*count)++] = (struct area){ .frames = frames, .fixed = fixed };
	return 0;
}

/*
 * Takes @wanted frames between two frames' numbers, from the top down, in pieces of 32 MiB,
 * then of smaller ones down to a chunk. Frames that it could not have are for the caller to
 * miss.
 */
static int movable_take(struct area **areas, unsigned int *areas_count, unsigned long wanted,
			unsigned long low, unsigned long high)
{
	unsigned long piece = 16 * CHUNK_FRAMES;
	int nid;

	for (; piece >= CHUNK_FRAMES; piece /= 4) {
		for_each_online_node(nid) {
			unsigned long start = max(NODE_DATA(nid)->node_start_pfn, low);
			unsigned long end = min(pgdat_end_pfn(NODE_DATA(nid)), high);
			unsigned long pfn = round_down(end, piece);

			while (wanted && pfn >= piece && pfn - piece >= start) {
				struct run run = { pfn - piece, min(piece, wanted) };
				int err;

				pfn -= piece;
				cond_resched();
				if (!is_ordinary(run) || range_take(run))
					continue;
				err = append(areas, areas_count, run, false);
				if (err) {
					for (; run.count; run.count -= CHUNK_FRAMES)
						chunk_give(run.pfn + run.count - CHUNK_FRAMES);
					return err;
				}
				wanted -= run.count;
				if (signal_pending(current))
					return -EINTR;
			}
		}
	}
	return wanted ? -ENOMEM : 0;
}

/* Reads "SIZE[@LOW-HIGH]" for each area wanted, with the kernel's suffixes, and takes them. */
static int movable_find(const char *sizes, struct area **areas, unsigned int *count)
{
	while (*sizes) {
		unsigned long long size, low = 0, high = ULLONG_MAX;
		const char *item = sizes;
		char *end;
		int err;

		size = memparse(sizes, &end);
		if (*end == '@') {
			low = memparse(end + 1, &end);
			if (*end != '-')
				goto bad;
			high = memparse(end + 1, &end);
		}
		if ((*end && *end != ',') || !size || size % (CHUNK_FRAMES * PAGE_SIZE) ||
		    low >= high)
			goto bad;
		err = -ENOMEM;
		if (size >> PAGE_SHIFT < totalram_pages())
			err = movable_take(areas, count, size >> PAGE_SHIFT, PFN_UP(low),
					   high >> PAGE_SHIFT);
		if (err) {
			pr_err("areas: %llu bytes of movable memory could not be had for \"%s\"\n",
			       size, item);
			return err;
		}
		sizes = *end ? end + 1 : end;
		continue;
bad:
		pr_err("areas: \"%s\" is no SIZE[@LOW-HIGH] in multiples of 2 MiB\n", item);
		return -EINVAL;
	}
	return 0;
}

/* Takes the ranges that were reserved at boot under these labels. */
static int reserved_find(const char *labels, struct area **areas, unsigned int *count)
{
	while (*labels) {
		size_t len = strcspn(labels, ",");
		char *label = kstrndup(labels, len, GFP_KERNEL);
		phys_addr_t start, size;
		unsigned long first, last;
		int err;

		if (!label)
			return -ENOMEM;
		if (!reserve_mem_find_by_name(label, &start, &size)) {
			pr_err("reserved: no memory was reserved at boot as \"%s\"\n", label);
			kfree(label);
			return -ENOENT;
		}
		kfree(label);
		first = round_up(PFN_UP(start), CHUNK_FRAMES);
		last = round_down(PFN_DOWN(start + size), CHUNK_FRAMES);
		if (first >= last || !pfn_valid(first)) {
			pr_err("reserved: %pa bytes at %pa have no whole 2 MiB\n", &size, &start);
			return -EINVAL;
		}
		err = append(areas, count, (struct run){ first, last - first }, true);
		if (err)
			return err;
		labels += len;
		labels += *labels == ',';
	}
	return 0;
}

static int ascending(const void *a, const void *b)
{
	const struct area *x = a, *y = b;

	return x->frames.pfn < y->frames.pfn ? -1 : 1;
}

/**
 * areas_find() - finds and takes the heap's memory, all of it zero then
 * @sizes:    areas of movable memory: SIZE[@LOW-HIGH], ...
 * @reserved: labels of ranges that were reserved at boot
 * @areas:    is set to the areas, ascending, those that touch joined
 * @count:    is set to how many they are
 */
int areas_find(const char *sizes, const char *reserved, struct area **areas, unsigned int *count)
{
	unsigned long chunk = 0;
	unsigned int i, kept;
	int err;

	*areas = NULL;
	*count = 0;
	err = reserved_find(reserved, areas, count);
	if (!err)
		err = movable_find(sizes, areas, count);
	if (!err && !*count) {
		pr_err("neither areas= nor reserved= names memory\n");
		err = -EINVAL;
	}
	if (err) {
		areas_drop(*areas, *count);
		return err;
	}
	sort(*areas, *count, sizeof(**areas), ascending, NULL);
	for (i = 1, kept = 0; i < *count; i++) {
		struct area *last = &(*areas)[kept];
		struct area *next = &(*areas)[i];

		if (last->frames.pfn + last->frames.count == next->frames.pfn &&
		    last->fixed == next->fixed)
			last->frames.count += next->frames.count;
		else
			(*areas)[++kept] = *next;
	}
	*count = kept + 1;
	for (i = 0; i < *count; i++) {
		(*areas)[i].chunk = chunk;
		chunk += (*areas)[i].frames.count >> CHUNK_ORDER;
		frames_zero((*areas)[i].frames);
	}
	return 0;
}

/* Gives all memory back that was not reserved at boot, and forgets the areas. */
void areas_drop(struct area *areas, unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++) {
		struct run run = areas[i].frames;

		for (; !areas[i].fixed && run.count; run.count -= CHUNK_FRAMES)
			chunk_give(run.pfn + run.count - CHUNK_FRAMES);
	}
	kfree(areas);
}
