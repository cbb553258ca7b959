/* memory.c - the calls that make and free memory: the driver does them, the ledger notes them. Whatever is freed leaves
 * the ledger first, since another thread can be given its address before the driver's call returns. */
#include <stdio.h>
#include <string.h>

#include "library.h"

#define CALLER __builtin_return_address(0)

static CUdeviceptr host(const void *at) { return (CUdeviceptr)(hf_word)at; }

/* The library's own memory for a block, unless there is no arena, or a library asks whose memory others register. */
static CUresult arena(struct hf_block *b, const void *caller) {
	CUresult e = CUDA_SUCCESS;

	if (hf_settings.arena && b->bytes != 0 && !hf_not_the_programs) {
		b->asker = hf_ledger_asker(caller);
		if (b->asker == NULL || !b->asker->transport) {
			e = hf_arena_alloc(&b->at, b->bytes);
		}
	}
	b->arena = b->at != 0;
	return e;
}

static void note(CUresult e, enum hf_kind kind, CUdeviceptr at, size_t bytes, const void *caller) {
	if (e == CUDA_SUCCESS) {
		hf_ledger_add((struct hf_block){ .kind = kind, .at = at, .bytes = bytes }, caller);
	}
}

/* Takes a block out before the driver frees it, and puts it back if that fails. */
struct freeing {
	struct hf_block block;
	bool known;
};

static struct freeing begin_free(unsigned call, CUdeviceptr at) {
	struct freeing f;

	hf_gate_enter(call);
	f.known = hf_ledger_take(at, &f.block);
	if (!f.known && at != 0 && hf_settings.moments != 0) {
		hf_check_lacks(call, at);
	}
	return f;
}

static CUresult end_free(CUresult e, const struct freeing *f) {
	if (e != CUDA_SUCCESS && f->known) {
		hf_ledger_put(&f->block);
	}
	hf_gate_leave();
	return e;
}

OWN(cuMemAlloc_v2)(CUdeviceptr *at, size_t bytes) {
	struct hf_block b = { .kind = HF_DEVICE, .bytes = bytes };
	CUresult e;

	hf_gate_enter(HF_cuMemAlloc_v2);
	e = at == NULL ? CUDA_SUCCESS : arena(&b, CALLER);
	if (b.arena) {
		*at = b.at;
	} else if (e == CUDA_SUCCESS && (e = REAL(cuMemAlloc_v2)(at, bytes)) == CUDA_SUCCESS) {
		b.at = *at;
	}
	if (e == CUDA_SUCCESS) {
		hf_ledger_add(b, CALLER);
	}
	hf_gate_leave();
	return e;
}

/* The driver's alignment of rows. */
enum { PITCH = 512 };

OWN(cuMemAllocPitch_v2)(CUdeviceptr *at, size_t *pitch, size_t width, size_t height, unsigned element) {
	struct hf_block b = { .kind = HF_PITCHED };
	size_t row = (width + PITCH - 1) / PITCH * PITCH;
	CUresult e = CUDA_SUCCESS;

	hf_gate_enter(HF_cuMemAllocPitch_v2);
	if (at != NULL && pitch != NULL && width != 0 && (height == 0 || row <= SIZE_MAX / height) &&
		(element == 4 || element == 8 || element == 16)) {
		b.bytes = row * height;
		e = arena(&b, CALLER);
	}
	if (b.arena) {
		*at = b.at;
		*pitch = row;
	} else if (e == CUDA_SUCCESS && (e = REAL(cuMemAllocPitch_v2)(at, pitch, width, height, element)) == CUDA_SUCCESS) {
		b.at = *at;
	}
	if (e == CUDA_SUCCESS) {
		b.bytes = *pitch * height;
		hf_ledger_add(b, CALLER);
	}
	hf_gate_leave();
	return e;
}

OWN(cuMemAllocManaged)(CUdeviceptr *at, size_t bytes, unsigned flags) {
	CUresult e;

	hf_gate_enter(HF_cuMemAllocManaged);
	e = REAL(cuMemAllocManaged)(at, bytes, flags);
	note(e, HF_MANAGED, e == CUDA_SUCCESS ? *at : 0, bytes, CALLER);
	hf_gate_leave();
	return e;
}

OWN(cuMemFree_v2)(CUdeviceptr at) {
	struct freeing f = begin_free(HF_cuMemFree_v2, at);

	return end_free(f.known && f.block.arena ? hf_arena_free(&f.block) : REAL(cuMemFree_v2)(at), &f);
}

