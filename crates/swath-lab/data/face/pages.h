/* What `pages.c` records, and how the simulation tells it what it is about to do. */
#ifndef PAGES_H
#define PAGES_H

#include <stddef.h>

/* Memory of the program, all of it resident. */
void *pages_memory(size_t bytes);
/* Runs `run(index)` on so many threads to their ends, their stacks in the program's memory. Their clocks begin at 0. */
void pages_run(int threads, void (*run)(int index));
/* Waits for all threads: each one's clock is then that of the last. */
void pages_wait(void);
/* Accesses of all threads so far. */
unsigned long pages_accesses(void);
/* Writes the content of a recording (docs/formats.md, "Address trace"). */
void pages_write(const char *path, const char *program);

#endif
