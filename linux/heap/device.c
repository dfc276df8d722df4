// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * /dev/dma_heap/swath, with the calls of the kernel's own dma-heaps, whose function to add one
 * is not exported to modules.
 */
#define pr_fmt(fmt) "swath_heap: " fmt

#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/dma-heap.h>
#include <linux/fs.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <uapi/linux/dma-heap.h>

#include <swath_heap.h>

#include "internal.h"

static struct {
	struct pool *pool;
	u64 bytes_max;
	umode_t mode;
	kgid_t gid;
	dev_t number;
	struct cdev cdev;
	struct class *class;
	struct device *device;
} heap;

/* The largest alignment and boundary: 1 GiB. */
#define SHIFT_MAX	30

/* Returns 2^shift bytes in frames; 0 for no limit. */
static unsigned long frames_of(unsigned int shift)
{
	return shift ? 1UL << (max_t(unsigned int, shift, PAGE_SHIFT) - PAGE_SHIFT) : 0;
}

/* Reads a place from the flags of a request; -EINVAL if no memory could ever meet it. */
static int read_place(u64 flags, size_t len, struct place *place)
{
	unsigned int bits = (flags >> 8) & 0x3f;
	unsigned int align = (flags >> 16) & 0x3f;
	unsigned int boundary = (flags >> 24) & 0x3f;

	if (flags & ~SWATH_HEAP_VALID_FLAGS)
		return -EINVAL;
	if (align > SHIFT_MAX || (bits && bits <= PAGE_SHIFT))
		return -EINVAL;
	if (boundary && (boundary < PAGE_SHIFT || boundary > SHIFT_MAX))
		return -EINVAL;
	place->count = len >> PAGE_SHIFT;
	place->align = frames_of(align);
	place->boundary = frames_of(boundary);
	place->pfn_end = frames_of(bits);
	if (place->boundary && place->count > place->boundary && !(flags & SWATH_HEAP_SCATTER))
		return -EINVAL;
	return 0;
}

static long allocate(void __user *argument)
{
	struct dma_heap_allocation_data data;
	struct dma_buf *dmabuf;
	struct place place;
	int fd, err;

	if (copy_from_user(&data, argument, sizeof(data)))
		return -EFAULT;
	if (data.fd || data.fd_flags & ~DMA_HEAP_VALID_FD_FLAGS)
		return -EINVAL;
	if (!data.len || data.len > SZ_1G * 1024ULL)
		return -EINVAL;
	data.len = PAGE_ALIGN(data.len);
	if (heap.bytes_max && data.len > heap.bytes_max)
		return -EDQUOT;
	err = read_place(data.heap_flags, data.len, &place);
	if (err) {
		pool_failed(heap.pool, FAILED_ARGUMENT);
		return err;
	}
	dmabuf = buffer_create(heap.pool, data.len, &place, data.heap_flags & SWATH_HEAP_SCATTER,
			       data.fd_flags);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	fd = dma_buf_fd(dmabuf, data.fd_flags);
	if (fd < 0) {
		dma_buf_put(dmabuf);
		return fd;
	}
	/* As the kernel's heaps do: the file is the process's already. */
	data.fd = fd;
	return copy_to_user(argument, &data, sizeof(data)) ? -EFAULT : 0;
}

static long extents(void __user *argument)
{
	struct swath_heap_extents asked;
	struct swath_heap_extent __user *to;
	struct run *runs;
	unsigned int count, i;
	long err;

	if (copy_from_user(&asked, argument, sizeof(asked)))
		return -EFAULT;
	if (asked.pad)
		return -EINVAL;
	err = buffer_extents(asked.fd, &runs, &count);
	if (err)
		return err;
	to = u64_to_user_ptr(asked.extents);
	for (i = 0; !err && i < min(count, asked.room); i++) {
		struct swath_heap_extent extent = { PFN_PHYS(runs[i].pfn),
						    (u64)runs[i].count << PAGE_SHIFT };

		if (copy_to_user(&to[i], &extent, sizeof(extent)))
			err = -EFAULT;
	}
	kvfree(runs);
	asked.count = count;
	if (!err && copy_to_user(argument, &asked, sizeof(asked)))
		err = -EFAULT;
	return err;
}

static long control(struct file *file, unsigned int command, unsigned long argument)
{
	switch (command) {
	case DMA_HEAP_IOCTL_ALLOC:
		return allocate((void __user *)argument);
	case SWATH_HEAP_IOCTL_EXTENTS:
		return extents((void __user *)argument);
	default:
		return -ENOTTY;
	}
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = control,
	.compat_ioctl = compat_ptr_ioctl,
	.llseek = noop_llseek,
};

static char *node(const struct device *device, umode_t *mode, kuid_t *uid, kgid_t *gid)
{
	if (mode)
		*mode = heap.mode;
	if (gid)
		*gid = heap.gid;
	return kasprintf(GFP_KERNEL, "dma_heap/%s", dev_name(device));
}

static const struct device_type type = {
	.name = "swath_heap",
	.devnode = node,
};

static void release_device(struct device *device)
{
	kfree(device);
}

/* Makes the device; the last step of loading, for requests may come at once. */
int device_init(struct pool *pool, unsigned int gid, umode_t mode, u64 bytes_max)
{
	int err;

	heap.pool = pool;
	heap.bytes_max = bytes_max;
	heap.mode = mode;
	heap.gid = make_kgid(&init_user_ns, gid);
	if (!gid_valid(heap.gid))
		return -EINVAL;
	err = alloc_chrdev_region(&heap.number, 0, 1, "swath_heap");
	if (err)
		return err;
	cdev_init(&heap.cdev, &operations);
	err = cdev_add(&heap.cdev, heap.number, 1);
	if (err)
		goto number;
	heap.class = class_create("swath_heap");
	if (IS_ERR(heap.class)) {
		err = PTR_ERR(heap.class);
		goto cdev;
	}
	heap.device = kzalloc(sizeof(*heap.device), GFP_KERNEL);
	if (!heap.device) {
		err = -ENOMEM;
		goto class;
	}
	device_initialize(heap.device);
	heap.device->devt = heap.number;
	heap.device->class = heap.class;
	heap.device->type = &type;
	heap.device->release = release_device;
	err = dev_set_name(heap.device, "swath");
	if (!err)
		err = device_add(heap.device);
	if (!err)
		return 0;
	put_device(heap.device);
class:
	class_destroy(heap.class);
cdev:
	cdev_del(&heap.cdev);
number:
	unregister_chrdev_region(heap.number, 1);
	return err;
}

void device_exit(void)
{
	device_unregister(heap.device);
	class_destroy(heap.class);
	cdev_del(&heap.cdev);
	unregister_chrdev_region(heap.number, 1);
}
