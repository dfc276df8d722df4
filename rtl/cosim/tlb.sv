// A TLB with the widest ports, so that one shim drives each form.
module tlb #(
    parameter int ENTRIES = 32,
    parameter int FORM = 2,
    parameter int LEAF_BITS = 40
) (
    input logic clk,
    input logic rst,
    input logic req_valid,
    output logic req_ready,
    input logic [63:0] req_vpn,
    output logic hit,
    output logic [63:0] hit_pfn,
    output logic [7:0] hit_attributes,
    input logic fill_valid,
    output logic fill_ready,
    input logic [63:0] fill_vpn,
    input logic [63:0] fill_pfn,
    input logic [7:0] fill_attributes,
    input logic [63:0] fill_before,
    input logic [63:0] fill_after,
    input logic [63:0] fill_mask,
    input logic drop_valid,
    input logic drop_all,
    input logic [63:0] drop_vpn
);
    range_tlb #(
        .ENTRIES(ENTRIES), .VPN_BITS(40), .PFN_BITS(40), .ATTRIBUTE_BITS(4), .FORM(FORM), .LEAF_BITS(LEAF_BITS)
    ) dut (
        .clk, .rst, .req_valid, .req_ready, .req_vpn(req_vpn[39:0]), .hit, .hit_pfn(hit_pfn[39:0]),
        .hit_attributes(hit_attributes[3:0]),
        .fill_valid, .fill_ready, .fill_vpn(fill_vpn[39:0]), .fill_pfn(fill_pfn[39:0]),
        .fill_attributes(fill_attributes[3:0]), .fill_before(fill_before[LEAF_BITS-1:0]),
        .fill_after(fill_after[LEAF_BITS-1:0]), .fill_mask(fill_mask[LEAF_BITS-1:0]),
        .drop_ready(), .drop_valid, .drop_all, .drop_vpn(drop_vpn[39:0])
    );
    assign hit_pfn[63:40] = '0;
    assign hit_attributes[7:4] = '0;
endmodule
