/* A server under load, after Larson and Krishnan (Memory Allocation for Long-Running
 * Server Applications, ISMM 1998): each thread holds an array of blocks, replaces
 * random ones by blocks of other random sizes, and then hands the array to a thread that it
 * starts, which goes on. So blocks are freed by other threads than allocated them,
 * and the threads that allocated them are gone.
 *
 * larson THREADS ROUNDS BLOCKS REPLACEMENTS SIZE_MIN SIZE_MAX */
#include <semaphore.h>

#include "common.h"

static unsigned long rounds, blocks, replacements, size_min, size_max;

struct chain {
    uint64_t random, sum;
    unsigned long round;
    char **held;
    sem_t done;
};

static char *block_of(struct chain *chain) {
    size_t len = size_min + random_below(&chain->random, size_max - size_min + 1);
    return marked(len, chain->random);
}

static void *serve(void *part) {
    struct chain *chain = part;
    pthread_t next;
    pthread_detach(pthread_self());
    for (unsigned long i = 0; i < replacements; i++) {
        uint32_t victim = random_below(&chain->random, blocks);
        chain->sum += free_marked(chain->held[victim]);
        chain->held[victim] = block_of(chain);
    }
    if (++chain->round == rounds)
        sem_post(&chain->done);
    else if (pthread_create(&next, NULL, serve, chain) != 0)
        fail("no thread");
    return NULL;
}

int main(int argc, char **argv) {
    unsigned long threads = argument(argc, argv, 1, 1);
    rounds = argument(argc, argv, 2, 50);
    blocks = argument(argc, argv, 3, 1000);
    replacements = argument(argc, argv, 4, 50000);
    size_min = argument(argc, argv, 5, 16);
    size_max = argument(argc, argv, 6, 1000);
    struct chain *chains = must(calloc(threads, sizeof *chains));
    for (unsigned long i = 0; i < threads; i++) {
        struct chain *chain = &chains[i];
        chain->random = i;
        sem_init(&chain->done, 0, 0);
        chain->held = must(malloc(blocks * sizeof(char *)));
        for (unsigned long b = 0; b < blocks; b++) chain->held[b] = block_of(chain);
    }
    for (unsigned long i = 0; i < threads; i++) {
        pthread_t first;
        if (pthread_create(&first, NULL, serve, &chains[i]) != 0) fail("no thread");
    }
    uint64_t sum = 0;
    for (unsigned long i = 0; i < threads; i++) {
        while (sem_wait(&chains[i].done) != 0) {}
        for (unsigned long b = 0; b < blocks; b++) sum += free_marked(chains[i].held[b]);
        sum += chains[i].sum;
        free(chains[i].held);
    }
    free(chains);
    report(sum);
    return 0;
}
