/* Blocks of one length, made and then freed in the order made: 25, 100, 400 and 1,600 of them at a time, as in
 * the C library's benchmark of one thread. Of a block the first byte is written.
 *
 * glibcsimple LENGTH CALLS */
#include "common.h"

enum { LIVE_MAX = 1600 };

int main(int argc, char **argv) {
    unsigned long len = argument(argc, argv, 1, 64);
    unsigned long calls = argument(argc, argv, 2, 10000000);
    static unsigned char *blocks[LIVE_MAX];
    uint64_t sum = 0;
    for (unsigned live = 25; live <= LIVE_MAX; live *= 4) {
        for (unsigned long i = 0; i < calls / 4; i += live) {
            for (unsigned k = 0; k < live; k++) {
                blocks[k] = must(malloc(len));
                blocks[k][0] = (unsigned char)k;
            }
            for (unsigned k = 0; k < live; k++) {
                sum += blocks[k][0];
                free(blocks[k]);
            }
        }
    }
    report(sum);
    return 0;
}
