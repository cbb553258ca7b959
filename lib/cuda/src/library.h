/* library.h - what the files of libholdfast-cuda share. It exports the driver's names and hf_cuda_ledger. */
#ifndef HF_CUDA_LIBRARY_H
#define HF_CUDA_LIBRARY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda-names.h"
#include "driver.h"

typedef uintptr_t hf_word; /* an argument, whatever it is */
typedef void hf_any(void); /* a function, whatever it is */

/* By the numbers of cuda-names.h. */
extern hf_any *hf_slots[HF_COUNT];               /* what a stub jumps to */
extern hf_any *const hf_hooks[HF_COUNT];         /* the library's own function, or NULL */
extern const unsigned char hf_submits[HF_COUNT]; /* the call makes the device read or write memory */
extern hf_any *hf_real[HF_COUNT];                /* the driver's function, or NULL */
extern const char *const hf_names[HF_COUNT];

/* The driver's function. The library calls no other. */
#define REAL(name) ((__typeof__(&name))hf_real[HF_##name])

/* The library's own function of a name has the driver's type. */
#define OWN(name)               \
	__typeof__(name) hf_##name; \
	CUresult hf_##name

/* What the environment says; read once, by the first call of a program. */
struct hf_settings {
	bool gate;        /* HOLDFAST_CUDA_CHECK is set: calls that submit work pass the gate */
	unsigned moments; /* HOLDFAST_CUDA_CHECK: how many roll backs */
	uint64_t seed;    /* HOLDFAST_CUDA_SEED */
	uint64_t calls;   /* HOLDFAST_CUDA_CALLS: among how many calls that submit work */
	double wait;      /* HOLDFAST_CUDA_WAIT: seconds for a roll back to begin */
	const char *list; /* HOLDFAST_CUDA_LIST: file that gets the ledger at the end, or NULL */
};
extern struct hf_settings hf_settings;

/* Says a line on standard error. */
void hf_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Seconds of a clock that only goes forward. */
double hf_now(void);

/* binding.c */

/* Finds the driver, once for the process, and returns what the stub of a name jumps to. hf_first calls it. */
hf_any *hf_bind(unsigned index);

/* gate.c */

/* Where a thread is. The gate reads it from other threads. */
struct hf_thread {
	_Atomic unsigned inside; /* calls that it is in; more than 1 where the driver calls itself by its names */
	_Atomic unsigned call;   /* the outermost */
	_Atomic bool gone;       /* the thread has ended, another may take the place */
	struct hf_thread *next;
};
extern __thread struct hf_thread *hf_self __attribute__((tls_model("initial-exec")));
extern _Atomic bool hf_gate_shut, hf_gate_fences;

/* The place of a thread that calls for the first time. */
struct hf_thread *hf_gate_join(void);

/* Waits until the gate is open. The thread is inside afterwards. */
void hf_gate_wait(struct hf_thread *self);

/* Begins a call that the gate can hold, which hf_gate_leave ends. */
static inline void hf_gate_enter(unsigned call) {
	struct hf_thread *self = hf_self != NULL ? hf_self : hf_gate_join();
	unsigned inside = atomic_load_explicit(&self->inside, memory_order_relaxed);

	atomic_store_explicit(&self->inside, inside + 1, memory_order_relaxed);
	if (inside != 0) {
		return;
	}
	atomic_store_explicit(&self->call, call, memory_order_relaxed);
	/* inside is written before shut is read: a thread that shuts the gate sees that by membarrier. */
	atomic_signal_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&hf_gate_fences, memory_order_relaxed)) {
		atomic_thread_fence(memory_order_seq_cst);
	}
	if (atomic_load_explicit(&hf_gate_shut, memory_order_acquire)) {
		hf_gate_wait(self);
	}
}

static inline void hf_gate_leave(void) {
	struct hf_thread *self = hf_self;

	atomic_store_explicit(
		&self->inside, atomic_load_explicit(&self->inside, memory_order_relaxed) - 1, memory_order_release);
}

/* Shuts the gate and waits until no other thread is inside. If that takes until the given time the gate is open again,
 * and the answer is the call that a thread is in; else HF_COUNT. The caller is inside until hf_gate_open. */
unsigned hf_gate_close(double until);
void hf_gate_open(void);

/* ledger.c */

enum hf_kind {
	HF_DEVICE,   /* cuMemAlloc */
	HF_PITCHED,  /* cuMemAllocPitch */
	HF_POOL,     /* cuMemAllocAsync, cuMemAllocFromPoolAsync */
	HF_MAPPED,   /* cuMemMap, of memory of this process */
	HF_ARRAY,    /* cuArrayCreate, cuArray3DCreate; its address is its handle */
	HF_VARIABLE, /* of a module or a library, once the program has asked for its address */
	HF_MANAGED,  /* cuMemAllocManaged, managed variables */
	HF_HOST,     /* cuMemHostAlloc, cuMemAllocHost, cuMemHostRegister */
	HF_GRAPH,    /* allocated or freed by a graph */
	HF_FOREIGN,  /* of another process or another interface */
	HF_MIPMAPPED,
	HF_KINDS
};
extern const char *const hf_kinds[HF_KINDS];

