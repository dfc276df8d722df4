// Runs a system until its program ends: what the memories and the host do is the bench's, by DPI.
#include <cstdint>
#include <verilated.h>
#include HEADER

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)

// Returns the cycles from the reset to the end, or 0 if there was none within `cycles_max`.
extern "C" uint64_t JOIN(NAME, _run)(uint8_t fast, uint8_t table, uint8_t data, uint64_t cycles_max) {
    VerilatedContext context;
    MODEL top{&context, "top"};
    auto cycle = [&] {
        top.clk = 1;
        top.eval();
        top.clk = 0;
        top.eval();
    };
    top.fast_cycles = fast;
    top.table_cycles = table;
    top.data_cycles = data;
    top.rst = 1;
    top.clk = 0;
    top.eval();
    cycle();
    top.rst = 0;
    for (uint64_t now = 1; now <= cycles_max; now++) {
        cycle();
        if (top.ended) return now;
    }
    return 0;
}
