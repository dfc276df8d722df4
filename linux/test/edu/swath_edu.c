// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * A user of dma-bufs for tests: the emulator's PCI device `edu`, whose DMA engine puts out 28 bits of
 * address, copies pages of a buffer. /dev/swath_edu takes a request by ioctl.
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/io.h>
#include <linux/iopoll.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/scatterlist.h>
#include <linux/uaccess.h>

#define EDU_SOURCE	0x80
#define EDU_TARGET	0x88
#define EDU_COUNT	0x90
#define EDU_COMMAND	0x98
#define EDU_START	1
#define EDU_TO_MEMORY	2
#define EDU_BUFFER	0x40000
/* Half of the device's buffer: the emulator refuses a transfer of the whole. */
#define EDU_BYTES	(PAGE_SIZE / 2)

/* Copies the page at @from to the page at @to, both byte offsets into the buffer of @fd. */
struct edu_copy {
	__u32 fd;
	__u32 pad;
	__u64 from;
	__u64 to;
};

#define EDU_COPY	_IOW('E', 1, struct edu_copy)

static struct {
	struct pci_dev *pci;
	void __iomem *registers;
	struct mutex lock;
} edu;

static int transfer(dma_addr_t source, dma_addr_t target, u64 command)
{
	u64 left;

	writeq(source, edu.registers + EDU_SOURCE);
	writeq(target, edu.registers + EDU_TARGET);
	writeq(EDU_BYTES, edu.registers + EDU_COUNT);
	writeq(EDU_START | command, edu.registers + EDU_COMMAND);
	return readq_poll_timeout(edu.registers + EDU_COMMAND, left, !(left & EDU_START), 1000, 10000000);
}

/* Returns the device's address of a page of a mapped buffer; 0 if the buffer is not so long. */
static dma_addr_t address_of(struct sg_table *table, u64 offset)
{
	struct scatterlist *entry;
	unsigned int i;

	for_each_sgtable_dma_sg(table, entry, i) {
		if (offset < sg_dma_len(entry))
			return sg_dma_address(entry) + offset;
		offset -= sg_dma_len(entry);
	}
	return 0;
}

static int copy(struct edu_copy *asked)
{
	struct dma_buf *dmabuf = dma_buf_get(asked->fd);
	struct dma_buf_attachment *attached;
	struct sg_table *table;
	dma_addr_t from, to;
	int err;

	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	attached = dma_buf_attach(dmabuf, &edu.pci->dev);
	if (IS_ERR(attached)) {
		err = PTR_ERR(attached);
		goto put;
	}
	table = dma_buf_map_attachment_unlocked(attached, DMA_BIDIRECTIONAL);
	if (IS_ERR(table)) {
		err = PTR_ERR(table);
		goto detach;
	}
	from = address_of(table, asked->from);
	to = address_of(table, asked->to);
	err = -EINVAL;
	if (from && to) {
		unsigned int done;

		mutex_lock(&edu.lock);
		for (done = 0, err = 0; !err && done < PAGE_SIZE; done += EDU_BYTES) {
			err = transfer(from + done, EDU_BUFFER, 0);
			if (!err)
				err = transfer(EDU_BUFFER, to + done, EDU_TO_MEMORY);
		}
		mutex_unlock(&edu.lock);
	}
	dma_buf_unmap_attachment_unlocked(attached, table, DMA_BIDIRECTIONAL);
detach:
	dma_buf_detach(dmabuf, attached);
put:
	dma_buf_put(dmabuf);
	return err;
}

static long control(struct file *file, unsigned int command, unsigned long argument)
{
	struct edu_copy asked;

	if (command != EDU_COPY)
		return -ENOTTY;
	if (copy_from_user(&asked, (void __user *)argument, sizeof(asked)))
		return -EFAULT;
	return copy(&asked);
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = control,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "swath_edu",
	.fops = &operations,
};

static int probe(struct pci_dev *pci, const struct pci_device_id *id)
{
	int err = pcim_enable_device(pci);

	if (!err)
		err = pcim_iomap_regions(pci, 1, "swath_edu");
	if (!err)
		err = dma_set_mask_and_coherent(&pci->dev, DMA_BIT_MASK(28));
	if (err)
		return err;
	pci_set_master(pci);
	mutex_init(&edu.lock);
	edu.pci = pci;
	edu.registers = pcim_iomap_table(pci)[0];
	return misc_register(&device);
}

static void leave(struct pci_dev *pci)
{
	misc_deregister(&device);
}

static const struct pci_device_id IDS[] = {
	{ PCI_DEVICE(0x1234, 0x11e8) },
	{}
};
MODULE_DEVICE_TABLE(pci, IDS);

static struct pci_driver edu_driver = {
	.name = "swath_edu",
	.id_table = IDS,
	.probe = probe,
	.remove = leave,
};
module_pci_driver(edu_driver);

MODULE_DESCRIPTION("Copies pages of dma-bufs by the emulator's edu device");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_IMPORT_NS(DMA_BUF);
