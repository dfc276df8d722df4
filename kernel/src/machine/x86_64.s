# The way in, from 32-bit mode with paging off to 64-bit mode, and the way of a fault.

    .section .note.pvh, "a"
    .align 4
    .long 4, 4, 18              # sizes of name and value; XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .long boot

    .section .text.boot, "ax"
    .code32
    .globl boot
boot:
    cli
    movl $boot_stack_end, %esp
    movl %ebx, %edi             # the loader's structure: the first argument

    # PML4 -> PDPT -> four tables of 512 pages of 2 MiB.
    movl $boot_pdpt + 3, boot_pml4
    movl $boot_pd + 3, %eax
    movl $boot_pdpt, %ebx
    movl $4, %ecx
1:  movl %eax, (%ebx)
    addl $4096, %eax
    addl $8, %ebx
    loop 1b
    movl $0x83, %eax            # present, writable, a large page
    movl $boot_pd, %ebx
    movl $2048, %ecx
2:  movl %eax, (%ebx)
    addl $0x200000, %eax
    addl $8, %ebx
    loop 2b

    movl $boot_pml4, %eax
    movl %eax, %cr3
    movl %cr4, %eax
    orl $0x20, %eax             # PAE
    movl %eax, %cr4
    movl $0xc0000080, %ecx      # EFER
    rdmsr
    orl $0x900, %eax            # long mode, execute disable
    wrmsr
    movl %cr0, %eax
    orl $0x80010000, %eax       # paging; write protection holds for the kernel, too
    movl %eax, %cr0
    lgdt boot_gdt_place
    ljmp $8, $3f

    .code64
3:  xorl %eax, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl %edi, %r12d

    # Gates 0 to 31: selector 8, interrupt gates.
    leaq boot_idt, %rdi
    leaq vectors, %rsi
    movl $32, %ecx
4:  movw %si, (%rdi)
    movw $8, 2(%rdi)
    movw $0x8e00, 4(%rdi)
    movq %rsi, %rax
    shrq $16, %rax
    movw %ax, 6(%rdi)
    shrq $16, %rax
    movl %eax, 8(%rdi)
    addq $16, %rdi
    addq $16, %rsi
    loop 4b
    lidt boot_idt_place
    movq %r12, %rdi
    call enter
    ud2

    # One stub of 16 bytes for each vector; those without an error code push a zero.
    .align 16
vectors:
    .set vector, 0
    .rept 32
    .align 16
    .if vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21
    .else
    pushq $0
    .endif
    pushq $vector
    jmp fault
    .set vector, vector + 1
    .endr

    # On the stack: vector, code, the place of the fault, selector, flags, stack.
    .align 16
fault:
    cmpq $14, (%rsp)
    jne 6f
    pushq %rdx
    leaq probe_read_at, %rdx
    cmpq %rdx, 24(%rsp)
    je 5f
    leaq probe_write_at, %rdx
    cmpq %rdx, 24(%rsp)
    je 5f
    # An access of the kernel's own: it is made again if that is handled.
    pushq %rax
    pushq %rcx
    pushq %rsi
    pushq %rdi
    pushq %r8
    pushq %r9
    pushq %r10
    pushq %r11
    pushq %rbx
    movq %cr2, %rdi
    movq %rsp, %rbx
    andq $-16, %rsp
    cld
    call own_fault
    movq %rbx, %rsp
    testb %al, %al
    popq %rbx
    popq %r11
    popq %r10
    popq %r9
    popq %r8
    popq %rdi
    popq %rsi
    popq %rcx
    popq %rax
    popq %rdx
    jz 6f
    addq $16, %rsp
    iretq
5:  popq %rdx
    movq 8(%rsp), %rdx
    bts $63, %rdx
    movq %cr2, %rax
    leaq probe_failed, %rcx
    movq %rcx, 16(%rsp)
    addq $16, %rsp
    iretq
6:  popq %rdi
    popq %rsi
    popq %rdx
    movq %cr2, %rcx
    andq $-16, %rsp
    call unexpected
    ud2

    .globl probe_read, probe_write
probe_read:
    xorl %edx, %edx
probe_read_at:
    movq (%rdi), %rax
    ret
probe_write:
    xorl %edx, %edx
probe_write_at:
    movq %rsi, (%rdi)
probe_failed:
    ret

    .section .data
    .align 8
boot_gdt:
    .quad 0, 0x00af9a000000ffff
boot_gdt_place:
    .word 15
    .long boot_gdt, 0
    .align 8
boot_idt_place:
    .word 511
    .quad boot_idt

    .section .bss
    .align 4096
    .globl boot_pml4
boot_pml4: .skip 4096
boot_pdpt: .skip 4096
boot_pd: .skip 4 * 4096
boot_idt: .skip 4096
boot_stack: .skip 65536
boot_stack_end:
