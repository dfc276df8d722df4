// The codes that a unit gives for an access: granted, or the word that says no.
//
// They are `RtFault` and `UnmappedCause` of the model; a bus error names the word whose read failed.
package verdict;
    typedef enum logic [3:0] {
        GRANTED = 4'd0,
        OUT_OF_SPACE = 4'd1,
        START = 4'd2,
        STACK = 4'd3,
        PAGE = 4'd4,
        ENTRY = 4'd5,
        DENIED = 4'd6,
        BUS_REGIONS = 4'd8,
        BUS_STACK_END = 4'd9,
        BUS_HELPER = 4'd10,
        BUS_STACK = 4'd11,
        BUS_DATA = 4'd12
    } code_t;
endpackage
