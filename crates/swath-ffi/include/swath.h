// Swath: memory kept contiguous.
//
// Made by `cargo xtask header` from crates/swath-ffi; the text of every item is there.
// Objects stand in storage that you give: ask for the size, hand the storage over.
// Every result has a status and a place: SWATH_OK, or what went wrong and where, and then
// nothing has changed. Frames have 4096 bytes.

#ifndef SWATH_H
#define SWATH_H

#include <stddef.h>
#include <stdint.h>

// The page may be read.
#define SWATH_READ 1

// The page may be written.
#define SWATH_WRITE 2

// The page may be executed.
#define SWATH_EXECUTE 4

// Writes are allowed.
#define SWATH_PAGE_WRITABLE 1

// Unprivileged code may access the page.
#define SWATH_PAGE_USER 2

// Instructions may be fetched from it.
#define SWATH_PAGE_EXECUTABLE 4

// It is the same in every address space.
#define SWATH_PAGE_GLOBAL 8

// It has been accessed.
#define SWATH_PAGE_ACCESSED 16

// It is a device's: no caching, no speculation.
#define SWATH_PAGE_DEVICE 32

// Outcome of a call.
enum swath_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // All went well.
  SWATH_OK = 0,
  // A pointer that must not be null is.
  SWATH_NULL,
  // The object is not of the kind that the function works on.
  SWATH_WRONG_OBJECT,
  // An argument is not among those possible; `at` is its value.
  SWATH_ARGUMENT,
  // The storage is too small; `at` is how many bytes it needs.
  SWATH_STORAGE,
  // A request for nothing.
  SWATH_EMPTY,
  // A range whose end cannot be said; `at` is its start.
  SWATH_OVERFLOW,
  // Ranges overlap; `at` is where.
  SWATH_OVERLAP,
  // There is no frame at all in the ranges.
  SWATH_NO_FRAME,
  // Not as many frames are free; `at` is how many are.
  SWATH_OUT_OF_FRAMES,
  // Frames are free, but no block of the order, or no segment as long; `at` is the order, or the
  // frames wanted.
  SWATH_NO_BLOCK,
  // Not the object's; `at` is the first such frame, page or address.
  SWATH_FOREIGN,
  // Free already, or never handed out; `at` is the first such frame or address.
  SWATH_NOT_ALLOCATED,
  // Not aligned as it has to be; `at` is the frame or address.
  SWATH_MISALIGNED,
  // It is in the other state already; `at` is the frame or page.
  SWATH_STATE,
  // More blocks than there is room for in the array; `at` is how many there are.
  SWATH_TOO_MANY_BLOCKS,
  // No region holds the page, or none starts there; `at` is the page.
  SWATH_NO_REGION,
  // The region lacks a right that the access needs; `at` is the page.
  SWATH_DENIED,
  // The page is mapped; `at` is the page.
  SWATH_MAPPED,
  // A quota does not allow it; `at` is the limit.
  SWATH_QUOTA,
  // No memory answers; `at` is the physical address.
  SWATH_BUS,
  // The request is larger than any pool, or than what lies between its limits; `at` is its size.
  SWATH_TOO_LARGE,
  // No block is long enough; `at` is the largest request that could be served.
  SWATH_OUT_OF_MEMORY,
  // Metadata in memory was overwritten; `at` is the address.
  SWATH_CORRUPT,
  // The pool is in use; `at` is an address in use.
  SWATH_IN_USE,
  // The object is being walked: a visitor called this from within.
  SWATH_BUSY,
  // The page is not mapped; `at` is the page.
  SWATH_FAULT,
  // A channel's queue has no place; `at` is the channel.
  SWATH_QUEUE_FULL,
  // No entry of a reverse map is free.
  SWATH_OUT_OF_ENTRIES,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum swath_status swath_status;
#else
typedef uint32_t swath_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The pages that back an extent.
typedef enum {
  // Of 1 GiB, of the kernel's hugetlb pool.
  CMT_PAGES_HUGETLB_1G = 0,
  // Of 2 MiB, of the kernel's hugetlb pool.
  CMT_PAGES_HUGETLB_2M,
  // For which transparent huge pages of 2 MiB were asked for.
  CMT_PAGES_TRANSPARENT,
  // Of 4 KiB.
  CMT_PAGES_SMALL,
  // Of one of the kernel's dma-heaps, in frames that stay.
  CMT_PAGES_DMA_HEAP,
} cmt_pages;

// Access of a processor to a page.
enum swath_access
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Nothing yet: the page is mapped in advance.
  SWATH_ACCESS_NONE = 0,
  // It reads or executes.
  SWATH_ACCESS_READ = 1,
  // It writes.
  SWATH_ACCESS_WRITE = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum swath_access swath_access;
#else
typedef uint32_t swath_access;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Chips of a memory.
enum swath_dram_part
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // DDR3-800 5-5-5.
  SWATH_DRAM_DDR3_800 = 0,
  // DDR3-1600.
  SWATH_DRAM_DDR3_1600 = 1,
  // DDR4-3200.
  SWATH_DRAM_DDR4_3200 = 2,
  // DDR5-4800, a channel of 32 bits.
  SWATH_DRAM_DDR5_4800 = 3,
  // LPDDR4-3200.
  SWATH_DRAM_LPDDR4_3200 = 4,
  // LPDDR5-6400.
  SWATH_DRAM_LPDDR5_6400 = 5,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum swath_dram_part swath_dram_part;
#else
typedef uint32_t swath_dram_part;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Place in which contiguity is written.
enum swath_field
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The bits that the format leaves free in each descriptor.
  SWATH_FIELD_DESCRIPTOR = 0,
  // Those of all descriptors of a line of 64 bytes, taken together.
  SWATH_FIELD_LINE = 1,
  // An ideal word beside each descriptor, a frame further, which arrives with it.
  SWATH_FIELD_BESIDE = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum swath_field swath_field;
#else
typedef uint32_t swath_field;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Policy by which a heap chooses blocks.
enum swath_fit
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // 32 classes in each power of two: little is lost by rounding.
  SWATH_TLSF = 0,
  // Powers of two: fewer instructions, up to half of a block lost.
  SWATH_HALF_FIT = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum swath_fit swath_fit;
#else
typedef uint32_t swath_fit;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Place in which a pmap keeps whether a page was accessed and written.
enum swath_flags_place
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // In the tables.
  SWATH_FLAGS_IN_TABLE = 0,
  // In the entries of the reverse map, which take half as much again.
  SWATH_FLAGS_IN_REVERSE_MAP = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum swath_flags_place swath_flags_place;
#else
typedef uint32_t swath_flags_place;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Format of page tables.
enum swath_format
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // ARMv7-A, short descriptors.
  SWATH_FORMAT_ARMV7 = 0,
  // ARMv8-A, the 4 KiB granule.
  SWATH_FORMAT_ARMV8 = 1,
  // x86-64 with 4 levels.
  SWATH_FORMAT_X86_64 = 2,
  // RISC-V Sv39 with Svnapot.
  SWATH_FORMAT_SV39 = 3,
  // RISC-V Sv48 with Svnapot.
  SWATH_FORMAT_SV48 = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum swath_format swath_format;
#else
typedef uint32_t swath_format;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Policy of reservations: the superpages that are reserved.
enum swath_levels
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Sections of 1 MiB, and large pages of 64 KiB within.
  SWATH_LEVELS_ARMV7 = 0,
  // Supersections of 16 MiB too.
  SWATH_LEVELS_ARMV7_SUPERSECTIONS = 1,
  // Blocks of 2 MiB, and contiguous runs of 64 KiB within.
  SWATH_LEVELS_ARMV8 = 2,
  // Blocks of 1 GiB too.
  SWATH_LEVELS_ARMV8_GIGABYTES = 3,
  // 2 MiB.
  SWATH_LEVELS_X86_64 = 4,
  // 1 GiB too.
  SWATH_LEVELS_X86_64_GIGABYTES = 5,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum swath_levels swath_levels;
#else
typedef uint32_t swath_levels;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Mobility of the owner of frames: it could be moved elsewhere, or not.
enum swath_mobility
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Kernel memory, reached by its physical address.
  SWATH_UNMOVABLE = 0,
  // Memory reached through mappings that can be changed.
  SWATH_MOVABLE = 1,
  // Kernel memory that can be dropped on demand, but not moved.
  SWATH_RECLAIMABLE = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum swath_mobility swath_mobility;
#else
typedef uint32_t swath_mobility;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Pool in which a bank's free memory counts.
enum swath_pool
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Unmovable and reclaimable memory.
  SWATH_POOL_KERNEL = 0,
  // Movable memory.
  SWATH_POOL_USER = 1,
  // Banks that are wholly free, and can rest.
  SWATH_POOL_OFFLINE = 2,
  // In no pool: the bank is isolated or has no frames.
  SWATH_POOL_NONE = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum swath_pool swath_pool;
#else
typedef uint32_t swath_pool;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Choice of the entry that gives way in a TLB.
enum swath_replacement
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The one that was used least recently.
  SWATH_REPLACE_LRU = 0,
  // The one that came first.
  SWATH_REPLACE_FIFO = 1,
  // Any, by a generator that always begins alike.
  SWATH_REPLACE_RANDOM = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum swath_replacement swath_replacement;
#else
typedef uint32_t swath_replacement;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Contiguity that descriptors of base pages state.
enum swath_scheme
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // None.
  SWATH_SCHEME_TRAD = 0,
  // Ascend and Descend: pages of the same block after and before it.
  SWATH_SCHEME_PCAD = 1,
  // Anchors: contiguous pages from every page whose number is a multiple of the distance.
  SWATH_SCHEME_AT = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum swath_scheme swath_scheme;
#else
typedef uint32_t swath_scheme;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The allocators of segments, after *Zhang, Lu and Zhang* (CLMalloc).
enum swath_segments_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // A bitmap for each area, as Linux's contiguous memory; a request longer than an area gets whole
  // free areas (section 3.2).
  SWATH_SEGMENTS_BASELINE = 0,
  // One bitmap over all areas, whose frames are acquired with each segment, in blocks of a power of two
  // (section 4.1).
  SWATH_SEGMENTS_GLOBAL_BITMAP = 1,
  // One bitmap over all areas, whose frames were all acquired at start (pre-allocation, section 4.2).
  SWATH_SEGMENTS_PRE_ALLOCATED = 2,
  // One unit at a time: pages of a huge-page pool.
  SWATH_SEGMENTS_HUGE_PAGES = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum swath_segments_kind swath_segments_kind;
