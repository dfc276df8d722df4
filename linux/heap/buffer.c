// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Buffers as dma-bufs. What a buffer had is zeroed in the background before it is free again,
 * so that an allocation never waits for that, unless nothing else is free.
 */
#define pr_fmt(fmt) "swath_heap: " fmt

#include <linux/device.h>
#include <linux/dma-mapping.h>
#include <linux/highmem.h>
#include <linux/huge_mm.h>
#include <linux/iosys-map.h>
#include <linux/pagemap.h>
#include <linux/pfn_t.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>

#include "internal.h"

/**
 * struct buffer - the memory of one dma-buf
 * @lock:        guards what follows
 * @attachments: of devices
 * @vaddr:       where the kernel sees it, while @vmaps is not 0
 * @runs:        where it lies, in order
 */
struct buffer {
	struct pool *pool;
	size_t len;
	struct mutex lock;	/* guards the attachments */
	struct list_head attachments;
	struct sg_table table;
	void *vaddr;
	unsigned int vmaps;
	struct list_head freed;
	unsigned int nr_runs;
	struct run *runs;
};

struct attachment {
	struct device *device;
	struct sg_table table;
	struct list_head node;
	bool mapped;
};

static struct workqueue_struct *cleaner;
static LIST_HEAD(dirty);
static DEFINE_SPINLOCK(dirty_lock);
/* Buffers that are freed and not yet free, and who waits for one. */
static atomic_t nr_dirty = ATOMIC_INIT(0);
static DECLARE_WAIT_QUEUE_HEAD(cleaned);

static void give_runs(struct buffer *buffer)
{
	unsigned int i;

	for (i = 0; i < buffer->nr_runs; i++) {
		frames_zero(buffer->runs[i]);
		pool_free(buffer->pool, buffer->runs[i]);
	}
}

static void clean(struct work_struct *work)
{
	LIST_HEAD(freed);
	struct buffer *buffer, *next;

	spin_lock(&dirty_lock);
	list_splice_init(&dirty, &freed);
	spin_unlock(&dirty_lock);
	list_for_each_entry_safe(buffer, next, &freed, freed) {
		give_runs(buffer);
		mutex_lock(&buffer->pool->lock);
		buffer->pool->nr_buffers--;
		mutex_unlock(&buffer->pool->lock);
		kvfree(buffer->runs);
		kfree(buffer);
		atomic_dec(&nr_dirty);
		wake_up_all(&cleaned);
	}
}

static DECLARE_WORK(clean_work, clean);

static int attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attached)
{
	struct buffer *buffer = dmabuf->priv;
	struct device *device = attached->dev;
	u64 reach = min_not_zero(dma_get_mask(device), device->bus_dma_limit);
	struct attachment *attachment;
	struct scatterlist *from, *to;
	unsigned int i;
	int err;

	/*
	 * Without an IOMMU a device that cannot put the address out would get a copy: say so
	 * instead.
	 */
	for (i = 0; i < buffer->nr_runs && !device_iommu_mapped(device); i++) {
		struct run run = buffer->runs[i];

		if (PFN_PHYS(run.pfn + run.count) - 1 > reach) {
			dev_err_ratelimited(device, "swath_heap: reaches %#llx, the buffer lies at %#llx\n",
					    reach, PFN_PHYS(run.pfn));
			return -ERANGE;
		}
	}
	attachment = kzalloc(sizeof(*attachment), GFP_KERNEL);
	if (!attachment)
		return -ENOMEM;
	err = sg_alloc_table(&attachment->table, buffer->table.orig_nents, GFP_KERNEL);
	if (err) {
		kfree(attachment);
		return err;
	}
	to = attachment->table.sgl;
	for_each_sgtable_sg(&buffer->table, from, i) {
		sg_set_page(to, sg_page(from), from->length, 0);
		to = sg_next(to);
	}
	attachment->device = device;
	attached->priv = attachment;
	mutex_lock(&buffer->lock);
	list_add(&attachment->node, &buffer->attachments);
	mutex_unlock(&buffer->lock);
	return 0;
}

static void detach(struct dma_buf *dmabuf, struct dma_buf_attachment *attached)
{
	struct buffer *buffer = dmabuf->priv;
	struct attachment *attachment = attached->priv;

	mutex_lock(&buffer->lock);
	list_del(&attachment->node);
	mutex_unlock(&buffer->lock);
	sg_free_table(&attachment->table);
	kfree(attachment);
}

