@ The way in, and the way of a fault.

    .section .text.boot, "ax"
    .arm
    .globl boot
boot:
    ldr sp, =boot_stack_end
    ldr r0, =vectors
    mcr p15, 0, r0, c12, c0, 0      @ VBAR
    isb
    bl enter
    b .

    .balign 32
vectors:
    b 10f
    b 1f
    b 2f
    b 3f
    b 4f
    b 5f
    b 6f
    b 7f
10: mov r0, #0
    b fatal
1:  mov r0, #1
    b fatal
2:  mov r0, #2
    b fatal
3:  mov r0, #3
    b fatal
5:  mov r0, #5
    b fatal
6:  mov r0, #6
    b fatal
7:  mov r0, #7
    b fatal

    @ A data abort, in a mode of its own with its own link register.
    @ It is handled in the kernel's mode, on its stack.
4:  sub lr, lr, #8
    srsdb sp!, #0x13
    cps #0x13
    push {r0-r3, r12, lr}
    ldr r0, [sp, #24]
    ldr r1, =probe_read_at
    cmp r0, r1
    ldrne r1, =probe_write_at
    cmpne r0, r1
    beq 8f
    @ An access of the kernel's own: it is made again if that is handled.
    mrc p15, 0, r0, c6, c0, 0       @ DFAR
    and r2, sp, #4
    sub sp, sp, r2
    push {r2, r3}
    bl own_fault
    pop {r2, r3}
    add sp, sp, r2
    cmp r0, #0
    moveq r0, #4
    ldreq lr, [sp, #24]
    beq fatal
    pop {r0-r3, r12, lr}
    rfeia sp!
8:  pop {r0-r3, r12, lr}
    ldr r2, =probe_failed
    str r2, [sp]
    mrc p15, 0, r0, c6, c0, 0       @ DFAR
    mrc p15, 0, r1, c5, c0, 0       @ DFSR
    orr r1, r1, #1 << 31
    rfeia sp!

fatal:
    mrc p15, 0, r1, c5, c0, 0
    mov r2, lr
    mrc p15, 0, r3, c6, c0, 0
    ldr sp, =boot_stack_end
    bl unexpected
    b .

    @ A table that was written is seen by the walks from the barrier on.
    .globl probe_read, probe_write
probe_read:
    dsb
    isb
    mov r1, #0
probe_read_at:
    ldr r0, [r0]
    bx lr
probe_write:
    dsb
    isb
    mov r2, r1
    mov r1, #0
probe_write_at:
    str r2, [r0]
probe_failed:
    bx lr
    .ltorg

    .section .bss
    .balign 4096
boot_stack: .skip 65536
boot_stack_end:
