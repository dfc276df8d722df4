/* The scenario of the kernel, over the C interface: the life of one superpage, step by step, then a million random
 * steps of two programs beside a flat model; at last every frame is accounted for. As in ../src/scenario.rs, but memory
 * does not run short. */
#include "kernel.h"

enum {
    PROGRAMS = 2,
    SUPERPAGES = 8,
    /* Of ARMv8, x86-64 and RISC-V. */
    SUPERPAGE_PAGES_MAX = 512,
    PAGES_MAX = SUPERPAGES * SUPERPAGE_PAGES_MAX,
    STEPS = 1000000,
    CHECK_EVERY = 50000,
    /* Steps of a program before it may be the other's turn. */
    TURN = 64,
    OBJECT = 7,
    PAGE_BYTES = 4096,
};

#define LAST (PAGE_BYTES - sizeof(size_t))
#define NO_FRAME UINT64_MAX

#define CHECK(holds, at)                                              \
    do {                                                              \
        if (!(holds)) kernel_failed(#holds, __LINE__, (uint64_t)(at)); \
        kernel_passed();                                              \
    } while (0)

/* A call of the library that must go well; the result is 16 bytes, of which the second half says where. */
#define DO(call, at)                                                        \
    do {                                                                    \
        swath_result result_ = (call);                               \
        if (result_.status != SWATH_OK) kernel_failed(#call, __LINE__, (at)); \
    } while (0)

static struct {
    const struct machine *machine;
    size_t used_bytes;
    swath_memory memory;
    swath_map *map;
    swath_frames *frames;
    swath_reservations *reservations;
    swath_space *spaces[PROGRAMS];
    swath_pmap *pmap;
    /* The program whose space is loaded, and what is loaded before one is. */
    uint32_t loaded;
    uint64_t pages, faults, now, random;
    uint64_t all_free;
} k;

/* Of each page of the object: its frame, the first word that it holds, whether it was written since it was
 * clean, and who may write it. */
static uint64_t resident[PAGES_MAX];
static size_t values[PAGES_MAX];
static uint8_t dirty[PAGES_MAX];
static uint8_t may_write[PROGRAMS][PAGES_MAX];

static uint64_t draw(void) {
    uint64_t z = k.random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t below(uint64_t bound) { return draw() % bound; }

static void *cut(size_t bytes) {
    CHECK(bytes > 0 && bytes <= k.machine->storage_bytes - k.used_bytes, bytes);
    void *at = k.machine->storage + k.used_bytes;
    k.used_bytes += (bytes + 15) & ~(size_t)15;
    return at;
}

static volatile size_t *word_of(uint64_t index, size_t offset) {
    return (volatile size_t *)(uintptr_t)((resident[index] << 12) + offset);
}

static swath_space *reach(void *context, uint32_t space) {
    (void)context;
    return space < PROGRAMS ? k.spaces[space] : NULL;
}

/* A space that is loaded later has its TLB emptied whole. */
static void flush(void *context, uint32_t space, swath_flush flush) {
    (void)context;
    if (space == k.loaded) kernel_invalidate(flush);
}

static void load(uint32_t space) {
    uint64_t root;
    if (k.loaded == space) return;
    DO(swath_space_root(k.spaces[space], &root), space);
    kernel_load(root);
    k.loaded = space;
}

static void start(void) {
    const struct machine *m = k.machine;
    /* A list for each page size: PBS of ARMv7, and of the others. */
    swath_frames_config config = {
        .granularity = m->format == SWATH_FORMAT_ARMV7 ? 4 : 9,
        .top_order = m->format == SWATH_FORMAT_ARMV7 ? 8 : 18,
    };
    /* All memory lies at its own address. */
    k.memory.first_frame = m->span.start;
    k.memory.bytes = (void *)(uintptr_t)(m->span.start << 12);
    k.memory.len_bytes = (size_t)(m->span.count << 12);
    swath_bus bus = swath_bus_direct(&k.memory);
    swath_spaces spaces = {.reach = reach, .flush = flush};
    size_t bytes = swath_map_storage_bytes(m->range_count);
    DO(swath_map_create(m->ranges, m->range_count, cut(bytes), bytes, &k.map), bytes);
    bytes = swath_frames_storage_bytes(k.map, config);
    DO(swath_frames_create(k.map, config, 1, cut(bytes), bytes, &k.frames), bytes);
    bytes = swath_reservations_storage_bytes(k.map, m->levels);
    DO(swath_reservations_create(k.map, m->levels, k.frames, cut(bytes), bytes, &k.reservations), bytes);
    k.all_free = swath_reservations_free_count(k.reservations);
    kernel_say("frames free", k.all_free);
    for (uint32_t space = 0; space < PROGRAMS; space++) {
        swath_space **made = &k.spaces[space];
        bytes = swath_space_storage_bytes();
        DO(swath_space_create_for_superpages(m->format, bus, k.frames, k.frames, cut(bytes), bytes, made), bytes);
        uint32_t all = SWATH_PAGE_WRITABLE | SWATH_PAGE_EXECUTABLE | SWATH_PAGE_ACCESSED;
        uint64_t first = m->span.start, registers = all & ~(uint32_t)SWATH_PAGE_EXECUTABLE;
        DO(swath_space_map_largest(*made, first, first, m->span.count, all), space);
        for (size_t at = 0; at < m->device_count; at++) {
            uint64_t page = m->devices[at] >> 12;
            DO(swath_space_map_page_size(*made, page, page, 0, (uint32_t)registers | SWATH_PAGE_DEVICE), page);
        }
    }
    uint32_t entries = (uint32_t)(PROGRAMS * k.pages);
    bytes = swath_pmap_storage_bytes(m->span, m->format, SWATH_FLAGS_IN_TABLE, entries);
    DO(swath_pmap_create(m->span, m->format, SWATH_FLAGS_IN_TABLE, entries, spaces, cut(bytes), bytes, &k.pmap), bytes);
    load(0);
    kernel_say("on our own tables, bytes of storage", k.used_bytes);
}

static void check(void) {
    DO(swath_pmap_check(k.pmap, 0), 0);
    for (uint32_t space = 0; space < PROGRAMS; space++) DO(swath_space_check(k.spaces[space]), space);
    kernel_passed();
}

/* The order of the page that maps this one; UINT32_MAX if none does. */
static uint32_t order_of(uint32_t space, uint64_t index) {
    swath_mapping mapping;
    swath_result found = swath_space_translate(k.spaces[space], k.machine->window + index, &mapping);
    return found.status == SWATH_OK ? mapping.order : UINT32_MAX;
}

static void fill(uint64_t index) {
    swath_populated populated;
    DO(swath_reservations_populate(k.reservations, OBJECT, index, 0, k.pages, ++k.now, &populated), index);
    resident[index] = populated.frame;
    for (size_t offset = 0; offset < PAGE_BYTES; offset += sizeof(size_t)) *word_of(index, offset) = 0;
}

static uint32_t full_order(uint64_t frame) {
    for (int at = 0; at < 2; at++) {
        uint32_t order = k.machine->orders[at];
        if (order > 0 && swath_reservations_is_full(k.reservations, frame, order)) return order;
    }
    return 0;
}

static void enter(uint32_t space, uint64_t index, uint32_t access) {
    uint64_t page = k.machine->window + index, frame = resident[index];
    uint32_t order, full = full_order(frame);
    if (order_of(space, index) != UINT32_MAX) {
        swath_faulted faulted;
        DO(swath_pmap_fault(k.pmap, space, page, access, full, &faulted), index);
        if (!faulted.removed) return;
    }
    uint32_t most = SWATH_PAGE_WRITABLE | SWATH_PAGE_USER;
    DO(swath_pmap_enter(k.pmap, space, page, frame, most, access, full, &order), index);
}

/* Handles a fault as an operating system would; 0 if the program may not do that. */
static int handle(uint32_t space, uint64_t index, uint32_t access) {
    if (access == ACCESS_WRITE_FAULT && !may_write[space][index]) return 0;
    k.faults++;
    if (resident[index] == NO_FRAME) fill(index);
    enter(space, index, access == ACCESS_WRITE_FAULT ? SWATH_ACCESS_WRITE : SWATH_ACCESS_READ);
    return 1;
}

/* Reads or writes a word as a program; 0 if it may not. */
static int access(uint32_t space, uint64_t index, size_t offset, size_t *word, int writes) {
    size_t page = (size_t)((k.machine->window + index) << 12), fault;
    load(space);
    /* A superpage that could not be demoted is removed, and its page faults once more. */
    for (int attempt = 0; attempt < 4; attempt++) {
        uint32_t came = writes ? kernel_write(page + offset, *word, &fault) : kernel_read(page + offset, word, &fault);
        if (came == ACCESS_DONE) return 1;
        CHECK((fault & ~(size_t)(PAGE_BYTES - 1)) == page, fault);
        if (!handle(space, index, came)) return 0;
    }
    kernel_failed("a page faults for ever", __LINE__, index);
}

static int reads(uint32_t space, uint64_t index, size_t offset, size_t expected) {
    size_t word;
    return access(space, index, offset, &word, 0) && word == expected;
}

static int writes(uint32_t space, uint64_t index, size_t offset, size_t value) {
    return access(space, index, offset, &value, 1);
}

static int modified(uint64_t index) {
    uint64_t said;
    DO(swath_pmap_modified(k.pmap, resident[index], &said), index);
    return said != 0;
}

static int referenced(uint64_t index) {
    uint64_t said;
    DO(swath_pmap_referenced(k.pmap, resident[index], &said), index);
    return said != 0;
}

static int clean(uint64_t frame) {
    uint64_t said;
    DO(swath_pmap_clean(k.pmap, frame, &said), frame);
    return said != 0;
}

static void unmap(uint32_t space, uint64_t index, uint64_t count) {
    DO(swath_pmap_remove(k.pmap, space, k.machine->window + index, count, NULL), index);
}

static void protect(uint32_t space, uint64_t index, uint64_t count, uint8_t permitted) {
    for (uint64_t at = 0; at < count; at++) may_write[space][index + at] = permitted;
    if (!permitted) DO(swath_pmap_protect(k.pmap, space, k.machine->window + index, count, 0, 0), index);
}

/* Takes a page from all programs, with its frame; says whether it was modified. */
static int page_out(uint64_t index) {
    uint64_t frame = resident[index];
    swath_extent extent = {frame, 1};
    resident[index] = NO_FRAME;
    DO(swath_pmap_page_out(k.pmap, frame, NULL), index);
    int was = clean(frame);
    DO(swath_reservations_free(k.reservations, extent), frame);
    return was;
}

static void one_superpage(void) {
    uint32_t superpage = k.machine->orders[0];
    uint64_t count = (uint64_t)1 << superpage;
    /* Each first read faults, populates the reservation and sees zeroes; the last one promotes. */
    for (uint64_t index = 0; index < count; index++) {
        CHECK(reads(0, index, 8, 0), index);
        CHECK((order_of(0, index) == superpage) == (index + 1 == count), index);
    }
    CHECK(k.faults == count, k.faults);
    for (uint64_t index = 0; index < count; index++) {
        CHECK(order_of(0, index) == superpage, index);
        CHECK(resident[index] == resident[0] + index, index);
        /* What another address shows, the superpage shows: it is the machine that translates. */
        *word_of(index, 0) = 0xabcd0000u | index;
        CHECK(reads(0, index, 0, 0xabcd0000u | index), index);
        *word_of(index, 0) = 0;
    }
    CHECK(k.faults == count, k.faults);

    /* A first write to the read-only superpage demotes it; when every page is written it is whole again. */
    CHECK(!modified(5), 5);
    CHECK(writes(0, 5, 0, 55), 5);
    CHECK(order_of(0, 5) < superpage, 5);
    CHECK(modified(5) && !modified(6), 5);
    for (uint64_t index = 0; index < count; index++) CHECK(writes(0, index, 0, index), index);
    CHECK(order_of(0, 0) == superpage, 0);

    /* A second program shares the superpage, and sees what the first wrote. */
    for (uint64_t index = 0; index < count; index++) CHECK(reads(1, index, 0, index), index);
    CHECK(order_of(1, 0) == superpage, 0);
    CHECK(writes(0, 9, 0, 999) && reads(1, 9, 0, 999), 9);

    /* Protection of a page within demotes for one program alone, and the machine refuses the write. */
    protect(0, 9, 1, 0);
    CHECK(!writes(0, 9, 0, 1), 9);
    CHECK(reads(0, 9, 0, 999), 9);
    CHECK(writes(1, 9, 0, 1000) && reads(0, 9, 0, 1000), 9);
    protect(0, 9, 1, 1);
    CHECK(writes(0, 9, 0, 9), 9);

    /* Paging out takes the page from both, and its content with the frame. */
    CHECK(page_out(17), 17);
    CHECK(order_of(0, 17) == UINT32_MAX && order_of(1, 17) == UINT32_MAX, 17);
    CHECK(reads(1, 17, 0, 0), 17);

    /* Whether a page was accessed is in the table: set by the machine, or at its fault. */
    fill(count);
    enter(0, count, SWATH_ACCESS_NONE);
    CHECK(!referenced(count), count);
    uint64_t faults = k.faults;
    CHECK(reads(0, count, 0, 0) && referenced(count), count);
    CHECK(k.faults - faults == !k.machine->sets_accessed, k.faults);

    for (uint64_t index = 0; index <= count; index++) page_out(index);
    kernel_say("one superpage, faults", k.faults);
}

static size_t last_of(size_t value) { return value == 0 ? 0 : ~value; }

/* Gives a page that was paged out a frame with what it held. */
static void bring(uint64_t index) {
    if (resident[index] != NO_FRAME) return;
    fill(index);
    *word_of(index, 0) = values[index];
    *word_of(index, LAST) = last_of(values[index]);
}

static void model_read(uint32_t space, uint64_t index) {
    bring(index);
    CHECK(reads(space, index, 0, values[index]), index);
    CHECK(reads(space, index, LAST, last_of(values[index])), index);
}

static void model_write(uint32_t space, uint64_t index, size_t value) {
    bring(index);
    if (!may_write[space][index]) {
        CHECK(!writes(space, index, 0, value), index);
        return;
    }
    CHECK(writes(space, index, 0, value) && writes(space, index, LAST, last_of(value)), index);
    values[index] = value;
    dirty[index] = 1;
}

static void model_page_out(uint64_t index) {
    if (resident[index] == NO_FRAME) return;
    CHECK(page_out(index) == dirty[index], index);
    dirty[index] = 0;
}

static void model_clean(uint64_t index) {
    if (resident[index] == NO_FRAME) return;
    CHECK(modified(index) == dirty[index], index);
    CHECK(clean(resident[index]) == dirty[index] && !modified(index), index);
    dirty[index] = 0;
}

static void random_steps(void) {
    uint64_t superpage = (uint64_t)1 << k.machine->orders[0];
    uint32_t space = 0;
    for (uint32_t step = 0; step < STEPS; step++) {
        if (step % TURN == 0) space = (uint32_t)below(PROGRAMS);
        uint64_t index = below(k.pages), rest = k.pages - index - 1, start = index & ~(superpage - 1);
        uint64_t chosen = below(10000);
        if (chosen < 5000) model_read(space, index);
        else if (chosen < 9900) model_write(space, index, (size_t)draw());
        else if (chosen < 9910) {
            /* All of a superpage, in order: so superpages arise. */
            int is_written = below(2) == 0;
            if (is_written) protect(space, start, superpage, 1);
            for (uint64_t at = start; at < start + superpage; at++) {
                if (is_written) model_write(space, at, (size_t)draw());
                else model_read(space, at);
            }
        } else if (chosen < 9935) {
            uint64_t more = below(64);
            unmap(space, index, 1 + (more < rest ? more : rest));
        } else if (chosen < 9940) unmap(space, start, superpage);
        else if (chosen < 9960) {
            uint64_t more = below(8);
            protect(space, index, 1 + (more < rest ? more : rest), below(3) > 0);
        } else if (chosen < 9980) model_page_out(index);
        else model_clean(index);
        if (step % CHECK_EVERY == 0) check();
    }
    kernel_say("random steps, faults", k.faults);
}

static void end(void) {
    for (uint64_t index = 0; index < k.pages; index++)
        if (resident[index] != NO_FRAME) page_out(index);
    CHECK(swath_pmap_free_entries(k.pmap) >= PROGRAMS * k.pages, swath_pmap_free_entries(k.pmap));
    kernel_leave();
    for (uint32_t space = 0; space < PROGRAMS; space++) DO(swath_space_drop(k.spaces[space]), space);
    DO(swath_reservations_release(k.reservations, OBJECT, 0, k.pages), 0);
    CHECK(swath_reservations_free_count(k.reservations) == k.all_free, k.all_free);
    CHECK(swath_frames_free_count(k.frames) == k.all_free, k.all_free);
}

void scenario(const struct machine *machine) {
    k.machine = machine;
    k.loaded = UINT32_MAX;
    k.random = 1;
    k.pages = (uint64_t)SUPERPAGES << machine->orders[0];
    for (uint64_t index = 0; index < k.pages; index++) {
        resident[index] = NO_FRAME;
        for (uint32_t program = 0; program < PROGRAMS; program++) may_write[program][index] = 1;
    }
    start();
    one_superpage();
    random_steps();
    end();
}
