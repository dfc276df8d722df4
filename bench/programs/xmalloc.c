/* Producers and consumers, after Lever and Boreham (malloc() Performance in a
 * Multithreaded Linux Environment, USENIX 2000): some threads allocate batches of blocks,
 * others free them. No thread frees what it allocated.
 *
 * xmalloc PAIRS BATCHES BLOCKS_PER_BATCH */
#include "common.h"

enum { QUEUE = 64 };

struct batch {
    struct batch *next;
    unsigned long count;
    char *blocks[];
};

struct pair {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct batch *first;
    unsigned long waiting;
    uint64_t seed, sum;
};

static unsigned long batches, per_batch;

static void *produce(void *part) {
    struct pair *pair = part;
    uint64_t random = pair->seed;
    for (unsigned long i = 0; i < batches; i++) {
        struct batch *batch = must(malloc(sizeof *batch + per_batch * sizeof(char *)));
        batch->count = per_batch;
        for (unsigned long b = 0; b < per_batch; b++)
            batch->blocks[b] = marked(16 + random_below(&random, 240), random);
        pthread_mutex_lock(&pair->lock);
        while (pair->waiting == QUEUE) pthread_cond_wait(&pair->changed, &pair->lock);
        batch->next = pair->first;
        pair->first = batch;
        pair->waiting++;
        pthread_cond_signal(&pair->changed);
        pthread_mutex_unlock(&pair->lock);
    }
    return NULL;
}

static void *consume(void *part) {
    struct pair *pair = part;
    for (unsigned long i = 0; i < batches; i++) {
        pthread_mutex_lock(&pair->lock);
        while (pair->waiting == 0) pthread_cond_wait(&pair->changed, &pair->lock);
        struct batch *batch = pair->first;
        pair->first = batch->next;
        pair->waiting--;
        pthread_cond_signal(&pair->changed);
        pthread_mutex_unlock(&pair->lock);
        for (unsigned long b = 0; b < batch->count; b++) pair->sum += free_marked(batch->blocks[b]);
        free(batch);
    }
    return NULL;
}

/* One of the two threads of a pair. */
struct side {
    struct pair *pair;
    void *(*work)(void *);
};

static void *run_side(void *part) {
    struct side *side = part;
    return side->work(side->pair);
}

int main(int argc, char **argv) {
    unsigned long count = argument(argc, argv, 1, 1);
    batches = argument(argc, argv, 2, 20000);
    per_batch = argument(argc, argv, 3, 120);
    struct pair *pairs = must(calloc(count, sizeof *pairs));
    struct side *sides = must(calloc(2 * count, sizeof *sides));
    for (unsigned long i = 0; i < count; i++) {
        pthread_mutex_init(&pairs[i].lock, NULL);
        pthread_cond_init(&pairs[i].changed, NULL);
        pairs[i].seed = i;
        sides[2 * i] = (struct side){&pairs[i], produce};
        sides[2 * i + 1] = (struct side){&pairs[i], consume};
    }
    run_threads(2 * count, run_side, sides, sizeof *sides);
    uint64_t sum = 0;
    for (unsigned long i = 0; i < count; i++) sum += pairs[i].sum;
    free(sides);
    free(pairs);
    report(sum);
    return 0;
}
