/* What the programs share: threads, random numbers, and the programs of media.c. */
#ifndef PROGRAMS_H
#define PROGRAMS_H

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

enum { THREADS = 16 };

extern pthread_barrier_t barrier;

static inline uint64_t draw(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static inline double share(uint64_t *state) { return (draw(state) >> 11) * 0x1p-53; }

static inline void *must(void *memory) {
    if (!memory)
        abort();
    return memory;
}

static inline void wait_for_all(void) { pthread_barrier_wait(&barrier); }

static inline void together(void *(*run)(void *index)) {
    pthread_t threads[THREADS];
    for (intptr_t t = 0; t < THREADS; t++)
        if (pthread_create(&threads[t], NULL, run, (void *)t))
            abort();
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
}

/* The part of `count` things that is a thread's. */
static inline int from(int count, int thread) { return (int)((long)count * thread / THREADS); }

void bodytrack(void);
void ferret(void);
void vips(void);
void x264(void);

#endif
