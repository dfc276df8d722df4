/* After Berger and others (Hoard, ASPLOS 2000): each of P threads allocates its part of
 * some blocks of one size and frees them, again and again. With `pair`, as in Lever and
 * Boreham's linux-scalability, a thread allocates one block and frees it at once.
 *
 * threadtest many|pair THREADS ROUNDS BLOCKS BYTES */
#include "common.h"

static unsigned long rounds, count, bytes;
static int pair;

struct part {
    uint64_t seed, sum;
};

static void *run(void *argument) {
    struct part *part = argument;
    if (pair) {
        for (unsigned long i = 0; i < rounds * count; i++) {
            volatile char *block = must(malloc(bytes));
            block[0] = (char)i;
            part->sum += (unsigned char)block[0];
            free((void *)block);
        }
        return NULL;
    }
    char **blocks = must(malloc(count * sizeof(char *)));
    for (unsigned long round = 0; round < rounds; round++) {
        for (unsigned long i = 0; i < count; i++) {
            blocks[i] = must(malloc(bytes));
            blocks[i][0] = (char)i;
        }
        for (unsigned long i = 0; i < count; i++) {
            part->sum += (unsigned char)blocks[i][0];
            free(blocks[i]);
        }
    }
    free(blocks);
    return NULL;
}

int main(int argc, char **argv) {
    pair = argc > 1 && strcmp(argv[1], "pair") == 0;
    unsigned long threads = argument(argc, argv, 2, 1);
    rounds = argument(argc, argv, 3, 200);
    count = argument(argc, argv, 4, 100000) / threads;
    bytes = argument(argc, argv, 5, 64);
    struct part *parts = must(calloc(threads, sizeof *parts));
    run_threads(threads, run, parts, sizeof *parts);
    uint64_t sum = 0;
    for (unsigned long i = 0; i < threads; i++) sum += parts[i].sum;
    free(parts);
    report(sum);
    return 0;
}
