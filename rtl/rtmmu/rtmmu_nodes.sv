// The RTMMU over a tree of nodes, for sparse spaces (`swath_arch::validity`, hierarchical tables).
//
//   cycles        0             f              2f = t
//   port 1        | control[i]  | control[c]   |
//   port 2                      | control[h]   |
//   port 3        | data[i]                    | next level, or the data
//                                              ^ verdict of the level
//
// Entry i of a node is valid if c <= i, c <= h < sp[c] and s[h] = i, with c and h from its control word.
// A valid entry above level 0 leads to the node below, which is asked for in the verdict's cycle. The
// core's side is that of `rtmmu_arrays`; `hold_cycles` counts for each level.
module rtmmu_nodes #(
    parameter int PAGE_BITS = 40,
    parameter int PA_BITS = 52,
    parameter int VA_BITS = 64
) (
    input logic clk,
    input logic rst,

    input logic [PAGE_BITS-1:0] pages_mask,
    // The root's level: levels - 1.
    input logic [2:0] root_level,
    input logic [PA_BITS-1:12] root,
    input logic [7:0] hold_cycles,

    input logic req_valid,
    output logic req_ready,
    input logic [VA_BITS-1:0] req_vaddr,
    input logic [2:0] req_needs,
    output verdict::code_t req_code,
    output logic [2:0] req_level,  // of the node that gave the code
    output logic [2:0] req_rights,
    output logic rsp_valid,

    output logic p1_req_valid,
    input logic p1_req_ready,
    output logic [PA_BITS-1:3] p1_req_addr,
    input logic p1_rsp_valid,
    output logic p1_rsp_ready,
    input logic [63:0] p1_rsp_data,
    input logic p1_rsp_error,

    output logic p2_req_valid,
    input logic p2_req_ready,
    output logic [PA_BITS-1:3] p2_req_addr,
    input logic p2_rsp_valid,
    output logic p2_rsp_ready,
    input logic [63:0] p2_rsp_data,
    input logic p2_rsp_error,

    output logic p3_req_valid,
    input logic p3_req_ready,
    output logic [PA_BITS-1:0] p3_req_addr,
    output logic p3_req_write,
    output logic p3_req_data,
    input logic p3_rsp_valid,
    output logic p3_rsp_ready,
    input logic [63:0] p3_rsp_data,
    input logic p3_rsp_error
);
    localparam int FRAME_BITS = PA_BITS - 12;
    localparam int VPN_BITS = VA_BITS - 12;

    wire [VPN_BITS-1:0] vpn = req_vaddr[VA_BITS-1:12];
    wire in_space = (vpn & ~{{(VPN_BITS - PAGE_BITS) {1'b0}}, pages_mask}) == '0;
    wire walking = req_valid && in_space;
    wire taken;    // the access's verdict
    wire descend;  // a level's verdict: on to the node below

    // The node, and the page's place in it. In the cycle of `descend` those of the node below.
    logic below;  // it is not the root
    logic [2:0] level_below;
    logic [FRAME_BITS-1:0] node_below;
    wire [2:0] level = below ? level_below : root_level;
    wire [2:0] asked_level = descend ? level - 3'd1 : level;
    wire [FRAME_BITS-1:0] found_frame = p3_rsp_data[FRAME_BITS+11:12];
    wire [FRAME_BITS-1:0] asked_node = descend ? found_frame : below ? node_below : root;

    wire [63:0] page64 = {{(64 - PAGE_BITS) {1'b0}}, vpn[PAGE_BITS-1:0]};
    wire [39:0] pages = page64[39:0];
    wire [7:0] own = pages[8*level+:8];
    wire [7:0] asked_own = pages[8*asked_level+:8];

    // Port 1: the control word of the place, then that of the start.
    typedef enum logic [1:0] {
        ASK,
        FIRST,
        SECOND,
        ENDED
    } state_t;
    state_t p1, p2;
    logic [7:0] start, place;
    logic failed;

    wire first_valid = p1 == FIRST && p1_rsp_valid;
    wire [7:0] rsp_start = p1_rsp_data[23:16];
    wire [7:0] rsp_place = p1_rsp_data[15:8];
    wire follows = first_valid && !p1_rsp_error && rsp_start <= own;
    wire first_taken = first_valid && (!follows || p1_req_ready);
    wire p1_asks_first = descend || (p1 == ASK && walking);

    assign p1_req_valid = p1_asks_first || follows;
    assign p1_req_addr = p1_asks_first ? {asked_node, 1'b1, asked_own} : {asked_node, 1'b1, rsp_start};
    assign p1_rsp_ready = p1 == SECOND ? taken || descend : first_taken;

    // Port 2: the control word of the place on the stack, known from port 1's first word on.
    wire p2_knows = p1 == FIRST ? first_valid && !p1_rsp_error : p1 != ASK && !failed;
    assign p2_req_valid = p2 == ASK && p2_knows;
    assign p2_req_addr = {below ? node_below : root, 1'b1, p1 == FIRST ? rsp_place : place};
    assign p2_rsp_ready = taken || descend;

    // Port 3: the data word of the place.
    wire word_valid, grant;
    data_port #(.PA_BITS(PA_BITS), .WORD_SHIFT(3)) data (
        .clk, .rst, .walking, .table_addr({asked_node, 1'b0, asked_own}), .word_valid, .taken, .descend,
        .grant, .data_addr({found_frame, req_vaddr[11:0]}), .data_write(req_needs[1]),
        .req_valid(p3_req_valid), .req_ready(p3_req_ready), .req_addr(p3_req_addr),
        .req_write(p3_req_write), .req_data(p3_req_data),
        .rsp_valid(p3_rsp_valid), .rsp_ready(p3_rsp_ready), .data_valid(rsp_valid)
    );

    wire over;
    hold hold (.clk, .rst, .walking, .taken, .descend, .cycles(hold_cycles), .over);

    // The verdict of the level.
    wire end_valid = p1 == SECOND && p1_rsp_valid;
    wire holder_valid = p2 == SECOND && p2_rsp_valid;
    wire settled = walking && over && word_valid
        && (p1 == ENDED || end_valid) && (holder_valid || (p1 == ENDED && failed));
    wire on_stack = place >= start && {1'b0, place} < p1_rsp_data[40:32];
    wire [51:0] beyond = p3_rsp_data[51:0] >> PA_BITS;

    always_comb begin
        if (!in_space) req_code = verdict::OUT_OF_SPACE;
        else if (p1 == ENDED) req_code = failed ? verdict::BUS_REGIONS : verdict::START;
        else if (p1_rsp_error) req_code = verdict::BUS_STACK_END;
        else if (!on_stack) req_code = verdict::STACK;
        else if (p2_rsp_error) req_code = verdict::BUS_STACK;
        else if (p2_rsp_data[7:0] != own) req_code = verdict::PAGE;
        else if (p3_rsp_error || beyond != '0) req_code = verdict::BUS_DATA;
        else if (level == '0 && (req_needs & ~p3_rsp_data[2:0]) != '0) req_code = verdict::DENIED;
        else req_code = verdict::GRANTED;
    end

    wire valid = settled && req_code == verdict::GRANTED;
    assign descend = valid && level != '0;
    assign grant = valid && level == '0;
    assign taken = settled && !descend && (!grant || p3_req_ready);
    assign req_ready = taken || !in_space;
    assign req_level = level;
    assign req_rights = p3_rsp_data[2:0];

    always_ff @(posedge clk) begin
        if (first_taken) begin
            start <= rsp_start;
            place <= rsp_place;
            failed <= p1_rsp_error;
        end
        if (descend) begin
            node_below <= found_frame;
            level_below <= asked_level;
        end
        if (rst) begin
            p1 <= ASK;
            p2 <= ASK;
            below <= 1'b0;
        end else begin
            if (taken || descend) below <= descend;

            if (p1_asks_first) p1 <= p1_req_ready ? FIRST : ASK;
            else if (first_taken) p1 <= follows ? SECOND : ENDED;
            else if (taken) p1 <= ASK;

            if (taken || descend) p2 <= ASK;
            else if (p2_req_valid && p2_req_ready) p2 <= SECOND;
        end
    end

    // Fields of words that nobody needs.
    wire unused = &{1'b0, p1_rsp_data[63:41], p1_rsp_data[31:24], p1_rsp_data[7:0], p2_rsp_data[63:8], p3_rsp_data[63:52],
        p3_rsp_data[11:3], page64[63:40]};
endmodule