#else
typedef uint32_t swath_segments_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Adaptive-Buddy over the banks of one zone.
typedef struct swath_banks swath_banks;

// A memory of several channels, cycle by cycle.
typedef struct swath_dram swath_dram;

// Frames that spaces share.
typedef struct swath_frame_pool swath_frame_pool;

// An allocator of frames: BBS or PBS.
typedef struct swath_frames swath_frames;

// A heap of bytes.
typedef struct swath_heap swath_heap;

// The frames that exist, as areas with vacuums between them.
typedef struct swath_map swath_map;

// A memory management unit: a TLB or two, and a walker.
typedef struct swath_mmu swath_mmu;

// Mappings of all spaces.
typedef struct swath_pmap swath_pmap;

// A virtual address space of regions.
typedef struct swath_regions swath_regions;

// Reservations of superpages.
typedef struct swath_reservations swath_reservations;

// An allocator of segments.
typedef struct swath_segments swath_segments;

// Page tables of an address space.
typedef struct swath_space swath_space;

// Frames that follow one another, each of 4096 bytes.
typedef struct {
  // The number of the first frame: its address divided by 4096.
  uint64_t start;
  // Number of frames.
  uint64_t count;
} swath_extent;

// Banks of a zone.
typedef struct {
  // The zone: the map's frames in this span.
  swath_extent zone;
  // The first frame of a bank, at or below the zone's; a multiple of 2^`top_order`.
  uint64_t first_frame;
  // Frames of a bank, a multiple of 2^`top_order`: 65536 are 256 MiB.
  uint64_t bank_frames;
  // The largest order of a block, 10 as in Linux.
  uint32_t top_order;
  // 0: the bank used last serves, as in the paper. 1: the fullest, which leaves more banks to rest.
  uint32_t packed;
} swath_banks_config;

// A status and where it applies: the frame, page, address or number that the
// status tells of, else 0.
typedef struct {
  // Outcome of the call.
  swath_status status;
  // Frame, page, address or number to which the status applies.
  uint64_t at;
} swath_result;

// Counts of a bank.
typedef struct {
  // From its first border to its last.
  swath_extent extent;
  // Frames of the zone in it.
  uint64_t total_frames;
  // Those that are free.
  uint64_t free_frames;
  // A `swath_pool`.
  uint32_t pool;
  // 1 if it is isolated, else 0.
  uint32_t isolated;
} swath_bank;

// An extent of the reserve: a run of addresses that was one run of physical memory when it was taken.
typedef struct {
  // Its first address.
  size_t start;
  // Number of its bytes.
  uint64_t len_bytes;
  // The physical address of its first byte; all ones if it is not known: its frames are simulated.
  uint64_t physical;
  // The pages that back it.
  cmt_pages pages;
} cmt_reserve_extent;

// Settings of `cmt_malloc`. Fill it with `cmt_options_default` first, so that it stays right
// when members are added.
//
// Each member can be set by the environment too, by the name beside it; the environment
// counts where the program does not call `cmt_init`. A value that is no number or out of
// range is the default.
typedef struct {
  // `SWATH_ARENA_MIB`: addresses to reserve, which bound all memory together. They cost
  // nothing. 2 to 16777216 (16 TiB), by default eight times the machine's memory and 256 GiB at least;
  // less in a process whose addresses are limited, half of what it has left then, and twice the memory
  // where the kernel counts what is only reserved.
  uint64_t arena_mib;
  // `SWATH_HUGETLB`: 1 takes pages of the kernel's hugetlb pools as far as there are any,
  // of 1 GiB for segments that hold them whole, else of 2 MiB. Before the first fork what is in use
  // of them moves to other pages, and no more are taken; so none are without the right to userfaultfd
  // (CAP_SYS_PTRACE) but for a reserve that children do not have. Default 2: 1, but in the library
  // that overrides malloc only for a reserve.
  uint32_t hugetlb;
  // `SWATH_THP`: 1 asks for transparent huge pages of 2 MiB. Default 1.
  uint32_t thp;
  // `SWATH_POPULATE`: 1 touches segments of 2 MiB and more when they are allocated, and with the
  // right to know physical addresses picks and orders their pages so that they are as
  // contiguous as can be. Default 2: 1, but 0 in the library that overrides malloc.
  uint32_t populate;
  // `SWATH_PURGE_MS`: time for which memory that is free stays with the process before it
  // goes back to the system, in ms. Default 1000.
  uint64_t purge_ms;
  // `SWATH_EMPTY_EIGHTHS`: the emptiness threshold f in eighths, 1 to 7: a superblock that is
  // so empty may go to other threads. Default 7.
  uint32_t empty_eighths;
  // `SWATH_GUARD`: 1 puts an address range that faults behind every segment. Default 0.
  uint32_t guard;
  // `SWATH_QUARANTINE`: number of freed blocks of a thread that wait before they may be
  // allocated again, so that a use after free is not at once another's; with one, blocks have
  // canaries. Up to 4096; default 0.
  uint32_t quarantine;
  // `SWATH_ON_ERROR`: the consequence of a wrong pointer given to `cmt_free`: 0, nothing; 1,
  // a line on standard error; 2, that and an abort. Default 2.
  uint32_t on_error;
  // `SWATH_CANARY`: 1 puts a word behind every block that `cmt_free` and `cmt_realloc` look at: a
  // write beyond the bytes that may be used has the consequence of a wrong pointer. Default 0.
  uint32_t canary;
  // `SWATH_RESERVE`, there in bytes or with K, M or G behind the number: bytes of a physical reserve,
  // which is taken at once, or as much as there is memory for. Blocks longer than 32 KiB come from it
  // as one run of physical memory each, and it grows when it is full. Where free memory is in pieces the
  // first call takes up to 5 s of processor time to find runs with room for blocks of a twelfth of it; `cmt_stats` and
  // `cmt_reserve_extents` say what there is. Default 0, none.
  uint64_t reserve_bytes;
  // `SWATH_DONTFORK`: 1 leaves the reserve to this process. A fork's child does not have its blocks: it
  // may free them, and an access faults; the parent's keep their frames when it writes. Default 0.
  uint32_t dontfork;
  // `SWATH_BACKGROUND`: 1 has a thread of the library's own return free memory to the system, even while
  // the process does nothing. Default 0: calls that take long return it.
  uint32_t background;
  // `SWATH_SLACK`: number of superblocks of one size, as empty as `empty_eighths` says, which a thread
  // keeps all the same (the K of Hoard). Up to 1024; default 4.
  uint32_t slack;
  // `SWATH_HEAPS`: number of threads that have a heap of their own at a time (the paper's P); all
  // others share one more, behind a lock. 1 to 8191, the default.
  uint32_t heaps;
  // `SWATH_DMA_HEAP`: 1 takes the reserve from one of the kernel's dma-heaps first, of Swath's module or of
  // the contiguous memory allocator (CMA), where the process may open it. Its frames stay, and Swath's are
  // known. A fork's child has copies of its blocks. Default 1.
  uint32_t dma_heap;
} cmt_options;

// Counts of what the pool holds, in bytes if not said otherwise. Later versions add members at the end:
// a program says how long the struct is that it knows.
typedef struct {
  // Blocks in use, as long as their slots and segments are.
  uint64_t live_bytes;
  // Superblocks and segments.
  uint64_t held_bytes;
  // Segments in use.
  uint64_t segment_bytes;
  // Free memory that has not gone back to the system.
  uint64_t cached_bytes;
  // Of pages of 1 GiB of the hugetlb pool.
  uint64_t hugetlb_1g_bytes;
  // Of pages of 2 MiB of the hugetlb pool.
  uint64_t hugetlb_2m_bytes;
  // For which transparent huge pages were asked for.
  uint64_t thp_bytes;
  // Of pages of 4 KiB.
  uint64_t small_bytes;
  // Of segments whose pages were picked and ordered by their frames, so far.
  uint64_t ordered_bytes;
  // Addresses reserved.
  uint64_t arena_bytes;
  // Blocks that were freed by another thread than allocated them; not bytes.
  uint64_t remote_frees;
  // Blocks freed twice by two threads at once, found afterwards; not bytes.
  uint64_t late_double_frees;
  // Threads with a heap; not bytes.
  uint32_t threads;
  // 1 if physical addresses are known, else 0.
  uint32_t physical_known;
  // The reserve.
  uint64_t reserve_bytes;
  // Free in the reserve; not what threads keep of it after a free: segments up to 1 MiB, 4 MiB of them each,
  // until `cmt_purge` or a request that finds no other memory takes them.
  uint64_t reserve_free_bytes;
  // The reserve's longest free run: what one contiguous block can have.
  uint64_t reserve_longest_bytes;
  // Free runs of the reserve; not bytes.
  uint64_t reserve_free_runs;
  // Extents of the reserve, which `cmt_reserve_extents` lists; not bytes.
  uint64_t reserve_extents;
  // Of the kernel's dma-heaps.
  uint64_t dma_heap_bytes;
} cmt_stats;

// A piece of a block that is contiguous in physical memory.
typedef struct {
  // The physical address of its first byte.
  uint64_t address;
  // Number of its bytes.
  uint64_t len_bytes;
} cmt_extent;

// Memory that `cmt_pin` holds. The members behind the first are the library's.
typedef struct {
  // 1 if its frames stay the same; 0 if it only stays in memory: the kernel has no io_uring for this
  // process, may move it when it compacts memory, and copies it at a write after a fork.
  uint32_t frames_stay;
  // The ring that it is registered with.
  int32_t ring;
  // Its first address.
  size_t start;
  // Number of its bytes.
  size_t len_bytes;
} cmt_pinned;

