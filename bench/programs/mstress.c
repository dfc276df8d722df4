/* Threads whose blocks wander: each makes blocks of 8 bytes to 64 KiB, mostly short, keeps some for long, frees
 * the others soon, and exchanges one in four with a table that all threads share, so that many are
 * freed by others. In each round all threads end and new ones begin, with what the table holds.
 *
 * mstress THREADS ROUNDS BLOCKS */
#include <stdatomic.h>

#include "common.h"

enum { SHARED = 1000 };

static char *_Atomic shared[SHARED];
static unsigned long blocks;

struct part {
    uint64_t seed, sum;
};

static size_t length(uint64_t *random) {
    uint32_t kind = random_below(random, 1000);
    if (kind < 900) return 16 + random_below(random, 240);
    if (kind < 990) return 16 + random_below(random, 4096);
    return 16 + random_below(random, 65536);
}

static void *run(void *argument) {
    struct part *part = argument;
    uint64_t random = part->seed;
    char **kept = must(calloc(blocks, sizeof *kept));
    for (unsigned long i = 0; i < blocks; i++) {
        unsigned long at = random_below(&random, (uint32_t)(i + 1));
        if (random_below(&random, 2) == 0 && kept[at] != NULL) {
            free_marked(kept[at]);
            kept[at] = NULL;
        }
        kept[i] = marked(length(&random), i);
        part->sum += i;
        if (random_below(&random, 4) == 0)
            kept[i] = atomic_exchange(&shared[random_below(&random, SHARED)], kept[i]);
    }
    for (unsigned long i = 0; i < blocks; i++)
        if (kept[i] != NULL) free_marked(kept[i]);
    free(kept);
    return NULL;
}

int main(int argc, char **argv) {
    unsigned long threads = argument(argc, argv, 1, 2);
    unsigned long rounds = argument(argc, argv, 2, 10);
    blocks = argument(argc, argv, 3, 50000);
    struct part *parts = must(calloc(threads, sizeof *parts));
    uint64_t sum = 0;
    for (unsigned long round = 0; round < rounds; round++) {
        for (unsigned long i = 0; i < threads; i++)
            parts[i] = (struct part){.seed = round * threads + i};
        run_threads(threads, run, parts, sizeof *parts);
        for (unsigned long i = 0; i < threads; i++) sum += parts[i].sum;
    }
    for (unsigned i = 0; i < SHARED; i++) {
        char *block = atomic_exchange(&shared[i], NULL);
        if (block != NULL) free_marked(block);
    }
    free(parts);
    report(sum);
    return 0;
}
