// The way in, and the way of a fault.

    .section .text.boot, "ax"
    .globl boot
boot:
    ldr x0, =boot_stack_end
    mov sp, x0
    ldr x0, =vectors
    msr vbar_el1, x0
    isb
    bl enter
    b .

    // Sixteen entries of 128 bytes; the fifth is a synchronous exception of this level.
    .macro other number
    .balign 128
    mov x0, #\number
    b fatal
    .endm

    .balign 2048
vectors:
    other 0
    other 1
    other 2
    other 3
    .balign 128
    b synchronous
    other 5
    other 6
    other 7
    other 8
    other 9
    other 10
    other 11
    other 12
    other 13
    other 14
    other 15

synchronous:
    sub sp, sp, #176
    stp x0, x1, [sp]
    stp x16, x17, [sp, #16]
    mrs x16, elr_el1
    ldr x17, =probe_read_at
    cmp x16, x17
    b.eq 1f
    ldr x17, =probe_write_at
    cmp x16, x17
    b.eq 1f
    // An access of the kernel's own: it is made again if that is handled.
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    stp x8, x9, [sp, #80]
    stp x10, x11, [sp, #96]
    stp x12, x13, [sp, #112]
    stp x14, x15, [sp, #128]
    stp x18, x30, [sp, #144]
    mrs x17, spsr_el1
    stp x16, x17, [sp, #160]
    mrs x0, far_el1
    bl own_fault
    tst w0, #1
    ldp x16, x17, [sp, #160]
    msr elr_el1, x16
    msr spsr_el1, x17
    mov x0, #4
    b.eq fatal
    ldp x0, x1, [sp]
    ldp x16, x17, [sp, #16]
    ldp x2, x3, [sp, #32]
    ldp x4, x5, [sp, #48]
    ldp x6, x7, [sp, #64]
    ldp x8, x9, [sp, #80]
    ldp x10, x11, [sp, #96]
    ldp x12, x13, [sp, #112]
    ldp x14, x15, [sp, #128]
    ldp x18, x30, [sp, #144]
    add sp, sp, #176
    eret
1:  add sp, sp, #176
    mrs x0, far_el1
    mrs x1, esr_el1
    orr x1, x1, #1 << 63
    ldr x17, =probe_failed
    msr elr_el1, x17
    eret

fatal:
    mrs x1, esr_el1
    mrs x2, elr_el1
    mrs x3, far_el1
    bl unexpected
    b .

    // A table that was written is seen by the walks from the barrier on.
    .globl probe_read, probe_write
probe_read:
    dsb ishst
    isb
    mov x1, #0
probe_read_at:
    ldr x0, [x0]
    ret
probe_write:
    dsb ishst
    isb
    mov x2, x1
    mov x1, #0
probe_write_at:
    str x2, [x0]
probe_failed:
    ret
    .ltorg

    .section .bss
    .balign 4096
boot_stack: .skip 65536
boot_stack_end:
