/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* For swath.h, which is written for a C compiler's own headers: the kernel has its types elsewhere. */
#include <linux/types.h>
