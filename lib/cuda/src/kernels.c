/* kernels.c - the arguments of kernels. The driver knows the sizes of a kernel's arguments, not their meaning, so each
 * word is looked up in the ledger. Only a handle whose kind is known is asked about. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"

struct kernel {
	hf_word handle;
	bool of_library;
	const void *owner;
};

static struct {
	pthread_mutex_t lock;
	struct kernel *list; /* sorted by handle */
	size_t count, room;
	_Atomic uint64_t unknown;
} kernels = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The first at or after a handle. */
static size_t first(hf_word handle) {
	size_t low = 0, high = kernels.count, middle;

	while (low < high) {
		middle = low + (high - low) / 2;
		if (kernels.list[middle].handle < handle) {
			low = middle + 1;
		} else {
			high = middle;
		}
	}
	return low;
}

static struct kernel *find(hf_word handle) {
	size_t i = first(handle);

	return i < kernels.count && kernels.list[i].handle == handle ? &kernels.list[i] : NULL;
}

/* A handle may have been another kernel's, whose module is gone. Without memory it stays unknown. */
static void add(const struct kernel *k) {
	struct kernel *old = find(k->handle), *more;
	size_t i;

	if (old != NULL) {
		*old = *k;
		return;
	}
	if (kernels.count == kernels.room) {
		i = kernels.room == 0 ? 256 : kernels.room * 2;
		if ((more = realloc(kernels.list, i * sizeof *more)) == NULL) {
			return;
		}
		kernels.list = more;
		kernels.room = i;
	}
	i = first(k->handle);
	memmove(&kernels.list[i + 1], &kernels.list[i], (kernels.count - i) * sizeof *kernels.list);
	kernels.list[i] = *k;
	kernels.count++;
}

void hf_kernel_add(hf_word handle, bool of_library, const void *owner) {
	pthread_mutex_lock(&kernels.lock);
	add(&(struct kernel){ handle, of_library, owner });
	pthread_mutex_unlock(&kernels.lock);
}

void hf_kernel_copy(hf_word function, hf_word kernel) {
	const struct kernel *k;

	pthread_mutex_lock(&kernels.lock);
	k = find(kernel);
	add(&(struct kernel){ function, false, k == NULL ? NULL : k->owner });
	pthread_mutex_unlock(&kernels.lock);
}

void hf_kernel_unload(const void *owner) {
	size_t i, n = 0;

	if (hf_settings.moments == 0) {
		return;
	}
	pthread_mutex_lock(&kernels.lock);
	for (i = 0; i < kernels.count; i++) {
		if (kernels.list[i].owner != owner && kernels.list[i].owner != NULL) {
			kernels.list[n++] = kernels.list[i];
		}
	}
	kernels.count = n;
	pthread_mutex_unlock(&kernels.lock);
}

static bool size_of(const struct kernel *k, size_t index, size_t *bytes) {
	size_t offset;
	CUresult e;

	if (k->of_library) {
		e = REAL(cuKernelGetParamInfo) == NULL ? CUDA_ERROR_NOT_SUPPORTED
											   : REAL(cuKernelGetParamInfo)((CUkernel)k->handle, index, &offset, bytes);
	} else {
		e = REAL(cuFuncGetParamInfo) == NULL ? CUDA_ERROR_NOT_SUPPORTED
											 : REAL(cuFuncGetParamInfo)((CUfunction)k->handle, index, &offset, bytes);
	}
	return e == CUDA_SUCCESS;
}

void hf_kernel_look(unsigned call, hf_word handle, void *const *arguments) {
	struct kernel k = { 0 };
	const struct kernel *found;
	size_t i, at, bytes;
	CUdeviceptr word;

	pthread_mutex_lock(&kernels.lock);
	if ((found = find(handle)) != NULL) {
		k = *found;
	}
	pthread_mutex_unlock(&kernels.lock);
	if (found == NULL || arguments == NULL || atomic_load(&hf_captures) > 0) {
		atomic_fetch_add(&kernels.unknown, 1);
		return;
	}
	for (i = 0; size_of(&k, i, &bytes); i++) {
		for (at = 0; at + sizeof word <= bytes; at += sizeof word) {
			memcpy(&word, (const char *)arguments[i] + at, sizeof word);
			hf_check_address(call, word);
		}
	}
}

uint64_t hf_kernel_unknown(void) { return atomic_load(&kernels.unknown); }

OWN(cuModuleGetFunction)(CUfunction *function, CUmodule module, const char *name) {
	CUresult e;

	hf_gate_enter(HF_cuModuleGetFunction);
	e = REAL(cuModuleGetFunction)(function, module, name);
	if (e == CUDA_SUCCESS && hf_settings.moments != 0) {
		hf_kernel_add((hf_word)*function, false, module);
	}
	hf_gate_leave();
	return e;
}

OWN(cuLibraryGetKernel)(CUkernel *kernel, CUlibrary library, const char *name) {
	CUresult e;

	hf_gate_enter(HF_cuLibraryGetKernel);
	e = REAL(cuLibraryGetKernel)(kernel, library, name);
	if (e == CUDA_SUCCESS && hf_settings.moments != 0) {
		hf_kernel_add((hf_word)*kernel, true, library);
	}
	hf_gate_leave();
	return e;
}

OWN(cuKernelGetFunction)(CUfunction *function, CUkernel kernel) {
	CUresult e;

	hf_gate_enter(HF_cuKernelGetFunction);
	e = REAL(cuKernelGetFunction)(function, kernel);
	if (e == CUDA_SUCCESS && hf_settings.moments != 0) {
		hf_kernel_copy((hf_word)*function, (hf_word)kernel);
	}
	hf_gate_leave();
	return e;
}
