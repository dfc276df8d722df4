/* A thread's working set of 1,024 blocks, of which a random one is freed and made anew: each length from 4
 * bytes to 32 KiB, the less likely the longer (with the square of the length), as in the C library's
 * benchmark of threads. Of a block the first byte is written.
 *
 * glibcthread THREADS CALLS */
#include "common.h"

enum { BLOCKS = 1024, SIZES = 1 << 16, SIZE_MIN = 4, SIZE_MAX_BYTES = 32768 };

static unsigned long calls;
static uint16_t sizes[SIZES];
static uint16_t picks[SIZES];

struct part {
    uint64_t seed, sum;
};

static void *run(void *argument) {
    struct part *part = argument;
    unsigned char *blocks[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++) blocks[i] = NULL;
    unsigned at = (unsigned)part->seed * 7919u;
    for (unsigned long i = 0; i < calls; i++, at++) {
        unsigned pick = picks[at % SIZES];
        if (blocks[pick] != NULL) {
            part->sum += blocks[pick][0];
            free(blocks[pick]);
        }
        blocks[pick] = must(malloc(sizes[at * 5u % SIZES]));
        blocks[pick][0] = (unsigned char)i;
    }
    for (unsigned i = 0; i < BLOCKS; i++) free(blocks[i]);
    return NULL;
}

int main(int argc, char **argv) {
    unsigned long threads = argument(argc, argv, 1, 1);
    calls = argument(argc, argv, 2, 10000000);
    uint64_t random = 1;
    /* The share of lengths above s is about 1 / s. */
    for (unsigned i = 0; i < SIZES; i++) {
        double share = (random_below(&random, 1u << 30) + 1) / (double)(1u << 30);
        double low = 1.0 / SIZE_MIN, high = 1.0 / SIZE_MAX_BYTES;
        sizes[i] = (uint16_t)(1.0 / (high + share * (low - high)));
        picks[i] = (uint16_t)random_below(&random, BLOCKS);
    }
    struct part *parts = must(calloc(threads, sizeof *parts));
    for (unsigned long i = 0; i < threads; i++) parts[i].seed = i;
    run_threads(threads, run, parts, sizeof *parts);
    uint64_t sum = 0;
    for (unsigned long i = 0; i < threads; i++) sum += parts[i].sum;
    free(parts);
    report(sum);
    return 0;
}
