/*
 * A plugin of QEMU's user mode (TCG plugin interface, version 1): writes what a 32-bit program
 * does to its memory as lines of text, sampled, for `record.sh`.
 *
 * Arguments: out=FILE, base=HEX (QEMU's -B), burst=N, every=N. The first N accesses of every M are
 * written whole; in between what can fault: each page's first access and first write since it was
 * mapped. Lines, all numbers hexadecimal:
 *   F|R|W address length    fetch, load, store
 *   K count                 so many accesses left out
 *   M page count protection shared file page-of-file    (file 0: anonymous)
 *   U|D page count          unmapped; contents given up
 *   P page count protection
 *   V page count page count moved
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The interface, as its documentation states it ("QEMU TCG Plugins"). */
typedef uint64_t plugin_id;
typedef uint32_t mem_info;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
int qemu_plugin_version = 1;
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned, void *), int, void *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, void (*)(unsigned, mem_info, uint64_t, void *), int, int, void *);
void qemu_plugin_register_vcpu_syscall_cb(plugin_id, void (*)(plugin_id, unsigned, int64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t));
void qemu_plugin_register_vcpu_syscall_ret_cb(plugin_id, void (*)(plugin_id, unsigned, int64_t, int64_t));
void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
unsigned qemu_plugin_mem_size_shift(mem_info);
bool qemu_plugin_mem_is_store(mem_info);

#define PAGES (1u << 20)
enum { TOUCHED = 1, WRITTEN = 2 };

static FILE *out;
static uint64_t base, burst, every, seen, phase, skipped;
static uint8_t pages[PAGES];
static uint32_t break_page;
static uint64_t call[7];
static bool started;

static void forget(uint32_t page, uint64_t count, uint8_t marks) {
    for (uint64_t i = page; i < page + count && i < PAGES; i++) pages[i] &= ~marks;
}

static void tell_skipped(void) {
    if (skipped) fprintf(out, "K %lx\n", (unsigned long)skipped);
    skipped = 0;
}

static void map(uint32_t page, uint64_t count, unsigned protection, bool shared, uint64_t file, uint64_t first) {
    tell_skipped();
    fprintf(out, "M %x %lx %x %x %lx %lx\n", page, (unsigned long)count, protection, shared,
            (unsigned long)file, (unsigned long)first);
    forget(page, count, TOUCHED | WRITTEN);
}

/* The number of a file: the same in all recordings, from its name without directories. */
static uint64_t file_number(const char *path) {
    const char *name = strrchr(path, '/');
    uint32_t hash = 2166136261u;
    for (name = name ? name + 1 : path; *name && *name != '\n'; name++) hash = (hash ^ (uint8_t)*name) * 16777619u;
    return 1 + (uint64_t)hash;
}

/* What is mapped before the first instruction: the program, its loader, the stack. */
static void start(void) {
    started = true;
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    while (maps && fgets(line, sizeof line, maps)) {
        uint64_t from, to, offset, inode;
        char flags[8] = "", path[2048] = "";
        if (sscanf(line, "%lx-%lx %7s %lx %*s %lu %2047[^\n]", &from, &to, flags, &offset, &inode, path) < 5) continue;
        if (from < base || to > base + (1ull << 32) || flags[0] != 'r') continue;
        /* QEMU maps code without the right to execute it: only what may be written surely is none. */
        unsigned protection = 1 | (flags[1] == 'w' ? 2 : 4);
        map((from - base) >> 12, (to - from) >> 12, protection, false, inode ? file_number(path) : 0, offset >> 12);
    }
    if (maps) fclose(maps);
}

static void access_at(char kind, uint64_t addr, unsigned length) {
    uint8_t need = kind == 'W' ? TOUCHED | WRITTEN : TOUCHED;
    uint32_t page = (uint32_t)addr >> 12, last = (uint32_t)(addr + length - 1) >> 12;
    bool first = (pages[page] & need) != need || (pages[last] & need) != need;
    bool whole = phase < burst;
    seen++;
    if (++phase == every) phase = 0;
    if (!first && !whole) {
        skipped++;
        return;
    }
    pages[page] |= need;
    pages[last] |= need;
    tell_skipped();
    fprintf(out, "%c %x %x\n", kind, (uint32_t)addr, length);
}

