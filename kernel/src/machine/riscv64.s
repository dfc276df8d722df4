// The way in, in machine mode, and the way of a fault, in supervisor mode.

    .section .text.boot, "ax"
    .globl boot
boot:
    // A processor without this register has nothing to switch on.
    la t0, 1f
    csrw mtvec, t0
    // menvcfg: kinds of memory in tables (PBMTE), and accessed and dirty set by the machine (ADUE).
    li t0, 3 << 61
    csrs 0x30a, t0
    .balign 4
1:  la t0, fatal_machine
    csrw mtvec, t0
    // Supervisor mode reaches all memory, and takes the faults of pages.
    li t0, -1
    csrw pmpaddr0, t0
    // It may read the counters.
    csrw mcounteren, t0
    li t0, 0x1f
    csrw pmpcfg0, t0
    li t0, 1 << 12 | 1 << 13 | 1 << 15
    csrw medeleg, t0
    // mstatus: previous mode supervisor, which may reach the pages of programs (SUM).
    li t0, 3 << 11
    csrc mstatus, t0
    li t0, 1 << 11 | 1 << 18
    csrs mstatus, t0
    la t0, supervisor
    csrw mepc, t0
    mret

supervisor:
    la sp, boot_stack_end
    la t0, trap
    csrw stvec, t0
    mv a0, a1
    call enter
    j .

    .balign 4
trap:
    addi sp, sp, -128
    sd t0, 0(sp)
    sd t1, 8(sp)
    csrr t0, sepc
    la t1, probe_read_at
    beq t0, t1, 1f
    la t1, probe_write_at
    beq t0, t1, 1f
    // An access of the kernel's own: it is made again if that is handled.
    sd t2, 16(sp)
    sd t3, 24(sp)
    sd t4, 32(sp)
    sd t5, 40(sp)
    sd t6, 48(sp)
    sd a0, 56(sp)
    sd a1, 64(sp)
    sd a2, 72(sp)
    sd a3, 80(sp)
    sd a4, 88(sp)
    sd a5, 96(sp)
    sd a6, 104(sp)
    sd a7, 112(sp)
    sd ra, 120(sp)
    csrr a0, stval
    call own_fault
    beqz a0, fatal
    ld t0, 0(sp)
    ld t1, 8(sp)
    ld t2, 16(sp)
    ld t3, 24(sp)
    ld t4, 32(sp)
    ld t5, 40(sp)
    ld t6, 48(sp)
    ld a0, 56(sp)
    ld a1, 64(sp)
    ld a2, 72(sp)
    ld a3, 80(sp)
    ld a4, 88(sp)
    ld a5, 96(sp)
    ld a6, 104(sp)
    ld a7, 112(sp)
    ld ra, 120(sp)
    addi sp, sp, 128
    sret
1:  addi sp, sp, 128
    csrr a0, stval
    csrr a1, scause
    li t0, 1 << 63
    or a1, a1, t0
    la t0, probe_failed
    csrw sepc, t0
    sret

fatal:
    csrr a0, scause
    csrr a1, sepc
    csrr a2, stval
    la sp, boot_stack_end
    call unexpected
    j .

    .balign 4
fatal_machine:
    csrr a0, mcause
    csrr a1, mepc
    csrr a2, mtval
    la sp, boot_stack_end
    call unexpected
    j .

    // A table that was written is seen by the walks from the barrier on.
    .globl probe_read, probe_write
probe_read:
    fence rw, rw
    li a1, 0
probe_read_at:
    ld a0, 0(a0)
    ret
probe_write:
    fence rw, rw
    mv a2, a1
    li a1, 0
probe_write_at:
    sd a2, 0(a0)
probe_failed:
    ret

    .section .bss
    .balign 4096
boot_stack: .skip 65536
boot_stack_end:
