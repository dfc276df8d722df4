// Drives a unit by one cycle: what comes in, what goes out, the edge of the clock.
#include <cstdint>
#include <verilated.h>
#include HEADER

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)

namespace {

struct Registers {
    uint64_t pages_mask, base[5];
    uint8_t hold_cycles, root_level;
};

struct PortIn {
    uint64_t data;
    uint8_t ready, valid, error;
};

struct PortOut {
    uint64_t addr;
    uint8_t valid, taken, write, data;
};

struct In {
    uint64_t vaddr;
    uint8_t valid, needs;
    PortIn port[3];
};

struct Out {
    PortOut port[3];
    uint8_t ready, code, level, rights, rsp_valid;
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

extern "C" void *JOIN(NAME, _new)() { return new Unit; }

extern "C" void JOIN(NAME, _delete)(void *unit) { delete static_cast<Unit *>(unit); }

// Resets the unit and loads its registers.
extern "C" void JOIN(NAME, _reset)(void *unit, const Registers *registers) {
    auto &self = *static_cast<Unit *>(unit);
    auto &top = self.top;
    top.pages_mask = registers->pages_mask;
    top.base0 = registers->base[0];
    top.base1 = registers->base[1];
    top.base2 = registers->base[2];
    top.base3 = registers->base[3];
    top.base4 = registers->base[4];
    top.hold_cycles = registers->hold_cycles;
    top.root_level = registers->root_level;
    top.req_valid = 0;
    top.p1_rsp_valid = top.p2_rsp_valid = top.p3_rsp_valid = 0;
    top.rst = 1;
    top.clk = 0;
    top.eval();
    self.edge();
    top.rst = 0;
}

extern "C" void JOIN(NAME, _step)(void *unit, const In *in, Out *out) {
    auto &self = *static_cast<Unit *>(unit);
    auto &top = self.top;
    top.req_valid = in->valid;
    top.req_vaddr = in->vaddr;
    top.req_needs = in->needs;
#define PORT_IN(n, P)                            \
    top.P##_req_ready = in->port[n].ready;    \
    top.P##_rsp_valid = in->port[n].valid;    \
    top.P##_rsp_data = in->port[n].data;      \
    top.P##_rsp_error = in->port[n].error
    PORT_IN(0, p1);
    PORT_IN(1, p2);
    PORT_IN(2, p3);
    top.eval();
#define PORT_OUT(n, P)                           \
    out->port[n].valid = top.P##_req_valid;   \
    out->port[n].addr = top.P##_req_addr;     \
    out->port[n].taken = top.P##_rsp_ready
    PORT_OUT(0, p1);
    PORT_OUT(1, p2);
    PORT_OUT(2, p3);
    out->port[2].write = top.p3_req_write;
    out->port[2].data = top.p3_req_data;
    out->ready = top.req_ready;
    out->code = top.req_code;
    out->level = top.req_level;
    out->rights = top.req_rights;
    out->rsp_valid = top.rsp_valid;
    self.edge();
}
