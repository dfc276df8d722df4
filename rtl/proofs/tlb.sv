// TLBs of three entries over eight pages, with anything on their wires: the statements stand in range_tlb.sv.
module tlb_any #(
    parameter FORM = 2,
    parameter LEAF_BITS = 3
) (
    input clk,
    input req_valid,
    input [2:0] req_vpn,
    input fill_valid,
    input [2:0] fill_vpn,
    input [2:0] fill_pfn,
    input [LEAF_BITS-1:0] fill_before,
    input [LEAF_BITS-1:0] fill_after,
    input [LEAF_BITS-1:0] fill_mask,
    input drop_valid,
    input drop_all,
    input [2:0] drop_vpn,
    output hit
);
    reg rst = 1;
    always @(posedge clk) rst <= 0;
    range_tlb #(
        .ENTRIES(3), .VPN_BITS(3), .PFN_BITS(3), .ATTRIBUTE_BITS(1), .FORM(FORM), .LEAF_BITS(LEAF_BITS)
    ) dut (
        .clk(clk), .rst(rst), .req_valid(req_valid), .req_ready(), .req_vpn(req_vpn), .hit(hit), .hit_pfn(),
        .hit_attributes(), .fill_valid(fill_valid), .fill_ready(), .fill_vpn(fill_vpn), .fill_pfn(fill_pfn),
        .fill_attributes(1'b0), .fill_before(fill_before), .fill_after(fill_after), .fill_mask(fill_mask),
        .drop_ready(), .drop_valid(drop_valid), .drop_all(drop_all), .drop_vpn(drop_vpn)
    );
endmodule
