/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR MIT */
/*
 * What a program says to /dev/dma_heap/swath beyond DMA_HEAP_IOCTL_ALLOC.
 */
#ifndef _SWATH_HEAP_H
#define _SWATH_HEAP_H

#include <linux/ioctl.h>
#include <linux/types.h>

/*
 * heap_flags of struct dma_heap_allocation_data. With none of them the buffer is one physical run,
 * or the call fails with ENOSPC.
 */

/* The buffer may be a list of runs, as few as are found. */
#define SWATH_HEAP_SCATTER		(1ULL << 0)

/* All bytes lie below 2^bits: the addresses that a device can put out. 0 is no limit. */
#define SWATH_HEAP_ADDRESS_BITS(bits)	((__u64)((bits) & 0x3f) << 8)

/* The run starts at a multiple of 2^shift bytes. */
#define SWATH_HEAP_ALIGN(shift)		((__u64)((shift) & 0x3f) << 16)

/* No run crosses a multiple of 2^shift bytes. 0 is no limit. */
#define SWATH_HEAP_BOUNDARY(shift)	((__u64)((shift) & 0x3f) << 24)

#define SWATH_HEAP_VALID_FLAGS		0x3f3f3f01ULL

/* A physical run of a buffer, in bytes. */
struct swath_heap_extent {
	__u64 address;
	__u64 len;
};

/**
 * struct swath_heap_extents - asks where a buffer lies
 * @fd:      a buffer of this heap
 * @room:    extents that there is room for
 * @extents: pointer to them
 * @count:   is set to how many extents the buffer has; at most @room are written
 * @pad:     0
 */
struct swath_heap_extents {
	__u32 fd;
	__u32 room;
	__u64 extents;
	__u32 count;
	__u32 pad;
};

#define SWATH_HEAP_IOCTL_EXTENTS	_IOWR('H', 0x40, struct swath_heap_extents)

#endif /* _SWATH_HEAP_H */
