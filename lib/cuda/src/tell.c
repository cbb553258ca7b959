/* tell.c - the ledger, as libholdfast reads it for hf_protect_cuda. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>

#include "../../common/ledger.h"
#include "library.h"

__thread bool hf_not_the_programs;

static const char *const calls[HF_KINDS] = { "cuMemAlloc", "cuMemAllocPitch", "cuMemAllocAsync", "cuMemMap",
	"cuArrayCreate", "the module", "cuMemAllocManaged", "cuMemHostAlloc", "a graph",
	"cuIpcOpenMemHandle or another interface", "cuMipmappedArrayCreate", "cuCtxSetLimit for the heap of kernels" };

/* Memory of a graph is there from a launch on, until it is freed. */
static bool is_there(CUdeviceptr at) {
	int type;

	return REAL(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) == CUDA_SUCCESS;
}

static enum hfl_part part(const struct hf_block *b) {
	if (b->lent) {
		return HFL_REFUSED;
	}
	if (b->own || (b->asker != NULL && b->asker->transport)) {
		return HFL_NONE;
	}
	switch (b->kind) {
	case HF_HOST:
		return HFL_NONE;
	case HF_VARIABLE:
		return HFL_NAMED;
	case HF_DEVICE:
	case HF_PITCHED:
		return b->arena ? HFL_SAVED : HFL_MOVING;
	case HF_POOL: /* the driver's pools have had the same addresses in each process */
		return HFL_SAVED;
	case HF_ARRAY:
	case HF_MIPMAPPED:
		return b->bytes != 0 ? HFL_ARRAY : HFL_REFUSED;
	case HF_MAPPED:
	case HF_MANAGED:
		return HFL_MOVING;
	case HF_GRAPH:
		return is_there(b->at) ? HFL_REFUSED : HFL_NONE;
	default:
		return HFL_REFUSED;
	}
}

static size_t list(struct hfl_allocation *to, size_t room) {
	const struct hf_block *b;
	size_t i, n;

	hf_ledger_lock();
	n = hf_ledger.lost ? SIZE_MAX : hf_ledger.count;
	for (i = 0; n != SIZE_MAX && i < n && i < room; i++) {
		b = hf_ledger.blocks[i];
		to[i] = (struct hfl_allocation){ .at = b->at,
			.bytes = b->bytes,
			.order = b->order,
			.context = hf_ledger_context_for(b),
			.call = calls[b->kind],
			.name = b->name,
			.file = b->asker != NULL ? b->asker->file : NULL,
			.offset = b->asker != NULL ? b->asker->offset : 0,
			.part = part(b) };
		if (hf_is_array(b->kind)) {
			hf_array_shape(b, to[i].shape, sizeof to[i].shape);
		}
	}
	hf_ledger_unlock();
	return n;
}

static void own(bool on) { hf_not_the_programs = on; }

static int copy(const struct hfl_allocation *array, void *host, bool out) {
	struct hf_block b;
	CUcontext popped;
	CUresult e;

	if (!hf_ledger_array(array->at, &b) || b.order != array->order || b.bytes != array->bytes) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	if ((e = REAL(cuCtxPushCurrent_v2)(b.context)) == CUDA_SUCCESS) {
		if ((e = REAL(cuCtxSynchronize)()) == CUDA_SUCCESS) {
			e = hf_array_copy(&b, host, out);
		}
		REAL(cuCtxPopCurrent_v2)(&popped);
	}
	return e;
}

/* The library's own name is another one, unless it was found under the driver's. */
static int other_driver(struct dl_phdr_info *object, size_t bytes, void *own_base) {
	(void)bytes;
	return hf_is_driver(object->dlpi_name) && (void *)object->dlpi_addr != own_base;
}

static bool passed_by(void) {
	Dl_info info;

	return !atomic_load(&hf_bound) && dladdr(&hf_bound, &info) != 0 &&
		dl_iterate_phdr(other_driver, info.dli_fbase) != 0;
}

static const struct hf_cuda_ledger ledger = { HFL_VERSION, list, own, copy, passed_by };

__attribute__((visibility("default"))) const struct hf_cuda_ledger *hf_cuda_ledger(void) { return &ledger; }