/* A stream that is being captured makes a node of a graph instead. */
static bool captured(CUstream stream) {
	int status = 0;

	return atomic_load(&hf_captures) > 0 && REAL(cuStreamIsCapturing) != NULL &&
		REAL(cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS && status != 0;
}

static CUresult pooled(CUresult e, const CUdeviceptr *at, size_t bytes, CUstream stream, const void *caller) {
	if (e == CUDA_SUCCESS) {
		note(e, captured(stream) ? HF_GRAPH : HF_POOL, *at, bytes, caller);
	}
	hf_gate_leave();
	return e;
}

OWN(cuMemAllocAsync)(CUdeviceptr *at, size_t bytes, CUstream stream) {
	hf_gate_enter(HF_cuMemAllocAsync);
	return pooled(REAL(cuMemAllocAsync)(at, bytes, stream), at, bytes, stream, CALLER);
}

OWN(cuMemAllocAsync_ptsz)(CUdeviceptr *at, size_t bytes, CUstream stream) {
	hf_gate_enter(HF_cuMemAllocAsync_ptsz);
	return pooled(REAL(cuMemAllocAsync_ptsz)(at, bytes, stream), at, bytes, hf_own_stream(stream), CALLER);
}

OWN(cuMemAllocFromPoolAsync)(CUdeviceptr *at, size_t bytes, CUmemoryPool pool, CUstream stream) {
	hf_gate_enter(HF_cuMemAllocFromPoolAsync);
	return pooled(REAL(cuMemAllocFromPoolAsync)(at, bytes, pool, stream), at, bytes, stream, CALLER);
}

OWN(cuMemAllocFromPoolAsync_ptsz)(CUdeviceptr *at, size_t bytes, CUmemoryPool pool, CUstream stream) {
	hf_gate_enter(HF_cuMemAllocFromPoolAsync_ptsz);
	return pooled(
		REAL(cuMemAllocFromPoolAsync_ptsz)(at, bytes, pool, stream), at, bytes, hf_own_stream(stream), CALLER);
}

/* A captured free belongs to a graph: the memory is there until the graph runs. */
static CUresult free_async(unsigned call, CUdeviceptr at, CUstream stream, __typeof__(cuMemFreeAsync) *real) {
	struct freeing f;
	CUresult e;

	hf_gate_enter(call);
	if (captured(stream)) {
		if ((e = real(at, stream)) == CUDA_SUCCESS) {
			hf_ledger_graph(at);
		}
	} else {
		f = begin_free(call, at);
		/* The interface lets plain memory be freed so, too. */
		e = end_free(f.known && f.block.arena ? hf_arena_free(&f.block) : real(at, stream), &f);
	}
	hf_gate_leave();
	return e;
}

OWN(cuMemFreeAsync)(CUdeviceptr at, CUstream stream) {
	return free_async(HF_cuMemFreeAsync, at, stream, REAL(cuMemFreeAsync));
}

OWN(cuMemFreeAsync_ptsz)(CUdeviceptr at, CUstream stream) {
	return free_async(HF_cuMemFreeAsync_ptsz, at, hf_own_stream(stream), REAL(cuMemFreeAsync_ptsz));
}

/* The address of a node's memory is known before a graph makes it. */
OWN(cuGraphAddMemAllocNode)
(CUgraphNode *node, CUgraph graph, const void *dependencies, size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
	CUresult e;

	hf_gate_enter(HF_cuGraphAddMemAllocNode);
	e = REAL(cuGraphAddMemAllocNode)(node, graph, dependencies, count, params);
	note(e, HF_GRAPH, e == CUDA_SUCCESS ? params->at : 0, e == CUDA_SUCCESS ? params->bytes : 0, CALLER);
	hf_gate_leave();
	return e;
}

static CUresult node_added(CUresult e, const CUgraphNodeParams *params, const void *caller) {
	if (e == CUDA_SUCCESS && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
		note(e, HF_GRAPH, params->alloc.at, params->alloc.bytes, caller);
	}
	hf_gate_leave();
	return e;
}

OWN(cuGraphAddNode)
(CUgraphNode *node, CUgraph graph, const void *dependencies, size_t count, CUgraphNodeParams *params) {
	hf_submit(HF_cuGraphAddNode, 0, 0, 0);
	return node_added(REAL(cuGraphAddNode)(node, graph, dependencies, count, params), params, CALLER);
}

OWN(cuGraphAddNode_v2)
(CUgraphNode *node, CUgraph graph, const void *dependencies, const void *edges, size_t count,
	CUgraphNodeParams *params) {
	hf_submit(HF_cuGraphAddNode_v2, 0, 0, 0);
	return node_added(REAL(cuGraphAddNode_v2)(node, graph, dependencies, edges, count, params), params, CALLER);
}

OWN(cuMemHostAlloc)(void **at, size_t bytes, unsigned flags) {
	CUresult e;

	hf_gate_enter(HF_cuMemHostAlloc);
	e = REAL(cuMemHostAlloc)(at, bytes, flags);
	note(e, HF_HOST, e == CUDA_SUCCESS ? host(*at) : 0, bytes, CALLER);
	hf_gate_leave();
	return e;
}

OWN(cuMemAllocHost_v2)(void **at, size_t bytes) {
	CUresult e;

	hf_gate_enter(HF_cuMemAllocHost_v2);
	e = REAL(cuMemAllocHost_v2)(at, bytes);
	note(e, HF_HOST, e == CUDA_SUCCESS ? host(*at) : 0, bytes, CALLER);
	hf_gate_leave();
	return e;
}

OWN(cuMemHostRegister_v2)(void *at, size_t bytes, unsigned flags) {
	CUresult e;

	hf_gate_enter(HF_cuMemHostRegister_v2);
	e = REAL(cuMemHostRegister_v2)(at, bytes, flags);
	note(e, HF_HOST, host(at), bytes, CALLER);
	hf_gate_leave();
	return e;
}

OWN(cuMemFreeHost)(void *at) {
	struct freeing f = begin_free(HF_cuMemFreeHost, host(at));

	return end_free(REAL(cuMemFreeHost)(at), &f);
}

OWN(cuMemHostUnregister)(void *at) {
	struct freeing f = begin_free(HF_cuMemHostUnregister, host(at));

	return end_free(REAL(cuMemHostUnregister)(at), &f);
}

/* Handles that other processes have exported, so that their memory is distinct from this process's own. */
static struct {
	CUmemGenericAllocationHandle handle[1024];
	size_t count;
} imported; /* the ledger's lock guards it */

static void import(CUmemGenericAllocationHandle handle) {
	hf_ledger_lock();
	if (imported.count < sizeof imported.handle / sizeof *imported.handle) {
		imported.handle[imported.count++] = handle;
	} else {
		hf_ledger.lost = true;
	}
	hf_ledger_unlock();
}

static bool is_imported(CUmemGenericAllocationHandle handle, bool release) {
	bool found = false;
	size_t i;

	hf_ledger_lock();
	for (i = 0; i < imported.count && !found; i++) {
		if ((found = imported.handle[i] == handle) && release) {
			imported.handle[i] = imported.handle[--imported.count];
		}
	}
	hf_ledger_unlock();
	return found;
}

OWN(cuMemImportFromShareableHandle)(CUmemGenericAllocationHandle *handle, void *shared, int type) {
	CUresult e;

	hf_gate_enter(HF_cuMemImportFromShareableHandle);
	if ((e = REAL(cuMemImportFromShareableHandle)(handle, shared, type)) == CUDA_SUCCESS) {
		import(*handle);
	}
	hf_gate_leave();
	return e;
}

OWN(cuMemRelease)(CUmemGenericAllocationHandle handle) {
	CUresult e;

	hf_gate_enter(HF_cuMemRelease);
	(void)is_imported(handle, true);
	e = REAL(cuMemRelease)(handle);
	hf_gate_leave();
	return e;
}

OWN(cuMemMap)
(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags) {
	CUresult e;

	hf_gate_enter(HF_cuMemMap);
	e = REAL(cuMemMap)(at, bytes, offset, handle, flags);
	note(e, is_imported(handle, false) ? HF_FOREIGN : HF_MAPPED, at, bytes, CALLER);
	hf_gate_leave();
	return e;
}

OWN(cuMemSetAccess)(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t count) {
	int device = -1;
	CUresult e;
	size_t i;

	hf_gate_enter(HF_cuMemSetAccess);
	e = REAL(cuMemSetAccess)(at, bytes, access, count);
	if (e == CUDA_SUCCESS) {
		for (i = count; i-- > 0;) {
			if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE &&
				access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
				device = access[i].location.id;
			}
		}
		hf_ledger_reach(at, bytes, device);
	}
	hf_gate_leave();
	return e;
}