// Configuration of a memory. Its channels take turns every 64 bytes; each serves what is ready first, then
// the oldest, and keeps as many writes as reads, which it writes in drains.
typedef struct {
  // A `swath_dram_part`.
  uint32_t part;
  // Channels: a power of two up to 64.
  uint32_t channels;
  // Ranks on each: a power of two, with up to 64 banks on a channel.
  uint32_t ranks;
  // Places in a channel's queue: 1 to 4096.
  uint32_t queue_entries;
} swath_dram_config;

// Constants of a memory.
typedef struct {
  // Bytes of all channels.
  uint64_t len_bytes;
  // Picoseconds of a cycle of the command clock, in which time is counted.
  uint64_t clock_period_ps;
  // Bytes of a request.
  uint64_t burst_bytes;
} swath_dram_facts;

// End of a request.
typedef struct {
  // The caller's name for it.
  uint64_t id;
  // The first cycle in which its data are there.
  uint64_t cycle;
  // 1 if it was a write.
  uint32_t is_write;
} swath_dram_done;

// Counters of a memory.
typedef struct {
  // Reads that were accepted.
  uint64_t reads;
  // Writes.
  uint64_t writes;
  // Requests that found their row open.
  uint64_t row_hits;
  // Those that found their bank closed.
  uint64_t row_misses;
  // Those that found another row open.
  uint64_t row_conflicts;
  // Refreshes.
  uint64_t refreshes;
} swath_dram_stats;

// Policy of an allocator: the orders that have a free list, and the choice of the block for a request.
//
// The binary buddy system (BBS) of Linux is granularity 1 and top 10. The page buddy system
// (PBS) is granularity 4 and top 8 on ARMv7, 9 and 18 on ARMv8 and x86-64.
typedef struct {
  // Lists are at the orders 0, granularity, 2·granularity and so on.
  uint32_t granularity;
  // The largest order that may have one.
  uint32_t top_order;
  // 0: the head of a list serves, as in the paper. 1: the shortest run that is long enough.
  uint32_t best_fit;
} swath_frames_config;

// A request for frames in one run. Begin with `swath_contiguous_request_of`, so that it stays right when members
// are added.
typedef struct {
  // Number of frames.
  uint64_t count;
  // No frame below this one.
  uint64_t lower;
  // No frame from this one on: 2^20 for a device with addresses of 32 bits.
  uint64_t upper;
  // The first frame is a multiple of this, a power of two.
  uint64_t align;
  // No two frames lie on two sides of a multiple of this, a power of two; 0 is no such limit.
  uint64_t boundary;
} swath_contiguous_request;

// Source of pages for a heap. All ranges are whole pages of one pool.
// From `commit` until `release` a page can be read and written, and only the heap and its
// users touch it.
typedef struct {
  // Makes a range usable; 0 if that was done, and none of it otherwise.
  int32_t (*commit)(void *context, void *start, size_t len);
  // Releases a range.
  void (*release)(void *context, void *start, size_t len);
  // Returns 1 if the page of an address is committed, else 0.
  int32_t (*is_committed)(void *context, const void *address);
  // Argument of the functions.
  void *context;
  // Bytes of a page, a power of two of at least 64.
  size_t page_bytes;
} swath_page_source;

// Usable physical memory as the firmware reports it: any address, any length.
typedef struct {
  // The address of the first byte.
  uint64_t start;
  // Number of bytes.
  uint64_t len_bytes;
} swath_range;

// Contiguity that page tables state besides, which their writer and reader must agree upon.
typedef struct {
  // A `swath_scheme`.
  uint32_t scheme;
  // A `swath_field`; without effect on `SWATH_SCHEME_TRAD`.
  uint32_t field;
  // Bits of each number in `SWATH_FIELD_BESIDE`, 1 to 32 (ARMv7: 16).
  uint32_t field_bits;
  // log2 of the distance of anchors in pages, 1 to 16.
  uint32_t anchor_log2;
} swath_coalescing;

// Form of a TLB.
typedef struct {
  // Sets: a power of two.
  uint32_t sets;
  // Ways of each.
  uint32_t ways;
  // log2 of the pages that share a set; a coalesced entry is cut to them.
  uint32_t index_shift;
} swath_tlb_form;

// Configuration of a unit.
typedef struct {
  // A `swath_format`.
  uint32_t format;
  // The physical address of the root table.
  uint64_t root;
  // The contiguity that its tables state.
  swath_coalescing coalescing;
  // The first TLB.
  swath_tlb_form first;
  // The second; without sets there is none.
  swath_tlb_form second;
  // Cycles of a lookup in the second, 1 and more; without effect if there is none.
  uint32_t second_cycles;
  // Entries of a page-walk cache, 0 for none; only behind two TLBs.
  uint32_t walk_cache_entries;
  // A `swath_replacement`.
  uint32_t replacement;
  // 1 if an anchor is looked at before the page itself.
  uint32_t anchor_first;
} swath_mmu_config;

// Physical memory, reached by functions. Each reads or writes 4 or 8 bytes, the lowest first, at a
// multiple of them, and returns 0, or another number if no memory answers.
typedef struct {
  // Reads.
  int32_t (*read)(void *context, uint64_t addr, uint32_t len_bytes, uint64_t *value);
  // Writes; who only translates may leave it out.
  int32_t (*write)(void *context, uint64_t addr, uint32_t len_bytes, uint64_t value);
  // Handed to both.
  void *context;
} swath_bus;

// Translation of an address.
typedef struct {
  // The physical address.
  uint64_t addr;
  // 1 if a TLB had it.
  uint32_t is_hit;
  // Cycles that the lookup took beyond the first TLB's.
  uint32_t lookup_cycles;
  // Reads of the walk: descriptors, or the line of the last one.
  uint32_t reads;
} swath_translated;

// Counters of a unit.
typedef struct {
  // Lookups in the first TLB.
  uint64_t first_accesses;
  // Those that it did not answer.
  uint64_t first_misses;
  // Lookups in the second TLB.
  uint64_t second_accesses;
  // Those that it did not answer.
  uint64_t second_misses;
  // Walks, those to anchors included.
  uint64_t walks;
  // Descriptors that they read.
  uint64_t reads;
  // Walks that found no page.
  uint64_t faults;
  // Reads that the page-walk cache saved.
  uint64_t saved_reads;
} swath_mmu_stats;

// TLB maintenance that a change of tables owes: every entry that covers one of these pages is to be
// invalidated, also a coalesced one that was filled from a page outside.
typedef struct {
  // The first page.
  uint64_t first_page;
  // Number of pages.
  uint64_t count;
  // 1 if links to tables changed, so that caches of the entries on the way are to be invalidated, too.
  uint32_t links_changed;
} swath_flush;

// The spaces that a pmap reaches, by numbers of the caller's, and the maintenance of their TLBs. Neither function
// may be missing.
typedef struct {
  // Returns the space of a number, made for superpages; null if there is none.
  swath_space *(*reach)(void *context, uint32_t space);
  // Does the maintenance, which is done when it returns: in the middle of a promotion or demotion, where
  // processors want the old entries gone before the new ones are there.
  void (*flush)(void *context, uint32_t space, swath_flush flush);
  // Handed to both.
  void *context;
} swath_spaces;

// The outcome of a fault.
typedef struct {
  // The order of the page that permits the access now.
  uint32_t order;
  // 0, or 1 if the superpage could not be demoted and is gone: the page is to be entered anew.
  uint32_t removed;
  // The first of the pages that are gone.
  uint64_t first_page;
  // Their number.
  uint64_t count;
} swath_faulted;

// Physical memory that the processor reaches at another address.
typedef struct {
  // The number of its first frame.
  uint64_t first_frame;
  // Address at which it begins for the processor, a multiple of 8.
  void *bytes;
  // Number of bytes, a multiple of 8.
  size_t len_bytes;
} swath_memory;

// Physical addresses of the arrays of a space, multiples of 4. Each is
// 4·2^`pages_log2` bytes.
typedef struct {
  // k: the space has 2^k pages, k from 5 to 28.
  uint32_t pages_log2;
  // d: frames and rights.
  uint64_t data;
  // h: places in the stacks.
  uint64_t helper;
  // s: the stacks.
  uint64_t stack;
  // sp: where the stacks end.
  uint64_t stack_end;
  // c: the virtual regions cache.
  uint64_t regions;
} swath_validity_tables;

// Numbers of frames that a space is sure to get, and that it never exceeds.
typedef struct {
  // Frames that the pool keeps for the space.
  uint32_t guaranteed;
  // Frames that it will never exceed; not less.
  uint32_t limit;
} swath_quota;

// Description of a region that was unmapped.
typedef struct {
  // Its first page.
  uint64_t first_page;
  // Its pages: a TLB must forget them before they are mapped again.
  uint64_t pages;
  // Frames that went back to the pool.
  uint32_t frames;
} swath_unmapped;

// The frame that a page was given.
typedef struct {
  // The frame.
  uint64_t frame;
  // The largest order whose aligned range around the page is populated in full since
  // this call, and can be promoted now; 0 if there is none.
  uint32_t full_order;
  // The order of the reservation that the frame lies in; 0 if it is a frame by itself.
  uint32_t reserved_order;
} swath_populated;

// The kind of an allocator of segments and its granularity.
typedef struct {
  // A `swath_segments_kind`.
  uint32_t kind;
  // log2 of the frames of a unit: segments are whole units, and of each area only whole, aligned
  // units are used.
  uint32_t unit_order;
} swath_segments_config;

// A request for a segment. Begin with `swath_segment_request_of`, so that it stays right when members
// are added.
typedef struct {
  // Number of frames; rounded up to whole units.
  uint64_t count;
  // No frame below this one of the accelerator's space.
  uint64_t lower;
  // No frame from this one on.
  uint64_t upper;
  // The first frame is a multiple of this, a power of two.
  uint64_t align;
  // No two frames lie on two sides of a multiple of this, a power of two; 0 is no such limit.
  uint64_t boundary;
  // 1: all frames lie in one area, for a device without a segment map. Else 0.
  uint32_t one_area;
} swath_segment_request;

// Frames that follow one another in the accelerator's address space, in which the areas are laid end to
// end from 0 on.
typedef struct {
  // The number of the first frame in that space.
  uint64_t start;
  // Number of frames.
  uint64_t count;
} swath_segment;

