// The walker of page tables behind a TLB of runs: ARMv8-A, 4 KiB granule, four levels, with PCAD's Ascend and Descend in the
// pages' descriptors (`swath_arch::formats::armv8`; Duong and Hur, Table 1).
//
//   cycles      0        f        2f       3f       4f
//   port        | L0     | L1     | L2     | L3     |
//                                                   ^ done
//
// A level's read is asked for in the cycle in which the word above it arrives. What ends the walk stands at the
// outputs in that cycle, and stays no longer.
module walker #(
    // Runs end with the aligned 2^LEAF_BITS pages around the page; VPN_BITS if they may lie anywhere.
    parameter int LEAF_BITS = 36
) (
    input logic clk,
    input logic rst,

    input logic [47:12] root,
    // Pages are wanted until `done`.
    input logic walking,
    input logic [47:12] vpn,

    output logic req_valid,
    input logic req_ready,
    output logic [47:3] req_addr,
    input logic rsp_valid,
    output logic rsp_ready,
    input logic [63:0] rsp_data,
    input logic rsp_error,

    output logic done,
    // 0: a page. 1: nothing is mapped. 2: reserved. 3: no memory answers.
    output logic [1:0] fault,
    output logic [1:0] level,
    output logic [35:0] pfn,
    output logic [LEAF_BITS-1:0] run_before,
    output logic [LEAF_BITS-1:0] run_after,
    // Writable, for users, executable, global, accessed, a device's, from bit 0 on.
    output logic [5:0] attributes
);
    typedef enum logic {
        ASK,
        WAIT
    } state_t;
    state_t state;
    // The table of the level that is read, but for the first.
    logic [47:12] below;

    wire [63:0] word = rsp_data;
    wire [35:0] frame = word[47:12];
    wire is_table = word[0] && word[1] && level != 2'd3;
    wire arrives = state == WAIT && rsp_valid;
    wire follows = arrives && !rsp_error && is_table;

    function automatic logic [8:0] index(input logic [1:0] of);
        case (of)
            2'd0: index = vpn[47:39];
            2'd1: index = vpn[38:30];
            2'd2: index = vpn[29:21];
            default: index = vpn[20:12];
        endcase
    endfunction

    wire [35:0] here = level == 2'd0 ? root : below;
    assign req_valid = follows || (state == ASK && walking);
    assign req_addr = follows ? {frame, index(level + 2'd1)} : {here, index(level)};
    assign rsp_ready = !follows || req_ready;
    assign done = arrives && !follows;

    always_ff @(posedge clk) begin
        if (follows && req_ready) below <= frame;
        if (rst) begin
            state <= ASK;
            level <= '0;
        end else if (done) begin
            state <= ASK;
            level <= '0;
        end else if (follows) begin
            if (req_ready) level <= level + 2'd1;
        end else if (req_valid && req_ready) state <= WAIT;
    end

    // The leaf: a block of 1 GiB or 2 MiB, a page, or 16 of either that are joined.
    wire [35:0] page = vpn;
    logic [35:0] in_page;  // ones where the page's own bits choose
    logic [35:0] entry;  // ones where the descriptor's do not say
    always_comb begin
        entry = level == 2'd1 ? 36'h3ffff : level == 2'd2 ? 36'h1ff : 36'h0;
        in_page = level != 2'd1 && word[52] ? {entry[31:0], 4'hf} : entry;
    end
    assign pfn = (frame & ~entry) | (page & entry);
    wire is_askew = ((pfn ^ page) & in_page) != '0;

    // PCAD's numbers, as far as pages and frames are there.
    wire is_page = in_page == '0;
    function automatic logic [3:0] least(input logic [3:0] number, input logic [35:0] room);
        least = room[35:4] == '0 && room[3:0] < number ? room[3:0] : number;
    endfunction
    wire [3:0] descend = least(least(word[62:59], page), pfn);
    wire [3:0] ascend = least(least(word[58:55], ~page), ~pfn);
    wire [35:0] all_before = is_page ? {32'b0, descend} : page & in_page;
    wire [35:0] all_after = is_page ? {32'b0, ascend} : ~page & in_page;
    generate
        if (LEAF_BITS < 36) begin : g_cut
            wire [LEAF_BITS-1:0] at = page[LEAF_BITS-1:0];
            wire [35:0] room_before = {{(36 - LEAF_BITS) {1'b0}}, at};
            wire [35:0] room_after = {{(36 - LEAF_BITS) {1'b0}}, ~at};
            assign run_before = all_before > room_before ? at : all_before[LEAF_BITS-1:0];
            assign run_after = all_after > room_after ? ~at : all_after[LEAF_BITS-1:0];
        end else begin : g_whole
            assign run_before = all_before;
            assign run_after = all_after;
        end
    endgenerate

    wire is_block = !word[1];
    always_comb begin
        if (rsp_error) fault = 2'd3;
        else if (!word[0]) fault = 2'd1;
        else if (is_block && (level == 2'd0 || level == 2'd3)) fault = 2'd2;
        else if (is_askew) fault = 2'd2;
        else fault = 2'd0;
    end
    assign attributes = {word[4:2] != 3'd0, word[10], !word[11], !(word[6] ? word[54] : word[53]), word[6], !word[7]};

    wire unused = &{1'b0, word[63], word[51:48], word[9:8], word[5]};
endmodule