OWN(cuMemUnmap)(CUdeviceptr at, size_t bytes) {
	CUresult e;

	hf_gate_enter(HF_cuMemUnmap);
	/* The addresses stay reserved, so that nothing else can come there in the meantime. */
	if ((e = REAL(cuMemUnmap)(at, bytes)) == CUDA_SUCCESS) {
		hf_ledger_unmap(at, bytes);
	}
	hf_gate_leave();
	return e;
}

/* The call that has given memory to others for an unknown time; 0: none has. */
static _Atomic unsigned handed;
static _Atomic bool events;

bool hf_memory_held(char why[HF_WHY]) {
	unsigned call = atomic_load(&handed);
	const char *held;
	size_t n;

	hf_ledger_lock();
	n = imported.count;
	hf_ledger_unlock();
	held = n != 0              ? "it has imported memory of another process"
		: atomic_load(&events) ? "it uses an event of another process"
							   : hf_arena_held();
	if (call != 0) {
		snprintf(why, HF_WHY, "%s has given memory of the driver's to others", hf_names[call]);
		return true;
	}
	if (held != NULL) {
		snprintf(why, HF_WHY, "%s", held);
	}
	return held != NULL || hf_share_held(why);
}

OWN(cuIpcGetMemHandle)(CUipcMemHandle *handle, CUdeviceptr at) {
	struct hf_block b;
	CUresult e;

	hf_gate_enter(HF_cuIpcGetMemHandle);
	if (hf_ledger_arena(at, &b)) {
		e = b.opened            ? CUDA_ERROR_INVALID_VALUE
			: hf_settings.share ? hf_share_handle(handle, &b)
								: CUDA_ERROR_NOT_SUPPORTED;
	} else if ((e = REAL(cuIpcGetMemHandle)(handle, at)) == CUDA_SUCCESS) {
		atomic_store(&handed, HF_cuIpcGetMemHandle);
	}
	hf_gate_leave();
	return e;
}

