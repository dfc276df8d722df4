/* Records which pages each thread of a program references in the last 10 of each 100 ms of its own time.
 *
 * The compiler calls the functions below at each load and store (-fsanitize-coverage). A thread's clock is the
 * number of its accesses; where threads wait for each other, those that wait are set to the clock of the last one. So
 * windows of all threads are of the same time, whatever processors the recording had, and two recordings are alike. */
#define _GNU_SOURCE
#include "pages.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE_LOG2 = 12, PAGES = 1 << 18, THREADS = 64, STACK = 1 << 18 };

/* An instruction takes a cycle of a 3 GHz processor, as in the study of Table VI; ACCESS_INSTRUCTIONS_PERCENT is
 * measured on the program without hooks (record.sh). So 100 ms have so many accesses: */
#ifndef ACCESS_INSTRUCTIONS_PERCENT
#error "instructions for a hundred accesses"
#endif
static const uint64_t PERIOD = 300000000ull * 100 / ACCESS_INSTRUCTIONS_PERCENT;
static const uint64_t WINDOW = 30000000ull * 100 / ACCESS_INSTRUCTIONS_PERCENT;

/* Where addresses of the recording begin. */
static const uint64_t FROM = 0x10000000;

/* A run of pages at a time of the thread. */
struct run {
    uint64_t at;
    uint32_t page, count;
};

struct thread {
    uint64_t clock, next, accesses;
    unsigned char mark;
    int index;
    void (*work)(int);
    struct run *runs;
    size_t count, room;
    /* Of a page: bit 0 referenced in this period before its window, bit 1 in its window, bit 2 before this period. */
    unsigned char seen[PAGES + 1];
};

static char *arena;
static size_t used;
static int threads;
static struct thread *all[THREADS];
static uint64_t clocks[2][THREADS];
static pthread_barrier_t barrier;
static __thread struct thread *me;
static __thread int turn;

