// The third port: the word of the table, then the access to the data.
//
// The table's word stays at the port until the verdict; the access to the data is asked for in the
// verdict's cycle. The next access's word may be asked for while data are on their way: answers come
// in order, so the first one belongs to the data.
module data_port #(
    parameter int PA_BITS = 32,
    // log2 of the bytes of a word of tables.
    parameter int WORD_SHIFT = 2
) (
    input logic clk,
    input logic rst,

    // A walk wants the table's word at this address. High until `taken`.
    input logic walking,
    input logic [PA_BITS-1:WORD_SHIFT] table_addr,
    // The table's word is at the port.
    output logic word_valid,
    // The verdict fell, and the word is done with.
    input logic taken,
    // The verdict of a level fell: the word is done with, and the one at `table_addr` is wanted.
    input logic descend,

    // The verdict: go on to the data. Accepted if `req_ready`.
    input logic grant,
    input logic [PA_BITS-1:0] data_addr,
    input logic data_write,

    output logic req_valid,
    input logic req_ready,
    output logic [PA_BITS-1:0] req_addr,
    output logic req_write,
    // The request is for the data, not for a word of tables.
    output logic req_data,
    input logic rsp_valid,
    output logic rsp_ready,

    // The answer at the port is the core's.
    output logic data_valid
);
    logic asked, data_pending;

    assign word_valid = asked && !data_pending && rsp_valid;
    assign data_valid = data_pending && rsp_valid;
    wire asks = descend || (!asked && walking);
    assign req_valid = asks || grant;
    assign req_data = !asks;
    assign req_write = !asks && data_write;
    assign req_addr = asks ? {table_addr, {WORD_SHIFT{1'b0}}} : data_addr;
    assign rsp_ready = data_pending || taken || descend;

    always_ff @(posedge clk) begin
        if (rst) begin
            asked <= 1'b0;
            data_pending <= 1'b0;
        end else begin
            asked <= asks ? req_ready : asked && !taken;
            if (grant && taken) data_pending <= 1'b1;
            else if (rsp_valid) data_pending <= 1'b0;
        end
    end
endmodule
