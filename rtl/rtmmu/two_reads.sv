// Ports 1 and 2 of the RTMMU over arrays: a word, then the word that it points to.
//
// The second read is asked for in the cycle in which the first word arrives. The second word stays
// at the port, untaken, until the verdict, so it needs no register here.
//
// A port asks while a word is there only if it takes that word with the request's acceptance, so a
// memory that serves one read at a time may accept whenever it is idle or offers its word.
module two_reads #(
    parameter int PAGE_BITS = 20,
    parameter int PA_BITS = 32
) (
    input logic clk,
    input logic rst,

    // A walk wants its words. High until `taken`.
    input logic walking,
    // The verdict fell: what was read is done with.
    input logic taken,

    // The two arrays, and the first index.
    input logic [PA_BITS-1:2] first_base,
    input logic [PA_BITS-1:2] second_base,
    input logic [PAGE_BITS-1:0] first_index,
    // True if the word that is at the port may be followed.
    input logic follow,

    // The first word, and whether there was none.
    output logic [PAGE_BITS-1:0] first,
    output logic first_failed,
    // There will be no second word.
    output logic ended,
    // The second word is at the port.
    output logic second_valid,

    output logic req_valid,
    input logic req_ready,
    output logic [PA_BITS-1:2] req_addr,
    input logic rsp_valid,
    output logic rsp_ready,
    input logic [PAGE_BITS-1:0] rsp_index,
    input logic rsp_error
);
    localparam int WORD_BITS = PA_BITS - 2;

    typedef enum logic [1:0] {
        ASK,     // the first read is not accepted yet
        FIRST,   // the first word is awaited
        SECOND,  // the second word is awaited, or at the port
        ENDED    // the first word leads nowhere
    } state_t;
    state_t state;

    wire follows = state == FIRST && rsp_valid && !rsp_error && follow;

    assign ended = state == ENDED;
    assign second_valid = state == SECOND && rsp_valid;
    assign req_valid = state == ASK ? walking : follows;
    assign rsp_ready = state == SECOND ? taken : !follows || req_ready;

    wire [PA_BITS-1:2] base = state == ASK ? first_base : second_base;
    wire [PAGE_BITS-1:0] index = state == ASK ? first_index : rsp_index;
    assign req_addr = base + {{(WORD_BITS - PAGE_BITS) {1'b0}}, index};

    always_ff @(posedge clk) begin
        if (state == FIRST && rsp_valid && rsp_ready) begin
            first <= rsp_index;
            first_failed <= rsp_error;
        end
        if (rst) state <= ASK;
        else
            case (state)
                ASK: if (req_valid && req_ready) state <= FIRST;
                FIRST: if (rsp_valid && rsp_ready) state <= follows ? SECOND : ENDED;
                default: if (taken) state <= ASK;
            endcase
    end
endmodule