// Functions to call for the frames behind the areas: a kernel's allocator of frames. Calls of the functions
// of this library that would change the segments return `SWATH_BUSY` within.
typedef struct {
  // Acquires the frames of a run in one area.
  void (*acquire)(swath_extent run, void *context);
  // Releases the frames of a run in one area, which were acquired.
  void (*release)(swath_extent run, void *context);
  // Handed to both.
  void *context;
} swath_area_frames;

// A translation, as the tables say it.
typedef struct {
  // The frame of the page asked for.
  uint64_t frame;
  // The order of the page that maps it.
  uint32_t order;
  // Its attributes: `SWATH_PAGE_…`.
  uint32_t attributes;
} swath_mapping;

// Every status, in the order of their numbers.
#define swath_status_ALL { SWATH_OK, SWATH_NULL, SWATH_WRONG_OBJECT, SWATH_ARGUMENT, SWATH_STORAGE, SWATH_EMPTY, SWATH_OVERFLOW, SWATH_OVERLAP, SWATH_NO_FRAME, SWATH_OUT_OF_FRAMES, SWATH_NO_BLOCK, SWATH_FOREIGN, SWATH_NOT_ALLOCATED, SWATH_MISALIGNED, SWATH_STATE, SWATH_TOO_MANY_BLOCKS, SWATH_NO_REGION, SWATH_DENIED, SWATH_MAPPED, SWATH_QUOTA, SWATH_BUS, SWATH_TOO_LARGE, SWATH_OUT_OF_MEMORY, SWATH_CORRUPT, SWATH_IN_USE, SWATH_BUSY, SWATH_FAULT, SWATH_QUEUE_FULL, SWATH_OUT_OF_ENTRIES, }

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Bytes of storage for the banks; 0 if the map or the configuration is wrong.
//
// # Safety
// `map` is null or an object of this library.
size_t swath_banks_storage_bytes(const swath_map *map, swath_banks_config config);

// Makes the allocator, with all frames free. The map is not needed after.
//
// Errors: `SWATH_ARGUMENT` with the value, `SWATH_MISALIGNED` with the first border,
// `SWATH_OVERFLOW`, `SWATH_NO_FRAME`, `SWATH_STORAGE`, `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `map` is null or an object of this library; `storage` is `len_bytes` of memory that the
// allocator has for itself from now on; `banks` can be written.
swath_result swath_banks_create(const swath_map *map,
                                swath_banks_config config,
                                void *storage,
                                size_t len_bytes,
                                swath_banks **banks);

// Takes 2^`order` frames, aligned, for an owner of a `swath_mobility`; `frame` is the
// first. No search over banks: O(orders).
//
// Errors: `SWATH_ARGUMENT`; `SWATH_NO_BLOCK` with the order; `SWATH_NULL`,
// `SWATH_WRONG_OBJECT`.
//
// # Safety
// `banks` is null or an object of this library; `frame` can be written.
swath_result swath_banks_allocate(swath_banks *banks, uint32_t k, uint32_t owner, uint64_t *frame);

// Takes back 2^`order` frames from `frame` on: a block, or an aligned part of one.
//
// Errors: `SWATH_ARGUMENT`; `SWATH_MISALIGNED` with the frame; `SWATH_FOREIGN` and
// `SWATH_NOT_ALLOCATED` with the first such frame; `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `banks` is null or an object of this library.
swath_result swath_banks_free(swath_banks *banks, uint64_t frame, uint32_t k);

// Counts the banks; 0 for an object that is no such allocator.
//
// # Safety
// `banks` is null or an object of this library.
size_t swath_banks_count(const swath_banks *banks);

// Free frames that are not isolated; 0 for an object that is no such allocator. O(1).
//
// # Safety
// `banks` is null or an object of this library.
uint64_t swath_banks_free_count(const swath_banks *banks);

// Writes the counts of bank `index`. O(1).
//
// Errors: `SWATH_ARGUMENT` with the number of banks, `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `banks` is null or an object of this library; `bank` can be written.
swath_result swath_banks_look(const swath_banks *banks, size_t index, swath_bank *bank);

// Isolates bank `index`: its free frames, and those given back from now on, are
// not handed out. With `on` 0 the isolation ends; a bank that is wholly free then is in
// the pool of those that rest.
//
// Errors: `SWATH_FOREIGN` if the zone has no frame there; `SWATH_STATE` if it is (or is not)
// isolated; `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `banks` is null or an object of this library.
swath_result swath_banks_isolate(swath_banks *banks, size_t index, uint32_t on);

// Allocates `size` bytes, aligned to 16 and not initialised; a size of 0 gets a block too. Null, and
// `errno` is ENOMEM, if there is no memory.
void *cmt_malloc(size_t size);

// Frees a block; null is allowed. The consequence of a wrong pointer is
// `cmt_options.on_error`; nothing changes.
//
// # Safety
// `block` is null or came from this library; it is not used after.
void cmt_free(void *block);

// Allocates `count` times `size` bytes, all zero. Null with ENOMEM also if the product overflows.
void *cmt_calloc(size_t count, size_t size);

// Makes a block at least `size` bytes long; it keeps its place if it can, and its bytes up to
// the lesser size. Null is as for `cmt_malloc`; a size of 0 frees the block and is null. Null
// with ENOMEM leaves the block as it was.
//
// # Safety
// As for `cmt_free`, unless null is returned.
void *cmt_realloc(void *block, size_t size);

// Allocates `size` bytes at a multiple of `align`, a power of two. Null with ENOMEM, or EINVAL for
// another alignment.
void *cmt_aligned_alloc(size_t align, size_t size);

// Allocates `size` bytes that are one run of physical memory, at a physical address that is a multiple of
// `align`, all of it below the address `below`, with no two bytes on two sides of a multiple of
// `boundary`; 0 for each of the three is no such limit. The block comes from the reserve, which grows if
// it has no such run. Null with ENOMEM rather than in two pieces, or with EINVAL if `align` or
// `boundary` is no power of two.
//
// Where physical addresses are known, the block's frames are read back before it is returned; where they
// are not, it is laid in simulated frames. The kernel may move it later, unless its pages are of a
// dma-heap, of the hugetlb pools, or pinned.
void *cmt_malloc_contiguous(size_t size,
                            uint64_t align,
                            uint64_t below,
                            uint64_t boundary);

// Returns the physical address behind `address`, or all ones if it is not known. `len_bytes` says how
// many bytes from there on are asked about, and becomes the number of those that follow one another in
// physical memory (0 if the address is not known); null asks about one. Any address may be tried. Pages
// that can be written are made the process's own first, with what they hold.
//
// # Safety
// `len_bytes` is null or can be read and written.
uint64_t cmt_virt2phys(const void *address,
                       size_t *len_bytes);

// Writes the extents of the reserve, ascending by frame: up to `room`; `found` is how many there are in
// all.
//
// Errors: `SWATH_NULL`.
//
// # Safety
// `extents` has room for `room`, `found` can be written.
swath_result cmt_reserve_extents(cmt_reserve_extent *extents,
                                 size_t room,
                                 size_t *found);

// Returns the bytes of a block that may be used: as many as were asked for or more; 0 for null or a pointer
// that is none of a block.
//
// # Safety
// None beyond the call: any pointer may be tried.
size_t cmt_usable_size(const void *block);

// Returns to the system what has been free for the delay of the options, or (`now` not 0) all
// that is free.
void cmt_purge(int now);

// Writes the defaults, the environment not considered.
//
// Errors: `SWATH_NULL`.
//
// # Safety
// `options` can be written.
swath_result cmt_options_default(cmt_options *options);

// Begins with these options instead of those of the environment; null means those. To be called
// before anything is allocated, or not at all.
//
// Errors: `SWATH_ARGUMENT` with the first value that is out of range; `SWATH_STATE` if the pool has
// begun; `SWATH_OUT_OF_MEMORY`.
//
// # Safety
// `options` is null or can be read.
swath_result cmt_init(const cmt_options *options);

// Counts what the pool holds now; all zero before anything was allocated. `len_bytes` is
// `sizeof(cmt_stats)`: members that the program does not know are left out, and those that the library
// does not know are zero.
//
// Errors: `SWATH_NULL`.
//
// # Safety
// `len_bytes` can be written from `stats` on.
swath_result cmt_stats_get(cmt_stats *stats,
                           size_t len_bytes);

// Writes the physical extents behind `len_bytes` of a block from `offset` on, in order, as a
// scatter list needs them: up to `room`; `found` is how many there are in all. Pages that were never
// touched are touched first (with what they hold). O(pages).
//
// The frames are those of now: memory that is not of the hugetlb pools may be moved by the kernel
// unless it is locked or pinned.
//
// Errors: `SWATH_FOREIGN` with the address if `block` is none of this library, or with the block's
// length if the range does not lie in it; `SWATH_DENIED` if the process may not know physical addresses; `SWATH_EMPTY`, `SWATH_NULL`.
//
// # Safety
// `extents` has room for `room`, `found` can be written; the block is in use.
swath_result cmt_extents(const void *block,
                         size_t offset,
                         size_t len_bytes,
                         cmt_extent *extents,
                         size_t room,
                         size_t *found);

// Holds the pages of `len_bytes` bytes from `start` on in their frames until `cmt_unpin`, as far as the
// kernel has a way; `pinned->frames_stay` says how far. Pages that are not there yet come first.
//
// Errors: `SWATH_DENIED` with the C library's error number if no memory can be written there, or the
// process may not lock so much; `SWATH_NULL`.
//
// # Safety
// `pinned` can be written.
swath_result cmt_pin(const void *start,
                     size_t len_bytes,
                     cmt_pinned *pinned);

// Lets memory go that `cmt_pin` holds. A second time nothing happens.
//
// Errors: `SWATH_NULL`.
//
// # Safety
// `pinned` is from `cmt_pin`, and can be written.
swath_result cmt_unpin(cmt_pinned *pinned);

// Calls `visit` with each range of the machine's memory, ascending, in frames of 4 KiB, and with
// `context`: the areas between which there are vacuums.
//
// Errors: `SWATH_DENIED` if the process may not know them; `SWATH_NULL`.
//
// # Safety
// `visit` takes `context`.
swath_result cmt_areas(void (*visit)(swath_extent area, void *context), void *context);

