/* library.h - the common part of libholdfast-cuda's files. It exports the driver's names, hf_cuda_ledger, and the
 * functions of an auditor. */
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
extern hf_any *hf_slots[HF_COUNT];            /* the target of a stub */
extern hf_any *const hf_hooks[HF_COUNT];      /* the library's own function, or NULL */
extern const unsigned char hf_when[HF_COUNT]; /* when the library's own function is called, an hf_called */
extern hf_any *hf_real[HF_COUNT];             /* the driver's function, or NULL */
extern const char *const hf_names[HF_COUNT];

enum hf_called {
	HF_ALWAYS,
	HF_GATED,  /* with the gate: the call makes the device read or write memory, or asks about it */
	HF_ARENA,  /* with the arena */
	HF_AT_ONCE /* with either: the call is one of those that hf_memops is for */
};

/* The driver's function. The library calls no other. */
#define REAL(name) ((__typeof__(&name))hf_real[HF_##name])

/* The library's own function of a name has the driver's type. */
#define OWN(name)               \
	__typeof__(name) hf_##name; \
	CUresult hf_##name

/* The settings of the environment; read once, by the first call of a program. */
struct hf_settings {
	bool pause;       /* HOLDFAST_CUDA_PAUSE: holdfast pause may ask for one */
	bool arena;       /* HOLDFAST_CUDA_ARENA: memory of the program is mapped by the library; by default as pause */
	bool share;       /* HOLDFAST_CUDA_IPC: other processes may open memory of the arena */
	bool gate;        /* calls that submit work pass the gate: for a pause, or HOLDFAST_CUDA_CHECK is set */
	unsigned moments; /* HOLDFAST_CUDA_CHECK: how many roll backs */
	uint64_t seed;    /* HOLDFAST_CUDA_SEED */
	uint64_t calls;   /* HOLDFAST_CUDA_CALLS: among how many calls that submit work */
	double wait;      /* HOLDFAST_CUDA_WAIT: seconds for a roll back to begin */
	const char *list; /* HOLDFAST_CUDA_LIST: file that gets the ledger at the end, or NULL */
	/* For a process beside this one, where it can be paused; NULL: not known. */
	char *library, *driver; /* their files */
	char **variables;       /* of the environment */
};
extern struct hf_settings hf_settings;

/* Whether the program has called the library. */
extern atomic_bool hf_bound;

/* Whether a file has one of the driver's names, with or without a folder. */
bool hf_is_driver(const char *file);

/* Says a line on standard error. */
void hf_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Seconds of a clock that only goes forward. */
double hf_now(void);

/* binding.c */

/* Finds the driver, once for the process, and returns the target of a name's stub. hf_first calls it. */
hf_any *hf_bind(unsigned index);

/* gate.c */

/* The state of a thread. The gate reads it from other threads. */
struct hf_thread {
	_Atomic unsigned inside; /* calls that it is in; more than 1 where the driver calls itself by its names */
	_Atomic unsigned call;   /* the outermost */
	_Atomic unsigned waits;  /* calls that it is in and that wait for the device: the gate lets them go on */
	/* Streams that it submitted work to, and the last call of each, unless another stream has taken the place. */
	_Atomic hf_word streams[16];
	_Atomic unsigned calls[16];
	_Atomic bool gone; /* the thread has ended, another may take the place */
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

/* A call that waits for the device, and so perhaps for what another thread submits later. */
static inline void hf_gate_begin_wait(unsigned call) {
	hf_gate_enter(call);
	atomic_store_explicit(
		&hf_self->waits, atomic_load_explicit(&hf_self->waits, memory_order_relaxed) + 1, memory_order_relaxed);
	hf_gate_leave();
}

static inline void hf_gate_end_wait(void) {
	atomic_store_explicit(
		&hf_self->waits, atomic_load_explicit(&hf_self->waits, memory_order_relaxed) - 1, memory_order_release);
}

/* Shuts the gate and waits until no other thread is inside. If that takes until the given time the gate is open again,
 * and the answer is the call that a thread is in; else HF_COUNT. The caller is inside until hf_gate_open. */
unsigned hf_gate_close(double until);
void hf_gate_open(void);

/* While the gate is shut and the device idle: waits until no thread waits for the device. The answer is as before. */
unsigned hf_gate_drain(double until);

/* A child of this process has none of the threads that the gate knows. */
void hf_gate_child(void);

/* The last call that any thread submitted work to a stream with, or HF_COUNT. */
unsigned hf_gate_call(hf_word stream);

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
	HF_HEAP, /* of kernels that allocate, once the program has set its size; its address is the context */
	HF_KINDS
};
extern const char *const hf_kinds[HF_KINDS];

