/* first.S - the first call of a stub: it has all names bound, and goes on with the arguments that it was given; dlopen,
 * which goes on to the real one, so that this sees who calls; and where the loader begins that runs the library as a
 * program: holder.c. */
	.text
	.globl hf_first
	.hidden hf_first
	.type hf_first, @function
hf_first:
	.cfi_startproc
	push %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	mov %rsp, %rbp
	.cfi_def_cfa_register %rbp
	sub $192, %rsp
	mov %rdi, (%rsp)
	mov %rsi, 8(%rsp)
	mov %rdx, 16(%rsp)
	mov %rcx, 24(%rsp)
	mov %r8, 32(%rsp)
	mov %r9, 40(%rsp)
	mov %rax, 48(%rsp)
	movups %xmm0, 64(%rsp)
	movups %xmm1, 80(%rsp)
	movups %xmm2, 96(%rsp)
	movups %xmm3, 112(%rsp)
	movups %xmm4, 128(%rsp)
	movups %xmm5, 144(%rsp)
	movups %xmm6, 160(%rsp)
	movups %xmm7, 176(%rsp)
	mov %r11d, %edi
	call hf_bind
	mov %rax, %r11
	mov (%rsp), %rdi
	mov 8(%rsp), %rsi
	mov 16(%rsp), %rdx
	mov 24(%rsp), %rcx
	mov 32(%rsp), %r8
	mov 40(%rsp), %r9
	mov 48(%rsp), %rax
	movups 64(%rsp), %xmm0
	movups 80(%rsp), %xmm1
	movups 96(%rsp), %xmm2
	movups 112(%rsp), %xmm3
	movups 128(%rsp), %xmm4
	movups 144(%rsp), %xmm5
	movups 160(%rsp), %xmm6
	movups 176(%rsp), %xmm7
	leave
	.cfi_def_cfa %rsp, 8
	jmp *%r11
	.cfi_endproc
	.size hf_first, .-hf_first
	.globl dlopen
	.type dlopen, @function
dlopen:
	.cfi_startproc
	endbr64
	push %rsi
	.cfi_adjust_cfa_offset 8
	call hf_file
	pop %rsi
	.cfi_adjust_cfa_offset -8
	mov %rax, %rdi
	jmp *hf_dlopen(%rip)
	.cfi_endproc
	.size dlopen, .-dlopen
	.globl hf_start
	.hidden hf_start
	.type hf_start, @function
hf_start:
	.cfi_startproc
	.cfi_undefined %rip
	xor %ebp, %ebp
	mov %rsp, %rdi
	mov %rdx, %rsi
	and $-16, %rsp
	call hf_holder
	hlt
	.cfi_endproc
	.size hf_start, .-hf_start
	.section .note.GNU-stack, "", @progbits