// Makes a memory at cycle 0, all banks closed, on the C library's heap.
//
// Errors: `SWATH_ARGUMENT` with the number that cannot be; `SWATH_NULL`.
//
// # Safety
// `config` is null or can be read; `dram` can be written.
swath_result swath_dram_create(const swath_dram_config *config, swath_dram **dram);

// Ends a memory.
//
// Errors: `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `dram` is null or an object of this library that has not been ended; nobody uses it from now on.
swath_result swath_dram_destroy(swath_dram *dram);

// Tells a memory's constants.
//
// Errors: `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `dram` is null or an object of this library; `facts` can be written.
swath_result swath_dram_facts_get(const swath_dram *dram, swath_dram_facts *facts);

// Offers a request of one burst in a cycle, after simulating all before it.
//
// Errors: `SWATH_QUEUE_FULL` with the channel: offer it again after `swath_dram_next_event`;
// `SWATH_BUS` with an address above the memory; `SWATH_ARGUMENT` with a cycle that is past;
// `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `dram` is null or an object of this library.
swath_result swath_dram_offer(swath_dram *dram,
                              uint64_t cycle,
                              uint64_t id,
                              uint64_t addr,
                              uint32_t is_write);

// Advances to a cycle: issues all commands before it. Does nothing if it is past.
//
// Errors: `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `dram` is null or an object of this library.
swath_result swath_dram_advance(swath_dram *dram, uint64_t cycle);

// Tells the next cycle at which there may be something to see: an end, or a place in a queue.
//
// Errors: `SWATH_EMPTY` if all is done and taken; `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `dram` is null or an object of this library; `cycle` can be written.
swath_result swath_dram_next_event(const swath_dram *dram, uint64_t *cycle);

// Takes the first request that has ended by a cycle, in the order of their ends. Advance to the cycle
// before.
//
// Errors: `SWATH_EMPTY` if none has; `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `dram` is null or an object of this library; `done` can be written.
swath_result swath_dram_take_done(swath_dram *dram,
                                  uint64_t cycle,
                                  swath_dram_done *done);

// Tells what all channels have counted.
//
// Errors: `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `dram` is null or an object of this library; `stats` can be written.
swath_result swath_dram_stats_get(const swath_dram *dram, swath_dram_stats *stats);

// Bytes of storage for the frames of `map`; 0 if the map or the configuration is wrong.
//
// # Safety
// `map` is null or an object of this library.
size_t swath_frames_storage_bytes(const swath_map *map, swath_frames_config config);

// Makes an allocator for the frames of `map`, all of them free if `all_free` is not 0,
// else all of them in use: free those that are not. The map is not needed after. O(words).
//
// Errors: `SWATH_ARGUMENT` with the value, `SWATH_STORAGE`, `SWATH_NULL`,
// `SWATH_WRONG_OBJECT`.
//
// # Safety
// `map` is null or an object of this library; `storage` is `len_bytes` of memory that the
// allocator has for itself from now on; `frames` can be written.
swath_result swath_frames_create(const swath_map *map,
                                 swath_frames_config config,
                                 uint32_t all_free,
                                 void *storage,
                                 size_t len_bytes,
                                 swath_frames **frames);

// Takes `count` frames in blocks of any length, as few and as long as the allocator
// finds, and writes them to `blocks`, which has room for `room`; `taken` is how many
// blocks they are.
//
// Errors: `SWATH_EMPTY`; `SWATH_OUT_OF_FRAMES` with the number of free frames;
// `SWATH_TOO_MANY_BLOCKS` with the number of frames that there was room for
// (`blocks` may hold anything then); `SWATH_NULL`, `SWATH_WRONG_OBJECT`. No frame is taken.
//
// # Safety
// `frames` is null or an object of this library; `blocks` has room for `room` extents,
// `taken` can be written.
swath_result swath_frames_allocate(swath_frames *frames,
                                   uint64_t count,
                                   swath_extent *blocks,
                                   size_t room,
                                   size_t *taken);

// Takes one block of 1 to `frames_max` frames, as the allocator chooses: what
// `swath_frames_allocate` does again and again.
//
// Errors: `SWATH_EMPTY`; `SWATH_OUT_OF_FRAMES` if none is free; `SWATH_NULL`,
// `SWATH_WRONG_OBJECT`.
//
// # Safety
// `frames` is null or an object of this library; `block` can be written.
swath_result swath_frames_allocate_block(swath_frames *frames,
                                         uint64_t frames_max,
                                         swath_extent *block);

// Takes 2^`order` frames whose first is a multiple of 2^`order`.
//
// Errors: `SWATH_ARGUMENT` with the order; `SWATH_OUT_OF_FRAMES` with the number of free
// frames; `SWATH_NO_BLOCK` with the order; `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `frames` is null or an object of this library; `block` can be written.
swath_result swath_frames_allocate_aligned(swath_frames *frames, uint32_t k, swath_extent *block);

// Returns a request for `count` frames in a row, wherever they are.
swath_contiguous_request swath_contiguous_request_of(uint64_t count);

// Takes the lowest free run that meets a request, whichever blocks it lies in.
//
// Errors: `SWATH_EMPTY`; `SWATH_ARGUMENT` with the alignment or boundary that is no power of two, or with the
// count where no place could meet the request; `SWATH_OUT_OF_FRAMES` with the number of free frames;
// `SWATH_NO_BLOCK` with the count; `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `frames` is null or an object of this library; `request` is null or one; `run` can be written.
swath_result swath_frames_allocate_contiguous(swath_frames *frames,
                                              const swath_contiguous_request *request,
                                              swath_extent *run);

// Adds frames that are not the allocator's yet, within the span of its map (`swath_map_reach`). They are free.
//
// Errors: `SWATH_EMPTY`; `SWATH_OVERFLOW`; `SWATH_ARGUMENT` with the first frame outside the span;
// `SWATH_OVERLAP` with a frame that is the allocator's; `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `frames` is null or an object of this library.
swath_result swath_frames_add(swath_frames *frames,
                              swath_extent extent);

// Removes frames, all of which are free: they are the allocator's no more.
//
// Errors: `SWATH_EMPTY`; `SWATH_OVERFLOW`; `SWATH_ARGUMENT` with the first frame outside the span; `SWATH_STATE`
// with the first frame that is in use, `SWATH_FOREIGN` with the first that is not the allocator's; `SWATH_NULL`,
// `SWATH_WRONG_OBJECT`.
//
// # Safety
// `frames` is null or an object of this library.
swath_result swath_frames_remove(swath_frames *frames,
                                 swath_extent extent);

// Takes back frames, which may be any part of what was allocated; they coalesce with
// what is free around them.
//
// Errors: `SWATH_EMPTY`; `SWATH_OVERFLOW`; `SWATH_FOREIGN` and `SWATH_NOT_ALLOCATED` with
// the first such frame; `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `frames` is null or an object of this library.
swath_result swath_frames_free(swath_frames *frames, swath_extent extent);

// Counts the free frames; 0 for an object that is no such allocator. O(1).
//
// # Safety
// `frames` is null or an object of this library.
uint64_t swath_frames_free_count(const swath_frames *frames);

// Counts the frames; 0 for an object that is no such allocator. O(1).
//
// # Safety
// `frames` is null or an object of this library.
uint64_t swath_frames_total_count(const swath_frames *frames);

// Calls `visit` with each free block, list by list, and with `context`. `visit` may read the
// allocator; calls that would change it return `SWATH_BUSY` and change nothing.
//
// Errors: `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `frames` is null or an object of this library, whose frames `visit` does not change
// through reservations.
swath_result swath_frames_each_free(const swath_frames *frames,
                                    void (*visit)(swath_extent block, void *context),
                                    void *context);

// Bytes of storage for a heap, its pools not included.
size_t swath_heap_storage_bytes(void);

// Makes a heap without memory, of a `swath_fit`. With a `source` pages that lie wholly
// inside a free block go back to it at once. `key` seals headers: a number that users
// cannot guess, if they are not trusted.
//
// Errors: `SWATH_ARGUMENT`, `SWATH_STORAGE`, `SWATH_NULL` also for a source's function.
//
// # Safety
// `source` is null or can be read, and keeps what a `swath_page_source` promises. `storage` is
// `len_bytes` of memory that the heap has for itself from now on; `heap` can be written.
swath_result swath_heap_create(uint32_t fit,
                               const swath_page_source *source,
                               size_t key,
                               void *storage,
                               size_t len_bytes,
                               swath_heap **heap);

// Lends memory to the heap; with a source, whole pages of which none is committed. O(p) for p
// pools.
//
// Errors: `SWATH_STORAGE` with the least bytes; `SWATH_TOO_LARGE` with the most;
// `SWATH_MISALIGNED`, `SWATH_OVERLAP`; `SWATH_OUT_OF_FRAMES` if the source has none;
// `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `heap` is null or an object of this library; `memory` is `len_bytes` that only the heap
// uses until the pool is removed.
swath_result swath_heap_add_pool(swath_heap *heap, void *memory, size_t len_bytes);

// Bytes for a block, aligned to `align_bytes`, a power of two; not initialised. Constant time
// for the usual alignment of two words.
//
// Errors: `SWATH_ARGUMENT` for the alignment; `SWATH_TOO_LARGE` with the size;
// `SWATH_OUT_OF_MEMORY` with the largest request that would be served;
// `SWATH_OUT_OF_FRAMES` if the source has none; `SWATH_CORRUPT`; `SWATH_NULL`,
// `SWATH_WRONG_OBJECT`.
//
// # Safety
// `heap` is null or an object of this library; `block` can be written.
swath_result swath_heap_allocate(swath_heap *heap,
                                 size_t size_bytes,
                                 size_t align_bytes,
                                 void **block);

// Takes a block back. Constant time.
//
// Errors: `SWATH_MISALIGNED`, `SWATH_FOREIGN`, `SWATH_NOT_ALLOCATED` with the address;
// `SWATH_CORRUPT` with the header's; `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `heap` is null or an object of this library; `block` is null or came from this heap and is
// not used any more. Other pointers are found as far as headers can tell.
swath_result swath_heap_free(swath_heap *heap, void *block);