/* Who called: where, and in which file that is. */
struct hf_asker {
	const void *at;
	char *file;
	size_t offset;
	bool transport; /* a library that moves messages between processes */
	bool relay;     /* a library that asks for others */
	struct hf_asker *next;
};

struct hf_block {
	CUdeviceptr at;
	size_t bytes;
	enum hf_kind kind;
	bool reachable;    /* of HF_MAPPED: the device may read and write it */
	int device;        /* of HF_MAPPED, once it is reachable */
	CUcontext context; /* current at the time */
	const void *owner; /* of a variable: its module or library */
	const char *name;  /* of a variable; it stays as long as the process */
	bool own;          /* libholdfast asked for it, for a short time */
	uint64_t order;    /* counts allocations from 1 */
	const struct hf_asker *asker;
	CUDA_ARRAY3D_DESCRIPTOR array; /* of HF_ARRAY */
};

/* What the ledger holds, sorted by address. hf_ledger_lock first. */
struct hf_ledger {
	struct hf_block **blocks;
	size_t count, room;
	CUcontext *contexts; /* those that the program has used */
	size_t context_count, context_room;
	uint64_t order;
	bool lost; /* there was no memory to write something down */
};
extern struct hf_ledger hf_ledger;
void hf_ledger_start(void);
void hf_ledger_lock(void);
void hf_ledger_unlock(void);

/* Writes a block down, with context, order and asker; it takes the place of one at the same address. */
void hf_ledger_add(struct hf_block block, const void *caller);
void hf_ledger_context(CUcontext context);

/* The same text for as long as the process; NULL: there is no memory. */
const char *hf_ledger_text(const char *text);

/* What this thread allocates is libholdfast's. */
extern __thread bool hf_not_the_programs __attribute__((tls_model("initial-exec")));

/* Takes a block out and keeps it in *old; false: there is none. hf_ledger_put puts it back as it was. */
bool hf_ledger_take(CUdeviceptr at, struct hf_block *old);
void hf_ledger_put(const struct hf_block *old);

/* Takes out all blocks in a range; those of a module or library; what goes with a context. */
void hf_ledger_unmap(CUdeviceptr at, size_t bytes);
void hf_ledger_unload(const void *owner);
void hf_ledger_end(CUcontext context);

/* The device may read and write a range. */
void hf_ledger_reach(CUdeviceptr at, size_t bytes, int device);

/* The block is the graph's business from now on. */
void hf_ledger_graph(CUdeviceptr at);

/* Whether a block holds an address. */
bool hf_ledger_covers(CUdeviceptr at);

/* check.c */

/* Stream captures that are open. */
extern _Atomic int hf_captures;

void hf_check_start(void);

/* Looks at a call that is about to submit work: it counts, and may be the moment of a roll back. */
void hf_check_look(unsigned call, hf_word stream, CUdeviceptr first, CUdeviceptr second);

/* kernels.c */

/* A kernel's handle: of a library, or else a function. Its module or library is NULL where that is not known. */
void hf_kernel_add(hf_word handle, bool of_library, const void *owner);
void hf_kernel_copy(hf_word function, hf_word kernel);
void hf_kernel_unload(const void *owner);

/* Looks at the arguments of a launch: whatever is an address of device memory should be in the ledger. */
void hf_kernel_look(unsigned call, hf_word handle, void *const *arguments);

/* How many launches it could not look at, since it does not know the kernel. */
uint64_t hf_kernel_unknown(void);

/* Says once for a block that the ledger lacks it. */
void hf_check_lacks(unsigned call, CUdeviceptr at);

/* Says so if an address is one of device memory that the ledger lacks. */
void hf_check_address(unsigned call, CUdeviceptr at);

/* The driver has handed out a function that the library cannot recognise. */
void hf_check_unknown(const char *name, int version);

/* A stream is gone; all of a context, if it is NULL. */
void hf_check_stream_ends(CUcontext context, CUstream stream);

/* A stream's capture has begun. */
void hf_check_captures(CUstream stream);

static inline void hf_submit(unsigned call, hf_word stream, hf_word first, hf_word second) {
	if (hf_settings.moments != 0) {
		hf_check_look(call, stream, first, second);
	}
	hf_gate_enter(call);
}

/* The stream in what cuLaunchKernelEx is given: behind seven numbers of 32 bits. */
static inline hf_word hf_stream_of(hf_word config) { return config == 0 ? 0 : ((const hf_word *)config)[4]; }

static inline void hf_launch(unsigned call, hf_word stream, hf_word kernel, hf_word arguments) {
	hf_submit(call, stream, 0, 0);
	if (hf_settings.moments != 0 && atomic_load_explicit(&hf_self->inside, memory_order_relaxed) == 1) {
		hf_kernel_look(call, kernel, (void *const *)arguments);
	}
}

#endif