static struct sg_table *map_dma(struct dma_buf_attachment *attached,
				enum dma_data_direction direction)
{
	struct attachment *attachment = attached->priv;
	struct buffer *buffer = attached->dmabuf->priv;
	int err = dma_map_sgtable(attachment->device, &attachment->table, direction, 0);

	if (err)
		return ERR_PTR(err);
	mutex_lock(&buffer->lock);
	attachment->mapped = true;
	mutex_unlock(&buffer->lock);
	return &attachment->table;
}

static void unmap_dma(struct dma_buf_attachment *attached, struct sg_table *table,
		      enum dma_data_direction direction)
{
	struct attachment *attachment = attached->priv;
	struct buffer *buffer = attached->dmabuf->priv;

	mutex_lock(&buffer->lock);
	attachment->mapped = false;
	mutex_unlock(&buffer->lock);
	dma_unmap_sgtable(attachment->device, table, direction, 0);
}

static int begin_cpu_access(struct dma_buf *dmabuf, enum dma_data_direction direction)
{
	struct buffer *buffer = dmabuf->priv;
	struct attachment *attachment;

	mutex_lock(&buffer->lock);
	if (buffer->vmaps)
		invalidate_kernel_vmap_range(buffer->vaddr, buffer->len);
	list_for_each_entry(attachment, &buffer->attachments, node)
		if (attachment->mapped)
			dma_sync_sgtable_for_cpu(attachment->device, &attachment->table, direction);
	mutex_unlock(&buffer->lock);
	return 0;
}

static int end_cpu_access(struct dma_buf *dmabuf, enum dma_data_direction direction)
{
	struct buffer *buffer = dmabuf->priv;
	struct attachment *attachment;

	mutex_lock(&buffer->lock);
	if (buffer->vmaps)
		flush_kernel_vmap_range(buffer->vaddr, buffer->len);
	list_for_each_entry(attachment, &buffer->attachments, node)
		if (attachment->mapped)
			dma_sync_sgtable_for_device(attachment->device, &attachment->table,
						    direction);
	mutex_unlock(&buffer->lock);
	return 0;
}

/* Frames that are mapped at once where no huge page can be. */
#define FAULT_FRAMES	16UL

/*
 * Returns the frame of a page of the buffer, and how many follow it in the same run; 0 behind
 * the last.
 */
static unsigned long frame_of(const struct buffer *buffer, unsigned long page, unsigned long *left)
{
	unsigned int i;

	for (i = 0; i < buffer->nr_runs; i++) {
		struct run run = buffer->runs[i];

		if (page < run.count) {
			*left = run.count - page;
			return run.pfn + page;
		}
		page -= run.count;
	}
	return 0;
}

static vm_fault_t fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	const struct buffer *buffer = vma->vm_private_data;
	unsigned long left, i, pfn = frame_of(buffer, vmf->pgoff, &left);
	vm_fault_t result = VM_FAULT_SIGBUS;

	if (!pfn)
		return result;
	left = min3(left, FAULT_FRAMES, (vma->vm_end - vmf->address) >> PAGE_SHIFT);
	for (i = 0; i < left; i++) {
		unsigned long address = (vmf->address & PAGE_MASK) + i * PAGE_SIZE;
		vm_fault_t next = vmf_insert_pfn(vma, address, pfn + i);

		/* That a page behind the first is not there yet is no fault. */
		if (!i)
			result = next;
		if (next != VM_FAULT_NOPAGE)
			break;
	}
	return result;
}

#ifdef CONFIG_TRANSPARENT_HUGEPAGE
/*
 * Maps 2 MiB at once, where addresses and frames are aligned to it together and the run goes
 * so far.
 */
static vm_fault_t huge_fault(struct vm_fault *vmf, unsigned int order)
{
	struct vm_area_struct *vma = vmf->vma;
	unsigned long address = vmf->address & PMD_MASK, left, pfn;

	if (order != PMD_ORDER || address < vma->vm_start || address + PMD_SIZE > vma->vm_end)
		return VM_FAULT_FALLBACK;
	pfn = frame_of(vma->vm_private_data, linear_page_index(vma, address), &left);
	if (!pfn || pfn % (1UL << PMD_ORDER) || left < 1UL << PMD_ORDER)
		return VM_FAULT_FALLBACK;
	return vmf_insert_pfn_pmd(vmf, __pfn_to_pfn_t(pfn, PFN_DEV), vmf->flags & FAULT_FLAG_WRITE);
}
#endif