// Makes the block at `*block` serve `size_bytes`; it keeps its place if it can, else `*block`
// changes. The bytes up to the lesser size are kept.
//
// Errors: as for `swath_heap_allocate` and `swath_heap_free`; the block is as before.
//
// # Safety
// As for `swath_heap_free`; `block` can be read and written.
swath_result swath_heap_resize(swath_heap *heap,
                               size_t size_bytes,
                               size_t align_bytes,
                               void **block);

// Bytes that may be used of a block: as many as were asked for or more; 0 for a pointer that
// is recognised as wrong.
//
// # Safety
// As for `swath_heap_free`, but the block goes on being used.
size_t swath_heap_usable_bytes(const swath_heap *heap, void *block);

// Bytes of the largest request, usually aligned, that would be served now; 0 if none would be,
// or for an object that is no heap. Constant time.
//
// # Safety
// `heap` is null or an object of this library.
size_t swath_heap_largest_bytes(const swath_heap *heap);

// Checks every invariant of the heap, in time that grows with the number of blocks.
//
// Errors: `SWATH_CORRUPT` with where; `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `heap` is null or an object of this library.
swath_result swath_heap_check(const swath_heap *heap);

// Bytes of storage for a map of `count` ranges.
size_t swath_map_storage_bytes(size_t count);

// Makes the map of `count` ranges, which may come in any order and need not begin or
// end at a frame's border. O(r·a) for r ranges and a areas, O(r) if they ascend.
//
// Errors: `SWATH_OVERLAP`, `SWATH_OVERFLOW` with the range's start,
// `SWATH_NO_FRAME`, `SWATH_STORAGE`, `SWATH_NULL`.
//
// # Safety
// `ranges` points to `count` ranges, `storage` to `len_bytes` of memory that the map
// has for itself from now on; `map` can be written.
swath_result swath_map_create(const swath_range *ranges,
                              size_t count,
                              void *storage,
                              size_t len_bytes,
                              swath_map **map);

// Makes the map longer than its areas: what is made for it has room for memory that comes late, anywhere in
// `span` (`swath_frames_add`).
//
// Errors: `SWATH_ARGUMENT` with the first frame of an area that does not lie in `span`, or if that has no end;
// `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `map` is null or an object of this library, which no other thread uses.
swath_result swath_map_reach(swath_map *map,
                             swath_extent span);

// Counts the frames of the map; 0 for an object that is no map.
//
// # Safety
// `map` is null or an object of this library.
uint64_t swath_map_frames(const swath_map *map);

// Writes area `index`, ascending from 0.
//
// Errors: `SWATH_ARGUMENT` with the number of areas, if there are no more;
// `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `map` is null or an object of this library; `area` can be written.
swath_result swath_map_area(const swath_map *map, size_t index, swath_extent *area);

// Makes a unit, on the C library's heap.
//
// Errors: `SWATH_ARGUMENT` with the number that cannot be, 0 for a form of a TLB; `SWATH_MISALIGNED`
// with the root; `SWATH_NULL`.
//
// # Safety
// `config` is null or can be read; `mmu` can be written.
swath_result swath_mmu_create(const swath_mmu_config *config,
                              swath_mmu **mmu);

// Ends a unit.
//
// Errors: `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `mmu` is null or an object of this library that has not been ended; nobody uses it from now on.
swath_result swath_mmu_destroy(swath_mmu *mmu);

// Translates an address. On a miss `read` of `memory` is called for each descriptor in the order of the
// walk, with `SWATH_FIELD_LINE` also for the others of the last one's line, which come with it: a simulator
// with time takes from there what the walk costs.
//
// Errors: `SWATH_FAULT` with the page if it is not mapped; `SWATH_FOREIGN` with the page if the format
// cannot say it; `SWATH_CORRUPT` with the address of a reserved descriptor; `SWATH_BUS`;
// `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `mmu` is null or an object of this library; the functions of `memory` may be called with its context,
// and do not use the unit; `translated` can be written.
swath_result swath_mmu_access(swath_mmu *mmu,
                              uint64_t addr,
                              swath_bus memory,
                              swath_translated *translated);

// Forgets what is kept of `count` pages from `page` on; with a count of 0 of all.
//
// Errors: `SWATH_OVERFLOW`, `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `mmu` is null or an object of this library.
swath_result swath_mmu_invalidate(swath_mmu *mmu, uint64_t page, uint64_t count);

// Gives the unit another root table, and forgets what it kept.
//
// Errors: `SWATH_MISALIGNED` with the root; `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `mmu` is null or an object of this library.
swath_result swath_mmu_set_root(swath_mmu *mmu, uint64_t root);

// Tells what the unit has counted since it was made.
//
// Errors: `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `mmu` is null or an object of this library; `stats` can be written.
swath_result swath_mmu_stats_get(const swath_mmu *mmu, swath_mmu_stats *stats);

// Bytes of storage for a pmap of these frames in a `swath_format`, with `entries` entries of its reverse map: as many
// as there are mappings at a time always suffice. `flags` is a `swath_flags_place`. 0 if an argument is wrong.
size_t swath_pmap_storage_bytes(swath_extent frames,
                                uint32_t format,
                                uint32_t flags,
                                uint32_t entries);

// Makes a pmap of these frames, for spaces of a `swath_format` without a mapping to them.
//
// Errors: `SWATH_ARGUMENT`; `SWATH_OVERFLOW` for frames beyond the last number; `SWATH_NULL` also for a function
// that is missing; `SWATH_STORAGE`.
//
// # Safety
// The functions of `spaces` may be called with its context as long as the pmap is used. `reach` returns null or an
// object of this library, one for each number, that nobody else uses during a call of a function of the pmap;
// `flush` calls no function of the pmap or of its spaces. `storage` is `len_bytes` of memory that the pmap has for itself
// from now on; `pmap` can be written.
swath_result swath_pmap_create(swath_extent frames,
                               uint32_t format,
                               uint32_t flags,
                               uint32_t entries,
                               swath_spaces spaces,
                               void *storage,
                               size_t len_bytes,
                               swath_pmap **pmap);

// Maps a page of a space that is not mapped to a frame: writable if `access` (a `swath_access`) is a write, and
// accessed if there is one. Then promotes it, as far as `full_order` and the pages around it permit: the largest order
// of which all frames around this one are populated, 0 if there is none. `order` is that of the page that maps it
// now. `attributes_max` (`SWATH_PAGE_…`) is what the page may ever permit.
//
// Errors: `SWATH_ARGUMENT` with the space that is none, or another wrong number; `SWATH_STATE` with a space for other
// superpages; `SWATH_FOREIGN` with the frame that is none of the pmap's, or the page that the format cannot say;
// `SWATH_DENIED` with the page, for a write that `attributes_max` forbids; `SWATH_OUT_OF_ENTRIES`; those of
// `swath_space_map`.
//
// # Safety
// `pmap` is null or an object of this library; `order` can be written.
swath_result swath_pmap_enter(swath_pmap *pmap,
                              uint32_t space,
                              uint64_t page,
                              uint64_t frame,
                              uint32_t attributes_max,
                              uint32_t access,
                              uint32_t full_order,
                              uint32_t *order);

// Maps a superpage of 2^`k` pages at once, of which no page is mapped. A write makes all of it writable, and so
// modified.
//
// Errors: as for `swath_pmap_enter`; `SWATH_ARGUMENT` with an order that is no superpage of the space;
// `SWATH_MISALIGNED` with the page or frame.
//
// # Safety
// `pmap` is null or an object of this library.
swath_result swath_pmap_enter_superpage(swath_pmap *pmap,
                                        uint32_t space,
                                        uint64_t page,
                                        uint64_t frame,
                                        uint32_t k,
                                        uint32_t attributes_max,
                                        uint32_t access);

// Handles the fault of a page that is mapped and does not permit an access yet, though the kernel does: it becomes
// accessed, and for a write writable, which demotes a read-only superpage. Then promotes it as `swath_pmap_enter` does.
//
// Errors: `SWATH_FAULT` with the page, if it is not mapped; `SWATH_ARGUMENT`, `SWATH_FOREIGN`, `SWATH_BUS`,
// `SWATH_NULL`, `SWATH_WRONG_OBJECT`. Superpages may have been demoted.
//
// # Safety
// `pmap` is null or an object of this library; `faulted` can be written.
swath_result swath_pmap_fault(swath_pmap *pmap,
                              uint32_t space,
                              uint64_t page,
                              uint32_t access,
                              uint32_t full_order,
                              swath_faulted *faulted);

// Takes permissions from every mapping in `count` pages from `page` on: writable pages stay so only with
// `keeps_writable` other than 0, executable ones with `keeps_executable`. That a page was written is remembered.
//
// Errors: as for `swath_pmap_fault`; `SWATH_OVERFLOW`. After `SWATH_BUS` a first part of the range is changed.
//
// # Safety
// `pmap` is null or an object of this library.
swath_result swath_pmap_protect(swath_pmap *pmap,
                                uint32_t space,
                                uint64_t page,
                                uint64_t count,
                                uint32_t keeps_writable,
                                uint32_t keeps_executable);

// Removes every mapping in `count` pages from `page` on; a superpage that lies there in part is demoted, or removed
// if it cannot be. What its flags said is remembered. `removed`, if it is not null, is how many mappings went.
//
// Errors: as for `swath_pmap_protect`.
//
// # Safety
// `pmap` is null or an object of this library; `removed` is null or can be written.
swath_result swath_pmap_remove(swath_pmap *pmap,
                               uint32_t space,
                               uint64_t page,
                               uint64_t count,
                               uint64_t *removed);

// Removes every mapping of a frame, in all spaces. `removed`, if it is not null, is how many went; whether the frame
// was written, `swath_pmap_modified` says.
//
// Errors: `SWATH_FOREIGN` with the frame that is none of the pmap's; `SWATH_ARGUMENT` with a space that is no more;
// `SWATH_BUS`, `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `pmap` is null or an object of this library; `removed` is null or can be written.
swath_result swath_pmap_page_out(swath_pmap *pmap,
                                 uint64_t frame,
                                 uint64_t *removed);