/* The caller: its address, and its file. */
struct hf_asker {
	const void *at;
	char *file;
	size_t offset;
	bool transport; /* a library that moves messages between processes */
	bool heap;      /* one whose device memory is the program's */
	bool lends;     /* a function of one that makes memory for the program */
	bool relay;     /* a library that asks for others */
	struct hf_asker *next;
};

struct hf_block {
	CUdeviceptr at;
	size_t bytes;
	enum hf_kind kind;
	bool arena;        /* of HF_DEVICE and HF_PITCHED: it lies in the arena */
	bool opened;       /* of HF_FOREIGN: by a handle of the library's, so that cuMemFree does not know it */
	bool reachable;    /* of HF_MAPPED: the device may read and write it */
	int device;        /* of the context; of HF_MAPPED, once it is reachable, the one that may */
	CUcontext context; /* current at the time; NULL: the block has outlived it */
	const void *owner; /* of a variable: its module or library */
	const char *name;  /* of a variable; it stays as long as the process */
	bool own;          /* libholdfast asked for it, for a short time */
	bool lent;         /* a transport asked for it, for the program's data */
	bool leaves;       /* its owner is being unloaded */
	uint64_t order;    /* counts allocations from 1 */
	const struct hf_asker *asker;
	CUDA_ARRAY3D_DESCRIPTOR array; /* of HF_ARRAY and HF_MIPMAPPED; of the largest level */
	unsigned levels;               /* of HF_MIPMAPPED */
};

/* The contents of the ledger, sorted by address. hf_ledger_lock first. */
struct hf_ledger {
	struct hf_block **blocks;
	size_t count, room;
	struct hf_used {
		CUcontext context;
		int device;
		unsigned attached; /* further users */
	} *contexts;           /* those that the program has used */
	size_t context_count, context_room;
	uint64_t order;
	bool lost; /* there was no memory to write something down */
};
extern struct hf_ledger hf_ledger;
void hf_ledger_start(void);
void hf_ledger_lock(void);
void hf_ledger_unlock(void);

/* Closes a descriptor that a child of this process closes, too: before its number can be another's there. */
void hf_close(int *descriptor);

/* Writes a block down, with context, order and, unless it has one, asker. It takes the place of one at its address. */
void hf_ledger_add(struct hf_block block, const void *caller);
void hf_ledger_context(CUcontext context, int device);

/* A context of the program's on a device, or NULL. */
CUcontext hf_context_of(int device);

/* The context to copy a block in: its own, or for one that has outlived that, one of its device. hf_ledger_lock first.
 */
CUcontext hf_ledger_context_for(const struct hf_block *b);

/* The same text for as long as the process; NULL: there is no memory. */
const char *hf_ledger_text(const char *text);

/* Allocations of this thread are libholdfast's. */
extern __thread bool hf_not_the_programs __attribute__((tls_model("initial-exec")));

/* Takes a block out and keeps it in *old; false: there is none. hf_ledger_put puts it back as it was. */
bool hf_ledger_take(CUdeviceptr at, struct hf_block *old);
void hf_ledger_put(const struct hf_block *old);

/* Takes out all blocks in a range; those of a context. */
void hf_ledger_unmap(CUdeviceptr at, size_t bytes);
void hf_ledger_end(CUcontext context);

/* A context has a user more, or one less, who may be the last. */
void hf_ledger_attached(CUcontext context);
bool hf_ledger_detached(CUcontext context);

/* A context is gone, and its blocks are another one's. */
void hf_ledger_pass(CUcontext from, CUcontext to);

/* A module or library is about to be unloaded; and afterwards: whether it was. */
void hf_ledger_leaves(const void *owner);
void hf_ledger_left(const void *owner, bool has);

/* The device may read and write a range. */
void hf_ledger_reach(CUdeviceptr at, size_t bytes, int device);

/* The block is the graph's business from now on. */
void hf_ledger_graph(CUdeviceptr at);

/* Whether a block holds an address. */
bool hf_ledger_covers(CUdeviceptr at);

/* Copies the block in the arena, of this process or another one, that holds an address; false: there is none. */
bool hf_ledger_arena(CUdeviceptr at, struct hf_block *block);

/* Copies the array of a handle; false: there is none. */
bool hf_ledger_array(CUdeviceptr at, struct hf_block *block);

/* The caller, or the one for which a calling library asks; NULL: there is no memory. */
const struct hf_asker *hf_ledger_asker(const void *caller);

/* arena.c */

/* Memory in the arena of the current context's device, or NULL in *at: then the driver is to make it. */
CUresult hf_arena_alloc(CUdeviceptr *at, size_t bytes);

/* Frees a block once its context has done all its work. */
CUresult hf_arena_free(const struct hf_block *block);

/* The same for the block of a context that has ended. */
void hf_arena_drop(const struct hf_block *block);

/* A capture begins: no free waits for the device from now until hf_captures is 0 again, which would spoil it. */
void hf_arena_capture(void);

