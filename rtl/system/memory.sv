// A memory that serves one access at a time, after a number of cycles. Its words are the bench's, as the
// memories of the paper are chips beside the FPGA's.
module memory #(
    // Its address.
    parameter logic [31:0] BASE = 0,
    parameter logic [31:0] BYTES = 0
) (
    input logic clk,
    input logic rst,
    input logic req_valid,
    output logic req_ready,
    input logic [31:2] req_addr,
    input logic req_write,
    input logic [3:0] req_strobe,
    input logic [31:0] req_data,
    // From the request to the answer, at least 1.
    input logic [7:0] req_cycles,
    output logic rsp_valid,
    input logic rsp_ready,
    output logic [31:0] rsp_data,
    // There is no such word.
    output logic rsp_error
);
    // Writes the bytes of `strobe`, and returns the word as it was before.
    import "DPI-C" function int unsigned system_memory(
        input int unsigned addr,
        input int unsigned strobe,
        input int unsigned data
    );

    logic busy;
    logic [7:0] left;
    wire [31:0] addr = {req_addr, 2'b0};
    wire there = addr - BASE < BYTES;

    assign rsp_valid = busy && left == '0;
    assign req_ready = !busy || rsp_valid;

    always_ff @(posedge clk) begin
        if (rst) busy <= 1'b0;
        else if (req_valid && req_ready) begin
            busy <= 1'b1;
            left <= req_cycles - 8'd1;
            rsp_error <= !there;
            rsp_data <= there ? system_memory(addr, req_write ? {28'b0, req_strobe} : '0, req_data) : '0;
        end else if (rsp_valid && rsp_ready) busy <= 1'b0;
        else if (left != '0) left <= left - 8'd1;
    end
endmodule
