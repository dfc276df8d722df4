// Memory for an accelerator: twelve segments of 20 MiB out of sixteen areas of 16 MiB with vacuums between
// them, and the extents that its segment map is loaded with.
//
//   cc -I crates/swath-ffi/include crates/swath-ffi/examples/segments.c target/release/libswath.a -o segments
#include <stdio.h>
#include <stdlib.h>

#include "swath.h"

enum { AREAS = 16, MIB = 256 };

static void must(swath_result result, const char *what) {
    if (result.status == SWATH_OK) return;
    fprintf(stderr, "%s: %s (%llu)\n", what, swath_status_text(result.status),
            (unsigned long long)result.at);
    exit(1);
}

// A kernel takes the frames from its own allocator here.
static void acquire(swath_extent run, void *context) { *(uint64_t *)context += run.count; }
static void release(swath_extent run, void *context) { *(uint64_t *)context -= run.count; }

// Requests of 20 MiB until one is refused; how many were served.
static unsigned fill(swath_segments *segments, uint64_t *held, swath_segment *last) {
    swath_area_frames frames = {acquire, release, held};
    swath_segment_request request = swath_segment_request_of(20 * MIB);
    unsigned served = 0;
    while (swath_segments_allocate_from(segments, &request, frames, last).status == SWATH_OK) served++;
    return served;
}

int main(void) {
    swath_extent areas[AREAS];
    for (unsigned i = 0; i < AREAS; i++) areas[i] = (swath_extent){i * 24 * MIB, 16 * MIB};
    const char *names[] = {"baseline", "global bitmap", "pre-allocated"};
    for (uint32_t kind = SWATH_SEGMENTS_BASELINE; kind <= SWATH_SEGMENTS_PRE_ALLOCATED; kind++) {
        swath_segments_config config = {.kind = kind, .unit_order = 0};
        size_t len_bytes = swath_segments_storage_bytes(areas, AREAS, config);
        void *storage = malloc(len_bytes);
        if (!storage) return 2;
        swath_segments *segments;
        must(swath_segments_create(areas, AREAS, config, storage, len_bytes, &segments), "create");
        uint64_t held = 0;
        swath_segment last;
        unsigned served = fill(segments, &held, &last);
        printf("%s: %u segments, %llu MiB acquired\n", names[kind], served,
               (unsigned long long)held / MIB);
        swath_extent extents[3];
        size_t count;
        must(swath_segments_extents(segments, last, extents, 3, &count), "extents");
        for (size_t i = 0; i < count; i++)
            printf("  %llu MiB at %llu MiB\n", (unsigned long long)extents[i].count / MIB,
                   (unsigned long long)extents[i].start / MIB);
        free(storage);
    }
    return 0;
}