static void fetch(unsigned vcpu, void *what) {
    (void)vcpu;
    access_at('F', (uint32_t)(uintptr_t)what, (unsigned)((uintptr_t)what >> 32));
}

static void data(unsigned vcpu, mem_info info, uint64_t addr, void *what) {
    (void)vcpu, (void)what;
    access_at(qemu_plugin_mem_is_store(info) ? 'W' : 'R', addr, 1u << qemu_plugin_mem_size_shift(info));
}

static void translate(plugin_id id, struct qemu_plugin_tb *block) {
    (void)id;
    if (!started) start();
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, i);
        uintptr_t what = (uint32_t)qemu_plugin_insn_vaddr(insn) | (uintptr_t)qemu_plugin_insn_size(insn) << 32;
        qemu_plugin_register_vcpu_insn_exec_cb(insn, fetch, 0, (void *)what);
        qemu_plugin_register_vcpu_mem_cb(insn, data, 0, 3, NULL);
    }
}

static void enter(plugin_id id, unsigned vcpu, int64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                  uint64_t e, uint64_t f, uint64_t g, uint64_t h) {
    (void)id, (void)vcpu, (void)g, (void)h;
    uint64_t now[7] = {number, a, b, c, d, e, f};
    memcpy(call, now, sizeof call);
}

#define COUNT(bytes) (((uint32_t)(bytes) + 4095u) >> 12)

static void leave(plugin_id id, unsigned vcpu, int64_t number, int64_t result) {
    (void)id, (void)vcpu;
    uint32_t page = (uint32_t)call[1] >> 12, got = (uint32_t)result;
    bool failed = got > 0xfffff000u;
    if (number == 45) { /* brk */
        uint32_t end = COUNT(got);
        if (break_page && end > break_page) map(break_page, end - break_page, 3, false, 0, 0);
        if (break_page && end < break_page) {
            tell_skipped();
            fprintf(out, "U %x %x\n", end, break_page - end);
        }
        break_page = end;
        return;
    }
    if (failed) return;
    tell_skipped();
    switch (number) {
    case 192: { /* mmap2 */
        char link[32], path[2048] = "";
        uint64_t file = 0;
        if (!(call[4] & 0x20)) {
            snprintf(link, sizeof link, "/proc/self/fd/%d", (int)call[5]);
            if (readlink(link, path, sizeof path - 1) > 0) file = file_number(path);
        }
        map(got >> 12, COUNT(call[2]), call[3] & 7, (call[4] & 1) != 0, file, call[6]);
        break;
    }
    case 91: /* munmap */
        fprintf(out, "U %x %x\n", page, COUNT(call[2]));
        break;
    case 125: /* mprotect */
        fprintf(out, "P %x %x %x\n", page, COUNT(call[2]), (unsigned)call[3] & 7);
        break;
    case 163: /* mremap */
        fprintf(out, "V %x %x %x %x\n", page, COUNT(call[2]), got >> 12, COUNT(call[3]));
        forget(got >> 12, COUNT(call[3]), TOUCHED | WRITTEN);
        break;
    case 220: /* madvise, MADV_DONTNEED */
        if (call[3] != 4) break;
        fprintf(out, "D %x %x\n", page, COUNT(call[2]));
        forget(page, COUNT(call[2]), TOUCHED | WRITTEN);
        break;
    }
}

static void end(plugin_id id, void *what) {
    (void)id, (void)what;
    tell_skipped();
    fclose(out);
    fprintf(stderr, "%lu accesses\n", (unsigned long)seen);
}

int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv) {
    (void)info;
    for (int i = 0; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value) return -1;
        *value++ = 0;
        if (!strcmp(argv[i], "out")) out = fopen(value, "w");
        else if (!strcmp(argv[i], "base")) base = strtoull(value, NULL, 16);
        else if (!strcmp(argv[i], "burst")) burst = strtoull(value, NULL, 10);
        else if (!strcmp(argv[i], "every")) every = strtoull(value, NULL, 10);
        else return -1;
    }
    if (!out || !every) return -1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
    qemu_plugin_register_vcpu_syscall_cb(id, enter);
    qemu_plugin_register_vcpu_syscall_ret_cb(id, leave);
    qemu_plugin_register_atexit_cb(id, end, NULL);
    return 0;
}
