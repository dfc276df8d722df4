/* How the tools that look at a program start it. */
#ifndef SWATH_PROGRAMS_START_H
#define SWATH_PROGRAMS_START_H

#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* Starts a program with its arguments and a library preloaded ("-" is none): its number, or -1. */
static inline pid_t start(const char *library, char **program) {
    pid_t child = fork();
    if (child == 0) {
        if (strcmp(library, "-") != 0) setenv("LD_PRELOAD", library, 1);
        execv(program[0], program);
        _exit(127);
    }
    return child;
}

#endif