// Records that a frame was laundered: it is read-only again wherever it is mapped, and no longer modified.
// `modified`, if it is not null, is 1 if it was.
//
// Errors: as for `swath_pmap_page_out`.
//
// # Safety
// `pmap` is null or an object of this library; `modified` is null or can be written.
swath_result swath_pmap_clean(swath_pmap *pmap,
                              uint64_t frame,
                              uint64_t *modified);

// Tells whether a frame was written since it was last clean: 1 or 0.
//
// Errors: as for `swath_pmap_page_out`.
//
// # Safety
// `pmap` is null or an object of this library; `modified` is null or can be written.
swath_result swath_pmap_modified(swath_pmap *pmap, uint64_t frame, uint64_t *modified);

// Tells whether a frame was accessed: 1 or 0.
//
// Errors: as for `swath_pmap_page_out`.
//
// # Safety
// `pmap` is null or an object of this library; `referenced` is null or can be written.
swath_result swath_pmap_referenced(swath_pmap *pmap, uint64_t frame, uint64_t *referenced);

// Calls `visit` with each mapping of a frame: the space, the first page of the mapping, its order.
//
// Errors: `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `pmap` is null or an object of this library, which `visit` does not use.
swath_result swath_pmap_each_mapping(const swath_pmap *pmap,
                                     uint64_t frame,
                                     void (*visit)(void *context,
                                                   uint32_t space,
                                                   uint64_t page,
                                                   uint32_t order),
                                     void *context);

// Entries of the reverse map that are free; 0 for an object that is none such.
//
// # Safety
// `pmap` is null or an object of this library.
uint32_t swath_pmap_free_entries(const swath_pmap *pmap);

// Walks every invariant of the pmap and of the spaces of the numbers below `spaces`, which are all that have mappings,
// and have none of another's; with 0 that of the reverse map alone.
//
// Errors: `SWATH_CORRUPT` with the page, frame or space that is wrong; `SWATH_ARGUMENT` with a space that is none;
// `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `pmap` is null or an object of this library.
swath_result swath_pmap_check(swath_pmap *pmap,
                              uint32_t spaces);

// Bytes of storage for a pool of `frames` frames.
size_t swath_frame_pool_storage_bytes(uint64_t frames);

// Makes a pool of frames, all free.
//
// Errors: `SWATH_ARGUMENT` with the first frame number that is too large; `SWATH_STORAGE`,
// `SWATH_NULL`.
//
// # Safety
// `storage` is `len_bytes` of memory that the pool has for itself from now on; `pool` can be
// written.
swath_result swath_frame_pool_create(swath_extent frames,
                                     void *storage,
                                     size_t len_bytes,
                                     swath_frame_pool **pool);

// Frames that no space has; 0 for an object that is no pool.
//
// # Safety
// `pool` is null or an object of this library.
uint32_t swath_frame_pool_free_count(const swath_frame_pool *pool);

// Bytes of storage for a space of 2^`pages_log2` pages, 5 to 28; 0 for another. The arrays
// of the `swath_validity_tables` lie elsewhere.
size_t swath_regions_storage_bytes(uint32_t pages_log2);

// Makes a space without regions. Nothing but one array is initialised.
//
// Errors: `SWATH_ARGUMENT`, `SWATH_MISALIGNED` or `SWATH_OVERLAP` for wrong tables, with the
// base; `SWATH_BUS` with the address where memory ends; `SWATH_QUOTA`, `SWATH_OUT_OF_FRAMES`
// for a quota that the pool cannot give; `SWATH_STORAGE`, `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `pool` is null or an object of this library, and stays as long as the space is used, in the same
// thread. `memory` is memory for reading and writing, nobody but hardware uses its tables.
// `storage` is `len_bytes` of memory that the space has for itself from now on; `regions`
// can be written.
swath_result swath_regions_create(swath_memory memory,
                                  swath_validity_tables tables,
                                  swath_frame_pool *pool,
                                  swath_quota quota,
                                  void *storage,
                                  size_t len_bytes,
                                  swath_regions **regions);

// Makes free pages a region (mapVRH). No page of it is mapped. Constant time.
//
// Errors: `SWATH_EMPTY`; `SWATH_FOREIGN` beyond the space; `SWATH_OVERLAP` with the page
// where what is not free begins; `SWATH_ARGUMENT` for rights; `SWATH_NULL`,
// `SWATH_WRONG_OBJECT`.
//
// # Safety
// `regions` is null or an object of this library.
swath_result swath_regions_map(swath_regions *regions,
                               uint64_t first_page,
                               uint64_t pages,
                               uint32_t access);

// Gives a page of a region a frame (mapPage): what the handler of a page fault does. Constant
// time.
//
// Errors: `SWATH_NO_REGION`, `SWATH_DENIED`, `SWATH_MAPPED` with the page; `SWATH_QUOTA`
// with the limit; `SWATH_OUT_OF_FRAMES`; `SWATH_FOREIGN`, `SWATH_ARGUMENT`, `SWATH_NULL`,
// `SWATH_WRONG_OBJECT`.
//
// # Safety
// `regions` is null or an object of this library; `frame` can be written.
swath_result swath_regions_fault(swath_regions *regions,
                                 uint64_t page,
                                 uint32_t access,
                                 uint64_t *frame);

// Ends the region that starts at `first_page` (unmapRegion), whatever its size, in constant
// time; all its frames go back to the pool.
//
// Errors: `SWATH_NO_REGION` if none starts there; `SWATH_FOREIGN`, `SWATH_NULL`,
// `SWATH_WRONG_OBJECT`.
//
// # Safety
// `regions` is null or an object of this library; `unmapped` can be written.
swath_result swath_regions_unmap(swath_regions *regions,
                                 uint64_t first_page,
                                 swath_unmapped *unmapped);

// The frame of a page and the rights to it.
//
// Errors: `SWATH_NO_REGION` if the page is not mapped; `SWATH_FOREIGN`, `SWATH_NULL`,
// `SWATH_WRONG_OBJECT`.
//
// # Safety
// `regions` is null or an object of this library; `frame` and `access` can be written.
swath_result swath_regions_translate(const swath_regions *regions,
                                     uint64_t page,
                                     uint64_t *frame,
                                     uint32_t *access);

// Bytes of storage for the reservations of the frames of `map` at a `swath_levels`; 0 if
// either is wrong.
//
// # Safety
// `map` is null or an object of this library.
size_t swath_reservations_storage_bytes(const swath_map *map, uint32_t levels);

// Makes reservations over `frames`, whose frames are those of `map`. From now on frames are
// taken and freed through the reservations; those in use now may be freed here too.
//
// Errors: `SWATH_ARGUMENT`; `SWATH_FOREIGN` if the frames are not the map's;
// `SWATH_STORAGE`, `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `map` and `frames` are null or objects of this library; `frames` stays as long as the
// reservations are used. `storage` is `len_bytes` of memory that the reservations have for
// themselves from now on; `reservations` can be written.
swath_result swath_reservations_create(const swath_map *map,
                                       uint32_t levels,
                                       swath_frames *frames,
                                       void *storage,
                                       size_t len_bytes,
                                       swath_reservations **reservations);

// Gives page `index` of `object` (numbers of the caller's) a frame, at a time `now` that
// never falls. A reservation is made around the first page if it fits into the object's
// pages from `first` to before `end`.
//
// Errors: `SWATH_ARGUMENT` with the page, if it is not within; `SWATH_MAPPED` with the
// frame that the page has; `SWATH_OUT_OF_FRAMES`; `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `reservations` is null or an object of this library; `populated` can be written.
swath_result swath_reservations_populate(swath_reservations *reservations,
                                         uint64_t object,
                                         uint64_t index,
                                         uint64_t first,
                                         uint64_t end,
                                         uint64_t now,
                                         swath_populated *populated);

// Returns 1 if the aligned 2^`k` frames around `frame` are populated in full, in one
// reservation, else 0.
//
// # Safety
// `reservations` is null or an object of this library.
uint32_t swath_reservations_is_full(const swath_reservations *reservations,
                                    uint64_t frame,
                                    uint32_t k);

// Takes back frames that pages had. A reservation without a populated frame goes back
// whole.
//
// Errors: as for `swath_frames_free`.
//
// # Safety
// `reservations` is null or an object of this library.
swath_result swath_reservations_free(swath_reservations *reservations, swath_extent extent);

// Breaks up the reservations of `object` for pages from `first` to before `end`: what is not
// populated is free for others, what is stays with its pages.
//
// Errors: `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `reservations` is null or an object of this library.
swath_result swath_reservations_release(swath_reservations *reservations,
                                        uint64_t object,
                                        uint64_t first,
                                        uint64_t end);

// Frames that are free or could be made so by breaking reservations up; 0 for an object
// that is none such.
//
// # Safety
// `reservations` is null or an object of this library.
uint64_t swath_reservations_free_count(const swath_reservations *reservations);

// Returns the meaning of a [`swath_status`] in English: a string that is always there.
const char *swath_status_text(uint32_t status);

// Bytes of storage for segments over `count` areas; 0 if areas or configuration are wrong.
//
// # Safety
// `areas` points to `count` areas.
size_t swath_segments_storage_bytes(const swath_extent *areas,
                                    size_t count,
                                    swath_segments_config config);

// Makes an allocator over `count` areas, which may come in any order and may touch, all of it free. The
// areas are not needed after. O(a²) for a areas, O(a) if they ascend, and O(words).
//
// Errors: `SWATH_ARGUMENT` with the value; `SWATH_OVERLAP`, `SWATH_OVERFLOW` with the area's address;
// `SWATH_NO_FRAME` if no area has a whole unit; `SWATH_STORAGE`, `SWATH_NULL`.
//
// # Safety
// `areas` points to `count` areas, `storage` to `len_bytes` of memory that the allocator has for itself
// from now on; `segments` can be written.
swath_result swath_segments_create(const swath_extent *areas,
                                   size_t count,
                                   swath_segments_config config,
                                   void *storage,
                                   size_t len_bytes,
                                   swath_segments **segments);

// Makes a request for `count` frames, wherever they are.
swath_segment_request swath_segment_request_of(uint64_t count);

