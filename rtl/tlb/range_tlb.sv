// A fully associative TLB whose entries map runs of pages: one page each, aligned powers of two (NAPOT), or runs
// of any length that begin anywhere.
//
// A lookup is combinational: every entry compares at once, and at most one matches. A fill takes the place of an empty
// entry, or of the one that was used least recently; before it, what the new run overlaps is cut or dropped as in the
// model (swath-hw, `Tlb`): where an older run sticks out of the new one, the new one is cut at it; one inside
// it is dropped. Runs of any length need four cycles for that, in which the comparators of the lookup are used again.
//
// A run within one leaf table (LEAF_BITS) shares the upper bits of its pages, so that an entry compares these
// for equality, and orders only the lower ones.
module range_tlb #(
    parameter int ENTRIES = 32,
    parameter int VPN_BITS = 20,
    parameter int PFN_BITS = 20,
    parameter int ATTRIBUTE_BITS = 4,
    // 0: one page, 1: aligned powers of two, 2: runs of any length.
    parameter int FORM = 2,
    // Runs lie within so many aligned bits of page number; VPN_BITS if they may lie anywhere.
    parameter int LEAF_BITS = VPN_BITS,
    // 0: entries are replaced in turn, for the cost without the order of use.
    parameter int LRU = 1
) (
    input logic clk,
    input logic rst,

    // A lookup: the answer stands in the same cycle. Ready while no fill is under way.
    input logic req_valid,
    output logic req_ready,
    input logic [VPN_BITS-1:0] req_vpn,
    output logic hit,
    output logic [PFN_BITS-1:0] hit_pfn,
    output logic [ATTRIBUTE_BITS-1:0] hit_attributes,

    // A fill for a page that was missed: its frame, and the pages before and after it in its run. An aligned run of 2^k
    // pages has k ones in `fill_mask`.
    input logic fill_valid,
    output logic fill_ready,
    input logic [VPN_BITS-1:0] fill_vpn,
    input logic [PFN_BITS-1:0] fill_pfn,
    input logic [ATTRIBUTE_BITS-1:0] fill_attributes,
    input logic [LEAF_BITS-1:0] fill_before,
    input logic [LEAF_BITS-1:0] fill_after,
    input logic [LEAF_BITS-1:0] fill_mask,

    // Drops the entry that has a page, or all, in the cycle in which it is ready: not while a fill is under way.
    output logic drop_ready,
    input logic drop_valid,
    input logic drop_all,
    input logic [VPN_BITS-1:0] drop_vpn
);
    localparam int TAG_BITS = VPN_BITS - LEAF_BITS;
    localparam int INDEX_BITS = $clog2(ENTRIES);

    // Entries. The tag of runs that may lie anywhere has no bits; a bit stands in its place.
    localparam int TAG_KEPT = TAG_BITS == 0 ? 1 : TAG_BITS;
    logic [ENTRIES-1:0] valid;
    logic [TAG_KEPT-1:0] tag[ENTRIES];
    logic [LEAF_BITS-1:0] low[ENTRIES];
    logic [LEAF_BITS-1:0] high[ENTRIES];  // Of aligned runs the mask.
    logic [PFN_BITS-1:0] offset[ENTRIES];  // The frame minus the page; of aligned runs the first frame.
    logic [ATTRIBUTE_BITS-1:0] attributes[ENTRIES];

    // The fill that is under way.
    typedef enum logic [2:0] {
        IDLE,
        AT_LOW,
        AT_HIGH,
        INSIDE,
        WRITE
    } phase_t;
    phase_t phase;
    logic [VPN_BITS-1:0] page;
    logic [PFN_BITS-1:0] frame;
    logic [ATTRIBUTE_BITS-1:0] marks;
    logic [LEAF_BITS-1:0] from;
    logic [LEAF_BITS-1:0] to;
    // Entries that begin at `to` or before; of runs of any length alone.
    /* verilator lint_off UNUSEDSIGNAL */
    logic [ENTRIES-1:0] below_end;
    /* verilator lint_on UNUSEDSIGNAL */

    // What is compared with all entries.
    logic [VPN_BITS-1:0] probe;
    logic [TAG_KEPT-1:0] probe_tag;
    logic [LEAF_BITS-1:0] probe_low;
    logic [ENTRIES-1:0] same;
    logic [ENTRIES-1:0] begins;  // The entry begins at the probe or before it.
    logic [ENTRIES-1:0] match;

    function automatic logic [TAG_KEPT-1:0] tag_of(input logic [VPN_BITS-1:0] vpn);
        tag_of = TAG_BITS == 0 ? '0 : TAG_KEPT'(vpn >> LEAF_BITS);
    endfunction

    assign probe_tag = tag_of(probe);
    assign probe_low = probe[LEAF_BITS-1:0];

    always_comb begin
        probe = phase == IDLE ? (drop_valid ? drop_vpn : req_vpn) : page;
        if (FORM == 2)
            unique case (phase)
                AT_LOW: probe[LEAF_BITS-1:0] = from;
                AT_HIGH, INSIDE: probe[LEAF_BITS-1:0] = to;
                WRITE: probe[LEAF_BITS-1:0] = from - 1'b1;
                default: ;
            endcase
    end

    for (genvar i = 0; i < ENTRIES; i++) begin : g_entry
        if (FORM == 2) begin : g_run
            assign same[i] = valid[i] && (TAG_BITS == 0 || tag[i] == probe_tag);
            assign begins[i] = low[i] <= probe_low;
            assign match[i] = same[i] && begins[i] && probe_low <= high[i];
        end else if (FORM == 1) begin : g_aligned
            // While one is filled, what lies in it matches, too.
            logic [LEAF_BITS-1:0] ignored;
            assign ignored = high[i] | (phase == WRITE ? to : '0);
            assign same[i] = valid[i] && (TAG_BITS == 0 || tag[i] == probe_tag);
            assign begins[i] = 1'b1;
            assign match[i] = same[i] && ((low[i] ^ probe_low) & ~ignored) == '0;
        end else begin : g_page
            assign same[i] = valid[i] && (TAG_BITS == 0 || tag[i] == probe_tag);
            assign begins[i] = 1'b1;
            assign match[i] = same[i] && low[i] == probe_low;
        end
    end

    // The one that matches, by or-ing what all others mask away.
    logic [PFN_BITS-1:0] found_offset;
    logic [LEAF_BITS-1:0] found_low;
    logic [LEAF_BITS-1:0] found_high;
    logic [ATTRIBUTE_BITS-1:0] found_attributes;
    always_comb begin
        found_offset = '0;
        found_low = '0;
        found_high = '0;
        found_attributes = '0;
        for (int i = 0; i < ENTRIES; i++) begin
            found_offset |= match[i] ? offset[i] : '0;
            found_low |= match[i] ? low[i] : '0;
            found_high |= match[i] ? high[i] : '0;
            found_attributes |= match[i] ? attributes[i] : '0;
        end
    end

    assign req_ready = phase == IDLE && !drop_valid && !drop_all;
    assign fill_ready = phase == IDLE && !drop_valid && !drop_all;
    assign drop_ready = phase == IDLE;
    assign hit = |match;
    assign hit_attributes = found_attributes;
    if (FORM == 2) begin : g_added
        assign hit_pfn = found_offset + PFN_BITS'(req_vpn);
    end else if (FORM == 1) begin : g_joined
        assign hit_pfn = found_offset | (PFN_BITS'(probe_low) & PFN_BITS'(found_high));
    end else begin : g_plain
        assign hit_pfn = found_offset;
    end

    // Entries inside the new run, which are dropped: those that begin in it.
    logic [ENTRIES-1:0] covered;
    if (FORM == 2) begin : g_covered_run
        assign covered = same & below_end & (from == '0 ? '1 : ~begins);
    end else begin : g_covered
        assign covered = match;
    end

    // The order of use, and the entry that is next to be replaced. Nobody asks for these where it is taken in turn.
    /* verilator lint_off UNUSEDSIGNAL */
    logic [ENTRIES-1:0] empty;
    logic [ENTRIES-1:0] used;
    logic is_used;
    /* verilator lint_on UNUSEDSIGNAL */
    logic [ENTRIES-1:0] victim;
    // What is dropped gives its place first.
    assign empty = ~valid | covered;
    if (LRU == 1) begin : g_lru
        // Of each pair i < j a bit, `newer[i][j]`: i was used after j. The bits of other pairs stay 0.
        logic [ENTRIES-1:0] newer[ENTRIES];
        logic [ENTRIES-1:0] oldest;
        for (genvar i = 0; i < ENTRIES; i++) begin : g_order
            localparam logic [ENTRIES-1:0] ABOVE = ~((ENTRIES'(2) << i) - 1'b1);
            always_ff @(posedge clk)
                if (rst) newer[i] <= '0;
                else if (is_used) newer[i] <= used[i] ? ABOVE : newer[i] & ~used;
        end
        // Those that all before them were used after.
        logic [ENTRIES-1:0] older;
        always_comb begin
            older = '1;
            for (int i = 0; i < ENTRIES; i++) begin
                oldest[i] = newer[i] == '0 && older[i];
                older &= newer[i] | ((ENTRIES'(2) << i) - 1'b1);
            end
        end
        // The first empty one, else the one that was used before all others.
        assign victim = |empty ? empty & (~empty + 1'b1) : oldest;
    end else begin : g_turn
        logic [INDEX_BITS-1:0] turn;
        assign victim = ENTRIES'(1) << turn;
        always_ff @(posedge clk)
            if (rst) turn <= '0;
            else if (phase == WRITE) turn <= turn + 1'b1;
    end

    assign is_used = phase == WRITE || (phase == IDLE && req_valid && req_ready && hit);
    assign used = phase == WRITE ? victim : match;

    always_ff @(posedge clk) begin
        unique case (phase)
            IDLE: begin
                page <= fill_vpn;
                frame <= fill_pfn;
                marks <= fill_attributes;
                if (FORM == 2) begin
                    from <= fill_vpn[LEAF_BITS-1:0] - fill_before;
                    to <= fill_vpn[LEAF_BITS-1:0] + fill_after;
                end else begin
                    from <= fill_vpn[LEAF_BITS-1:0] & ~(FORM == 1 ? fill_mask : '0);
                    to <= FORM == 1 ? fill_mask : '0;
                end
                if (fill_valid && fill_ready) phase <= FORM == 2 ? AT_LOW : WRITE;
                if (drop_valid) valid <= valid & ~match;
                if (drop_all) valid <= '0;
            end
            // An older run that has the first page, and begins before it.
            AT_LOW: begin
                if (hit && found_low != from) from <= found_high + 1'b1;
                phase <= AT_HIGH;
            end
            AT_HIGH: begin
                if (hit && found_high != to) to <= found_low - 1'b1;
                phase <= INSIDE;
            end
            INSIDE: begin
                below_end <= begins;
                phase <= WRITE;
            end
            default: begin
                valid <= (valid & ~covered) | victim;
                phase <= IDLE;
            end
        endcase
        if (rst) begin
            phase <= IDLE;
            valid <= '0;
        end
    end

    logic [PFN_BITS-1:0] ones;
    assign ones = PFN_BITS'(to);
    for (genvar i = 0; i < ENTRIES; i++) begin : g_write
        always_ff @(posedge clk)
            if (phase == WRITE && victim[i]) begin
                tag[i] <= tag_of(page);
                low[i] <= from;
                if (FORM == 2) high[i] <= to;
                else high[i] <= FORM == 1 ? to : '0;
                if (FORM == 2) offset[i] <= frame - PFN_BITS'(page);
                else offset[i] <= FORM == 1 ? frame & ~ones : frame;
                attributes[i] <= marks;
            end
    end

`ifdef FORMAL
    // What is proved over narrow numbers, for every order of lookups, fills and drops. A fill is for a page that no entry
    // has, its run within the numbers that there are; of an aligned one page and frame are aligned alike.
    localparam int PAGES = 1 << VPN_BITS;
    logic [PFN_BITS-1:0] last[PAGES];  // The frame that the last fill over a page gave it.
    logic [PAGES-1:0] known;

    logic [LEAF_BITS-1:0] fill_low;
    assign fill_low = fill_vpn[LEAF_BITS-1:0];
    logic [ENTRIES-1:0] has_filled;
    logic [ENTRIES-1:0] has_page;
    for (genvar i = 0; i < ENTRIES; i++) begin : g_has
        assign has_filled[i] = valid[i] && has(tag[i], low[i], high[i], fill_vpn);
        assign has_page[i] = valid[i] && has(tag[i], low[i], high[i], page);
    end
    function automatic logic has(
        input logic [TAG_KEPT-1:0] its_tag, input logic [LEAF_BITS-1:0] its_low,
        input logic [LEAF_BITS-1:0] its_high, input logic [VPN_BITS-1:0] vpn
    );
        has = its_tag == tag_of(vpn);
        if (FORM == 2) has = has && its_low <= vpn[LEAF_BITS-1:0] && vpn[LEAF_BITS-1:0] <= its_high;
        else has = has && ((its_low ^ vpn[LEAF_BITS-1:0]) & ~its_high) == '0;
    endfunction

    always_comb
        if (fill_valid) begin
            assume (has_filled == '0);
            if (FORM == 2) assume (fill_before <= fill_low && fill_after <= ~fill_low);
            if (FORM == 1) assume ((fill_mask & (fill_mask + 1'b1)) == '0);
            if (FORM == 1) assume (((fill_pfn ^ PFN_BITS'(fill_low)) & PFN_BITS'(fill_mask)) == '0);
        end

    for (genvar v = 0; v < PAGES; v++) begin : g_page_v
        localparam logic [VPN_BITS-1:0] V = VPN_BITS'(v);
        logic is_written;
        logic [PFN_BITS-1:0] written;
        if (FORM == 2) begin : g_v_run
            assign is_written = tag_of(page) == tag_of(V) && from <= V[LEAF_BITS-1:0] && V[LEAF_BITS-1:0] <= to;
            assign written = frame - PFN_BITS'(page) + PFN_BITS'(V);
        end else begin : g_v_aligned
            assign is_written = tag_of(page) == tag_of(V) && ((page[LEAF_BITS-1:0] ^ V[LEAF_BITS-1:0]) & ~to) == '0;
            assign written = (frame & ~ones) | (PFN_BITS'(V) & ones);
        end
        always_ff @(posedge clk) begin
            if (rst) known[v] <= 1'b0;
            else if (phase == WRITE && is_written) begin
                known[v] <= 1'b1;
                last[v] <= written;
            end
        end
        logic [ENTRIES-1:0] its;
        logic [PFN_BITS-1:0] answer;
        logic [LEAF_BITS-1:0] answer_high;
        always_comb begin
            answer = '0;
            answer_high = '0;
            for (int i = 0; i < ENTRIES; i++) begin
                its[i] = valid[i] && has(tag[i], low[i], high[i], V);
                answer |= its[i] ? offset[i] : '0;
                answer_high |= its[i] ? high[i] : '0;
            end
            if (FORM == 2) answer = answer + PFN_BITS'(V);
            else answer = answer | (PFN_BITS'(V) & PFN_BITS'(answer_high));
        end
        always_comb
            if (!rst) begin
                // Never two hits.
                assert ((its & (its - 1'b1)) == '0);
                // A translation is the last fill's.
                assert (its == '0 || (known[v] && answer == last[v]));
            end
    end

    // What a lookup says is that.
    always_comb
        if (!rst && req_ready && hit) begin
            assert (known[req_vpn]);
            assert (hit_pfn == last[req_vpn]);
        end

    // What an induction needs besides.
    always_comb
        if (!rst) begin
            if (phase != IDLE) assert (has_page == '0);
            for (int i = 0; i < ENTRIES; i++) begin
                if (FORM == 2) begin
                    if (valid[i]) assert (low[i] <= high[i]);
                    if (phase == AT_HIGH || phase == INSIDE || phase == WRITE)
                        if (valid[i] && tag[i] == tag_of(page) && low[i] <= from && from <= high[i]) assert (low[i] == from);
                    if (phase == INSIDE || phase == WRITE)
                        if (valid[i] && tag[i] == tag_of(page) && low[i] <= to && to <= high[i]) assert (high[i] == to);
                    if (phase == WRITE) assert (below_end[i] == (low[i] <= to));
                end else if (valid[i]) begin
                    assert ((low[i] & high[i]) == '0);
                    assert ((high[i] & (high[i] + 1'b1)) == '0);
                    if (FORM == 0) assert (high[i] == '0);
                    assert ((offset[i] & PFN_BITS'(high[i])) == '0);
                end
            end
            if (FORM == 2 && phase != IDLE) assert (from <= page[LEAF_BITS-1:0] && page[LEAF_BITS-1:0] <= to);
            if (FORM != 2 && phase != IDLE) begin
                assert (phase == WRITE && from == (page[LEAF_BITS-1:0] & ~to) && (to & (to + 1'b1)) == '0);
                assert (((frame ^ PFN_BITS'(page)) & ones) == '0);
            end
        end
`endif
endmodule
