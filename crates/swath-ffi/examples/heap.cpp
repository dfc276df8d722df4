// A heap with constant bounds behind a C++ allocator.
//
//   c++ -I crates/swath-ffi/include crates/swath-ffi/examples/heap.cpp target/release/libswath.a -o heap
#include <cstdio>
#include <map>
#include <new>
#include <string>

#include "swath.h"

alignas(16) static unsigned char pool[1 << 20];
alignas(16) static unsigned char header[64 << 10];
static swath_heap *heap;

template <class T> struct Allocator {
    using value_type = T;
    Allocator() = default;
    template <class U> Allocator(const Allocator<U> &) {}
    T *allocate(std::size_t count) {
        void *block;
        if (count > SIZE_MAX / sizeof(T)) throw std::bad_alloc();
        swath_result result = swath_heap_allocate(heap, count * sizeof(T), alignof(T), &block);
        if (result.status != SWATH_OK) throw std::bad_alloc();
        return static_cast<T *>(block);
    }
    void deallocate(T *block, std::size_t) { swath_heap_free(heap, block); }
    template <class U> bool operator==(const Allocator<U> &) const { return true; }
    template <class U> bool operator!=(const Allocator<U> &) const { return false; }
};

int main() {
    if (swath_heap_storage_bytes() > sizeof header) return 2;
    swath_result made =
        swath_heap_create(SWATH_TLSF, nullptr, 0, header, sizeof header, &heap);
    if (made.status != SWATH_OK) return 1;
    if (swath_heap_add_pool(heap, pool, sizeof pool).status != SWATH_OK) return 1;
    std::size_t before = swath_heap_largest_bytes(heap);
    {
        std::map<int, int, std::less<int>, Allocator<std::pair<const int, int>>> squares;
        for (int i = 0; i < 1000; i++) squares[i] = i * i;
        std::printf("999 squared is %d\n", squares[999]);
    }
    bool whole = swath_heap_largest_bytes(heap) == before;
    std::printf("all memory is back: %s\n", whole ? "yes" : "no");
    return whole && swath_heap_check(heap).status == SWATH_OK ? 0 : 1;
}
