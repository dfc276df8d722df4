/* False sharing, after Berger and others (Hoard, ASPLOS 2000). In `scratch` each thread first
 * frees a small block that the main thread allocated beside the others' (an allocator
 * that hands it out again makes threads share cache lines: passive false sharing); in `thrash`
 * there is no such block, and an allocator that serves several threads from one line shares it
 * actively. Then each thread allocates a block, writes it many times, and frees it.
 *
 * cache scratch|thrash THREADS ROUNDS BYTES WRITES */
#include "common.h"

static unsigned long rounds, bytes, writes;

struct part {
    char *first;
    uint64_t sum;
    char apart[112];
};

static void *run(void *argument) {
    struct part *part = argument;
    uint64_t sum = 0;
    free(part->first);
    for (unsigned long round = 0; round < rounds; round++) {
        volatile unsigned char *block = must(malloc(bytes));
        for (unsigned long at = 0; at < bytes; at++) block[at] = (unsigned char)at;
        for (unsigned long i = 0; i < writes; i++)
            for (unsigned long at = 0; at < bytes; at++) block[at]++;
        for (unsigned long at = 0; at < bytes; at++) sum += block[at];
        free((void *)block);
    }
    part->sum = sum;
    return NULL;
}

int main(int argc, char **argv) {
    int scratch = argc > 1 && strcmp(argv[1], "scratch") == 0;
    unsigned long threads = argument(argc, argv, 2, 1);
    rounds = argument(argc, argv, 3, 100000);
    bytes = argument(argc, argv, 4, 8);
    writes = argument(argc, argv, 5, 200);
    struct part *parts = must(calloc(threads, sizeof *parts));
    for (unsigned long i = 0; i < threads; i++)
        parts[i].first = scratch ? must(malloc(bytes)) : NULL;
    run_threads(threads, run, parts, sizeof *parts);
    uint64_t sum = 0;
    for (unsigned long i = 0; i < threads; i++) sum += parts[i].sum;
    free(parts);
    report(sum);
    return 0;
}
