/* Random replacement over a large set of slots, as an application's heap looks after hours
 * (after Node.js's and Ignatchenko's alloc-test): a slot is emptied or filled; a
 * block's size is two to a random power, so that each power of two has as many blocks as the
 * next, and all of it is written and read.
 *
 * alloctest THREADS STEPS SLOTS SIZE_BITS */
#include "common.h"

static unsigned long steps, slots, bits;

struct part {
    uint64_t seed, sum;
};

struct slot {
    unsigned char *block;
    uint32_t len;
};

static void *run(void *argument) {
    struct part *part = argument;
    uint64_t random = part->seed;
    struct slot *table = must(calloc(slots, sizeof *table));
    for (unsigned long i = 0; i < steps + slots; i++) {
        /* In the end each is emptied. */
        struct slot *slot = &table[i < steps ? random_below(&random, slots) : i - steps];
        if (slot->block != NULL) {
            for (uint32_t at = 0; at < slot->len; at += 64) part->sum += slot->block[at];
            free(slot->block);
            slot->block = NULL;
        } else if (i < steps) {
            uint32_t top = 1u << (3 + random_below(&random, bits - 2));
            slot->len = top + random_below(&random, top);
            slot->block = must(malloc(slot->len));
            memset(slot->block, (int)(random & 255), slot->len);
        }
    }
    free(table);
    return NULL;
}

int main(int argc, char **argv) {
    unsigned long threads = argument(argc, argv, 1, 1);
    steps = argument(argc, argv, 2, 5000000);
    slots = argument(argc, argv, 3, 50000);
    bits = argument(argc, argv, 4, 10);
    struct part *parts = must(calloc(threads, sizeof *parts));
    for (unsigned long i = 0; i < threads; i++) parts[i].seed = i;
    run_threads(threads, run, parts, sizeof *parts);
    uint64_t sum = 0;
    for (unsigned long i = 0; i < threads; i++) sum += parts[i].sum;
    free(parts);
    report(sum);
    return 0;
}
