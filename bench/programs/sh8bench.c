/* As sh6bench, but some blocks go to the next thread of a ring, which frees them: after
 * MicroQuill's description of sh8bench, a test of mixed sizes with blocks that
 * change hands.
 *
 * sh8bench THREADS PASSES BLOCKS */
#include "common.h"

static unsigned long threads, passes, count;

struct part {
    uint64_t seed, sum;
    /* Lists of blocks that the thread before gave, linked by their bytes 8 to 15. */
    char *given;
    struct part *next;
};

/* The link lies behind the length; the mark is at the end. */
static void link_to(char *block, char *next) { memcpy(block + 8, &next, sizeof next); }

static void give(struct part *to, char *block) {
    char *head = __atomic_load_n(&to->given, __ATOMIC_RELAXED);
    do link_to(block, head);
    while (!__atomic_compare_exchange_n(&to->given, &head, block, 1, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED));
}

static uint64_t free_given(struct part *part) {
    uint64_t sum = 0;
    char *block = __atomic_exchange_n(&part->given, NULL, __ATOMIC_ACQUIRE);
    while (block != NULL) {
        char *next;
        memcpy(&next, block + 8, sizeof next);
        sum += free_marked(block);
        block = next;
    }
    return sum;
}

static void *run(void *argument) {
    struct part *part = argument;
    uint64_t random = part->seed;
    char **blocks = must(malloc(count * sizeof(char *)));
    for (unsigned long pass = 0; pass < passes; pass++) {
        for (unsigned long i = 0; i < count; i++) {
            uint32_t a = random_below(&random, 377), b = random_below(&random, 377);
            blocks[i] = marked(24 + (a < b ? a : b), random);
        }
        for (unsigned long i = 0; i < count; i++) {
            char *block = blocks[(i * 7919) % count];
            if (random_below(&random, 4) == 0)
                give(part->next, block);
            else
                part->sum += free_marked(block);
        }
        part->sum += free_given(part);
    }
    free(blocks);
    return NULL;
}

int main(int argc, char **argv) {
    threads = argument(argc, argv, 1, 1);
    passes = argument(argc, argv, 2, 200);
    /* Prime to 7919. */
    count = argument(argc, argv, 3, 20000);
    struct part *parts = must(calloc(threads, sizeof *parts));
    for (unsigned long i = 0; i < threads; i++) {
        parts[i].seed = i;
        parts[i].next = &parts[(i + 1) % threads];
    }
    run_threads(threads, run, parts, sizeof *parts);
    uint64_t sum = 0;
    for (unsigned long i = 0; i < threads; i++) sum += parts[i].sum + free_given(&parts[i]);
    free(parts);
    report(sum);
    return 0;
}
