// A core for RV32I with the bit instructions of Zbb, machine mode alone: fetch, then everything else.
//
//   cycle           n           n + 1
//   fetch           pc + 4      target
//   execute         pc          pc + 4 (a jump: target)
//
// The next instruction is fetched while one executes, from its result where it jumps, so every one takes a
// cycle, and one of memory as long as that takes. The paper's core, an OpenRISC, finds the first and the last
// one in an instruction, too (l.ff1, l.fl1): here ctz and clz.
//
// A data access stays, unchanged, until `data_done`. If it is refused, the instruction has no effect, and the
// trap says why and where (`mcause`, `mtval`); `mret` makes it again. There are no interrupts.
module core #(
    parameter logic [31:0] RESET = 0
) (
    input logic clk,
    input logic rst,

    // The word at `fetch_addr` is at `fetch_data` a cycle later.
    output logic [31:2] fetch_addr,
    input logic [31:0] fetch_data,

    output logic data_valid,
    output logic [31:0] data_addr,
    output logic data_write,
    output logic [3:0] data_strobe,
    output logic [31:0] data_out,
    input logic data_done,
    // With `data_done`: there is no page, or it may not be accessed so; or no memory.
    input logic data_fault,
    input logic data_error,
    input logic [31:0] data_in
);
    logic [31:0] pc, next_pc;
    assign fetch_addr = next_pc[31:2];
    wire [31:0] insn = fetch_data;

    // Registers. The first is never written.
    logic [31:0] x[32];
    initial for (int i = 0; i < 32; i++) x[i] = '0;
    wire [4:0] rd = insn[11:7];
    wire [31:0] a = x[insn[19:15]];
    wire [31:0] b = x[insn[24:20]];
    wire [2:0] f3 = insn[14:12];
    wire [6:0] f7 = insn[31:25];

    wire [31:0] imm_i = {{20{insn[31]}}, insn[31:20]};
    wire [31:0] imm_s = {{20{insn[31]}}, insn[31:25], insn[11:7]};
    wire [31:0] imm_b = {{20{insn[31]}}, insn[7], insn[30:25], insn[11:8], 1'b0};
    wire [31:0] imm_u = {insn[31:12], 12'b0};
    wire [31:0] imm_j = {{12{insn[31]}}, insn[19:12], insn[20], insn[30:21], 1'b0};

    localparam logic [6:0] LOAD = 7'h03, FENCE = 7'h0f, OP_IMM = 7'h13, AUIPC = 7'h17, STORE = 7'h23,
        OP = 7'h33, LUI = 7'h37, BRANCH = 7'h63, JALR = 7'h67, JAL = 7'h6f, SYSTEM = 7'h73;
    wire [6:0] opcode = insn[6:0];

    function automatic logic [31:0] count_leading(input logic [31:0] word);
        count_leading = 32;
        for (int i = 0; i < 32; i++) if (word[i]) count_leading = 31 - i;
    endfunction
    function automatic logic [31:0] count_trailing(input logic [31:0] word);
        count_trailing = 32;
        for (int i = 31; i >= 0; i--) if (word[i]) count_trailing = i;
    endfunction
    function automatic logic [31:0] count_ones(input logic [31:0] word);
        count_ones = 0;
        for (int i = 0; i < 32; i++) count_ones = count_ones + {31'b0, word[i]};
    endfunction
    function automatic logic [31:0] or_bytes(input logic [31:0] word);
        for (int i = 0; i < 4; i++) or_bytes[8*i+:8] = {8{|word[8*i+:8]}};
    endfunction

    // Arithmetic: of two registers, or of one and a number of the instruction.
    wire in_register = opcode == OP;
    wire [31:0] operand = in_register ? b : imm_i;
    wire [4:0] shift = operand[4:0];
    wire [63:0] twice = {a, a};
    wire less = $signed(a) < $signed(operand);
    wire less_unsigned = a < operand;
    logic [31:0] alu;
    logic alu_known;
    always_comb begin
        alu = '0;
        alu_known = 1'b1;
        if (!in_register && f3 != 3'd1 && f3 != 3'd5)
            case (f3)
                3'd0: alu = a + operand;
                3'd2: alu = {31'b0, less};
                3'd3: alu = {31'b0, less_unsigned};
                3'd4: alu = a ^ operand;
                3'd6: alu = a | operand;
                default: alu = a & operand;
            endcase
        else
            case ({f7, f3})
                {7'h00, 3'd0} : alu = a + b;
                {7'h20, 3'd0} : alu = a - b;
                {7'h00, 3'd1} : alu = a << shift;
                {7'h00, 3'd2} : alu = {31'b0, less};
                {7'h00, 3'd3} : alu = {31'b0, less_unsigned};
                {7'h00, 3'd4} : alu = a ^ b;
                {7'h00, 3'd5} : alu = a >> shift;
                {7'h20, 3'd5} : alu = $unsigned($signed(a) >>> shift);
                {7'h00, 3'd6} : alu = a | b;
                {7'h00, 3'd7} : alu = a & b;
                // Zbb.
                {7'h20, 3'd4} : alu = ~(a ^ b);
                {7'h20, 3'd6} : alu = a | ~b;
                {7'h20, 3'd7} : alu = a & ~b;
                {7'h05, 3'd4} : alu = less ? a : b;
                {7'h05, 3'd5} : begin
                    alu = less_unsigned ? a : b;
                    alu_known = in_register;
                end
                {7'h05, 3'd6} : alu = less ? b : a;
                {7'h05, 3'd7} : alu = less_unsigned ? b : a;
                {7'h30, 3'd5} : alu = 32'(twice >> shift);
                {7'h30, 3'd1} :
                if (in_register) alu = 32'((twice << shift) >> 32);
                else
                    case (insn[24:20])
                        5'd0: alu = count_leading(a);
                        5'd1: alu = count_trailing(a);
                        5'd2: alu = count_ones(a);
                        5'd4: alu = {{24{a[7]}}, a[7:0]};
                        5'd5: alu = {{16{a[15]}}, a[15:0]};
                        default: alu_known = 1'b0;
                    endcase
                {7'h04, 3'd4} : begin
                    alu = {16'b0, a[15:0]};
                    alu_known = in_register && insn[24:20] == 5'd0;
                end
                {7'h14, 3'd5} : begin
                    alu = or_bytes(a);
                    alu_known = !in_register && insn[24:20] == 5'd7;
                end
                {7'h34, 3'd5} : begin
                    alu = {a[7:0], a[15:8], a[23:16], a[31:24]};
                    alu_known = !in_register && insn[24:20] == 5'd24;
                end
                default: alu_known = 1'b0;
            endcase
    end

    logic branches;
    always_comb
        case (f3)
            3'd0: branches = a == b;
            3'd1: branches = a != b;
            3'd4: branches = $signed(a) < $signed(b);
            3'd5: branches = $signed(a) >= $signed(b);
            3'd6: branches = a < b;
            default: branches = a >= b;
        endcase

    // Memory.
    wire loads = opcode == LOAD && f3 != 3'd3 && f3 < 3'd6;
    wire stores = opcode == STORE && f3 < 3'd3;
    wire [31:0] address = a + (stores ? imm_s : imm_i);
    wire misaligned = (f3[1:0] == 2'd1 && address[0]) || (f3[1:0] == 2'd2 && address[1:0] != 2'd0);
    assign data_valid = (loads || stores) && !misaligned && !rst;
    assign data_addr = address;
    assign data_write = stores;
    assign data_strobe = (f3[1:0] == 2'd0 ? 4'h1 : f3[1:0] == 2'd1 ? 4'h3 : 4'hf) << address[1:0];
    assign data_out = b << {address[1:0], 3'b0};
    wire waits = data_valid && !data_done;
    wire [31:0] lane = data_in >> {address[1:0], 3'b0};
    logic [31:0] loaded;
    always_comb
        case (f3)
            3'd0: loaded = {{24{lane[7]}}, lane[7:0]};
            3'd1: loaded = {{16{lane[15]}}, lane[15:0]};
            3'd4: loaded = {24'b0, lane[7:0]};
            3'd5: loaded = {16'b0, lane[15:0]};
            default: loaded = lane;
        endcase

    // Control and status.
    logic [31:0] mtvec, mscratch, mepc, mcause, mtval;
    logic [63:0] cycles;
    logic [31:0] csr, csr_new;
    logic csr_known;
    always_comb begin
        csr_known = 1'b1;
        case (insn[31:20])
            12'h300: csr = '0;
            12'h305: csr = mtvec;
            12'h340: csr = mscratch;
            12'h341: csr = mepc;
            12'h342: csr = mcause;
            12'h343: csr = mtval;
            12'hb00: csr = cycles[31:0];
            12'hb80: csr = cycles[63:32];
            default: begin
                csr = '0;
                csr_known = 1'b0;
            end
        endcase
    end
    wire [31:0] csr_operand = f3[2] ? {27'b0, insn[19:15]} : a;
    always_comb
        case (f3[1:0])
            2'd1: csr_new = csr_operand;
            2'd2: csr_new = csr | csr_operand;
            default: csr_new = csr & ~csr_operand;
        endcase
    wire accesses_csr = opcode == SYSTEM && f3[1:0] != 2'd0;
    wire writes_csr = accesses_csr && (f3[1:0] == 2'd1 || insn[19:15] != 5'd0);
    wire returns = insn == 32'h3020_0073;
    wire calls = insn == 32'h0000_0073 || insn == 32'h0010_0073;

    // What the instruction leaves.
    logic [31:0] result, target;
    logic writes, known;
    always_comb begin
        result = alu;
        writes = 1'b0;
        known = 1'b1;
        target = pc + 32'd4;
        case (opcode)
            LUI: begin
                result = imm_u;
                writes = 1'b1;
            end
            AUIPC: begin
                result = pc + imm_u;
                writes = 1'b1;
            end
            JAL: begin
                result = pc + 32'd4;
                writes = 1'b1;
                target = pc + imm_j;
            end
            JALR: begin
                result = pc + 32'd4;
                writes = 1'b1;
                target = (a + imm_i) & ~32'd1;
                known = f3 == 3'd0;
            end
            BRANCH: begin
                if (branches) target = pc + imm_b;
                known = f3[2:1] != 2'd1;
            end
            LOAD: begin
                result = loaded;
                writes = 1'b1;
                known = loads;
            end
            STORE: known = stores;
            OP, OP_IMM: begin
                writes = 1'b1;
                known = alu_known;
            end
            FENCE: ;
            SYSTEM: begin
                result = csr;
                writes = accesses_csr;
                known = accesses_csr ? csr_known : returns || calls;
                if (returns) target = mepc;
            end
            default: known = 1'b0;
        endcase
    end

    logic traps;
    logic [31:0] cause, value;
    always_comb begin
        traps = 1'b1;
        value = '0;
        if (!known) begin
            cause = 32'd2;
            value = insn;
        end else if (calls) cause = insn[20] ? 32'd3 : 32'd11;
        else if (target[1:0] != 2'd0) begin
            cause = 32'd0;
            value = target;
        end else if ((loads || stores) && misaligned) begin
            cause = stores ? 32'd6 : 32'd4;
            value = address;
        end else if (data_valid && data_done && (data_fault || data_error)) begin
            cause = data_fault ? (stores ? 32'd15 : 32'd13) : (stores ? 32'd7 : 32'd5);
            value = address;
        end else begin
            cause = '0;
            traps = 1'b0;
        end
    end

    always_comb begin
        if (rst) next_pc = RESET;
        else if (waits) next_pc = pc;
        else if (traps) next_pc = mtvec;
        else next_pc = target;
    end

    always_ff @(posedge clk) begin
        pc <= next_pc;
        cycles <= rst ? '0 : cycles + 64'd1;
        if (!rst && !waits) begin
            if (traps) begin
                mepc <= pc;
                mcause <= cause;
                mtval <= value;
            end else begin
                if (writes && rd != 5'd0) x[rd] <= result;
                if (writes_csr)
                    case (insn[31:20])
                        12'h305: mtvec <= csr_new & ~32'd3;
                        12'h340: mscratch <= csr_new;
                        12'h341: mepc <= csr_new & ~32'd3;
                        12'h342: mcause <= csr_new;
                        12'h343: mtval <= csr_new;
                        default: ;
                    endcase
            end
        end
    end

    wire unused = &{1'b0, next_pc[1:0]};
endmodule
