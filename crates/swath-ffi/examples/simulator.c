// Translation and DRAM in a simulator: reads a trace in ChampSim's format, without compression, and gives each
// access its frame, its TLB's answer, the reads of its walk, and the time of all of them in memory. ChampSim's
// and gem5's own loops would call the same functions.
//
//   cc -I crates/swath-ffi/include crates/swath-ffi/examples/simulator.c target/release/libswath.a -lm -o simulator
//   xz -dc TRACE.xz > trace; ./simulator trace
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "swath.h"

// An instruction of the trace.
typedef struct {
    uint64_t ip;
    uint8_t is_branch, is_taken, written_registers[2], read_registers[4];
    uint64_t written[2], read[4];
} instruction;

enum { PAGE = 4096, TABLE_FRAMES = 4096, DATA_FRAMES = 1 << 18, RUN = 24, GAP = 8, BLOCK_PAGES = 64, READS_MAX = 16 };

static void must(swath_result result, const char *what) {
    if (result.status == SWATH_OK) return;
    fprintf(stderr, "%s: %s (%llu)\n", what, swath_status_text(result.status), (unsigned long long)result.at);
    exit(1);
}

// Only tables have bytes here: the data of the program is not simulated.
static uint64_t words[TABLE_FRAMES * (PAGE / 8)];

// The lines that a walk reads, for the memory.
typedef struct {
    uint64_t at[READS_MAX];
    unsigned count;
} walk;

static int32_t read_word(void *context, uint64_t addr, uint32_t len_bytes, uint64_t *value) {
    walk *read = context;
    if (addr + len_bytes > sizeof words) return 1;
    // A line of descriptors comes whole.
    uint64_t line = addr / 64 * 64;
    if (read && read->count < READS_MAX && (!read->count || read->at[read->count - 1] != line))
        read->at[read->count++] = line;
    *value = 0;
    memcpy(value, (const char *)words + addr, len_bytes);
    return 0;
}

static int32_t write_word(void *context, uint64_t addr, uint32_t len_bytes, uint64_t value) {
    (void)context;
    if (addr + len_bytes > sizeof words) return 1;
    memcpy((char *)words + addr, &value, len_bytes);
    return 0;
}

// Frames of one range, in storage that is never given back.
static swath_frames *frames_of(uint64_t first, uint64_t count, int are_free) {
    swath_range range = {first * PAGE, count * PAGE};
    size_t len_bytes = swath_map_storage_bytes(1);
    swath_map *map;
    must(swath_map_create(&range, 1, malloc(len_bytes), len_bytes, &map), "map");
    swath_frames_config pbs = {.granularity = 9, .top_order = 18, .best_fit = 0};
    len_bytes = swath_frames_storage_bytes(map, pbs);
    swath_frames *frames;
    must(swath_frames_create(map, pbs, are_free, malloc(len_bytes), len_bytes, &frames), "frames");
    return frames;
}

typedef struct {
    swath_space *space;
    swath_mmu *mmu;
    swath_dram *dram;
    // Accesses that faulted were looked up twice.
    uint64_t cycle, accesses, faults;
} machine;

