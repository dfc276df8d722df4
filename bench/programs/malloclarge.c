/* Blocks of 5 to 25 MiB, at most twenty at a time: a random one is freed and made anew, and of each page a byte
 * is written in one of eight blocks, of the others the first and the last.
 *
 * malloclarge ROUNDS */
#include "common.h"

enum { LIVE = 20, PAGE = 4096, MIB = 1 << 20 };

int main(int argc, char **argv) {
    unsigned long rounds = argument(argc, argv, 1, 2000);
    uint64_t random = 1, sum = 0;
    unsigned char *live[LIVE] = {NULL};
    for (unsigned long i = 0; i < rounds; i++) {
        unsigned at = random_below(&random, LIVE);
        if (live[at] != NULL) sum += live[at][0];
        free(live[at]);
        size_t len = 5 * MIB + random_below(&random, 20 * MIB);
        live[at] = must(malloc(len));
        size_t step = i % 8 == 0 ? PAGE : len - 1;
        for (size_t k = 0; k < len; k += step) live[at][k] = (unsigned char)i;
    }
    for (unsigned i = 0; i < LIVE; i++) free(live[i]);
    report(sum);
    return 0;
}