/* Others may hold the memory, or write to it through a switch, for longer than its handle is there. */
static CUresult gives(CUresult e, unsigned call) {
	if (e == CUDA_SUCCESS) {
		atomic_store(&handed, call);
	}
	hf_gate_leave();
	return e;
}

OWN(cuMemExportToShareableHandle)
(void *shared, CUmemGenericAllocationHandle handle, int type, unsigned long long flags) {
	hf_gate_enter(HF_cuMemExportToShareableHandle);
	return gives(REAL(cuMemExportToShareableHandle)(shared, handle, type, flags), HF_cuMemExportToShareableHandle);
}

OWN(cuMemPoolExportToShareableHandle)(void *shared, CUmemoryPool pool, int type, unsigned long long flags) {
	hf_gate_enter(HF_cuMemPoolExportToShareableHandle);
	return gives(
		REAL(cuMemPoolExportToShareableHandle)(shared, pool, type, flags), HF_cuMemPoolExportToShareableHandle);
}

OWN(cuMulticastCreate)(CUmemGenericAllocationHandle *handle, const void *prop) {
	hf_gate_enter(HF_cuMulticastCreate);
	return gives(REAL(cuMulticastCreate)(handle, prop), HF_cuMulticastCreate);
}

OWN(cuIpcOpenEventHandle)(CUevent *event, CUipcMemHandle handle) {
	CUresult e;

	hf_gate_enter(HF_cuIpcOpenEventHandle);
	if ((e = REAL(cuIpcOpenEventHandle)(event, handle)) == CUDA_SUCCESS) {
		atomic_store(&events, true);
	}
	hf_gate_leave();
	return e;
}

static CUresult foreign(CUresult e, const CUdeviceptr *at, const void *caller) {
	size_t bytes = 0;

	if (e == CUDA_SUCCESS) {
		if (REAL(cuMemGetAddressRange_v2) == NULL || REAL(cuMemGetAddressRange_v2)(NULL, &bytes, *at) != CUDA_SUCCESS ||
			bytes == 0) {
			bytes = 1;
		}
		note(e, HF_FOREIGN, *at, bytes, caller);
	}
	hf_gate_leave();
	return e;
}

