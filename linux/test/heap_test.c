// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Requests to a dma-heap, and checks of what it gives. Runs in the guest of `cargo xtask linux`, against
 * Swath's heap or the kernel's own.
 *
 *   heap_test HEAP availability BYTES COUNT      of COUNT buffers held together, how many are one run
 *   heap_test HEAP latency BYTES COUNT           microseconds of an allocation: median, 99th percentile
 *   heap_test HEAP rate BYTES COUNT              the same, one allocation and free after the other
 *   heap_test HEAP random COUNT SEED USERS       allocations and frees at random by several programs: no frame
 *                                                twice, zeroed
 *   heap_test HEAP limits                        flags: what they promise, and what is refused
 *   heap_test HEAP mappings                      buffers as programs see them
 *   heap_test HEAP device SEED                   an emulated device copies through buffers that it reaches
 *   heap_test HEAP full MISSING                  all but MISSING MiB is taken, refused, given back, taken again
 *   heap_test HEAP pressure KEEP                 the system takes unused chunks, but KEEP MiB, and the heap takes
 *                                                them again
 *   heap_test HEAP units FRAMES                  buffers are whole units
 *   heap_test HEAP most BYTES                    no buffer is larger
 *   heap_test HEAP opens GID                     a user of the group may use the heap, one of another may not
 *   heap_test HEAP hold BYTES                    one buffer, until it is killed
 *   heap_test HEAP killed COUNT SEED             users that are killed with buffers in use
 *   heap_test - fragment PERCENT SEED            memory in pieces, until it is killed
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/dma-buf.h>
#include <linux/dma-heap.h>

#include "swath_heap.h"

#define FRAME 4096ull
#define CHECK(what) ((what) ? (void)0 : fail(__LINE__, #what))

static int heap = -1;
static bool swaths;

static void fail(int line, const char *what)
{
	fprintf(stderr, "heap_test.c:%d: %s does not hold (%s)\n", line, what, strerror(errno));
	exit(1);
}

static uint64_t state;

/* xorshift64*, of which the upper bits are random. */
static uint64_t below(uint64_t n)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return (state * 0x2545F4914F6CDD1Dull >> 11) % n;
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

/* Returns a buffer's descriptor, or -errno. */
static int allocate(uint64_t len, uint64_t flags)
{
	struct dma_heap_allocation_data data = {
		.len = len, .fd_flags = O_RDWR | O_CLOEXEC, .heap_flags = flags,
	};

	return ioctl(heap, DMA_HEAP_IOCTL_ALLOC, &data) ? -errno : (int)data.fd;
}

/* Writes a buffer's runs, and returns how many they are. */
static uint32_t extents_of(int fd, struct swath_heap_extent *extents, uint32_t room)
{
	struct swath_heap_extents asked = {
		.fd = fd, .room = room, .extents = (uintptr_t)extents,
	};

	CHECK(!ioctl(heap, SWATH_HEAP_IOCTL_EXTENTS, &asked));
	return asked.count;
}

static uint64_t *map(int fd, uint64_t len)
{
	void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	CHECK(at != MAP_FAILED);
	return at;
}

static void sync_buffer(int fd, uint64_t flags)
{
	struct dma_buf_sync sync = { .flags = flags | DMA_BUF_SYNC_RW };

	CHECK(!ioctl(fd, DMA_BUF_IOCTL_SYNC, &sync));
}

static uint64_t read_number(const char *path, const char *name)
{
	FILE *file = fopen(path, "r");
	char line[256];
	uint64_t value = UINT64_MAX;

	CHECK(file);
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, name, strlen(name)))
			value = strtoull(line + strlen(name), NULL, 0);
	fclose(file);
	CHECK(value != UINT64_MAX);
	return value;
}

