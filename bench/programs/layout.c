/* Runs a program with a library preloaded and says how contiguous its memory was when it had most.
 *
 * layout LIBRARY PROGRAM ARGUMENTS…   (LIBRARY - is none)
 *
 * The program is stopped every 5 ms; where it has more memory than before, the page map of its
 * anonymous memory is read. Prints on standard error, after the program has ended: KiB of
 * resident anonymous memory, and in how many physical runs they lay; 0 runs without the right to
 * see frames. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "start.h"

#define PAGE 4096ul

struct layout {
    unsigned long pages, runs;
};

/* The page that untouched memory reads as: no memory of the program. */
static uint64_t zero_frame;

static uint64_t frame_of(const volatile char *at) {
    uint64_t entry = at[0];
    int map = open("/proc/self/pagemap", O_RDONLY);
    if (map < 0 || pread(map, &entry, 8, (off_t)((uintptr_t)at / PAGE * 8)) != 8) entry = 0;
    if (map >= 0) close(map);
    return entry & ((1ull << 55) - 1);
}

/* Resident pages of the process, 0 if it has ended. */
static unsigned long resident(pid_t pid) {
    char path[64];
    unsigned long size = 0, pages = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) return 0;
    if (fscanf(file, "%lu %lu", &size, &pages) != 2) pages = 0;
    fclose(file);
    return pages;
}

static void add_range(int map, unsigned long from, unsigned long to, struct layout *sum) {
    static uint64_t entries[4096];
    uint64_t before = 0;
    for (unsigned long page = from / PAGE; page < to / PAGE;) {
        unsigned long count = to / PAGE - page;
        if (count > 4096) count = 4096;
        ssize_t got = pread(map, entries, count * 8, (off_t)(page * 8));
        if (got <= 0) return;
        for (ssize_t i = 0; i < got / 8; i++, page++) {
            uint64_t frame = entries[i] & ((1ull << 55) - 1);
            if (!(entries[i] >> 63) || (frame != 0 && frame == zero_frame)) {
                before = 0;
                continue;
            }
            sum->pages++;
            if (frame != 0 && (before == 0 || frame != before + 1)) sum->runs++;
            before = frame;
        }
    }
}

static struct layout look(pid_t pid) {
    char path[64], line[512], name[256];
    struct layout sum = {0, 0};
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "r");
    snprintf(path, sizeof path, "/proc/%d/pagemap", pid);
    int map = open(path, O_RDONLY);
    while (maps != NULL && map >= 0 && fgets(line, sizeof line, maps) != NULL) {
        unsigned long from, to, inode;
        char access[8];
        name[0] = 0;
        if (sscanf(line, "%lx-%lx %7s %*s %*s %lu %255s", &from, &to, access, &inode, name) < 4) continue;
        if (inode == 0 && access[1] == 'w' && (name[0] == 0 || strcmp(name, "[heap]") == 0))
            add_range(map, from, to, &sum);
    }
    if (maps != NULL) fclose(maps);
    if (map >= 0) close(map);
    return sum;
}

int main(int argc, char **argv) {
    const struct timespec pause = {0, 5000000};
    struct layout most = {0, 0};
    unsigned long peak = 0;
    int status;
    if (argc < 3) return 2;
    const char *untouched =
        mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (untouched != MAP_FAILED) zero_frame = frame_of(untouched);
    pid_t child = start(argv[1], argv + 2);
    if (child < 0) return 2;
    for (;;) {
        nanosleep(&pause, NULL);
        if (resident(child) > peak) {
            kill(child, SIGSTOP);
            if (waitpid(child, &status, WUNTRACED) != child || !WIFSTOPPED(status)) break;
            peak = resident(child);
            struct layout now = look(child);
            if (now.pages > most.pages) most = now;
            kill(child, SIGCONT);
        }
        if (waitpid(child, &status, WNOHANG) == child) break;
    }
    fprintf(stderr, "\nlayout %d %lu %lu\n", WIFEXITED(status) ? WEXITSTATUS(status) : 256,
            most.pages * (PAGE / 1024), most.runs);
    return 0;
}
