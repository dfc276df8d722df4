// A TLB of runs with its walker: a page is asked for until it is answered, from the entries or from the tables.
//
// A hit is answered in its cycle. A miss is walked for and filled, and then hits; one that ends in a fault is answered by
// the walker and fills nothing.
module walking_tlb #(
    parameter int ENTRIES = 32,
    // Runs lie within so many aligned bits of page number; 36 if they may lie anywhere.
    parameter int LEAF_BITS = 36
) (
    input logic clk,
    input logic rst,
    input logic [47:12] root,

    input logic req_valid,
    input logic [47:12] req_vpn,
    output logic answered,
    // As the walker has them, and the level.
    output logic [1:0] fault,
    output logic [1:0] level,
    output logic [35:0] pfn,
    output logic [5:0] attributes,

    output logic mem_req_valid,
    input logic mem_req_ready,
    output logic [47:3] mem_req_addr,
    input logic mem_rsp_valid,
    output logic mem_rsp_ready,
    input logic [63:0] mem_rsp_data,
    input logic mem_rsp_error,

    // Drops the entry that has a page, or all, while nothing is asked for.
    input logic drop_valid,
    input logic drop_all,
    input logic [47:12] drop_vpn
);
    logic ready, hit, done, fill_ready, drop_ready;
    logic [1:0] walk_fault;
    logic [35:0] walk_pfn;
    logic [LEAF_BITS-1:0] run_before, run_after;
    logic [5:0] walk_attributes;
    logic [35:0] hit_pfn;
    logic [5:0] hit_attributes;

    wire looks_up = req_valid && ready;
    wire found = done && walk_fault == 2'd0;
    range_tlb #(
        .ENTRIES(ENTRIES), .VPN_BITS(36), .PFN_BITS(36), .ATTRIBUTE_BITS(6), .FORM(2), .LEAF_BITS(LEAF_BITS)
    ) tlb (
        .clk, .rst, .req_valid, .req_ready(ready), .req_vpn, .hit, .hit_pfn, .hit_attributes,
        .fill_valid(found), .fill_ready, .fill_vpn(req_vpn), .fill_pfn(walk_pfn), .fill_attributes(walk_attributes),
        .fill_before(run_before), .fill_after(run_after), .fill_mask('0),
        .drop_ready, .drop_valid, .drop_all, .drop_vpn
    );
    walker #(.LEAF_BITS(LEAF_BITS)) walker (
        .clk, .rst, .root, .walking(looks_up && !hit), .vpn(req_vpn),
        .req_valid(mem_req_valid), .req_ready(mem_req_ready), .req_addr(mem_req_addr),
        .rsp_valid(mem_rsp_valid), .rsp_ready(mem_rsp_ready), .rsp_data(mem_rsp_data), .rsp_error(mem_rsp_error),
        .done, .fault(walk_fault), .level, .pfn(walk_pfn), .run_before, .run_after, .attributes(walk_attributes)
    );

    wire faults = done && walk_fault != 2'd0;
    assign answered = (looks_up && hit) || faults;
    assign fault = faults ? walk_fault : 2'd0;
    assign pfn = hit_pfn;
    assign attributes = hit_attributes;

    wire unused = &{1'b0, fill_ready, drop_ready};
endmodule
