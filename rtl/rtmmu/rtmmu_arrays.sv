// The RTMMU over the pages validity array and the virtual regions cache (Böhnert and Scholl, IV-B).
//
//   cycles        0        f        2f = t              t + m
//   port 1        | c[b]   | sp[c[b]] |
//   port 2        | h[b]   | s[h[b]]  |
//   port 3        | d[b]              | data              |
//                                     ^ verdict
//
// Page b is mapped if c[b] <= b, c[b] <= h[b] < sp[c[b]] and s[h[b]] = b (`swath_arch::validity`).
// The core's request stays at `req_*`, unchanged, until it is accepted, which is the verdict:
// `req_code` is GRANTED, and the data follow at `rsp_*` in the order of requests, or says why not.
// Registers (`pages_mask`, the bases, `hold_cycles`) change only while no request is there.
module rtmmu_arrays #(
    parameter int PAGE_BITS = 20,
    parameter int PA_BITS = 32,
    parameter int VA_BITS = 32
) (
    input logic clk,
    input logic rst,

    // N - 1, for a space of N pages.
    input logic [PAGE_BITS-1:0] pages_mask,
    input logic [PA_BITS-1:2] base_regions,
    input logic [PA_BITS-1:2] base_stack_end,
    input logic [PA_BITS-1:2] base_helper,
    input logic [PA_BITS-1:2] base_stack,
    input logic [PA_BITS-1:2] base_data,
    // The verdict comes no earlier than this after the request.
    input logic [7:0] hold_cycles,

    // The core.
    input logic req_valid,
    output logic req_ready,
    input logic [VA_BITS-1:0] req_vaddr,
    input logic [2:0] req_needs,  // the right: read, write, execute from bit 0 on
    output verdict::code_t req_code,
    output logic [2:0] req_rights,
    output logic rsp_valid,

    // Port 1: regions, stack ends.
    output logic p1_req_valid,
    input logic p1_req_ready,
    output logic [PA_BITS-1:2] p1_req_addr,
    input logic p1_rsp_valid,
    output logic p1_rsp_ready,
    input logic [31:0] p1_rsp_data,
    input logic p1_rsp_error,

    // Port 2: helper, stack.
    output logic p2_req_valid,
    input logic p2_req_ready,
    output logic [PA_BITS-1:2] p2_req_addr,
    input logic p2_rsp_valid,
    output logic p2_rsp_ready,
    input logic [31:0] p2_rsp_data,
    input logic p2_rsp_error,

    // Port 3: frames, then the data. What is written and what is read of the data goes between core and
    // memory beside this unit.
    output logic p3_req_valid,
    input logic p3_req_ready,
    output logic [PA_BITS-1:0] p3_req_addr,
    output logic p3_req_write,
    output logic p3_req_data,
    input logic p3_rsp_valid,
    output logic p3_rsp_ready,
    input logic [31:0] p3_rsp_data,
    input logic p3_rsp_error
);
    localparam int FRAME_BITS = PA_BITS - 12;
    localparam int VPN_BITS = VA_BITS - 12;
    localparam int WORD_BITS = PA_BITS - 2;

    wire [VPN_BITS-1:0] vpn = req_vaddr[VA_BITS-1:12];
    wire [PAGE_BITS-1:0] page = vpn[PAGE_BITS-1:0];
    wire [31:0] page_word = {{(32 - PAGE_BITS) {1'b0}}, page};
    wire in_space = (vpn & ~{{(VPN_BITS - PAGE_BITS) {1'b0}}, pages_mask}) == '0;
    wire walking = req_valid && in_space;
    wire taken;

    // Port 1. A start is below N if it is not above the page.
    wire [PAGE_BITS-1:0] start;
    wire start_failed, p1_ended, end_valid;
    two_reads #(.PAGE_BITS(PAGE_BITS), .PA_BITS(PA_BITS)) regions (
        .clk, .rst, .walking, .taken,
        .first_base(base_regions), .second_base(base_stack_end), .first_index(page),
        .follow(p1_rsp_data <= page_word),
        .first(start), .first_failed(start_failed), .ended(p1_ended), .second_valid(end_valid),
        .req_valid(p1_req_valid), .req_ready(p1_req_ready), .req_addr(p1_req_addr),
        .rsp_valid(p1_rsp_valid), .rsp_ready(p1_rsp_ready),
        .rsp_index(p1_rsp_data[PAGE_BITS-1:0]), .rsp_error(p1_rsp_error)
    );

    // Port 2. It does not know the start, and follows any place of the space.
    wire [PAGE_BITS-1:0] place;
    wire place_failed, p2_ended, holder_valid;
    two_reads #(.PAGE_BITS(PAGE_BITS), .PA_BITS(PA_BITS)) stack (
        .clk, .rst, .walking, .taken,
        .first_base(base_helper), .second_base(base_stack), .first_index(page),
        .follow((p2_rsp_data & ~{{(32 - PAGE_BITS) {1'b0}}, pages_mask}) == '0),
        .first(place), .first_failed(place_failed), .ended(p2_ended), .second_valid(holder_valid),
        .req_valid(p2_req_valid), .req_ready(p2_req_ready), .req_addr(p2_req_addr),
        .rsp_valid(p2_rsp_valid), .rsp_ready(p2_rsp_ready),
        .rsp_index(p2_rsp_data[PAGE_BITS-1:0]), .rsp_error(p2_rsp_error)
    );

    // Port 3.
    wire word_valid, grant;
    data_port #(.PA_BITS(PA_BITS)) data (
        .clk, .rst, .walking, .table_addr(base_data + {{(WORD_BITS - PAGE_BITS) {1'b0}}, page}), .word_valid, .taken, .descend(1'b0),
        .grant, .data_addr({p3_rsp_data[FRAME_BITS+2:3], req_vaddr[11:0]}),
        .data_write(req_needs[1]),
        .req_valid(p3_req_valid), .req_ready(p3_req_ready), .req_addr(p3_req_addr),
        .req_write(p3_req_write), .req_data(p3_req_data),
        .rsp_valid(p3_rsp_valid), .rsp_ready(p3_rsp_ready), .data_valid(rsp_valid)
    );

    wire over;
    hold hold (.clk, .rst, .walking, .taken, .descend(1'b0), .cycles(hold_cycles), .over);

    // The verdict: the conditions in their order.
    wire settled = walking && over && word_valid && (p1_ended || end_valid) && (p2_ended || holder_valid);
    wire on_stack = !p2_ended && place >= start && {{(32 - PAGE_BITS) {1'b0}}, place} < p1_rsp_data;
    // Only of a physical address of fewer than 41 bits: a frame where no memory can be.
    wire [31:0] beyond = p3_rsp_data >> (FRAME_BITS + 3);

    always_comb begin
        if (!in_space) req_code = verdict::OUT_OF_SPACE;
        else if (p1_ended) req_code = start_failed ? verdict::BUS_REGIONS : verdict::START;
        else if (p1_rsp_error) req_code = verdict::BUS_STACK_END;
        else if (p2_ended && place_failed) req_code = verdict::BUS_HELPER;
        else if (!on_stack) req_code = verdict::STACK;
        else if (p2_rsp_error) req_code = verdict::BUS_STACK;
        else if (p2_rsp_data != page_word) req_code = verdict::PAGE;
        else if (p3_rsp_error || beyond != '0) req_code = verdict::BUS_DATA;
        else if ((req_needs & ~p3_rsp_data[2:0]) != '0) req_code = verdict::DENIED;
        else req_code = verdict::GRANTED;
    end

    assign req_rights = p3_rsp_data[2:0];
    assign grant = settled && req_code == verdict::GRANTED;
    assign taken = settled && (!grant || p3_req_ready);
    assign req_ready = taken || !in_space;
endmodule
