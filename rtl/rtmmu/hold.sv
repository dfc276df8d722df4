// Holds a verdict back until a number of cycles after the walk (or the level) began, so that a
// fault comes in the same cycle whichever word told it and however early.
module hold #(
    parameter int BITS = 8
) (
    input logic clk,
    input logic rst,
    // A walk is under way; its last cycle; the first cycle of a further level.
    input logic walking,
    input logic taken,
    input logic descend,
    // The cycles; a register of the unit.
    input logic [BITS-1:0] cycles,
    output logic over
);
    logic [BITS-1:0] age;

    assign over = age == cycles;

    always_ff @(posedge clk) begin
        if (rst || taken) age <= '0;
        else if (descend) age <= {{(BITS - 1) {1'b0}}, 1'b1};
        else if (walking && !over) age <= age + 1'b1;
    end
endmodule
