/* What the kernel's machine offers to the scenario in C. */
#ifndef KERNEL_H
#define KERNEL_H

#include <stddef.h>
#include <stdint.h>

#include "swath.h"

struct machine {
    /* A swath_format and the swath_levels of it. */
    uint32_t format, levels;
    /* The orders of the reservations, the largest first; 0 where there is none. */
    uint32_t orders[2];
    /* The machine sets the flag that says whether a page was accessed. */
    uint32_t sets_accessed;
    /* The first page of a program's window. */
    uint64_t window;
    /* All memory, at its own address, the kernel included. */
    swath_extent span;
    /* What is free of it. */
    const swath_range *ranges;
    size_t range_count;
    /* Registers that the kernel reaches by memory: their addresses. */
    const uint64_t *devices;
    size_t device_count;
    /* Memory for everything else. */
    unsigned char *storage;
    size_t storage_bytes;
};

/* What an access of a program's came to. */
enum { ACCESS_DONE, ACCESS_READ_FAULT, ACCESS_WRITE_FAULT };

/* Reads or writes the word at a virtual address, through the machine's own translation. A fault is at `fault`. */
uint32_t kernel_read(size_t address, size_t *value, size_t *fault);
uint32_t kernel_write(size_t address, size_t value, size_t *fault);

/* Makes a root the one by which everything is translated; returns to the tables of the way in. */
void kernel_load(uint64_t root);
void kernel_leave(void);

/* Empties the TLB of pages of the space that is loaded. */
void kernel_invalidate(swath_flush flush);

/* Says a line with a number. */
void kernel_say(const char *text, uint64_t number);

/* Counts a check that held; ends the machine over one that did not. */
void kernel_passed(void);
_Noreturn void kernel_failed(const char *what, uint32_t line, uint64_t at);

/* The scenario. */
void scenario(const struct machine *machine);

#endif