/* The driver's answer about a mapping must be one about the program's block in it. */
OWN(cuMemGetAddressRange_v2)(CUdeviceptr *base, size_t *bytes, CUdeviceptr at) {
	struct hf_block b;
	CUresult e = CUDA_SUCCESS;

	hf_gate_enter(HF_cuMemGetAddressRange_v2);
	if (!hf_ledger_arena(at, &b)) {
		e = REAL(cuMemGetAddressRange_v2)(base, bytes, at);
	} else {
		if (base != NULL) {
			*base = b.at;
		}
		if (bytes != NULL) {
			*bytes = b.bytes;
		}
	}
	hf_gate_leave();
	return e;
}

static void attribute(void *value, int which, const struct hf_block *b) {
	switch (which) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		memcpy(value, &b->context, sizeof b->context);
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		memcpy(value, &b->at, sizeof b->at);
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		memcpy(value, &b->bytes, sizeof b->bytes);
		break;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		memcpy(value, &(int){ b->arena && hf_settings.share }, sizeof(int));
		break;
	}
}

OWN(cuPointerGetAttribute)(void *value, int which, CUdeviceptr at) {
	struct hf_block b;
	CUresult e;

	hf_gate_enter(HF_cuPointerGetAttribute);
	if ((e = REAL(cuPointerGetAttribute)(value, which, at)) == CUDA_SUCCESS && hf_ledger_arena(at, &b)) {
		attribute(value, which, &b);
	}
	hf_gate_leave();
	return e;
}

OWN(cuPointerGetAttributes)(unsigned count, int *which, void **values, CUdeviceptr at) {
	struct hf_block b;
	CUresult e;
	unsigned i;

	hf_gate_enter(HF_cuPointerGetAttributes);
	if ((e = REAL(cuPointerGetAttributes)(count, which, values, at)) == CUDA_SUCCESS && hf_ledger_arena(at, &b)) {
		for (i = 0; i < count; i++) {
			attribute(values[i], which[i], &b);
		}
	}
	hf_gate_leave();
	return e;
}

_Atomic bool hf_memops_wait;

/* Open MPI and UCX ask for this before another process reads the memory. The driver refuses it for mapped memory, so
 * the library does it for the arena: from then on calls that copy or set memory return when that is done. They do so
 * for all memory, which is more than was asked for. */
OWN(cuPointerSetAttribute)(const void *value, int which, CUdeviceptr at) {
	CUresult e = CUDA_SUCCESS;
	struct hf_block b;

	hf_gate_enter(HF_cuPointerSetAttribute);
	if (which != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || value == NULL || !hf_ledger_arena(at, &b) || !b.arena) {
		e = REAL(cuPointerSetAttribute)(value, which, at);
	} else if (*(const unsigned char *)value != 0 && !atomic_exchange(&hf_memops_wait, true)) {
		hf_memops(e, 0);
	}
	hf_gate_leave();
	return e;
}

OWN(cuMemRetainAllocationHandle)(CUmemGenericAllocationHandle *handle, void *at) {
	CUresult e;

	hf_gate_enter(HF_cuMemRetainAllocationHandle);
	if ((e = REAL(cuMemRetainAllocationHandle)(handle, at)) == CUDA_SUCCESS) {
		hf_arena_shared(HF_cuMemRetainAllocationHandle, host(at));
	}
	hf_gate_leave();
	return e;
}

OWN(cuMemGetHandleForAddressRange)
(void *handle, CUdeviceptr at, size_t bytes, int type, unsigned long long flags) {
	CUresult e;

	hf_gate_enter(HF_cuMemGetHandleForAddressRange);
	if ((e = REAL(cuMemGetHandleForAddressRange)(handle, at, bytes, type, flags)) == CUDA_SUCCESS) {
		hf_arena_shared(HF_cuMemGetHandleForAddressRange, at);
	}
	hf_gate_leave();
	return e;
}

/* The meaning of a handle of the library's. The process that serves it may be paused: the gate is not passed before it
 * has answered. */
static CUresult opened(CUdeviceptr *at, const CUipcMemHandle *handle, const void *caller) {
	struct hf_block b = { .kind = HF_FOREIGN, .opened = true };
	CUresult e = hf_share_open(handle, &b);

	if (e == CUDA_SUCCESS) {
		hf_ledger_add(b, caller);
		*at = b.at;
	}
	hf_gate_leave();
	return e;
}

OWN(cuIpcOpenMemHandle)(CUdeviceptr *at, CUipcMemHandle handle, unsigned flags) {
	if (hf_share_ours(&handle)) {
		return opened(at, &handle, CALLER);
	}
	hf_gate_enter(HF_cuIpcOpenMemHandle);
	return foreign(REAL(cuIpcOpenMemHandle)(at, handle, flags), at, CALLER);
}

