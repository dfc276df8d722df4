// Frames for a kernel: what the firmware reports, an allocator over it, and 900 frames for a
// frame buffer in as few blocks as there can be.
//
//   cc -I crates/swath-ffi/include crates/swath-ffi/examples/frames.c target/release/libswath.a -o frames
#include <stdio.h>
#include <stdlib.h>

#include "swath.h"

// A kernel has a static array here, or the first frames that it finds.
static void *storage(size_t len_bytes) {
    void *bytes = malloc(len_bytes);
    if (!bytes) exit(2);
    return bytes;
}

static void must(swath_result result, const char *what) {
    if (result.status == SWATH_OK) return;
    fprintf(stderr, "%s: %s (%llu)\n", what, swath_status_text(result.status),
            (unsigned long long)result.at);
    exit(1);
}

int main(void) {
    swath_range ranges[] = {{0x00100000, 63u << 20}, {0x80000000, 128u << 20}};
    size_t len_bytes = swath_map_storage_bytes(2);
    void *for_map = storage(len_bytes);
    swath_map *map;
    must(swath_map_create(ranges, 2, for_map, len_bytes, &map), "map");

    swath_frames_config pbs = {.granularity = 9, .top_order = 18, .best_fit = 0};
    len_bytes = swath_frames_storage_bytes(map, pbs);
    void *for_frames = storage(len_bytes);
    swath_frames *frames;
    must(swath_frames_create(map, pbs, 1, for_frames, len_bytes, &frames), "frames");
    // The map is not needed any more: an object ends with its storage.
    free(for_map);

    swath_extent blocks[8];
    size_t taken;
    must(swath_frames_allocate(frames, 900, blocks, 8, &taken), "allocate");
    for (size_t i = 0; i < taken; i++)
        printf("%llu frames from %llu on\n", (unsigned long long)blocks[i].count,
               (unsigned long long)blocks[i].start);

    // Any part of it can go back, once.
    swath_extent tail = {blocks[0].start + 800, 100};
    must(swath_frames_free(frames, tail), "free");
    swath_result twice = swath_frames_free(frames, tail);
    printf("again: %s, frame %llu\n", swath_status_text(twice.status),
           (unsigned long long)twice.at);
    printf("%llu of %llu frames are free\n", (unsigned long long)swath_frames_free_count(frames),
           (unsigned long long)swath_frames_total_count(frames));
    free(for_frames);
    return 0;
}
