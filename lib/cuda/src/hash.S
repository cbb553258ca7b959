/* hash.S - the kernel that hashes device memory: gpustate/internal/chunkhash. */
	.section .rodata
	.globl hf_hash_kernel
	.hidden hf_hash_kernel
hf_hash_kernel:
	.incbin "gpustate/internal/chunkhash/chunkhash.ptx"
	.byte 0
	.section .note.GNU-stack, "", @progbits
