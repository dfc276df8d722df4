/* Stands before the C library's allocator and tells of each call by where it
 * stores; src/lib.rs says how. The constants come from src/protocol.rs.
 *
 * Nothing here allocates or calls anything that might: the loader itself calls
 * malloc before any constructor has run. __libc_malloc and its kin are the
 * allocator that malloc stands for, by names that nobody preloads over, so none
 * has to be looked up. */

#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

#define EXPORT __attribute__((visibility("default")))
#define WINDOW_BYTES ((SWATH_LANES + 1) * SWATH_LANE_BYTES)

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void *__libc_valloc(size_t);
extern void *__libc_pvalloc(size_t);
extern void __libc_free(void *);

/* A preloaded library has its place in every thread's static block, which needs
 * no allocation. */
#define THREAD_LOCAL static __thread __attribute__((tls_model("initial-exec")))

/* 0 before the first call of the thread, then its lane's address. */
THREAD_LOCAL uintptr_t lane;

static uint64_t threads;

/* Records of each lane so far. */
static uint64_t records[SWATH_LANES];

/* 0 not mapped yet, 1 mapped, 2 it cannot be: calls are handed on and not told. */
static int window;

static int window_is_there(void) {
    int state = __atomic_load_n(&window, __ATOMIC_ACQUIRE);
    if (__builtin_expect(state == 0, 0)) {
        /* The first call comes while the process has one thread. */
        int saved = errno;
        void *wanted = (void *)SWATH_WINDOW_ADDR;
        void *got = mmap(wanted, WINDOW_BYTES, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        if (got != wanted && got != MAP_FAILED)
            munmap(got, WINDOW_BYTES);
        errno = saved;
        state = got == wanted ? 1 : 2;
        __atomic_store_n(&window, state, __ATOMIC_RELEASE);
    }
    return state == 1;
}

static void begin(void) {
    if (lane == 0) {
        uint64_t thread = __atomic_fetch_add(&threads, 1, __ATOMIC_RELAXED);
        lane = SWATH_WINDOW_ADDR + thread % SWATH_LANES * SWATH_LANE_BYTES;
    }
    uint64_t *told = &records[(lane - SWATH_WINDOW_ADDR) / SWATH_LANE_BYTES];
    uint64_t at = __atomic_fetch_add(told, 1, __ATOMIC_RELAXED) * 8 % SWATH_LANE_BYTES;
    *(volatile uint64_t *)(lane + at) = 0;
}

static void number(uint64_t value) {
    for (; value >> 12; value >>= 12)
        *(volatile uint8_t *)(lane + (value & 0xfff)) = 0;
    /* Two bytes at an odd offset are what every machine with 64-bit Linux can
     * store; the struct tells the compiler that it is meant. */
    struct __attribute__((packed)) two { uint16_t bytes; };
    ((volatile struct two *)(lane + value))->bytes = 0;
}

static void end(uint64_t code) {
    *(volatile uint32_t *)(lane + code * 4) = 0;
}

__attribute__((constructor)) static void start(void) {
    if (!window_is_there()) {
        static const char text[] = "swath: the heap cannot be recorded: its window is in use\n";
        ssize_t ignored = write(2, text, sizeof text - 1);
        (void)ignored;
        return;
    }
    begin();
    end(SWATH_START);
}

static void *allocated(uint64_t code, size_t size, void *block) {
    if (window_is_there()) {
        begin();
        number(size);
        number((uintptr_t)block);
        end(code);
    }
    return block;
}

static void *aligned(size_t alignment, size_t size, void *block) {
    if (window_is_there()) {
        begin();
        number(alignment);
        number(size);
        number((uintptr_t)block);
        end(SWATH_ALIGNED);
    }
    return block;
}

static void released(uint64_t code, void *block) {
    if (window_is_there()) {
        begin();
        number((uintptr_t)block);
        end(code);
    }
}

EXPORT void *malloc(size_t size) {
    return allocated(SWATH_MALLOC, size, __libc_malloc(size));
}

EXPORT void *calloc(size_t count, size_t size) {
    void *block = __libc_calloc(count, size);
    /* The product is right where there is a block, and nothing to tell but the
     * failure where there is none. */
    return allocated(SWATH_CALLOC, block ? count * size : 0, block);
}

EXPORT void free(void *block) {
    if (block)
        released(SWATH_FREE, block);
    __libc_free(block);
}

EXPORT void *realloc(void *block, size_t size) {
    if (!block)
        return malloc(size);
    if (size == 0) {
        /* What glibc's does. */
        free(block);
        return NULL;
    }
    released(SWATH_REALLOC, block);
    return allocated(SWATH_REALLOCATED, size, __libc_realloc(block, size));
}

EXPORT void *reallocarray(void *block, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(block, bytes);
}

EXPORT void *memalign(size_t alignment, size_t size) {
    return aligned(alignment, size, __libc_memalign(alignment, size));
}

EXPORT void *aligned_alloc(size_t alignment, size_t size) {
    return memalign(alignment, size);
}

EXPORT int posix_memalign(void **to, size_t alignment, size_t size) {
    if (alignment % sizeof(void *) != 0 || alignment == 0 || (alignment & (alignment - 1)) != 0)
        return EINVAL;
    int saved = errno;
    void *block = memalign(alignment, size);
    errno = saved;
    if (!block)
        return ENOMEM;
    *to = block;
    return 0;
}

EXPORT void *valloc(size_t size) {
    return aligned((size_t)sysconf(_SC_PAGESIZE), size, __libc_valloc(size));
}

EXPORT void *pvalloc(size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return aligned(page, (size + page - 1) / page * page, __libc_pvalloc(size));
}
