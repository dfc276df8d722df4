/* Threads that begin, make and free a few blocks and end, one after the other: what an allocator keeps for a
 * thread that is gone shows in the peak.
 *
 * mleak THREADS BLOCKS */
#include "common.h"

static unsigned long blocks;

static void *run(void *argument) {
    uint64_t *sum = argument;
    char **made = must(calloc(blocks, sizeof *made));
    for (unsigned long i = 0; i < blocks; i++) made[i] = marked(16 + i * 37 % 2000, i);
    for (unsigned long i = 0; i < blocks; i++) *sum += free_marked(made[i]);
    free(made);
    return NULL;
}

int main(int argc, char **argv) {
    unsigned long threads = argument(argc, argv, 1, 1000);
    blocks = argument(argc, argv, 2, 1000);
    uint64_t sum = 0;
    for (unsigned long i = 0; i < threads; i++) run_threads(1, run, &sum, sizeof sum);
    report(sum);
    return 0;
}