static const struct vm_operations_struct user_ops = {
	.fault = fault,
#ifdef CONFIG_TRANSPARENT_HUGEPAGE
	.huge_fault = huge_fault,
#endif
};

static int map_user(struct dma_buf *dmabuf, struct vm_area_struct *vma)
{
	/* A private mapping would copy pages away from the device. */
	if (!(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	vm_flags_set(vma, VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP);
	vma->vm_ops = &user_ops;
	/* The mapping holds the file, and that the buffer. */
	vma->vm_private_data = dmabuf->priv;
	return 0;
}

static void *map_kernel(struct buffer *buffer)
{
	unsigned long count = buffer->len >> PAGE_SHIFT, at = 0, k;
	struct page **pages;
	unsigned int i;
	void *vaddr;

	if (buffer->nr_runs == 1 && !PageHighMem(pfn_to_page(buffer->runs[0].pfn)))
		return page_address(pfn_to_page(buffer->runs[0].pfn));
	pages = kvmalloc_array(count, sizeof(*pages), GFP_KERNEL);
	if (!pages)
		return NULL;
	for (i = 0; i < buffer->nr_runs; i++)
		for (k = 0; k < buffer->runs[i].count && at < count; k++)
			pages[at++] = pfn_to_page(buffer->runs[i].pfn + k);
	vaddr = vmap(pages, count, VM_MAP, PAGE_KERNEL);
	kvfree(pages);
	return vaddr;
}

static int vmap_buffer(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct buffer *buffer = dmabuf->priv;
	int err = 0;

	mutex_lock(&buffer->lock);
	if (!buffer->vmaps)
		buffer->vaddr = map_kernel(buffer);
	if (buffer->vaddr) {
		buffer->vmaps++;
		iosys_map_set_vaddr(map, buffer->vaddr);
	} else {
		err = -ENOMEM;
	}
	mutex_unlock(&buffer->lock);
	return err;
}

static void vunmap_buffer(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct buffer *buffer = dmabuf->priv;

	mutex_lock(&buffer->lock);
	if (!--buffer->vmaps) {
		if (is_vmalloc_addr(buffer->vaddr))
			vunmap(buffer->vaddr);
		buffer->vaddr = NULL;
	}
	mutex_unlock(&buffer->lock);
	iosys_map_clear(map);
}

static void release(struct dma_buf *dmabuf)
{
	struct buffer *buffer = dmabuf->priv;

	sg_free_table(&buffer->table);
	mutex_destroy(&buffer->lock);
	atomic_inc(&nr_dirty);
	spin_lock(&dirty_lock);
	list_add_tail(&buffer->freed, &dirty);
	spin_unlock(&dirty_lock);
	queue_work(cleaner, &clean_work);
}

static const struct dma_buf_ops buffer_ops = {
	.attach = attach,
	.detach = detach,
	.map_dma_buf = map_dma,
	.unmap_dma_buf = unmap_dma,
	.begin_cpu_access = begin_cpu_access,
	.end_cpu_access = end_cpu_access,
	.mmap = map_user,
	.vmap = vmap_buffer,
	.vunmap = vunmap_buffer,
	.release = release,
};

/*
 * Allocates a run; if there is none, waits until one of the buffers is zeroed that were freed,
 * and tries again as long as there are such.
 */
static int allocate(struct pool *pool, const struct place *place, bool shorter, struct run *run)
{
	for (;;) {
		u64 frees = READ_ONCE(pool->frees);
		bool may_come = atomic_read(&nr_dirty);
		int err = pool_allocate(pool, place, shorter, run);

		if ((err != -ENOSPC && err != -EBUSY) || !may_come)
			return err;
		err = wait_event_killable(cleaned,
					  READ_ONCE(pool->frees) != frees ||
					  !atomic_read(&nr_dirty));
		if (err)
			return -EINTR;
	}
}

static int fill(struct buffer *buffer, const struct place *place, bool scatter)
{
	struct place rest = *place;
	struct run *more;
	struct run run;
	int err;

	err = allocate(buffer->pool, place, false, &run);
	if ((err == -ENOSPC || err == -EBUSY) && scatter)
		err = allocate(buffer->pool, place, true, &run);
	while (!err) {
		more = kvrealloc(buffer->runs, (buffer->nr_runs + 1) * sizeof(run), GFP_KERNEL);
		if (!more) {
			pool_free(buffer->pool, run);
			return -ENOMEM;
		}
		buffer->runs = more;
		more[buffer->nr_runs++] = run;
		if (run.count >= rest.count)
			return 0;
		rest.count -= run.count;
		err = allocate(buffer->pool, &rest, true, &run);
	}
	return err;
}

static int make_table(struct buffer *buffer)
{
	unsigned int per_run = 0, i, entries = 0;
	struct scatterlist *entry;
	size_t left = buffer->len;
	int err;

	/* An entry's length is an unsigned int. */
	for (i = 0; i < buffer->nr_runs; i++)
		entries += DIV_ROUND_UP(buffer->runs[i].count << PAGE_SHIFT, (unsigned long)SZ_1G);
	err = sg_alloc_table(&buffer->table, entries, GFP_KERNEL);
	if (err)
		return err;
	entry = buffer->table.sgl;
	for (i = 0; i < buffer->nr_runs; i++) {
		struct run run = buffer->runs[i];

		for (per_run = 0; run.count; per_run++) {
			unsigned long frames = min(run.count, SZ_1G >> PAGE_SHIFT);

			size_t bytes = min(left, frames << PAGE_SHIFT);

			sg_set_page(entry, pfn_to_page(run.pfn), bytes, 0);
			left -= bytes;
			run.pfn += frames;
			run.count -= frames;
			entry = sg_next(entry);
		}
	}
	return 0;
}

/* Counts why a request failed, and returns what its user is told. */
static int count_failure(struct pool *pool, const struct place *place, int err)
{
	switch (err) {
	case -EBUSY:
		pool_failed(pool, FAILED_MIGRATION);
		return -ENOSPC;
	case -ENOSPC:
		pool_failed(pool, place->count > pool_free_frames(pool) ? FAILED_FRAMES :
										  FAILED_RUN);
		return -ENOSPC;
	case -EINVAL:
	case -EOPNOTSUPP:
		pool_failed(pool, FAILED_ARGUMENT);
		return err;
	default:
		return err;
	}
}

/**
 * buffer_create() - makes a buffer, zeroed
 * @pool:     where it is to lie
 * @len:      bytes, whole pages
 * @place:    its limits
 * @scatter:  several runs will do
 * @fd_flags: of its file
 */
struct dma_buf *buffer_create(struct pool *pool, size_t len, const struct place *place,
			      bool scatter, int fd_flags)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct buffer *buffer = kzalloc(sizeof(*buffer), GFP_KERNEL);
	struct dma_buf *dmabuf;
	unsigned int i;
	int err;

	if (!buffer)
		return ERR_PTR(-ENOMEM);
	buffer->pool = pool;
	buffer->len = len;
	mutex_init(&buffer->lock);
	INIT_LIST_HEAD(&buffer->attachments);
	err = fill(buffer, place, scatter);
	if (!err)
		err = make_table(buffer);
	if (err)
		goto free;
	info.exp_name = "swath";
	info.ops = &buffer_ops;
	info.size = len;
	info.flags = fd_flags;
	info.priv = buffer;
	dmabuf = dma_buf_export(&info);
	if (IS_ERR(dmabuf)) {
		err = PTR_ERR(dmabuf);
		sg_free_table(&buffer->table);
		goto free;
	}
	mutex_lock(&pool->lock);
	pool->nr_buffers++;
	mutex_unlock(&pool->lock);
	return dmabuf;
free:
	/* Nobody has written to them. */
	for (i = 0; i < buffer->nr_runs; i++)
		pool_free(pool, buffer->runs[i]);
	kvfree(buffer->runs);
	kfree(buffer);
	return ERR_PTR(count_failure(pool, place, err));
}

/* Copies the runs of a buffer of this heap, which the caller frees with kvfree(). */
int buffer_extents(int fd, struct run **runs, unsigned int *count)
{
	struct dma_buf *dmabuf = dma_buf_get(fd);
	struct buffer *buffer;
	int err = 0;

	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	if (dmabuf->ops == &buffer_ops) {
		buffer = dmabuf->priv;
		*count = buffer->nr_runs;
		*runs = kvmemdup(buffer->runs, *count * sizeof(**runs), GFP_KERNEL);
		if (!*runs)
			err = -ENOMEM;
	} else {
		err = -EINVAL;
	}
	dma_buf_put(dmabuf);
	return err;
}

int buffers_init(void)
{
	cleaner = alloc_workqueue("swath_heap", WQ_UNBOUND, 1);
	return cleaner ? 0 : -ENOMEM;
}

/* Waits until the last freed buffer is free. */
void buffers_exit(void)
{
	destroy_workqueue(cleaner);
}