static machine machine_of(uint32_t scheme) {
    memset(words, 0, sizeof words);
    swath_frames *tables = frames_of(0, TABLE_FRAMES, 1), *frames = frames_of(TABLE_FRAMES, DATA_FRAMES, 0);
    // Free memory in runs of 24 frames.
    for (uint64_t at = TABLE_FRAMES; at + RUN + GAP <= TABLE_FRAMES + DATA_FRAMES; at += RUN + GAP)
        must(swath_frames_free(frames, (swath_extent){at, RUN}), "free");
    machine one = {0};
    swath_bus memory = {read_word, write_word, NULL};
    swath_coalescing coalescing = {.scheme = scheme, .field = SWATH_FIELD_LINE};
    size_t len_bytes = swath_space_storage_bytes();
    must(swath_space_create(SWATH_FORMAT_X86_64, coalescing, memory, frames, tables, malloc(len_bytes),
                            len_bytes, &one.space), "space");
    swath_mmu_config config = {
        .format = SWATH_FORMAT_X86_64,
        .coalescing = coalescing,
        // As ChampSim has them. Entries of many pages want sets that belong to many.
        .first = {.sets = 16, .ways = 4, .index_shift = scheme == SWATH_SCHEME_PCAD ? 3 : 0},
        .second = {.sets = 128, .ways = 12, .index_shift = scheme == SWATH_SCHEME_PCAD ? 3 : 0},
        .second_cycles = 7,
        .walk_cache_entries = 32,
    };
    must(swath_space_root(one.space, &config.root), "root");
    must(swath_mmu_create(&config, &one.mmu), "mmu");
    swath_dram_config ddr4 = {.part = SWATH_DRAM_DDR4_3200, .channels = 1, .ranks = 1, .queue_entries = 32};
    must(swath_dram_create(&ddr4, &one.dram), "dram");
    return one;
}

// One request, to its end: this processor waits for everything.
static void request(machine *one, uint64_t addr, int is_write) {
    must(swath_dram_offer(one->dram, one->cycle, 0, addr, (uint32_t)is_write), "offer");
    swath_dram_done done;
    uint64_t next;
    while (swath_dram_take_done(one->dram, one->cycle, &done).status == SWATH_EMPTY) {
        must(swath_dram_next_event(one->dram, &next), "next");
        one->cycle = next;
        must(swath_dram_advance(one->dram, next), "advance");
    }
}

static void access_one(machine *one, uint64_t addr, int is_write) {
    walk read = {.count = 0};
    swath_bus memory = {read_word, NULL, &read};
    swath_translated found;
    swath_result result = swath_mmu_access(one->mmu, addr, memory, &found);
    if (result.status == SWATH_FAULT) {
        one->faults++;
        // The first touch brings 64 pages, in blocks as PBS has them.
        must(swath_space_allocate(one->space, addr / PAGE / BLOCK_PAGES * BLOCK_PAGES, BLOCK_PAGES), "allocate");
        read.count = 0;
        result = swath_mmu_access(one->mmu, addr, memory, &found);
    }
    must(result, "access");
    one->accesses++;
    one->cycle += found.lookup_cycles;
    for (unsigned i = 0; i < read.count; i++) request(one, read.at[i], 0);
    request(one, found.addr, is_write);
}

int main(int argc, char **argv) {
    static const char *const names[] = {"TRAD", "PCAD"};
    for (uint32_t scheme = SWATH_SCHEME_TRAD; scheme <= SWATH_SCHEME_PCAD; scheme++) {
        FILE *trace = argc == 2 ? fopen(argv[1], "rb") : NULL;
        if (!trace) {
            fprintf(stderr, "usage: simulator TRACE\n");
            return 2;
        }
        machine one = machine_of(scheme);
        instruction next;
        while (fread(&next, sizeof next, 1, trace) == 1) {
            for (int i = 0; i < 4; i++)
                if (next.read[i]) access_one(&one, next.read[i], 0);
            for (int i = 0; i < 2; i++)
                if (next.written[i]) access_one(&one, next.written[i], 1);
        }
        fclose(trace);
        swath_mmu_stats stats;
        must(swath_mmu_stats_get(one.mmu, &stats), "stats");
        printf("%s: %llu accesses, %llu misses of the first TLB, %llu of both, %llu reads of tables, %llu cycles\n",
               names[scheme], (unsigned long long)one.accesses, (unsigned long long)(stats.first_misses - one.faults),
               (unsigned long long)(stats.second_misses - one.faults), (unsigned long long)stats.reads,
               (unsigned long long)one.cycle);
        must(swath_mmu_destroy(one.mmu), "end");
        must(swath_dram_destroy(one.dram), "end");
    }
    return 0;
}
