/* Random large requests, as in the paper's figure 7: each thread makes so many requests of
 * 64 KiB to 4 MiB, each power of two as likely as the next; up to 16 of its blocks live at
 * a time, and a random one makes room. Of a block its first and its last byte are written, or
 * with `touch` one byte of each page.
 *
 * large plain|touch THREADS REQUESTS */
#include "common.h"

enum { LIVE = 16, SHIFT_MIN = 16, SHIFTS = 6, PAGE = 4096 };

static unsigned long requests;
static int touch;

struct part {
    uint64_t seed, sum;
};

static void *run(void *argument) {
    struct part *part = argument;
    uint64_t random = part->seed;
    struct {
        unsigned char *block;
        size_t len;
    } live[LIVE] = {{0}};
    for (unsigned long i = 0; i < requests + LIVE; i++) {
        unsigned slot = i < requests ? random_below(&random, LIVE) : (unsigned)(i - requests);
        if (live[slot].block != NULL) {
            part->sum += live[slot].block[0] + live[slot].block[live[slot].len - 1];
            free(live[slot].block);
            live[slot].block = NULL;
        }
        if (i >= requests) continue;
        size_t power = (size_t)1 << (SHIFT_MIN + random_below(&random, SHIFTS));
        size_t len = power + random_below(&random, (uint32_t)power);
        unsigned char *block = must(malloc(len));
        for (size_t at = 0; touch && at < len; at += PAGE) block[at] = 1;
        block[0] = (unsigned char)i;
        block[len - 1] = (unsigned char)(i >> 8);
        live[slot].block = block;
        live[slot].len = len;
    }
    return NULL;
}

int main(int argc, char **argv) {
    touch = argc > 1 && strcmp(argv[1], "touch") == 0;
    unsigned long threads = argument(argc, argv, 2, 1);
    requests = argument(argc, argv, 3, 10000);
    struct part *parts = must(calloc(threads, sizeof *parts));
    for (unsigned long i = 0; i < threads; i++) parts[i].seed = i;
    run_threads(threads, run, parts, sizeof *parts);
    uint64_t sum = 0;
    for (unsigned long i = 0; i < threads; i++) sum += parts[i].sum;
    free(parts);
    report(sum);
    return 0;
}
