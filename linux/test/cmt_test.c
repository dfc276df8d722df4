// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * cmt_malloc over a dma-heap, as an ordinary user of its group. Runs in the guest of `cargo xtask linux`.
 *
 *   cmt_test PAGES UID GID SEED    PAGES: what is to back the reserve: "heap" (and the heap says where), "part" (a
 *                                  heap that does not have all of it), "cma", or "none" (no heap may be opened)
 */
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <swath.h>

#define MIB (1ull << 20)
#define CHECK(what) ((what) ? (void)0 : fail(__LINE__, #what))

enum { BLOCKS = 12, BLOCK = 20 << 20 };

static bool told, held, all;
static uint64_t seed;

static void fail(int line, const char *what)
{
	fprintf(stderr, "cmt_test.c:%d: %s does not hold (%s)\n", line, what, strerror(errno));
	_exit(1);
}

static void stamp(uint64_t *block, uint64_t key)
{
	for (size_t i = 0; i < BLOCK / 8; i += 64)
		block[i] = key ^ i;
}

static bool has_stamp(const uint64_t *block, uint64_t key)
{
	for (size_t i = 0; i < BLOCK / 8; i += 64)
		if (block[i] != (key ^ i))
			return false;
	return true;
}

/* Checks what the library says of a block's place; returns its physical address, or all ones. */
static uint64_t place(const void *block)
{
	cmt_extent extent;
	size_t len = BLOCK, found = 0;
	uint64_t physical = cmt_virt2phys(block, &len);

	if (!told) {
		CHECK(physical == UINT64_MAX);
		return physical;
	}
	/* It lies in other memory. */
	if (!all && physical == UINT64_MAX)
		return physical;
	CHECK(physical != UINT64_MAX && len >= BLOCK);
	CHECK(cmt_extents(block, 0, BLOCK, &extent, 1, &found).status == SWATH_OK);
	CHECK(found == 1 && extent.address == physical && extent.len_bytes == BLOCK);
	return physical;
}

static void look_at_reserve(void)
{
	cmt_reserve_extent extents[64];
	cmt_stats stats;
	size_t found = 0;

	CHECK(cmt_stats_get(&stats, sizeof(stats)).status == SWATH_OK);
	CHECK(cmt_reserve_extents(extents, 64, &found).status == SWATH_OK && found >= 1 && found <= 64);
	for (size_t i = 0; i < found; i++)
		CHECK((extents[i].pages == CMT_PAGES_DMA_HEAP && told) == (extents[i].physical != UINT64_MAX));
	/* Of the kernel's own heap some may be in use; the rest is other memory. */
	CHECK(!all || stats.dma_heap_bytes == stats.reserve_bytes);
	CHECK(held ? stats.dma_heap_bytes >= stats.reserve_bytes / 2 : !stats.dma_heap_bytes);
	printf("cmt reserve_bytes %" PRIu64 " dma_heap_bytes %" PRIu64 " extents %zu\n", stats.reserve_bytes,
	       stats.dma_heap_bytes, found);
}

/* Parent and child write to the same blocks: each has its own bytes, and the parent's stay in their frames. */
static void forked(uint64_t *blocks[], const uint64_t physical[])
{
	cmt_stats stats;
	int status;
	pid_t child;

	fflush(NULL);
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		CHECK(cmt_stats_get(&stats, sizeof(stats)).status == SWATH_OK && !stats.dma_heap_bytes);
		for (unsigned i = 0; i < BLOCKS; i++) {
			size_t len = BLOCK;

			CHECK(has_stamp(blocks[i], seed ^ i));
			stamp(blocks[i], ~seed ^ i);
			CHECK(!held || cmt_virt2phys(blocks[i], &len) == UINT64_MAX);
		}
		for (unsigned i = 0; i < BLOCKS; i++) {
			CHECK(has_stamp(blocks[i], ~seed ^ i));
			cmt_free(blocks[i]);
		}
		/* And goes on with what is free of it. */
		for (unsigned i = 0; i < BLOCKS; i++) {
			uint64_t *block = cmt_malloc(BLOCK);

			CHECK(block);
			stamp(block, i);
			CHECK(has_stamp(block, i));
		}
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
	for (unsigned i = 0; i < BLOCKS; i++)
		CHECK(has_stamp(blocks[i], seed ^ i) && place(blocks[i]) == physical[i]);
}

int main(int argc, char **argv)
{
	uint64_t *blocks[BLOCKS], physical[BLOCKS];
	cmt_options options;
	cmt_pinned pinned;
	unsigned known = 0;
	gid_t gid;

	if (argc < 5)
		return 2;
	all = !strcmp(argv[1], "heap");
	told = all || !strcmp(argv[1], "part");
	held = strcmp(argv[1], "none") != 0;
	gid = strtoul(argv[3], NULL, 0);
	seed = strtoull(argv[4], NULL, 0);
	CHECK(!setgroups(0, NULL) && !setgid(gid) && !setuid(strtoul(argv[2], NULL, 0)));
	CHECK(cmt_options_default(&options).status == SWATH_OK);
	options.reserve_bytes = 256 * MIB;
	CHECK(cmt_init(&options).status == SWATH_OK);
	look_at_reserve();

	for (unsigned i = 0; i < BLOCKS; i++) {
		blocks[i] = cmt_malloc(BLOCK);
		CHECK(blocks[i]);
		for (size_t k = 0; k < BLOCK / 8; k += 512)
			CHECK(!blocks[i][k]);
		stamp(blocks[i], seed ^ i);
	}
	for (unsigned i = 0; i < BLOCKS; i++) {
		physical[i] = place(blocks[i]);
		CHECK(has_stamp(blocks[i], seed ^ i));
		known += physical[i] != UINT64_MAX;
		for (unsigned k = 0; physical[i] != UINT64_MAX && k < i; k++)
			CHECK(physical[k] == UINT64_MAX || physical[k] + BLOCK <= physical[i] ||
			      physical[i] + BLOCK <= physical[k]);
	}
	CHECK(told ? known >= BLOCKS / 2 && (!all || known == BLOCKS) : !known);
	/* Other memory an ordinary user may not lock so much of. */
	if (all) {
		CHECK(cmt_pin(blocks[0], BLOCK, &pinned).status == SWATH_OK && pinned.frames_stay);
		CHECK(cmt_unpin(&pinned).status == SWATH_OK);
	}
	forked(blocks, physical);
	for (unsigned i = 0; i < BLOCKS; i += 2) {
		cmt_free(blocks[i]);
		/* Where a limit is asked for, the heap's addresses count. */
		blocks[i] = cmt_malloc_contiguous(BLOCK / 4, 4 * MIB, 0, 0);
		if (blocks[i] && told) {
			size_t len = BLOCK / 4;
			uint64_t at = cmt_virt2phys(blocks[i], &len);

			CHECK((!all && at == UINT64_MAX) || (at % (4 * MIB) == 0 && len >= BLOCK / 4));
		}
	}
	CHECK(blocks[0] || !all);
	printf("cmt %s: %u blocks of %u MiB hold, of %u the heap says where\n", argv[1], BLOCKS, BLOCK >> 20, known);
	return 0;
}
