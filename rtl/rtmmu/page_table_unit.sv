// The conventional unit: one direct page table, read through the third port alone (Böhnert and Scholl, II-B).
//
// The core's side is that of `rtmmu_arrays`; a word without any right maps nothing.
module page_table_unit #(
    parameter int PAGE_BITS = 20,
    parameter int PA_BITS = 32,
    parameter int VA_BITS = 32
) (
    input logic clk,
    input logic rst,

    input logic [PAGE_BITS-1:0] pages_mask,
    input logic [PA_BITS-1:2] base,

    input logic req_valid,
    output logic req_ready,
    input logic [VA_BITS-1:0] req_vaddr,
    input logic [2:0] req_needs,
    output verdict::code_t req_code,
    output logic [2:0] req_rights,
    output logic rsp_valid,

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
    wire in_space = (vpn & ~{{(VPN_BITS - PAGE_BITS) {1'b0}}, pages_mask}) == '0;
    wire walking = req_valid && in_space;
    wire taken, settled, grant;

    data_port #(.PA_BITS(PA_BITS)) data (
        .clk, .rst, .walking, .table_addr(base + {{(WORD_BITS - PAGE_BITS) {1'b0}}, vpn[PAGE_BITS-1:0]}),
        .word_valid(settled), .taken, .descend(1'b0),
        .grant, .data_addr({p3_rsp_data[FRAME_BITS+2:3], req_vaddr[11:0]}),
        .data_write(req_needs[1]),
        .req_valid(p3_req_valid), .req_ready(p3_req_ready), .req_addr(p3_req_addr),
        .req_write(p3_req_write), .req_data(p3_req_data),
        .rsp_valid(p3_rsp_valid), .rsp_ready(p3_rsp_ready), .data_valid(rsp_valid)
    );

    wire [31:0] beyond = p3_rsp_data >> (FRAME_BITS + 3);

    always_comb begin
        if (!in_space) req_code = verdict::OUT_OF_SPACE;
        else if (p3_rsp_error) req_code = verdict::BUS_DATA;
        else if (p3_rsp_data[2:0] == '0) req_code = verdict::ENTRY;
        else if (beyond != '0) req_code = verdict::BUS_DATA;
        else if ((req_needs & ~p3_rsp_data[2:0]) != '0) req_code = verdict::DENIED;
        else req_code = verdict::GRANTED;
    end

    assign req_rights = p3_rsp_data[2:0];
    assign grant = settled && req_code == verdict::GRANTED;
    assign taken = settled && (!grant || p3_req_ready);
    assign req_ready = taken || !in_space;
endmodule
