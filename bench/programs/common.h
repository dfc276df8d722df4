/* What the allocator programs share: random numbers, threads, and the check of
 * what they did. A program's output depends on its arguments alone, so that a wrong
 * allocator shows. */
#ifndef SWATH_PROGRAMS_COMMON_H
#define SWATH_PROGRAMS_COMMON_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Splitmix64: short, and good enough to choose sizes. */
static inline uint64_t next_random(uint64_t *state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Below `bound`, which is less than 2^32. */
static inline uint32_t random_below(uint64_t *state, uint32_t bound) {
    return (uint32_t)(((next_random(state) >> 32) * bound) >> 32);
}

static inline void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static inline void *must(void *block) {
    if (block == NULL) fail("no memory");
    return block;
}

/* The argument at `index`, or a default. */
static inline unsigned long argument(int argc, char **argv, int index, unsigned long otherwise) {
    return argc > index ? strtoul(argv[index], NULL, 10) : otherwise;
}

/* A block that knows its length and content at both ends: 16 bytes or more. */
static inline char *marked(size_t len, uint64_t mark) {
    char *block = (char *)must(malloc(len));
    memcpy(block, &len, sizeof len);
    memcpy(block + len - 8, &mark, 8 < len - 8 ? 8 : len - 8);
    return block;
}

/* Frees a marked block; what it held. */
static inline uint64_t free_marked(char *block) {
    size_t len;
    uint64_t mark = 0;
    memcpy(&len, block, sizeof len);
    memcpy(&mark, block + len - 8, 8 < len - 8 ? 8 : len - 8);
    free(block);
    return mark + len;
}

/* Runs `work` in so many threads, each with its part of an array. */
static inline void run_threads(unsigned long threads, void *(*work)(void *), void *parts,
                               size_t part_bytes) {
    pthread_t ids[256];
    if (threads > 256) fail("too many threads");
    for (unsigned long i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, work, (char *)parts + i * part_bytes) != 0)
            fail("no thread");
    for (unsigned long i = 0; i < threads; i++) pthread_join(ids[i], NULL);
}

static inline void report(uint64_t checksum) {
    printf("checksum %llu\n", (unsigned long long)checksum);
}

#endif