void *pages_memory(size_t bytes) {
    if (!arena)
        arena = mmap(NULL, (size_t)PAGES << PAGE_LOG2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    /* As malloc does: what is large begins on a page of its own. */
    size_t align = bytes >= 128 << 10 ? 1 << PAGE_LOG2 : 64;
    used = (used + align - 1) & ~(align - 1);
    if (arena == MAP_FAILED || used + bytes > (size_t)PAGES << PAGE_LOG2) {
        fputs("no memory\n", stderr);
        exit(1);
    }
    char *at = arena + used;
    used += bytes;
    return at;
}

static void keep(struct thread *t, uint64_t at, int bit, int except) {
    for (uint32_t page = 0; page < PAGES; page++) {
        if (!(t->seen[page] & bit) || t->seen[page] & except)
            continue;
        struct run *last = t->count ? &t->runs[t->count - 1] : NULL;
        if (last && last->at == at && last->page + last->count == page && last->count < 15) {
            last->count++;
            continue;
        }
        if (t->count == t->room) {
            t->room = t->room ? 2 * t->room : 1024;
            t->runs = realloc(t->runs, t->room * sizeof *t->runs);
            if (!t->runs)
                exit(1);
        }
        t->runs[t->count++] = (struct run){ at, page, 1 };
    }
}

/* Goes over the next edge of a window at or before the clock, and sets the one after. */
static void step(struct thread *t) {
    uint64_t from = t->next / PERIOD * PERIOD;
    if (t->next != from) {
        t->mark = 2;
        t->next = from + PERIOD;
        return;
    }
    uint64_t begun = from - PERIOD;
    keep(t, begun, 1, 4 | 2);
    keep(t, begun + PERIOD - WINDOW, 2, 0);
    for (uint32_t page = 0; page < PAGES; page++)
        t->seen[page] = t->seen[page] ? 4 : 0;
    t->mark = 1;
    t->next = from + PERIOD - WINDOW;
}

static inline void reference(uintptr_t addr, uintptr_t bytes) {
    struct thread *t = me;
    if (!t)
        return;
    if (t->clock >= t->next)
        step(t);
    t->clock++;
    t->accesses++;
    uintptr_t first = addr - (uintptr_t)arena, last = first + bytes - 1;
    if (last < (uintptr_t)PAGES << PAGE_LOG2) {
        t->seen[first >> PAGE_LOG2] |= t->mark;
        t->seen[last >> PAGE_LOG2] |= t->mark;
    }
}

#define HOOK(N) \
    void __sanitizer_cov_load##N(void *at) { reference((uintptr_t)at, N); } \
    void __sanitizer_cov_store##N(void *at) { reference((uintptr_t)at, N); }
HOOK(1) HOOK(2) HOOK(4) HOOK(8) HOOK(16)

void pages_wait(void) {
    turn ^= 1;
    clocks[turn][me->index] = me->clock;
    pthread_barrier_wait(&barrier);
    for (int t = 0; t < threads; t++)
        if (clocks[turn][t] > me->clock)
            me->clock = clocks[turn][t];
    while (me->next <= me->clock)
        step(me);
}

static void *begin(void *thread) {
    me = thread;
    me->work(me->index);
    pages_wait();
    return NULL;
}

void pages_run(int count, void (*work)(int)) {
    pthread_t handles[THREADS];
    threads = count;
    pthread_barrier_init(&barrier, NULL, count);
    for (int t = 0; t < count; t++) {
        pthread_attr_t attr;
        all[t] = calloc(1, sizeof *all[t]);
        all[t]->index = t;
        all[t]->work = work;
        all[t]->mark = 1;
        all[t]->next = PERIOD - WINDOW;
        pthread_attr_init(&attr);
        used = (used + 4095) & ~(size_t)4095;
        if (pthread_attr_setstack(&attr, pages_memory(STACK), STACK) || pthread_create(&handles[t], &attr, begin, all[t])) {
            fputs("no thread\n", stderr);
            exit(1);
        }
    }
    for (int t = 0; t < count; t++)
        pthread_join(handles[t], NULL);
}

unsigned long pages_accesses(void) {
    unsigned long sum = 0;
    for (int t = 0; t < threads; t++)
        sum += all[t]->accesses;
    return sum;
}

static void number(FILE *to, uint64_t n) {
    for (; n >= 128; n >>= 7)
        putc((int)(n & 127) | 128, to);
    putc((int)n, to);
}

/* The threads' times, one after the other: each has as many whole periods. */
void pages_write(const char *path, const char *program) {
    FILE *to = fopen(path, "wb");
    if (!to) {
        perror(path);
        exit(1);
    }
    number(to, strlen(program));
    fputs(program, to);
    number(to, 0);
    number(to, 0);
    uint64_t at = 0, accesses = 0, events = 0, last[4] = { 0 };
    int operand = 0;
    const uint64_t periods = all[0]->clock / PERIOD;
    for (int t = 0; t < threads; t++) {
        const uint64_t begun = t * periods * PERIOD;
        for (size_t r = 0; r < all[t]->count; r++) {
            struct run run = all[t]->runs[r];
            if (run.at >= periods * PERIOD)
                break;
            if (begun + run.at > at) {
                putc(7 << 2, to);
                number(to, begun + run.at - at);
                at = begun + run.at;
                events++;
            }
            uint64_t addr = FROM + ((uint64_t)run.page << PAGE_LOG2);
            int64_t difference = (int64_t)(addr - last[operand]);
            putc(1, to);
            number(to, run.count << PAGE_LOG2);
            number(to, (uint64_t)difference << 1 ^ (uint64_t)(difference >> 63));
            last[operand] = addr;
            operand = operand < 3 ? operand + 1 : 3;
            at++;
            accesses++;
        }
    }
    const uint64_t end = threads * periods * PERIOD;
    if (end > at) {
        putc(7 << 2, to);
        number(to, end - at);
        events++;
    }
    putc(0, to);
    number(to, accesses);
    number(to, events);
    for (int n = 0; n < 3; n++)
        number(to, 0);
    if (fclose(to)) {
        perror(path);
        exit(1);
    }
    fprintf(stderr, "%llu periods of %llu accesses, %zu pages\n", (unsigned long long)periods, (unsigned long long)PERIOD,
            (used + 4095) >> PAGE_LOG2);
}
