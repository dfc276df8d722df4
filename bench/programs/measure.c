/* Runs a program with a library preloaded and says what it took. A small program of its own,
 * because the kernel counts the memory of who starts a process as that process's
 * at first.
 *
 * measure WARM_MIB LIBRARY PROGRAM ARGUMENTS…   (LIBRARY - is none)
 *
 * Before, so much memory is touched and given back: a guest's free memory may have gone back to
 * its host, and who touches it first waits for the host. That is no allocator's doing.
 *
 * Prints on standard error, after the program has ended: its exit status (or 256 + its
 * signal), nanoseconds, microseconds in user and in system mode, the peak of its resident memory
 * in KiB, page faults. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "start.h"

static void warm(size_t len) {
    char *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return;
    madvise(at, len, MADV_HUGEPAGE);
    for (size_t i = 0; i < len; i += 4096) ((volatile char *)at)[i] = 1;
    munmap(at, len);
}

int main(int argc, char **argv) {
    struct timespec from, to;
    struct rusage used;
    int status;
    if (argc < 4) return 2;
    warm(strtoul(argv[1], NULL, 10) << 20);
    argv++;
    clock_gettime(CLOCK_MONOTONIC, &from);
    pid_t child = start(argv[1], argv + 2);
    if (child < 0) return 2;
    if (wait4(child, &status, 0, &used) != child) return 2;
    clock_gettime(CLOCK_MONOTONIC, &to);
    long long wall = (to.tv_sec - from.tv_sec) * 1000000000LL + (to.tv_nsec - from.tv_nsec);
    fprintf(stderr, "\nmeasure %d %lld %lld %lld %ld %ld\n",
            WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status), wall,
            used.ru_utime.tv_sec * 1000000LL + used.ru_utime.tv_usec,
            used.ru_stime.tv_sec * 1000000LL + used.ru_stime.tv_usec, used.ru_maxrss,
            used.ru_minflt + used.ru_majflt);
    return 0;
}