/* What is still to be freed is another context's, or none's. */
void hf_arena_pass(CUcontext from, CUcontext to);

/* Another process or device may reach memory of the arena from now on, by the handle of the call. */
void hf_arena_shared(unsigned call, CUdeviceptr at);

/* The mappings of the arena, in the order of addresses. No thread allocates while the list is used. */
struct hf_mapping {
	CUdeviceptr at;
	size_t bytes;
	int device;
};
size_t hf_arena_list(struct hf_mapping **list);

/* The mapping that holds an address, and which of all mappings it is; false: there is none. */
bool hf_arena_mapping(CUdeviceptr at, struct hf_mapping *m, uint32_t *born);

/* A descriptor of a mapping's memory, for another process. */
CUresult hf_arena_export(const struct hf_mapping *m, uint32_t born, int *descriptor);

/* Takes the memory from behind the arena's addresses, until that fails: the number of mappings that are gone. */
size_t hf_arena_unmap(const struct hf_mapping *list, size_t count, CUresult *e);

/* Puts memory there, of all mappings or of none. */
CUresult hf_arena_map(const struct hf_mapping *list, size_t count);

/* Why the arena must stay mapped, or NULL. */
const char *hf_arena_held(void);

/* Gives the reason if memory of other processes or for them forbids a pause; false: it does not. */
enum { HF_WHY = 400 };
bool hf_memory_held(char why[HF_WHY]);

/* arrays.c */

bool hf_is_array(enum hf_kind kind);

/* Copies all of an array to the host or back. Its context is current. */
CUresult hf_array_copy(const struct hf_block *b, unsigned char *bytes, bool out);

/* Its kind, as a part of a name. */
void hf_array_shape(const struct hf_block *b, char *to, size_t room);

/* share.c */

/* A handle of the arena's block, for other processes. */
CUresult hf_share_handle(CUipcMemHandle *handle, const struct hf_block *block);

/* Whether a handle is one of the library's. */
bool hf_share_ours(const CUipcMemHandle *handle);

/* Maps the memory of such a handle. *block says where. A handle that is open already is counted. The caller is inside
 * the gate afterwards. */
CUresult hf_share_open(const CUipcMemHandle *handle, struct hf_block *block);

/* Ends one opening of a block. *last: it was the last one, and the block is unmapped. */
CUresult hf_share_close(CUdeviceptr at, bool *last);

/* Says which process uses memory of this one; false: none does. */
bool hf_share_held(char why[HF_WHY]);
void hf_share_child(void);

/* Sends a packet, and a descriptor unless that is negative; receives one. flags are those of sendmsg. */
bool hf_send(int conn, const void *bytes, size_t length, int descriptor, int flags);
bool hf_receive(int conn, void *bytes, size_t length, int *descriptor);

/* Maps the memory of a descriptor at an address of this process. */
CUresult hf_share_map(int descriptor, size_t bytes, const CUmemAccessDesc *access, size_t count, CUdeviceptr *at);
CUresult hf_share_unmap(CUdeviceptr at, size_t bytes);

/* hold.c */

/* The memory that a move needs on a device, and the free memory there. */
struct hf_hold_room {
	CUuuid device;
	size_t need, free;
};

/* Starts a process that can hold the memory of the old devices while the program moves to the new ones, and copy it
 * from device to device. rooms gets two for each pair. false: there is none, and why has the reason. */
bool hf_hold_begin(const CUcheckpointGpuPair *pairs, unsigned count, struct hf_hold_room *rooms, char why[HF_WHY]);
bool hf_hold_is(void);

/* Has it hold mappings. */
bool hf_hold_keep(const struct hf_mapping *list, size_t count, char why[HF_WHY]);

/* Passes a mapping on: to hold, or, with the device where the program is now, to fill. The copy is made behind it. */
bool hf_hold_pass(const struct hf_mapping *m, size_t index, const CUuuid *to, char why[HF_WHY]);

/* Waits until all copies are made; false: one is not, or the process has gone. */
bool hf_hold_ready(char why[HF_WHY]);
void hf_hold_end(void);
void hf_hold_child(void);

/* move.c */

/* Told now and then how many bytes have moved; false: stop. */
typedef bool hf_progress(size_t moved, size_t total);

/* Copies the memory behind the mappings to the host, one after the other, or back, through page-locked buffers and by
 * several threads. false: why has the reason. */
bool hf_move(const struct hf_mapping *list, size_t count, unsigned char *host, bool out, hf_progress *progress,
	char why[HF_WHY]);

/* Has the kernel make all pages of host memory, by several threads. */
void hf_touch(unsigned char *at, size_t bytes);

/* spans.c */

/* The addresses that the process uses. */
struct hf_spans {
	struct hf_span {
		uintptr_t from, to;
		bool driver; /* a file of the driver */
	} *list;
	size_t count;
};
bool hf_spans_read(struct hf_spans *spans);

