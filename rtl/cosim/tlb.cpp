// Drives a TLB: a lookup, a fill, a drop, each to its end.
#include <cstdint>
#include <verilated.h>
#include HEADER

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)

namespace {

struct Hit {
    uint64_t pfn;
    uint8_t hit, attributes;
};

struct Fill {
    uint64_t vpn, pfn, before, after, mask;
    uint8_t attributes;
};

struct Unit {
    VerilatedContext context;
    MODEL top{&context, "top"};

    // What comes in reaches what goes out.
    void settle() {
        top.clk = 0;
        top.eval();
    }

    void edge() {
        top.clk = 1;
        top.eval();
    }
};

}  // namespace

extern "C" void *JOIN(NAME, _new)() {
    auto unit = new Unit;
    unit->top.rst = 1;
    unit->settle();
    unit->edge();
    unit->top.rst = 0;
    return unit;
}

extern "C" void JOIN(NAME, _delete)(void *unit) { delete static_cast<Unit *>(unit); }

// One cycle.
extern "C" void JOIN(NAME, _lookup)(void *unit, uint64_t vpn, Hit *out) {
    auto &self = *static_cast<Unit *>(unit);
    self.top.req_valid = 1;
    self.top.req_vpn = vpn;
    self.settle();
    out->hit = self.top.hit && self.top.req_ready;
    out->pfn = self.top.hit_pfn;
    out->attributes = self.top.hit_attributes;
    self.edge();
    self.top.req_valid = 0;
}

// Returns the cycles until the next lookup can be.
extern "C" uint64_t JOIN(NAME, _fill)(void *unit, const Fill *fill) {
    auto &self = *static_cast<Unit *>(unit);
    auto &top = self.top;
    top.fill_valid = 1;
    top.fill_vpn = fill->vpn;
    top.fill_pfn = fill->pfn;
    top.fill_before = fill->before;
    top.fill_after = fill->after;
    top.fill_mask = fill->mask;
    top.fill_attributes = fill->attributes;
    uint64_t cycles = 0;
    do {
        self.settle();
        self.edge();
        top.fill_valid = 0;
        cycles++;
    } while (!top.req_ready);
    return cycles;
}

extern "C" void JOIN(NAME, _drop)(void *unit, uint64_t vpn, uint8_t all) {
    auto &self = *static_cast<Unit *>(unit);
    self.top.drop_valid = !all;
    self.top.drop_all = all;
    self.top.drop_vpn = vpn;
    self.settle();
    self.edge();
    self.top.drop_valid = self.top.drop_all = 0;
}
