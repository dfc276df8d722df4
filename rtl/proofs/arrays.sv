// The RTMMU over arrays of four pages with any content, in front of memories with fixed latencies.
//
// Proved for every content of the tables, every missing word, and every sequence of accesses:
// * the verdict comes in the same cycle after the request, whatever the tables say: constant cycles;
// * a page is granted exactly if the three conditions and the right hold, at the frame of its data
//   word, and a refusal names the first word that says no.
module arrays #(
    parameter FAST = 2,
    parameter TABLE = 2,
    parameter DATA = 1,
    parameter VA_BITS = 15
) (
    input clk,
    // Anything, chosen at the reset.
    input [20*8-1:0] any_words,
    input [19:0] any_missing,
    // Anything in each cycle.
    input [VA_BITS-1:0] any_vaddr,
    input [2:0] any_needs,
    input any_asks
);
    localparam HOLD = TABLE > 2 * FAST ? TABLE : 2 * FAST;
    localparam PA_BITS = 16;

    reg rst = 1;
    always @(posedge clk) rst <= 0;

    // The tables: five arrays of four words, one behind the other. Of a word the lowest seven bits and
    // one for all others are anything. A word may be missing.
    reg [20*8-1:0] words;
    reg [19:0] missing;
    always @(posedge clk)
        if (rst) begin
            words <= any_words;
            missing <= any_missing;
        end

    function [31:0] word(input [4:0] at);
        reg [7:0] narrow;
        integer i;
        begin
            narrow = 0;
            for (i = 0; i < 20; i = i + 1) if (at == i) narrow = words[8*i+:8];
            word = {{25{narrow[7]}}, narrow[6:0]};
        end
    endfunction

    // The core: an access at a time, after the last one or a cycle later. After an access beyond the space comes
    // one inside, and then anything again: so an induction sees a whole walk within few steps.
    reg [VA_BITS-1:0] vaddr;
    reg [2:0] needs;
    reg asks = 0, waits = 0;
    reg idle = 0, was_outside = 0;
    reg [3:0] age = 0;

    wire in_space = vaddr[14] == 0;
    wire req_ready, rsp_valid;
    wire [3:0] code;
    wire [2:0] rights;
    wire p1_req, p1_take, p2_req, p2_take, p3_req, p3_take, p3_write, p3_data;
    wire [PA_BITS-1:2] p1_addr, p2_addr;
    wire [PA_BITS-1:0] p3_addr;

    // Memories: one read at a time, answered after the latency, offered until taken.
    reg [4:0] p1_at = 0, p2_at = 0, p3_at = 0;
    reg [3:0] p1_left = 0, p2_left = 0, p3_left = 0;
    reg p1_busy = 0, p2_busy = 0, p3_busy = 0;
    wire p1_valid = p1_busy && p1_left == 0;
    wire p2_valid = p2_busy && p2_left == 0;
    wire p3_valid = p3_busy && p3_left == 0;
    wire p1_ready = !p1_busy || p1_valid;
    wire p2_ready = !p2_busy || p2_valid;
    wire p3_ready = !p3_busy || p3_valid;
    always @(posedge clk)
        if (!rst) begin
            if (p1_req && p1_ready) begin
                p1_busy <= 1; p1_left <= FAST - 1; p1_at <= p1_addr[6:2];
            end else if (p1_valid && p1_take) p1_busy <= 0;
            else if (p1_left != 0) p1_left <= p1_left - 1;
            if (p2_req && p2_ready) begin
                p2_busy <= 1; p2_left <= FAST - 1; p2_at <= p2_addr[6:2];
            end else if (p2_valid && p2_take) p2_busy <= 0;
            else if (p2_left != 0) p2_left <= p2_left - 1;
            if (p3_req && p3_ready) begin
                p3_busy <= 1; p3_left <= p3_data ? DATA - 1 : TABLE - 1; p3_at <= p3_addr[6:2];
            end else if (p3_valid && p3_take) p3_busy <= 0;
            else if (p3_left != 0) p3_left <= p3_left - 1;
        end

    rtmmu_arrays #(.PAGE_BITS(2), .PA_BITS(PA_BITS), .VA_BITS(VA_BITS)) dut (
        .clk(clk), .rst(rst), .pages_mask(2'd3),
        .base_regions(14'd0), .base_stack_end(14'd4), .base_helper(14'd8), .base_stack(14'd12),
        .base_data(14'd16), .hold_cycles(HOLD[7:0]),
        .req_valid(asks), .req_ready(req_ready), .req_vaddr(vaddr), .req_needs(needs),
        .req_code(code), .req_rights(rights), .rsp_valid(rsp_valid),
        .p1_req_valid(p1_req), .p1_req_ready(p1_ready), .p1_req_addr(p1_addr), .p1_rsp_valid(p1_valid),
        .p1_rsp_ready(p1_take), .p1_rsp_data(word(p1_at)), .p1_rsp_error(missing[p1_at]),
        .p2_req_valid(p2_req), .p2_req_ready(p2_ready), .p2_req_addr(p2_addr), .p2_rsp_valid(p2_valid),
        .p2_rsp_ready(p2_take), .p2_rsp_data(word(p2_at)), .p2_rsp_error(missing[p2_at]),
        .p3_req_valid(p3_req), .p3_req_ready(p3_ready), .p3_req_addr(p3_addr), .p3_req_write(p3_write),
        .p3_req_data(p3_data), .p3_rsp_valid(p3_valid), .p3_rsp_ready(p3_take),
        .p3_rsp_data(word(p3_at)), .p3_rsp_error(missing[p3_at])
    );

    always @(posedge clk)
        if (!rst) begin
            if (asks) begin
                age <= age + 1;
                if (req_ready) begin
                    asks <= 0; idle <= 0; age <= 0; was_outside <= !in_space;
                    waits <= code == 0;
                end
            end else if (waits) begin
                age <= age + 1;
                if (rsp_valid) begin waits <= 0; age <= 0; end
            end else begin
                idle <= 1;
                if (any_asks || idle) begin
                    asks <= 1; needs <= any_needs;
                    vaddr <= {any_vaddr[14] && !was_outside, any_vaddr[13:0]};
                end
            end
        end

    // What the tables mean, from the words at once.
    wire [1:0] page = vaddr[13:12];
    wire [31:0] start = word(page);
    wire [31:0] stack_end = word(4+start[1:0]);
    wire [31:0] place = word(8+page);
    wire [31:0] holder = word(12+place[1:0]);
    wire [31:0] data = word(16+page);
    reg [3:0] meant;
    always @* begin
        if (!in_space) meant = 1;
        else if (missing[page]) meant = 8;
        else if (start > page) meant = 2;
        else if (missing[4+start[1:0]]) meant = 9;
        else if (missing[8+page]) meant = 10;
        else if (place < start || place >= stack_end || place > 3) meant = 3;
        else if (missing[12+place[1:0]]) meant = 11;
        else if (holder != page) meant = 4;
        else if (missing[16+page] || data[31:7] != 0) meant = 12;
        else if ((needs & ~data[2:0]) != 0) meant = 6;
        else meant = 0;
    end

    always @(posedge clk)
        if (!rst) begin
            // Constant cycles.
            assert (age <= (waits ? DATA - 1 : asks ? HOLD : 0) && !(asks && waits));
            assert (p1_left < FAST && p2_left < FAST && p3_left < (TABLE > DATA ? TABLE : DATA));
            if (asks && in_space) assert (req_ready == (age == HOLD));
            if (asks && !in_space) assert (req_ready && age == 0);
            if (waits) assert (rsp_valid == (age == DATA - 1));
            if (!waits) assert (!rsp_valid);
            // Between accesses nothing is under way.
            if (!asks) assert (!p1_busy && !p2_busy && p3_busy == waits);
            // No read beyond the tables.
            if (p1_req) assert (p1_addr < 8);
            if (p2_req) assert (p2_addr >= 8 && p2_addr < 16);
            if (p3_req && !p3_data) assert (p3_addr >= 64 && p3_addr < 80);
            // The meaning.
            if (asks && req_ready) assert (code == meant);
            // Data are asked for at the verdict, of a granted page, at its frame, and never else.
            assert ((p3_req && p3_data) == (asks && req_ready && code == 0));
            if (p3_req && p3_data) assert (p3_addr == {data[6:3], vaddr[11:0]} && p3_write == needs[1]);
            if (p3_req && !p3_data) assert (!p3_write);
        end
endmodule
