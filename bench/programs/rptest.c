/* Mixed sizes and threads that free what others allocated, after the description of rpmalloc's
 * benchmark: in each loop a thread frees part of its blocks and allocates others, of 16 bytes to
 * 16 KiB with short ones more frequent; a tenth of the blocks goes to a shared table, from where
 * any thread takes and frees.
 *
 * rptest THREADS LOOPS BLOCKS */
#include "common.h"

enum { SHARED = 4096 };

static unsigned long loops, count;
static char *shared[SHARED];

struct part {
    uint64_t seed, sum;
};

static void *run(void *argument) {
    struct part *part = argument;
    uint64_t random = part->seed;
    char **blocks = must(calloc(count, sizeof(char *)));
    for (unsigned long loop = 0; loop < loops; loop++) {
        for (unsigned long i = 0; i < count; i++) {
            if (random_below(&random, 3) == 0) continue;
            if (blocks[i] != NULL) part->sum += free_marked(blocks[i]);
            uint32_t range = 16u << random_below(&random, 11);
            blocks[i] = marked(16 + random_below(&random, range), random);
            if (random_below(&random, 10) == 0) {
                char **place = &shared[random_below(&random, SHARED)];
                blocks[i] = __atomic_exchange_n(place, blocks[i], __ATOMIC_ACQ_REL);
            }
        }
    }
    for (unsigned long i = 0; i < count; i++)
        if (blocks[i] != NULL) part->sum += free_marked(blocks[i]);
    free(blocks);
    return NULL;
}

int main(int argc, char **argv) {
    unsigned long threads = argument(argc, argv, 1, 1);
    loops = argument(argc, argv, 2, 100);
    count = argument(argc, argv, 3, 5000);
    struct part *parts = must(calloc(threads, sizeof *parts));
    for (unsigned long i = 0; i < threads; i++) parts[i].seed = i;
    run_threads(threads, run, parts, sizeof *parts);
    uint64_t sum = 0;
    for (unsigned long i = 0; i < threads; i++) sum += parts[i].sum;
    for (unsigned long i = 0; i < SHARED; i++)
        if (shared[i] != NULL) sum += free_marked(shared[i]);
    free(parts);
    report(sum);
    return 0;
}
