// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The module: what it is told when it is loaded, and the order in which its parts come and go.
 */
#define pr_fmt(fmt) "swath_heap: " fmt

#include <linux/kernel.h>
#include <linux/module.h>

#include "internal.h"

static char *areas = "";
module_param(areas, charp, 0444);
MODULE_PARM_DESC(areas, "movable memory to take: SIZE[@LOW-HIGH],... in multiples of 2M");

static char *reserved = "";
module_param(reserved, charp, 0444);
MODULE_PARM_DESC(reserved, "labels of memory reserved at boot by reserve_mem=SIZE:ALIGN:LABEL");

static char *policy = "bitmap";
module_param(policy, charp, 0444);
MODULE_PARM_DESC(policy, "bitmap (held from the start), demand (a bitmap, held while in use), pbs");

static uint granularity;
module_param(granularity, uint, 0444);
MODULE_PARM_DESC(granularity, "runs are whole units of 2^granularity frames, 0 to 9; bitmaps only");

static char *keep = "";
module_param(keep, charp, 0444);
MODULE_PARM_DESC(keep, "bytes that stay when the system is short of memory; all if not given");

static char *buffer_max = "";
module_param(buffer_max, charp, 0444);
MODULE_PARM_DESC(buffer_max, "bytes of the largest buffer; no limit if not given");

static uint gid;
module_param(gid, uint, 0444);
MODULE_PARM_DESC(gid, "the group that may open the heap");

static ushort mode = 0660;
module_param(mode, ushort, 0444);
MODULE_PARM_DESC(mode, "permissions of the device");

static struct pool pool;

/* Reads bytes with the kernel's suffixes; @bytes stays where nothing was given. */
static int read_bytes(const char *name, const char *text, unsigned long long *bytes)
{
	char *end;

	if (!*text)
		return 0;
	*bytes = memparse(text, &end);
	if (end != text && !*end)
		return 0;
	pr_err("%s: \"%s\" is no number of bytes\n", name, text);
	return -EINVAL;
}

static int read_policy(void)
{
	pool.policy = &policy_bitmap;
	pool.unit_order = granularity;
	pool.on_demand = !strcmp(policy, "demand");
	if (!strcmp(policy, "pbs"))
		pool.policy = &policy_pbs;
	else if (!pool.on_demand && strcmp(policy, "bitmap"))
		goto bad;
	if (granularity > CHUNK_ORDER || (granularity && pool.policy == &policy_pbs)) {
		pr_err("granularity: %u is not 0 to %d, or not 0 with pbs\n", granularity,
		       CHUNK_ORDER);
		return -EINVAL;
	}
	return 0;
bad:
	pr_err("policy: \"%s\" is none of bitmap, demand, pbs\n", policy);
	return -EINVAL;
}

static int __init swath_heap_init(void)
{
	unsigned long long kept = ULLONG_MAX, most = 0;
	struct area *found;
	unsigned int count;
	int err;

	err = read_policy();
	if (!err)
		err = read_bytes("keep", keep, &kept);
	if (!err)
		err = read_bytes("buffer_max", buffer_max, &most);
	if (err)
		return err;
	pool.keep = kept / (CHUNK_FRAMES * PAGE_SIZE);
	err = areas_find(areas, reserved, &found, &count);
	if (err)
		return err;
	err = pool_create(&pool, found, count);
	if (err) {
		areas_drop(found, count);
		return err;
	}
	err = buffers_init();
	if (err)
		goto pool;
	err = stats_init(&pool, gid);
	if (err)
		goto buffers;
	err = device_init(&pool, gid, mode & 0666, most);
	if (err)
		goto stats;
	pr_info("%lu MiB in %u areas, %s\n", pool.nr_chunks * (CHUNK_FRAMES >> (20 - PAGE_SHIFT)),
		count, policy);
	return 0;
stats:
	stats_exit();
buffers:
	buffers_exit();
pool:
	pool_destroy(&pool);
	return err;
}
module_init(swath_heap_init);

static void __exit swath_heap_exit(void)
{
	device_exit();
	stats_exit();
	buffers_exit();
	pool_destroy(&pool);
}
module_exit(swath_heap_exit);

MODULE_DESCRIPTION("A dma-heap whose buffers are physical runs");
MODULE_AUTHOR("The Swath authors");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_IMPORT_NS(DMA_BUF);
