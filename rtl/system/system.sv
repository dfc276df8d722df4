// The system of the paper (Böhnert and Scholl, V-A): a core, its program in static RAM, a unit that manages
// memory between core and memories, and three memories that work at the same time.
//
//             static RAM 0         core          host 1
//                  |                |              |
//                  +----------------+--------------+
//                  |                |              |
//                  |          unit 8 to f          |     virtual addresses
//                  |        /       |      \       |
//              chip 2, twice    chip 3, twice    module 4 to 7
//              as fast: VRC,    as fast:         page table, headers,
//              stack ends       helper, stack    frames
//
// The digit is the first of an address in hexadecimal. The unit's ports go each to one of the three memories; the
// core reaches them beside it, to keep the tables, while it makes no access through it: of the module's 3 GiB, which the
// unit reaches, the first one.
module system #(
    // 0: RTMMU over arrays. 1: the conventional unit.
    parameter int CONVENTIONAL = 0,
    parameter int PAGE_BITS = 19,
    // log2 of the words of the static RAM.
    parameter int RAM_BITS = 18
) (
    input logic clk,
    input logic rst,
    // Cycles of the chips, and of the module for a word of tables and for data.
    input logic [7:0] fast_cycles,
    input logic [7:0] table_cycles,
    input logic [7:0] data_cycles,
    // The program said that all is done.
    output logic ended
);
    import "DPI-C" function int unsigned system_program(input int unsigned index);
    import "DPI-C" function int unsigned system_host_read(input int unsigned addr);
    import "DPI-C" function void system_host_write(
        input int unsigned addr,
        input int unsigned data
    );

    logic [31:2] fetch_addr;
    logic [31:0] fetch_data;
    logic data_valid, data_write, data_done, data_fault, data_error;
    logic [31:0] data_addr, data_out, data_in;
    logic [3:0] data_strobe;
    core core (.*);

    // Which of them an access is for.
    wire to_unit = data_valid && data_addr[31];
    wire to_ram = data_valid && data_addr[31:28] == 4'd0;
    wire to_host = data_valid && data_addr[31:28] == 4'd1;
    wire to_chip1 = data_valid && data_addr[31:28] == 4'd2;
    wire to_chip2 = data_valid && data_addr[31:28] == 4'd3;
    wire to_module = data_valid && data_addr[31:30] == 2'd1;
    wire beside = to_chip1 || to_chip2 || to_module;

    // Static RAM: a port for instructions and one for data.
    logic [31:0] ram[2**RAM_BITS];
    initial for (int i = 0; i < 2 ** RAM_BITS; i++) ram[i] = system_program(i);
    logic [31:0] ram_word;
    logic ram_read;
    wire in_ram = data_addr[27:RAM_BITS+2] == '0;
    always_ff @(posedge clk) begin
        fetch_data <= ram[fetch_addr[RAM_BITS+1:2]];
        ram_word <= ram[data_addr[RAM_BITS+1:2]];
        ram_read <= to_ram && !data_write && !ram_read && !rst;
        if (to_ram && in_ram && data_write)
            for (int i = 0; i < 4; i++)
                if (data_strobe[i]) ram[data_addr[RAM_BITS+1:2]][8*i+:8] <= data_out[8*i+:8];
    end

    // The host: it gives the commands of a trace and takes their times. The unit's registers are here, too.
    logic [31:0] base[5];
    logic [PAGE_BITS-1:0] pages_mask;
    logic [7:0] hold_cycles;
    logic [31:0] host_word;
    logic host_read;
    wire to_registers = to_host && data_addr[12];
    always_ff @(posedge clk) begin
        host_read <= to_host && !data_write && !host_read && !rst;
        if (rst) ended <= 1'b0;
        else if (to_host && data_write) begin
            if (!to_registers) begin
                system_host_write({20'b0, data_addr[11:0]}, data_out);
                if (data_addr[11:0] == '0) ended <= 1'b1;
            end else
                case (data_addr[4:2])
                    3'd5: pages_mask <= data_out[PAGE_BITS-1:0];
                    3'd6: hold_cycles <= data_out[7:0];
                    default: base[data_addr[4:2]] <= data_out;
                endcase
        end else if (to_host && !host_read) host_word <= system_host_read({20'b0, data_addr[11:0]});
    end

    // The unit. Its access is made once; then the data are awaited.
    verdict::code_t code;
    logic unit_ready, unit_answers, awaits;
    wire unit_valid = to_unit && !awaits;
    wire [2:0] needs = data_write ? 3'b010 : 3'b001;
    wire granted = unit_valid && unit_ready && code == verdict::GRANTED;
    wire refused = unit_valid && unit_ready && code != verdict::GRANTED;
    always_ff @(posedge clk)
        if (rst) awaits <= 1'b0;
        else if (granted) awaits <= 1'b1;
        else if (unit_answers) awaits <= 1'b0;

    logic [2:0] unit_req, unit_takes, req_ready, rsp_valid, rsp_error;
    logic [31:2] unit_addr[3];
    logic [31:0] rsp_data[3];
    logic [31:0] data_place;
    logic unit_write, unit_data;
    wire [31:0] vaddr = {1'b0, data_addr[30:0]};
    logic [2:0] rights;

    generate
        if (CONVENTIONAL == 0) begin : g_rtmmu
            rtmmu_arrays #(.PAGE_BITS(PAGE_BITS)) unit (
                .clk, .rst, .pages_mask,
                .base_regions(base[0][31:2]), .base_stack_end(base[1][31:2]), .base_helper(base[2][31:2]),
                .base_stack(base[3][31:2]), .base_data(base[4][31:2]), .hold_cycles,
                .req_valid(unit_valid), .req_ready(unit_ready), .req_vaddr(vaddr), .req_needs(needs),
                .req_code(code), .req_rights(rights), .rsp_valid(unit_answers),
                .p1_req_valid(unit_req[0]), .p1_req_ready(req_ready[0]), .p1_req_addr(unit_addr[0]),
                .p1_rsp_valid(rsp_valid[0]), .p1_rsp_ready(unit_takes[0]), .p1_rsp_data(rsp_data[0]),
                .p1_rsp_error(rsp_error[0]),
                .p2_req_valid(unit_req[1]), .p2_req_ready(req_ready[1]), .p2_req_addr(unit_addr[1]),
                .p2_rsp_valid(rsp_valid[1]), .p2_rsp_ready(unit_takes[1]), .p2_rsp_data(rsp_data[1]),
                .p2_rsp_error(rsp_error[1]),
                .p3_req_valid(unit_req[2]), .p3_req_ready(req_ready[2]), .p3_req_addr(data_place),
                .p3_req_write(unit_write), .p3_req_data(unit_data),
                .p3_rsp_valid(rsp_valid[2]), .p3_rsp_ready(unit_takes[2]), .p3_rsp_data(rsp_data[2]),
                .p3_rsp_error(rsp_error[2])
            );
        end else begin : g_conventional
            page_table_unit #(.PAGE_BITS(PAGE_BITS)) unit (
                .clk, .rst, .pages_mask, .base(base[4][31:2]),
                .req_valid(unit_valid), .req_ready(unit_ready), .req_vaddr(vaddr), .req_needs(needs),
                .req_code(code), .req_rights(rights), .rsp_valid(unit_answers),
                .p3_req_valid(unit_req[2]), .p3_req_ready(req_ready[2]), .p3_req_addr(data_place),
                .p3_req_write(unit_write), .p3_req_data(unit_data),
                .p3_rsp_valid(rsp_valid[2]), .p3_rsp_ready(unit_takes[2]), .p3_rsp_data(rsp_data[2]),
                .p3_rsp_error(rsp_error[2])
            );
            assign unit_req[1:0] = '0;
            assign unit_takes[1:0] = '0;
            assign unit_addr[0] = '0;
            assign unit_addr[1] = '0;
        end
    endgenerate
    assign unit_addr[2] = data_place[31:2];

    // The core's way beside the unit: asked for once, then awaited.
    logic asked;
    wire [2:0] own = {to_module, to_chip2, to_chip1};
    wire [2:0] own_req = asked ? '0 : own;
    wire answered = asked && (own & rsp_valid) != '0;
    always_ff @(posedge clk)
        if (rst || answered) asked <= 1'b0;
        else if ((own_req & req_ready) != '0) asked <= 1'b1;

    localparam logic [31:0] CHIP_BYTES = 2 * 4 * 2 ** PAGE_BITS;
    localparam logic [31:0] BASES[3] = '{32'h2000_0000, 32'h3000_0000, 32'h4000_0000};
    localparam logic [31:0] BYTES[3] = '{CHIP_BYTES, CHIP_BYTES, 32'hc000_0000};
    generate
        for (genvar i = 0; i < 3; i++) begin : g_memory
            wire by_unit = unit_req[i];
            wire of_data = i == 2 && by_unit && unit_data;
            wire [7:0] cycles = i < 2 ? fast_cycles : by_unit && !unit_data ? table_cycles : data_cycles;
            memory #(.BASE(BASES[i]), .BYTES(BYTES[i])) memory (
                .clk, .rst,
                .req_valid(by_unit || own_req[i]), .req_ready(req_ready[i]),
                .req_addr(by_unit ? unit_addr[i] : data_addr[31:2]),
                .req_write(by_unit ? of_data && unit_write : data_write),
                .req_strobe(data_strobe), .req_data(data_out), .req_cycles(cycles),
                .rsp_valid(rsp_valid[i]), .rsp_ready(own[i] ? asked : unit_takes[i]),
                .rsp_data(rsp_data[i]), .rsp_error(rsp_error[i])
            );
        end
    endgenerate

    // The answer to the core.
    always_comb begin
        data_done = 1'b0;
        data_fault = 1'b0;
        data_error = 1'b0;
        data_in = ram_word;
        if (to_ram) begin
            data_done = data_write || ram_read;
            data_error = !in_ram;
        end else if (to_host) begin
            data_done = data_write || host_read;
            data_in = host_word;
        end else if (to_unit) begin
            data_done = refused || (awaits && unit_answers);
            data_fault = refused;
            data_error = awaits && rsp_error[2];
            data_in = rsp_data[2];
        end else if (beside) begin
            data_done = answered;
            data_error = (own & rsp_error) != '0;
            data_in = to_module ? rsp_data[2] : to_chip2 ? rsp_data[1] : rsp_data[0];
        end
    end

    wire unused = &{1'b0, rights, fetch_addr[31:RAM_BITS+2], data_addr, base[0][1:0], base[1], base[2], base[3],
        base[4][1:0], data_place[1:0], hold_cycles};
endmodule
