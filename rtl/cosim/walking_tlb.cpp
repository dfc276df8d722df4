// Drives a TLB with its walker by one cycle: what comes in, what goes out, the edge of the clock.
#include <cstdint>
#include <verilated.h>
#include HEADER

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)

namespace {

struct In {
    uint64_t root, vpn, drop_vpn, data;
    uint8_t valid, drop, drop_all, ready, rsp_valid, rsp_error;
};

struct Out {
    uint64_t addr, pfn;
    uint8_t req_valid, taken, answered, fault, level, attributes;
};

struct Unit {
    VerilatedContext context;
    MODEL top{&context, "top"};

    void edge() {
        top.clk = 1;
        top.eval();
        top.clk = 0;
    }
};

}  // namespace

extern "C" void *JOIN(NAME, _new)() {
    auto unit = new Unit;
    unit->top.rst = 1;
    unit->top.eval();
    unit->edge();
    unit->top.rst = 0;
    return unit;
}

extern "C" void JOIN(NAME, _delete)(void *unit) { delete static_cast<Unit *>(unit); }

extern "C" void JOIN(NAME, _step)(void *unit, const In *in, Out *out) {
    auto &self = *static_cast<Unit *>(unit);
    auto &top = self.top;
    top.root = in->root;
    top.req_valid = in->valid;
    top.req_vpn = in->vpn;
    top.drop_valid = in->drop;
    top.drop_all = in->drop_all;
    top.drop_vpn = in->drop_vpn;
    top.mem_req_ready = in->ready;
    top.mem_rsp_valid = in->rsp_valid;
    top.mem_rsp_data = in->data;
    top.mem_rsp_error = in->rsp_error;
    top.eval();
    out->addr = top.mem_req_addr << 3;
    out->pfn = top.pfn;
    out->req_valid = top.mem_req_valid;
    out->taken = top.mem_rsp_ready;
    out->answered = top.answered;
    out->fault = top.fault;
    out->level = top.level;
    out->attributes = top.attributes;
    self.edge();
}
