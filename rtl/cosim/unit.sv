// A unit with the widest ports of all three, so that one shim drives each of them.
module unit #(
    // 0: arrays, 1: nodes, 2: page table.
    parameter int SCHEME = 0
) (
    input logic clk,
    input logic rst,
    input logic [63:0] pages_mask,
    // Regions, stack ends, helper, stack, data, or the root in the first, or the table in the last.
    input logic [63:0] base0,
    input logic [63:0] base1,
    input logic [63:0] base2,
    input logic [63:0] base3,
    input logic [63:0] base4,
    input logic [7:0] hold_cycles,
    input logic [7:0] root_level,

    input logic req_valid,
    output logic req_ready,
    input logic [63:0] req_vaddr,
    input logic [2:0] req_needs,
    output logic [3:0] req_code,
    output logic [2:0] req_level,
    output logic [2:0] req_rights,
    output logic rsp_valid,

    output logic p1_req_valid,
    input logic p1_req_ready,
    output logic [63:0] p1_req_addr,
    input logic p1_rsp_valid,
    output logic p1_rsp_ready,
    input logic [63:0] p1_rsp_data,
    input logic p1_rsp_error,

    output logic p2_req_valid,
    input logic p2_req_ready,
    output logic [63:0] p2_req_addr,
    input logic p2_rsp_valid,
    output logic p2_rsp_ready,
    input logic [63:0] p2_rsp_data,
    input logic p2_rsp_error,

    output logic p3_req_valid,
    input logic p3_req_ready,
    output logic [63:0] p3_req_addr,
    output logic p3_req_write,
    output logic p3_req_data,
    input logic p3_rsp_valid,
    output logic p3_rsp_ready,
    input logic [63:0] p3_rsp_data,
    input logic p3_rsp_error
);
    generate
        if (SCHEME == 0) begin : g_arrays
            rtmmu_arrays #(.PAGE_BITS(31), .PA_BITS(41), .VA_BITS(64)) dut (
                .clk, .rst, .pages_mask(pages_mask[30:0]),
                .base_regions(base0[40:2]), .base_stack_end(base1[40:2]), .base_helper(base2[40:2]),
                .base_stack(base3[40:2]), .base_data(base4[40:2]), .hold_cycles,
                .req_valid, .req_ready, .req_vaddr, .req_needs, .req_code, .req_rights, .rsp_valid,
                .p1_req_valid, .p1_req_ready, .p1_req_addr(p1_req_addr[40:2]),
                .p1_rsp_valid, .p1_rsp_ready, .p1_rsp_data(p1_rsp_data[31:0]), .p1_rsp_error,
                .p2_req_valid, .p2_req_ready, .p2_req_addr(p2_req_addr[40:2]),
                .p2_rsp_valid, .p2_rsp_ready, .p2_rsp_data(p2_rsp_data[31:0]), .p2_rsp_error,
                .p3_req_valid, .p3_req_ready, .p3_req_addr(p3_req_addr[40:0]), .p3_req_write, .p3_req_data,
                .p3_rsp_valid, .p3_rsp_ready, .p3_rsp_data(p3_rsp_data[31:0]), .p3_rsp_error
            );
            assign p1_req_addr[63:41] = '0;
            assign p1_req_addr[1:0] = '0;
            assign p2_req_addr[63:41] = '0;
            assign p2_req_addr[1:0] = '0;
            assign p3_req_addr[63:41] = '0;
            assign req_level = '0;
        end else if (SCHEME == 1) begin : g_nodes
            rtmmu_nodes #(.PAGE_BITS(40), .PA_BITS(52), .VA_BITS(64)) dut (
                .clk, .rst, .pages_mask(pages_mask[39:0]), .root_level(root_level[2:0]),
                .root(base0[51:12]), .hold_cycles,
                .req_valid, .req_ready, .req_vaddr, .req_needs, .req_code, .req_level, .req_rights,
                .rsp_valid,
                .p1_req_valid, .p1_req_ready, .p1_req_addr(p1_req_addr[51:3]),
                .p1_rsp_valid, .p1_rsp_ready, .p1_rsp_data, .p1_rsp_error,
                .p2_req_valid, .p2_req_ready, .p2_req_addr(p2_req_addr[51:3]),
                .p2_rsp_valid, .p2_rsp_ready, .p2_rsp_data, .p2_rsp_error,
                .p3_req_valid, .p3_req_ready, .p3_req_addr(p3_req_addr[51:0]), .p3_req_write, .p3_req_data,
                .p3_rsp_valid, .p3_rsp_ready, .p3_rsp_data, .p3_rsp_error
            );
            assign p1_req_addr[63:52] = '0;
            assign p1_req_addr[2:0] = '0;
            assign p2_req_addr[63:52] = '0;
            assign p2_req_addr[2:0] = '0;
            assign p3_req_addr[63:52] = '0;
        end else begin : g_page_table
            page_table_unit #(.PAGE_BITS(31), .PA_BITS(41), .VA_BITS(64)) dut (
                .clk, .rst, .pages_mask(pages_mask[30:0]), .base(base4[40:2]),
                .req_valid, .req_ready, .req_vaddr, .req_needs, .req_code, .req_rights, .rsp_valid,
                .p3_req_valid, .p3_req_ready, .p3_req_addr(p3_req_addr[40:0]), .p3_req_write, .p3_req_data,
                .p3_rsp_valid, .p3_rsp_ready, .p3_rsp_data(p3_rsp_data[31:0]), .p3_rsp_error
            );
            assign p1_req_valid = 1'b0;
            assign p1_req_addr = '0;
            assign p1_rsp_ready = 1'b0;
            assign p2_req_valid = 1'b0;
            assign p2_req_addr = '0;
            assign p2_rsp_ready = 1'b0;
            assign p3_req_addr[63:41] = '0;
            assign req_level = '0;
        end
    endgenerate
endmodule