/* Reserves addresses that were in use before and are not now. false: something else is already where the driver was. */
bool hf_spans_fill(const struct hf_spans *before);

/* pause.c */

/* The steps of a pause, in this order; each is asked for by itself, so that all processes of a job can vote before the
 * next one. */
enum hf_phase { HF_RUNNING, HF_QUIET, HF_SAVED, HF_STOPPED };
enum hf_phase hf_pause_phase(void);

/* How long it has been HF_STOPPED; 0: it is not. */
double hf_pause_seconds(void);

/* Names the obstacle to a pause; false: there is none. */
bool hf_pause_refused(char why[HF_WHY]);

/* Has host memory ready for the contents of the arena, while the program runs. */
bool hf_pause_prepare(char why[HF_WHY]);

/* Gives it back, once no pause is requested any more. */
void hf_pause_forget(void);

/* Holds all calls and waits for the device. */
bool hf_pause_quiet(double wait, char why[HF_WHY]);

/* Copies the contents of the arena to the host. */
bool hf_pause_save(hf_progress *progress, char why[HF_WHY]);

/* Gives all device memory up. If that fails the program has it all back, and is HF_SAVED still. */
bool hf_pause_stop(char why[HF_WHY]);

/* Takes device memory again, of other devices where pairs say so. If that fails the program is HF_STOPPED still, and
 * it can be tried again. */
bool hf_pause_resume(const CUcheckpointGpuPair *pairs, unsigned count, hf_progress *progress, char why[HF_WHY]);

/* Lets the program go on that is HF_QUIET or HF_SAVED. */
void hf_pause_open(void);

/* The program is about to end a context: nothing of an attempt to pause it is in that one afterwards. */
void hf_pause_leave(CUcontext context);
void hf_pause_child(void);

/* Bytes in the arena, and in other device memory. */
void hf_pause_bytes(size_t *arena, size_t *other);

/* streams.c */

/* Streams, with the last call that submitted work to each where a roll back counts calls, else HF_COUNT.
 * hf_streams_lock first. */
struct hf_streams {
	struct hf_stream {
		CUcontext context;
		hf_word stream;
		unsigned call;
		uint64_t number; /* of the call */
	} *list;
	size_t count, room;
};
extern struct hf_streams hf_streams;
void hf_streams_lock(void);
void hf_streams_unlock(void);

/* Notes a stream of the current context, or a further call of it. */
void hf_streams_note(hf_word stream, unsigned call, uint64_t number);

/* A stream is gone; all of a context, if it is NULL. */
void hf_streams_end(CUcontext context, CUstream stream);

/* door.c */

/* Listens for holdfast pause, once the program has a context. */
void hf_door_open(void);
void hf_door_child(void);

/* check.c */

const char *hf_error(CUresult e);

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

/* A stream's capture has begun. */
void hf_check_captures(CUstream stream);

/* The twins for per-thread default streams mean that one by 0. */
static inline CUstream hf_own_stream(CUstream stream) {
	return stream == NULL ? (CUstream)(hf_word)CU_STREAM_PER_THREAD : stream;
}

static inline unsigned hf_place_of(hf_word stream) { return (unsigned)(stream >> 4 ^ stream >> 12 ^ stream) & 15; }

static inline void hf_submit(unsigned call, hf_word stream, hf_word first, hf_word second) {
	if (hf_settings.moments != 0) {
		hf_check_look(call, stream, first, second);
	}
	hf_gate_enter(call);
	atomic_store_explicit(&hf_self->streams[hf_place_of(stream)], stream, memory_order_relaxed);
	atomic_store_explicit(&hf_self->calls[hf_place_of(stream)], call, memory_order_relaxed);
}

/* Whether calls that copy or set memory at once return only when the device has done it. */
extern _Atomic bool hf_memops_wait;

/* After such a call, by its default stream. */
static inline void hf_memops(CUresult e, hf_word stream) {
	if (e == CUDA_SUCCESS && atomic_load_explicit(&hf_memops_wait, memory_order_relaxed)) {
		(void)REAL(cuStreamSynchronize)((CUstream)stream);
	}
}

/* The stream in the argument of cuLaunchKernelEx: behind seven numbers of 32 bits. */
static inline hf_word hf_stream_of(hf_word config) { return config == 0 ? 0 : ((const hf_word *)config)[4]; }

static inline void hf_launch(unsigned call, hf_word stream, hf_word kernel, hf_word arguments) {
	hf_submit(call, stream, 0, 0);
	if (hf_settings.moments != 0 && atomic_load_explicit(&hf_self->inside, memory_order_relaxed) == 1) {
		hf_kernel_look(call, kernel, (void *const *)arguments);
	}
}

#endif
