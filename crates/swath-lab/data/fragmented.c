/* Breaks the memory of a small machine up. Three kinds of owners take turns:
 * anonymous pages (movable), pages in pipes (unmovable) and empty files in /t
 * (reclaimable: inodes and names). In each wave one of them gives back a part of
 * what it has, and one or both of the others grow until little is free, so that
 * they have to fall back into the first one's pageblocks.
 *
 * fragment WAVES FREE_KIB SEED, where FREE_KIB is what they leave free. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

enum { ANON, PIPE, NAME, KINDS };
enum { PAGE = 4096, PAGES = 1 << 16, PIPES = 512, DEPTH = 64, NAMES = 1 << 17, PER_DIR = 512 };

static uint64_t state;
static char page[PAGE], *memory;
static int ends[PIPES][2];
/* Pages, places in pipes and names: which are in use, how many, where to go on. */
static const int places[KINDS] = { PAGES, PIPES * DEPTH, NAMES };
static char used[KINDS][NAMES];
static int held[KINDS], next[KINDS];
/* The anonymous page in each frame of memory, plus 1. */
static int by_frame[PAGES];

static void must(int ok, const char *what) {
    if (!ok) {
        perror(what);
        exit(1);
    }
}

/* xorshift64 */
static unsigned below(unsigned n) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (state >> 16) % n;
}

static long free_kib(void) {
    struct sysinfo info;
    sysinfo(&info);
    return info.freeram >> 10;
}

static void take(int kind, int i) {
    char path[32];
    if (kind == ANON) {
        memory[(long)i * PAGE] = 1;
    } else if (kind == PIPE) {
        must(write(ends[i / DEPTH][1], page, PAGE) == PAGE, "write");
    } else {
        sprintf(path, "/t/%d/%d", i / PER_DIR, i);
        int file = open(path, O_CREAT | O_WRONLY, 0600);
        must(file >= 0 && !close(file), path);
    }
    used[kind][i] = 1, held[kind]++;
}

static void give(int kind, int i) {
    char path[32];
    if (!used[kind][i]) return;
    if (kind == ANON) {
        must(!madvise(memory + (long)i * PAGE, PAGE, MADV_DONTNEED), "madvise");
    } else if (kind == PIPE) {
        must(read(ends[i / DEPTH][0], page, PAGE) == PAGE, "read");
    } else {
        sprintf(path, "/t/%d/%d", i / PER_DIR, i);
        must(!unlink(path), path);
    }
    used[kind][i] = 0, held[kind]--;
}

static void grow(int kind) {
    static int count;
    int i = next[kind];
    while (used[kind][i]) i = (i + 1) % places[kind];
    take(kind, next[kind] = i);
    /* What records this needs time to follow. */
    if (++count % 256 == 0) usleep(30000);
}

/* Gives back `share` percent, in runs, of 512 neighbours: in memory for
 * anonymous pages, and in the order of taking for others, which is similar. */
static void shrink(int kind, int run, unsigned share) {
    int first = below(places[kind] / 512) * 512;
    for (int i = first; i < first + 512; i += run) {
        if (below(100) >= share) continue;
        for (int n = i; n < i + run; n++) {
            int at = kind == ANON ? by_frame[n] - 1 : n;
            if (at >= 0) give(kind, at);
        }
    }
}

/* Asks the kernel where the anonymous pages are. */
static void look(void) {
    static uint64_t entries[512];
    int file = open("/proc/self/pagemap", O_RDONLY);
    for (int i = 0; i < PAGES; i++) by_frame[i] = 0;
    for (int i = 0; i < PAGES; i++) {
        long at = ((long)memory / PAGE + i) * 8;
        if (i % 512 == 0) must(pread(file, entries, sizeof entries, at) == sizeof entries, "pagemap");
        uint64_t frame = entries[i % 512] & ((1L << 55) - 1);
        if (used[ANON][i] && frame < PAGES) by_frame[frame] = i + 1;
    }
    close(file);
}

int main(int argc, char **argv) {
    must(argc == 4, "three arguments");
    int waves = atoi(argv[1]);
    long low_kib = atol(argv[2]);
    state = atol(argv[3]);
    struct rlimit files = { 2 * PIPES + 64, 2 * PIPES + 64 };
    must(!setrlimit(RLIMIT_NOFILE, &files), "setrlimit");
    memory = mmap(0, (long)PAGES * PAGE, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    must(memory != MAP_FAILED, "mmap");
    for (int i = 0; i < PIPES; i++) {
        must(!pipe(ends[i]), "pipe");
        must(fcntl(ends[i][1], F_SETPIPE_SZ, DEPTH * PAGE) >= 0, "F_SETPIPE_SZ");
    }
    for (int i = 0; i < NAMES / PER_DIR; i++) {
        char path[32];
        sprintf(path, "/t/%d", i);
        must(!mkdir(path, 0700), path);
    }
    while (free_kib() > low_kib) grow(ANON);
    while (waves-- > 0) {
        int from = below(KINDS);
        while (held[from] < 2048) from = (from + 1) % KINDS;
        int to = (from + 1 + below(2)) % KINDS, other = below(2) ? to : KINDS - from - to;
        int run = 1 << below(8), share = 30 + below(120);
        long until = free_kib() + 1024 * (4 + below(13));
        if (from == ANON) look();
        for (int n = 0; n < 500 && free_kib() < until; n++) shrink(from, run, share);
        usleep(50000); /* the kernel frees names after a while */
        while (free_kib() > low_kib) {
            for (int n = 0; n < 16; n++) grow(to);
            for (int n = 0; n < 16; n++) grow(other);
        }
    }
    return 0;
}