OWN(cuIpcOpenMemHandle_v2)(CUdeviceptr *at, CUipcMemHandle handle, unsigned flags) {
	if (hf_share_ours(&handle)) {
		return opened(at, &handle, CALLER);
	}
	hf_gate_enter(HF_cuIpcOpenMemHandle_v2);
	return foreign(REAL(cuIpcOpenMemHandle_v2)(at, handle, flags), at, CALLER);
}

OWN(cuIpcCloseMemHandle)(CUdeviceptr at) {
	struct freeing f = begin_free(HF_cuIpcCloseMemHandle, at);
	bool last = true;
	CUresult e;

	if (!f.known || !f.block.opened) {
		return end_free(REAL(cuIpcCloseMemHandle)(at), &f);
	}
	e = hf_share_close(at, &last);
	if (!last) {
		hf_ledger_put(&f.block);
	}
	return end_free(e, &f);
}

OWN(cuMemPoolImportPointer)(CUdeviceptr *at, CUmemoryPool pool, void *data) {
	hf_gate_enter(HF_cuMemPoolImportPointer);
	return foreign(REAL(cuMemPoolImportPointer)(at, pool, data), at, CALLER);
}

OWN(cuExternalMemoryGetMappedBuffer)(CUdeviceptr *at, CUexternalMemory memory, const void *buffer) {
	hf_gate_enter(HF_cuExternalMemoryGetMappedBuffer);
	return foreign(REAL(cuExternalMemoryGetMappedBuffer)(at, memory, buffer), at, CALLER);
}

/* Both results are optional in the interface. */
static CUresult variable(CUresult e, enum hf_kind kind, const CUdeviceptr *at, const size_t *bytes, const void *owner,
	const char *name, const void *caller) {
	if (e == CUDA_SUCCESS) {
		hf_ledger_add(
			(struct hf_block){ .kind = kind, .at = *at, .bytes = *bytes, .owner = owner, .name = hf_ledger_text(name) },
			caller);
	}
	hf_gate_leave();
	return e;
}

OWN(cuModuleGetGlobal_v2)(CUdeviceptr *at, size_t *bytes, CUmodule module, const char *name) {
	CUdeviceptr own_at;
	size_t own_bytes;

	at = at == NULL ? &own_at : at;
	bytes = bytes == NULL ? &own_bytes : bytes;
	hf_gate_enter(HF_cuModuleGetGlobal_v2);
	return variable(REAL(cuModuleGetGlobal_v2)(at, bytes, module, name), HF_VARIABLE, at, bytes, module, name, CALLER);
}

OWN(cuLibraryGetGlobal)(CUdeviceptr *at, size_t *bytes, CUlibrary library, const char *name) {
	CUdeviceptr own_at;
	size_t own_bytes;

	at = at == NULL ? &own_at : at;
	bytes = bytes == NULL ? &own_bytes : bytes;
	hf_gate_enter(HF_cuLibraryGetGlobal);
	return variable(REAL(cuLibraryGetGlobal)(at, bytes, library, name), HF_VARIABLE, at, bytes, library, name, CALLER);
}

OWN(cuLibraryGetManaged)(CUdeviceptr *at, size_t *bytes, CUlibrary library, const char *name) {
	CUdeviceptr own_at;
	size_t own_bytes;

	at = at == NULL ? &own_at : at;
	bytes = bytes == NULL ? &own_bytes : bytes;
	hf_gate_enter(HF_cuLibraryGetManaged);
	return variable(REAL(cuLibraryGetManaged)(at, bytes, library, name), HF_MANAGED, at, bytes, library, name, CALLER);
}

OWN(cuModuleUnload)(CUmodule module) {
	CUresult e;

	hf_gate_enter(HF_cuModuleUnload);
	hf_ledger_leaves(module);
	hf_kernel_unload(module);
	e = REAL(cuModuleUnload)(module);
	hf_ledger_left(module, e == CUDA_SUCCESS);
	hf_gate_leave();
	return e;
}

OWN(cuLibraryUnload)(CUlibrary library) {
	CUresult e;

	hf_gate_enter(HF_cuLibraryUnload);
	hf_ledger_leaves(library);
	hf_kernel_unload(library);
	e = REAL(cuLibraryUnload)(library);
	hf_ledger_left(library, e == CUDA_SUCCESS);
	hf_gate_leave();
	return e;
}
