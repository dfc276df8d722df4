/* Batches of small blocks, after MicroQuill's description of sh6bench: sizes of 16 to 1000
 * bytes, short ones more often; each batch is freed in one of several orders, half of it
 * while the next is made.
 *
 * sh6bench THREADS PASSES BLOCKS */
#include "common.h"

static unsigned long passes, count;

struct part {
    uint64_t seed, sum;
};

static void *run(void *argument) {
    struct part *part = argument;
    uint64_t random = part->seed;
    char **blocks = must(malloc(count * sizeof(char *)));
    for (unsigned long i = 0; i < count; i++) blocks[i] = NULL;
    for (unsigned long pass = 0; pass < passes; pass++) {
        for (unsigned long i = 0; i < count; i++) {
            if (blocks[i] != NULL) part->sum += free_marked(blocks[i]);
            /* The lesser of two: short blocks are more frequent. */
            uint32_t a = random_below(&random, 985), b = random_below(&random, 985);
            blocks[i] = marked(16 + (a < b ? a : b), random);
        }
        switch (pass % 3) {
        case 0: /* In the order of allocation. */
            for (unsigned long i = 0; i < count; i++) {
                part->sum += free_marked(blocks[i]);
                blocks[i] = NULL;
            }
            break;
        case 1: /* The last first, every other one. */
            for (unsigned long i = count; i > 1; i -= 2) {
                part->sum += free_marked(blocks[i - 1]);
                blocks[i - 1] = NULL;
            }
            break;
        default: /* At random, half of them. */
            for (unsigned long i = 0; i < count / 2; i++) {
                uint32_t at = random_below(&random, count);
                if (blocks[at] != NULL) part->sum += free_marked(blocks[at]);
                blocks[at] = NULL;
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
    passes = argument(argc, argv, 2, 200);
    count = argument(argc, argv, 3, 20000);
    struct part *parts = must(calloc(threads, sizeof *parts));
    for (unsigned long i = 0; i < threads; i++) parts[i].seed = i;
    run_threads(threads, run, parts, sizeof *parts);
    uint64_t sum = 0;
    for (unsigned long i = 0; i < threads; i++) sum += parts[i].sum;
    free(parts);
    report(sum);
    return 0;
}
