/* What a buffer's backing costs whom it is registered with, without a device: io_uring's registered
 * buffers, mlock, the entries of a list of mappings as VFIO makes it, and random updates.
 *
 * registered 4k|thp|2m|1g|malloc MEBIBYTES
 *
 * Prints: nanoseconds to make and write the buffer, to register it, to unregister it, to lock it, runs
 * of physical memory, entries of an IOMMU's tables with pages of 4 KiB, 2 MiB and 1 GiB, and updates a
 * second. -1 is what this machine does not let it know. Ends with 3 where there is no such backing. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

enum { PAGE = 4096, REGISTERED_MAX_MIB = 1024 };

static double now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Addresses of a backing, aligned to its pages where they are huge. */
static char *back(const char *how, size_t len) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS, access = PROT_READ | PROT_WRITE;
    if (!strcmp(how, "malloc")) return (char *)malloc(len);
    if (!strcmp(how, "2m") || !strcmp(how, "1g")) {
        int shift = how[0] == '2' ? 21 : 30;
        char *at = (char *)mmap(NULL, len, access, flags | MAP_HUGETLB | shift << 26, -1, 0);
        return at == MAP_FAILED ? NULL : at;
    }
    const size_t align = (size_t)1 << 21;
    char *at = (char *)mmap(NULL, len + align, access, flags | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return NULL;
    at += align - ((uintptr_t)at & (align - 1));
    madvise(at, len, strcmp(how, "thp") ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    return at;
}

/* Registers the buffer with a ring, and unregisters it. */
static void register_buffer(char *at, size_t len, double *in_ns, double *out_ns) {
    struct io_uring_params parameters = {0};
    *in_ns = *out_ns = -1;
    int ring = (int)syscall(SYS_io_uring_setup, 1, &parameters);
    if (ring < 0) return;
    struct iovec buffer = {at, len};
    double start = now_ns();
    if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &buffer, 1) == 0) {
        double registered = now_ns();
        syscall(SYS_io_uring_register, ring, IORING_UNREGISTER_BUFFERS, NULL, 0);
        *in_ns = registered - start;
        *out_ns = now_ns() - registered;
    }
    close(ring);
}

static double lock_ns(char *at, size_t len) {
    double start = now_ns();
    if (mlock(at, len) != 0) return -1;
    double locked = now_ns() - start;
    munlock(at, len);
    return locked;
}

/* Runs of physical memory, and the fewest entries for them: each as large a page as both addresses are
 * aligned to, in bytes from the buffer's start on the device's side. */
static void count_entries(char *at, size_t len, double *runs, double *entries) {
    size_t pages = len / PAGE;
    uint64_t *words = (uint64_t *)must(
        mmap(NULL, pages * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    int map = open("/proc/self/pagemap", O_RDONLY);
    *runs = *entries = -1;
    ssize_t got = map < 0 ? 0 : pread(map, words, pages * 8, (off_t)((uintptr_t)at / PAGE * 8));
    int known = got == (ssize_t)(pages * 8);
    for (size_t i = 0; known && i < pages; i++) {
        words[i] = words[i] >> 63 ? words[i] & (((uint64_t)1 << 55) - 1) : 0;
        known = words[i] != 0;
    }
    if (known) {
        *runs = *entries = 0;
        for (size_t first = 0; first < pages;) {
            size_t past = first + 1;
            while (past < pages && words[past] == words[past - 1] + 1) past++;
            *runs += 1;
            while (first < past) {
                size_t step = (size_t)1 << 18;
                while (step > 1 && ((first | words[first]) % step || past - first < step))
                    step = step > 512 ? 512 : 1;
                *entries += 1;
                first += step;
            }
        }
    }
    if (map >= 0) close(map);
    munmap(words, pages * 8);
}

/* Random updates of words, a second. */
static double updates(char *at, size_t len) {
    const unsigned long count = 1ul << 23;
    uint64_t *words = (uint64_t *)(void *)at, random = 1, mask = len / 8;
    while (mask & (mask - 1)) mask &= mask - 1;
    mask--;
    double start = now_ns();
    for (unsigned long i = 0; i < count; i++) {
        uint64_t next = next_random(&random);
        words[next & mask] ^= next;
    }
    return (double)count / (now_ns() - start) * 1e9;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "4k";
    size_t mib = argument(argc, argv, 2, 256), len = mib << 20;
    if (mib == 0 || mib > REGISTERED_MAX_MIB) fail("1 to 1024 MiB");
    double start = now_ns();
    char *at = back(how, len);
    if (at == NULL) {
        fprintf(stderr, "%s\n", strerror(errno));
        return 3;
    }
    for (size_t page = 0; page < len; page += PAGE) at[page] = 1;
    double made_ns = now_ns() - start, in_ns, out_ns, runs, entries;
    char *first = (char *)(((uintptr_t)at + PAGE - 1) / PAGE * PAGE);
    len -= (size_t)(first - at) + (len - (size_t)(first - at)) % PAGE;
    count_entries(first, len, &runs, &entries);
    register_buffer(first, len, &in_ns, &out_ns);
    double locked_ns = lock_ns(first, len);
    printf("%.0f %.0f %.0f %.0f %.0f %.0f %.0f\n", made_ns, in_ns, out_ns, locked_ns, runs, entries,
           updates(first, len));
    return 0;
}