static void availability(uint64_t len, unsigned count)
{
	unsigned given = 0, one = 0;
	double start, us;
	int fds[count];

	/* What the last user left may still be being zeroed. */
	while (swaths && read_number("/proc/swath_heap", "buffers "))
		usleep(1000);
	start = now_us();
	for (unsigned i = 0; i < count; i++) {
		fds[i] = allocate(len, 0);
		given += fds[i] >= 0;
	}
	us = now_us() - start;
	/* The kernel's CMA heap gives one run or nothing. */
	for (unsigned i = 0; i < count; i++)
		one += fds[i] >= 0 && (!swaths || extents_of(fds[i], NULL, 0) == 1);
	printf("availability bytes %" PRIu64 " asked %u given %u one_run %u us_each %.1f\n", len, count, given, one,
	       us / count);
	for (unsigned i = 0; i < count; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void latency(const char *name, uint64_t len, unsigned count, bool pauses)
{
	double *us = calloc(count, sizeof(*us));
	unsigned given = 0;

	CHECK(us);
	for (unsigned i = 0; i < count; i++) {
		double start;
		int fd;

		/* With pauses, what the last user left is zeroed meanwhile. */
		while (pauses && swaths && read_number("/proc/swath_heap", "buffers "))
			usleep(1000);
		start = now_us();
		fd = allocate(len, 0);
		if (fd < 0)
			continue;
		us[given++] = now_us() - start;
		close(fd);
		if (pauses)
			usleep(2000);
	}
	qsort(us, given, sizeof(*us), ascending);
	if (given)
		printf("%s bytes %" PRIu64 " asked %u given %u p50_us %.1f p99_us %.1f max_us %.1f\n", name, len,
		       count, given, us[given / 2], us[given * 99 / 100], us[given - 1]);
	else
		printf("%s bytes %" PRIu64 " asked %u given 0\n", name, len, count);
	free(us);
}

struct held {
	int fd;
	uint64_t *at;
	uint64_t len;
	uint64_t stamp;
	uint32_t count;
	struct swath_heap_extent *extents;
};

/* A bit for each physical frame that is out, of all programs; the guest's memory ends below 64 GiB. */
#define OUT_BYTES ((64ull << 30) / FRAME / 8)
static uint8_t *out;

static void mark(const struct held *held, bool is_out)
{
	for (uint32_t i = 0; i < held->count; i++) {
		uint64_t frame = held->extents[i].address / FRAME;
		uint64_t end = frame + held->extents[i].len / FRAME;

		CHECK(end <= OUT_BYTES * 8);
		for (; frame < end; frame++) {
			uint8_t bit = 1 << frame % 8;
			uint8_t was = __atomic_fetch_xor(&out[frame / 8], bit, __ATOMIC_SEQ_CST);

			CHECK(!!(was & bit) != is_out);
		}
	}
}

/* Words of a page that a buffer's stamp is written to. */
static void stamp(struct held *held)
{
	for (uint64_t i = 0; i < held->len / 8; i += 64)
		held->at[i] = held->stamp ^ i;
}

static void check_stamp(const struct held *held)
{
	for (uint64_t i = 0; i < held->len / 8; i += 64)
		CHECK(held->at[i] == (held->stamp ^ i));
}

static void drop(struct held *held)
{
	check_stamp(held);
	mark(held, false);
	munmap(held->at, held->len);
	close(held->fd);
	free(held->extents);
	held->at = NULL;
}

/* Mostly short buffers, one in eight up to 16 MiB. */
static uint64_t some_pages(void)
{
	uint64_t pages = 1ull << (below(8) ? below(6) : below(12));

	return pages + below(pages);
}

static void random_steps(unsigned count, uint64_t seed)
{
	enum { SLOTS = 512 };
	static struct held held[SLOTS];
	unsigned given = 0, refused = 0, scattered = 0;

	state = seed * 2 + 1;
	for (unsigned i = 0; i < count; i++) {
		struct held *slot = &held[below(SLOTS)];
		uint64_t pages = some_pages(), flags = below(2) ? SWATH_HEAP_SCATTER : 0;
		int fd;

		if (i && i % 10000 == 0)
			printf("random step %u\n", i);
		if (slot->at) {
			drop(slot);
			continue;
		}
		fd = allocate(pages * FRAME, flags);
		if (fd < 0) {
			CHECK(fd == -ENOSPC);
			refused++;
			continue;
		}
		given++;
		slot->fd = fd;
		slot->len = pages * FRAME;
		slot->at = map(fd, slot->len);
		slot->stamp = seed << 32 ^ i;
		/* A buffer may have as many runs as pages. */
		slot->count = extents_of(fd, NULL, 0);
		CHECK(slot->count >= 1 && slot->count <= pages && (flags || slot->count == 1));
		slot->extents = calloc(slot->count, sizeof(*slot->extents));
		CHECK(slot->extents && extents_of(fd, slot->extents, slot->count) == slot->count);
		scattered += slot->count > 1;
		mark(slot, true);
		for (uint64_t k = 0; k < slot->len / 8; k += 64)
			CHECK(slot->at[k] == 0);
		stamp(slot);
	}
	for (unsigned i = 0; i < SLOTS; i++)
		if (held[i].at)
			drop(&held[i]);
	printf("random steps %u seed %" PRIu64 " given %u refused %u scattered %u\n", count, seed, given, refused,
	       scattered);
}

/* Several programs at once, which share the bits of frames. */
static void random_users(unsigned count, uint64_t seed, unsigned users)
{
	out = mmap(NULL, OUT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(out != MAP_FAILED);
	fflush(NULL);
	for (unsigned user = 0; user < users; user++) {
		pid_t child = fork();

		CHECK(child >= 0);
		if (!child) {
			random_steps(count / users, seed + user);
			exit(0);
		}
	}
	for (unsigned user = 0; user < users; user++) {
		int status;

		CHECK(wait(&status) >= 0 && WIFEXITED(status) && !WEXITSTATUS(status));
	}
}

/* Returns true if an area has room for a buffer at a multiple of 2^shift bytes. */
static bool has_place(unsigned shift, uint64_t len)
{
	FILE *file = fopen("/proc/swath_heap", "r");
	uint64_t start, size;
	char line[256];
	bool found = false;

	CHECK(file);
	while (fgets(line, sizeof(line), file)) {
		uint64_t first;

		if (sscanf(line, "area %" SCNx64 " %" SCNx64, &start, &size) != 2)
			continue;
		first = (start + (1ull << shift) - 1) >> shift << shift;
		found |= first + len <= start + size;
	}
	fclose(file);
	return found;
}

/* Alignments and boundaries beyond a chunk: met, or refused where no area has such a place. */
static void far_limits(void)
{
	const uint64_t len = 3 << 20;
	struct swath_heap_extent extent;
	bool on_demand = read_number("/proc/swath_heap", "held_bytes") < read_number("/proc/swath_heap", "total_bytes");

	for (unsigned shift = 22; shift <= 30; shift++) {
		int fd = allocate(len, SWATH_HEAP_ALIGN(shift));

		printf("limits align %u %s\n", shift, fd >= 0 ? "given" : strerror(-fd));
		if (fd >= 0) {
			CHECK(extents_of(fd, &extent, 1) == 1 && extent.address % (1ull << shift) == 0);
			CHECK(has_place(shift, len));
			close(fd);
		} else {
			/* On demand the system may not leave the only place that there is. */
			CHECK(fd == -ENOSPC && (on_demand || !has_place(shift, len)));
		}
		for (unsigned i = 0; i < 8; i++) {
			fd = allocate(len, SWATH_HEAP_BOUNDARY(shift));
			CHECK(fd >= 0 && extents_of(fd, &extent, 1) == 1);
			CHECK(extent.address >> shift == (extent.address + extent.len - 1) >> shift);
			/* Kept, so that the next lies elsewhere. */
			CHECK(dup2(fd, 100 + i) == 100 + (int)i && !close(fd));
		}
		for (unsigned i = 0; i < 8; i++)
			close(100 + i);
		while (read_number("/proc/swath_heap", "buffers "))
			usleep(1000);
	}
}

static void limits(void)
{
	struct swath_heap_extent extent;
	struct swath_heap_extents wrong = { .fd = STDIN_FILENO };
	uint64_t *at;
	int fd;

	/* What no heap takes. */
	CHECK(allocate(0, 0) == -EINVAL);
	CHECK(allocate(1ull << 50, 0) == -EINVAL);
	CHECK(allocate(UINT64_MAX, 0) == -EINVAL);
	CHECK(allocate(FRAME, 1ull << 40) == -EINVAL);
	CHECK(allocate(FRAME, SWATH_HEAP_ALIGN(31)) == -EINVAL);
	CHECK(allocate(FRAME, SWATH_HEAP_BOUNDARY(31)) == -EINVAL);
	CHECK(allocate(FRAME, SWATH_HEAP_ADDRESS_BITS(12)) == -EINVAL);
	CHECK(allocate(3 * FRAME, SWATH_HEAP_BOUNDARY(13)) == -EINVAL);
	CHECK(ioctl(heap, SWATH_HEAP_IOCTL_EXTENTS, &wrong) && errno == EINVAL);
	wrong.fd = 999;
	CHECK(ioctl(heap, SWATH_HEAP_IOCTL_EXTENTS, &wrong) && errno == EBADF);
	CHECK(ioctl(heap, SWATH_HEAP_IOCTL_EXTENTS, NULL) && errno == EFAULT);
	CHECK(ioctl(heap, _IO('H', 0x77)) && errno == ENOTTY);

	/* A length is rounded up to pages. */
	fd = allocate(100, 0);
	CHECK(fd >= 0 && extents_of(fd, &extent, 1) == 1 && extent.len % FRAME == 0);
	CHECK(mmap(NULL, FRAME, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0) == MAP_FAILED);
	CHECK(lseek(fd, 0, SEEK_END) == (off_t)FRAME);
	at = map(fd, FRAME);
	sync_buffer(fd, DMA_BUF_SYNC_START);
	at[0] = 7;
	sync_buffer(fd, DMA_BUF_SYNC_END);
	/* Memory is the mapping's until that ends, whoever closes the file. */
	close(fd);
	CHECK(at[0] == 7);
	munmap(at, FRAME);

	for (unsigned shift = 12; shift <= 21; shift++) {
		fd = allocate(FRAME << (shift - 12), SWATH_HEAP_ALIGN(shift));
		CHECK(fd >= 0 && extents_of(fd, &extent, 1) == 1);
		CHECK(extent.address % (1ull << shift) == 0);
		close(fd);
		fd = allocate(FRAME, SWATH_HEAP_BOUNDARY(shift));
		if (fd == -EOPNOTSUPP)
			continue;
		CHECK(fd >= 0);
		close(fd);
		fd = allocate(FRAME << (shift - 12), SWATH_HEAP_BOUNDARY(shift));
		CHECK(fd >= 0 && extents_of(fd, &extent, 1) == 1);
		CHECK(extent.address >> shift == (extent.address + extent.len - 1) >> shift);
		close(fd);
	}
	for (unsigned bits = 24; bits <= 36; bits += 4) {
		fd = allocate(16 * FRAME, SWATH_HEAP_ADDRESS_BITS(bits));
		printf("limits address_bits %u %s\n", bits, fd >= 0 ? "given" : strerror(-fd));
		if (fd < 0) {
			CHECK(fd == -ENOSPC || fd == -EOPNOTSUPP);
			continue;
		}
		CHECK(extents_of(fd, &extent, 1) == 1 && extent.address + extent.len <= 1ull << bits);
		close(fd);
	}
	far_limits();
	printf("limits hold\n");
}

static long faults(void)
{
	struct rusage usage;

	CHECK(!getrusage(RUSAGE_SELF, &usage));
	return usage.ru_minflt;
}

/* A program's mapping, with huge pages where they fit, and of parts of a buffer. */
static void mappings(void)
{
	const uint64_t huge = 2 << 20, len = 8 * huge;
	int fd = allocate(len, SWATH_HEAP_ALIGN(21));
	char *room = mmap(NULL, len + 2 * huge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *aligned = (char *)(((uintptr_t)room + huge - 1) / huge * huge);
	char *const places[] = { aligned, aligned + FRAME };

	CHECK(fd >= 0 && room != MAP_FAILED);
	for (unsigned i = 0; i < 2; i++) {
		char *at = mmap(places[i], len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
		long before = faults(), taken;

		CHECK(at == places[i]);
		for (uint64_t k = 0; k < len; k += FRAME) {
			CHECK(at[k] == (i ? (char)(k / FRAME) : 0));
			at[k] = k / FRAME;
		}
		taken = faults() - before;
		printf("mappings %s: %ld faults for %" PRIu64 " MiB\n", i ? "not aligned" : "aligned", taken,
		       len >> 20);
		CHECK(taken <= (i ? 300 : 16));
		/* A part less, a part for reading, and a part of the file. */
		CHECK(!munmap(at + huge, FRAME) && !mprotect(at + 2 * huge, FRAME, PROT_READ));
		CHECK(at[2 * huge] == 0 && at[2 * huge + FRAME] == 1);
		at[2 * huge + FRAME] = 1;
		CHECK(mmap(at, FRAME, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 5 * FRAME) == at && at[0] == 5);
		CHECK(mmap(at, FRAME, PROT_READ, MAP_SHARED | MAP_FIXED, fd, len) == MAP_FAILED);
	}
	munmap(room, len + 2 * huge);
	close(fd);
}

struct edu_copy {
	uint32_t fd;
	uint32_t pad;
	uint64_t from;
	uint64_t to;
};

/* The device puts out 28 bits of address: buffers below reach it, others are refused, not copied. */
static void device(uint64_t seed)
{
	enum { PAGES = 700, COPIES = 8 };
	int edu = open("/dev/swath_edu", O_RDWR | O_CLOEXEC), fd;
	uint64_t *at;

	CHECK(edu >= 0);
	state = seed * 2 + 1;
	fd = allocate(PAGES * FRAME, SWATH_HEAP_ADDRESS_BITS(28));
	CHECK(fd >= 0);
	at = map(fd, PAGES * FRAME);
	for (uint64_t i = 0; i < PAGES * FRAME / 8; i++)
		at[i] = seed ^ i * 0x9E3779B97F4A7C15ull;
	for (unsigned i = 0; i < COPIES; i++) {
		struct edu_copy copy = { .fd = fd, .from = below(PAGES) * FRAME, .to = below(PAGES) * FRAME };

		CHECK(!ioctl(edu, _IOW('E', 1, struct edu_copy), &copy));
		CHECK(!memcmp((char *)at + copy.from, (char *)at + copy.to, FRAME));
	}
	munmap(at, PAGES * FRAME);
	close(fd);
	/* Areas above 256 MiB are the larger part: some buffer lies there. */
	for (unsigned i = 0; i < 64; i++) {
		struct edu_copy copy = { .to = FRAME };
		struct swath_heap_extent extent;

		fd = allocate(4 << 20, 0);
		CHECK(fd >= 0 && extents_of(fd, &extent, 1) == 1);
		if (extent.address + extent.len <= 1 << 28)
			continue;
		copy.fd = fd;
		CHECK(ioctl(edu, _IOW('E', 1, struct edu_copy), &copy) && errno == ERANGE);
		printf("device copies %u, refuses %#" PRIx64 "\n", COPIES, (uint64_t)extent.address);
		return;
	}
	CHECK(!"a buffer above 256 MiB");
}

/* Takes single megabytes until there is none, twice; returns how many there were. */
static unsigned take_all(void)
{
	static int fds[1 << 16];
	unsigned count = 0;

	while ((fds[count] = allocate(1 << 20, 0)) >= 0)
		count++;
	CHECK(fds[count] == -ENOSPC);
	/* What is left is in pieces of less than a megabyte. */
	CHECK(allocate(64 << 20, SWATH_HEAP_SCATTER) == -ENOSPC);
	for (unsigned i = 0; i < count; i++)
		close(fds[i]);
	return count;
}

static void full(unsigned missing)
{
	uint64_t total = read_number("/proc/swath_heap", "total_bytes") >> 20;
	unsigned first, second;

	/* What the last user left is still being zeroed, and would stand in the way of whole megabytes. */
	while (read_number("/proc/swath_heap", "buffers "))
		usleep(10000);
	setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 65536, 65536 });
	first = take_all();
	second = take_all();
	printf("full MiB %" PRIu64 " first %u second %u\n", total, first, second);
	CHECK(first <= total && first + missing >= total);
	CHECK(second <= total && second + missing >= total);
}

static void pressure(uint64_t keep)
{
	uint64_t total = read_number("/proc/swath_heap", "total_bytes");
	uint64_t bytes = read_number("/proc/meminfo", "MemAvailable:") << 10;
	pid_t child = fork();
	uint64_t held;
	int fd, status;

	CHECK(child >= 0);
	if (!child) {
		/* All that is available and half of what the heap may give. */
		uint64_t len = bytes + (total - (keep << 20)) / 2;
		char *at = mmap(NULL, len, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		_exit(at == MAP_FAILED);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
	held = read_number("/proc/swath_heap", "held_bytes");
	CHECK(held < total && held >= keep << 20);
	fd = allocate(total / 2, SWATH_HEAP_SCATTER);
	CHECK(fd >= 0);
	printf("pressure held %" PRIu64 " of %" PRIu64 ", then %" PRIu64 " with half of it in use\n", held,
	       total, read_number("/proc/swath_heap", "held_bytes"));
}

static void killed(unsigned count, uint64_t seed)
{
	state = seed * 2 + 1;
	for (unsigned i = 0; i < count; i++) {
		unsigned steps = 1 + below(40);
		int ready[2];
		pid_t child;
		char byte;

		CHECK(!pipe(ready));
		child = fork();
		CHECK(child >= 0);
		if (!child) {
			for (unsigned k = 0;; k++) {
				uint64_t len = FRAME << below(9);
				int fd = allocate(len, SWATH_HEAP_SCATTER);

				if (fd >= 0)
					memset(map(fd, len), 1, len);
				if (k == steps && write(ready[1], "k", 1) != 1)
					_exit(1);
			}
		}
		close(ready[1]);
		CHECK(read(ready[0], &byte, 1) == 1);
		CHECK(!kill(child, SIGKILL) && waitpid(child, NULL, 0) == child);
		close(ready[0]);
	}
	printf("killed %u\n", count);
}

static void units(uint64_t frames)
{
	for (uint64_t pages = 1; pages <= 3 * frames + 1; pages += 1 + frames / 4) {
		struct swath_heap_extent extent;
		int fd = allocate(pages * FRAME, 0);

		CHECK(fd >= 0 && extents_of(fd, &extent, 1) == 1);
		CHECK(extent.address % (frames * FRAME) == 0);
		CHECK(extent.len == (pages + frames - 1) / frames * frames * FRAME);
		/* What a program sees is what it asked for. */
		CHECK(lseek(fd, 0, SEEK_END) == (off_t)(pages * FRAME));
		close(fd);
	}
	CHECK(read_number("/proc/swath_heap", "unit_bytes") == frames * FRAME);
	printf("units %" PRIu64 " frames\n", frames);
}

static void most(uint64_t bytes)
{
	int fd = allocate(bytes, 0);

	CHECK(fd >= 0 && !close(fd));
	CHECK(allocate(bytes + FRAME, 0) == -EDQUOT && allocate(2 * bytes, SWATH_HEAP_SCATTER) == -EDQUOT);
	printf("most %" PRIu64 " bytes\n", bytes);
}

/* Returns true if an ordinary user of a group can open the heap, have a buffer, and read the counts. */
static bool serves(const char *path, gid_t gid)
{
	pid_t child = fork();
	int status;

	CHECK(child >= 0);
	if (!child) {
		FILE *counts;

		CHECK(!setgroups(0, NULL) && !setgid(gid) && !setuid(1000));
		heap = open(path, O_RDONLY | O_CLOEXEC);
		counts = fopen("/proc/swath_heap", "r");
		CHECK(heap >= 0 || errno == EACCES);
		CHECK((heap >= 0) == (counts != NULL));
		_exit(heap < 0 || allocate(FRAME, 0) < 0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
	return !WEXITSTATUS(status);
}

static void opens(const char *path, gid_t gid)
{
	CHECK(serves(path, gid) && !serves(path, gid + 1));
	printf("opens for group %u alone\n", gid);
}

static void hold(uint64_t bytes)
{
	int fd = allocate(bytes, 0);

	CHECK(fd >= 0);
	printf("held\n");
	pause();
}

/* Fills memory with pages of several kinds, frees every other one at random, and keeps the rest. */
static void fragment(unsigned percent, uint64_t seed)
{
	uint64_t pages = sysconf(_SC_AVPHYS_PAGES) * (uint64_t)percent / 100;
	char *at = mmap(NULL, pages * FRAME, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned pipes = 0;

	CHECK(at != MAP_FAILED);
	state = seed * 2 + 1;
	/* EINVAL: a kernel without huge pages. */
	CHECK(!madvise(at, pages * FRAME, MADV_NOHUGEPAGE) || errno == EINVAL);
	for (uint64_t i = 0; i < pages; i++) {
		int ends[2];

		at[i * FRAME] = 1;
		/* A pipe's pages cannot be moved: one in a hundred. */
		if (below(100) || pipes >= 400 || pipe(ends))
			continue;
		pipes++;
		fcntl(ends[1], F_SETFL, O_NONBLOCK);
		for (int k = 0; k < 16; k++)
			if (write(ends[1], at, FRAME) < 0)
				break;
	}
	for (uint64_t i = 0; i < pages; i++)
		if (below(2))
			CHECK(!madvise(at + i * FRAME, FRAME, MADV_DONTNEED));
	printf("fragmented %" PRIu64 " pages %u pipes\n", pages, pipes);
	fflush(stdout);
	pause();
}

int main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[2] : "";
	uint64_t first = argc > 3 ? strtoull(argv[3], NULL, 0) : 0;
	uint64_t second = argc > 4 ? strtoull(argv[4], NULL, 0) : 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1 && strcmp(argv[1], "-")) {
		heap = open(argv[1], O_RDONLY | O_CLOEXEC);
		if (heap < 0) {
			perror(argv[1]);
			return 2;
		}
		swaths = strstr(argv[1], "swath") != NULL;
	}
	if (!strcmp(mode, "availability"))
		availability(first, second);
	else if (!strcmp(mode, "latency"))
		latency(mode, first, second, true);
	else if (!strcmp(mode, "rate"))
		latency(mode, first, second, false);
	else if (!strcmp(mode, "random"))
		random_users(first, second, argc > 5 ? strtoul(argv[5], NULL, 0) : 1);
	else if (!strcmp(mode, "limits"))
		limits();
	else if (!strcmp(mode, "mappings"))
		mappings();
	else if (!strcmp(mode, "device"))
		device(first);
	else if (!strcmp(mode, "full"))
		full(first);
	else if (!strcmp(mode, "pressure"))
		pressure(first);
	else if (!strcmp(mode, "killed"))
		killed(first, second);
	else if (!strcmp(mode, "units"))
		units(first);
	else if (!strcmp(mode, "most"))
		most(first);
	else if (!strcmp(mode, "opens"))
		opens(argv[1], first);
	else if (!strcmp(mode, "hold"))
		hold(first);
	else if (!strcmp(mode, "fragment"))
		fragment(first, second);
	else
		return 2;
	return 0;
}