// Allocates a segment that meets the request.
//
// Errors: `SWATH_EMPTY`; `SWATH_OUT_OF_FRAMES` with the number of free frames; `SWATH_TOO_LARGE` with the
// frames wanted, if there is no room for so many between the limits, free or not; `SWATH_NO_BLOCK` with
// the frames wanted, if no free place is as long; `SWATH_ARGUMENT` with the value; `SWATH_BUSY`,
// `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `segments` is null or an object of this library; `request` can be read, `segment` written.
swath_result swath_segments_allocate(swath_segments *segments,
                                     const swath_segment_request *request,
                                     swath_segment *segment);

// Allocates a segment as `swath_segments_allocate` does, and calls for the frames behind it: what an
// allocator acquires on its way and does not keep it releases again. A null function is not called.
//
// Errors: as for `swath_segments_allocate`; all that was acquired is released then.
//
// # Safety
// As for `swath_segments_allocate`; the functions of `frames` can be called with its context.
swath_result swath_segments_allocate_from(swath_segments *segments,
                                          const swath_segment_request *request,
                                          swath_area_frames frames,
                                          swath_segment *segment);

// Writes the segment that `swath_segments_allocate` would allocate now.
//
// Errors: as for `swath_segments_allocate`.
//
// # Safety
// As for `swath_segments_allocate`.
swath_result swath_segments_find(const swath_segments *segments,
                                 const swath_segment_request *request,
                                 swath_segment *segment);

// Frees a segment as it was allocated, whole.
//
// Errors: `SWATH_EMPTY`; `SWATH_OVERFLOW`, `SWATH_MISALIGNED` with the segment's start; `SWATH_FOREIGN`,
// `SWATH_NOT_ALLOCATED` with the first such frame; `SWATH_STATE` with the start of what is in use, but not
// as this segment; `SWATH_BUSY`, `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `segments` is null or an object of this library.
swath_result swath_segments_free(swath_segments *segments,
                                 swath_segment segment);

// Frees a segment as `swath_segments_free` does, and releases the frames that were acquired for it. A null
// function is not called.
//
// Errors: as for `swath_segments_free`.
//
// # Safety
// As for `swath_segments_free`; the functions of `frames` can be called with its context.
swath_result swath_segments_free_to(swath_segments *segments,
                                    swath_segment segment,
                                    swath_area_frames frames);

// Writes the frames that are acquired for a segment in use: itself, what blocks of a power of two hold
// beyond it, or none where all were acquired at start.
//
// Errors: `SWATH_BUSY`, `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `segments` is null or an object of this library; `acquired` can be written.
swath_result swath_segments_acquired(const swath_segments *segments,
                                     swath_segment segment,
                                     swath_segment *acquired);

// Writes the physical extents behind a segment to `extents`, which has room for `room`, in its order,
// those that touch joined: what an accelerator's segment map is loaded with. `count` is how many they
// are. Null `extents` with no room counts them.
//
// Errors: `SWATH_FOREIGN` with the first frame beyond the areas; `SWATH_OVERFLOW`, `SWATH_EMPTY`;
// `SWATH_TOO_MANY_BLOCKS` with the number of extents (the first `room` are written then); `SWATH_BUSY`,
// `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `segments` is null or an object of this library; `extents` has room for `room` extents, `count` can be
// written.
swath_result swath_segments_extents(const swath_segments *segments,
                                    swath_segment segment,
                                    swath_extent *extents,
                                    size_t room,
                                    size_t *count);

// Writes the number of the area that holds a frame of the accelerator's space, and the frame's number in
// physical memory: *start_zone* and *pfn* of the paper's Table 1. O(log a) for a areas.
//
// Errors: `SWATH_FOREIGN` with a frame beyond the areas; `SWATH_BUSY`, `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `segments` is null or an object of this library; `area` and `physical` can be written.
swath_result swath_segments_locate(const swath_segments *segments,
                                   uint64_t frame,
                                   size_t *area,
                                   uint64_t *physical);

// Counts the free frames; 0 for an object that is no such allocator. O(1).
//
// # Safety
// `segments` is null or an object of this library.
uint64_t swath_segments_free_count(const swath_segments *segments);

// Counts the frames in whole units; 0 for an object that is no such allocator. O(1).
//
// # Safety
// `segments` is null or an object of this library.
uint64_t swath_segments_total_count(const swath_segments *segments);

// Counts the most frames that one request without constraints could get now; 0 for an object that is no
// such allocator.
//
// # Safety
// `segments` is null or an object of this library.
uint64_t swath_segments_largest_count(const swath_segments *segments);

// Calls `visit` with each run of free frames, ascending, and with `context`. `visit` may read the
// allocator; calls that would change it return `SWATH_BUSY` and change nothing.
//
// Errors: `SWATH_BUSY`, `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `segments` is null or an object of this library.
swath_result swath_segments_each_free(const swath_segments *segments,
                                      void (*visit)(swath_segment run, void *context),
                                      void *context);

// Returns a bus to memory that the processor reaches directly (a *direct map*).
//
// # Safety
// `memory` is null or stays where it is, and its bytes can be read and written, as long as the bus is used; of them only
// the library changes what it was given.
swath_bus swath_bus_direct(const swath_memory *memory);

// Bytes of storage for an address space.
size_t swath_space_storage_bytes(void);

// Makes an empty address space of a `swath_format`. Its tables are written through `memory`, which has
// the bytes of all frames that `tables` hands out; pages get theirs from `frames`, which may be the
// same. Takes and clears the root table.
//
// Errors: `SWATH_ARGUMENT`; `SWATH_OUT_OF_FRAMES` without frames for the root; `SWATH_FOREIGN` with its
// frame if the format cannot reach it; `SWATH_BUS`, `SWATH_STORAGE`, `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `frames` and `tables` are null or objects of this library, which stay where they are as long as the
// space is used; the functions of `memory` may be called as long. `storage` is `len_bytes` of memory
// that the space has for itself from now on; `space` can be written.
swath_result swath_space_create(uint32_t format,
                                swath_coalescing coalescing,
                                swath_bus memory,
                                swath_frames *frames,
                                swath_frames *tables,
                                void *storage,
                                size_t len_bytes,
                                swath_space **space);

// Makes an empty address space of a `swath_format` for superpages of all its sizes, as a `swath_pmap` wants it; else as
// `swath_space_create`.
//
// Errors: as there.
//
// # Safety
// As there.
swath_result swath_space_create_for_superpages(uint32_t format,
                                               swath_bus memory,
                                               swath_frames *frames,
                                               swath_frames *tables,
                                               void *storage,
                                               size_t len_bytes,
                                               swath_space **space);

// Ends an address space: its tables go back to their allocator, and so do the frames that
// `swath_space_allocate` took. The object is none afterwards. No MMU may use its tables any more.
//
// Errors: `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `space` is null or an object of this library, which nobody uses any more.
swath_result swath_space_drop(swath_space *space);

// Tells the physical address of the root table, which an MMU is told.
//
// Errors: `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `space` is null or an object of this library; `root` can be written.
swath_result swath_space_root(const swath_space *space, uint64_t *root);

// Maps `count` pages from `page` on to frames from `frame` on, readable and writable by users. They are
// one block, whose contiguity the tables state.
//
// Errors: `SWATH_MAPPED` with the first page that is mapped; `SWATH_FOREIGN` with the page or frame that
// the format cannot say; `SWATH_OUT_OF_FRAMES` without frames for tables; `SWATH_EMPTY`,
// `SWATH_OVERFLOW`, `SWATH_BUS`, `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `space` is null or an object of this library.
swath_result swath_space_map(swath_space *space,
                             uint64_t page,
                             uint64_t frame,
                             uint64_t count);

// Allocates frames for `count` pages from `page` on, in blocks as its allocator of frames hands them
// out, and maps them, readable and writable by users.
//
// Errors: as for `swath_space_map`; `SWATH_OUT_OF_FRAMES` with how many are free.
//
// # Safety
// `space` is null or an object of this library.
swath_result swath_space_allocate(swath_space *space,
                                  uint64_t page,
                                  uint64_t count);

// Takes pages out, all of which are mapped, and gives the frames that `swath_space_allocate` took back.
// What an MMU still has of them is to be invalidated, and of the block's other pages, too.
//
// Errors: `SWATH_STATE` with the first page that is not mapped; `SWATH_FOREIGN`, `SWATH_EMPTY`,
// `SWATH_OVERFLOW`, `SWATH_BUS`, `SWATH_NULL`, `SWATH_WRONG_OBJECT`; `SWATH_NOT_ALLOCATED` with the
// frame that the allocator did not take back.
//
// # Safety
// `space` is null or an object of this library.
swath_result swath_space_unmap(swath_space *space,
                               uint64_t page,
                               uint64_t count);

// Maps `count` pages from `page` on to frames from `frame` on, in pages as large as place and length allow, with these
// attributes (`SWATH_PAGE_…`).
//
// Errors: as for `swath_space_map`; `SWATH_ARGUMENT`.
//
// # Safety
// `space` is null or an object of this library.
swath_result swath_space_map_largest(swath_space *space,
                                     uint64_t page,
                                     uint64_t frame,
                                     uint64_t count,
                                     uint32_t attributes);

// Maps one page of 2^`k` base pages, with these attributes (`SWATH_PAGE_…`).
//
// Errors: as for `swath_space_map`; `SWATH_ARGUMENT` with an order that the format has no page of;
// `SWATH_MISALIGNED` with the page or frame.
//
// # Safety
// `space` is null or an object of this library.
swath_result swath_space_map_page_size(swath_space *space,
                                       uint64_t page,
                                       uint64_t frame,
                                       uint32_t k,
                                       uint32_t attributes);

// Tells what the tables say of a page.
//
// Errors: `SWATH_FAULT` with the page, if it is not mapped; `SWATH_FOREIGN` with the page that the format cannot
// say; `SWATH_OVERFLOW`, `SWATH_BUS`, `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `space` is null or an object of this library; `mapping` can be written.
swath_result swath_space_translate(const swath_space *space,
                                   uint64_t page,
                                   swath_mapping *mapping);

// Walks every invariant of the tables.
//
// Errors: `SWATH_CORRUPT` if one does not hold; `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
//
// # Safety
// `space` is null or an object of this library.
swath_result swath_space_check(const swath_space *space);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SWATH_H */
