/* holder.c - the process that holds a program's memory while that changes devices: hold.c starts it by running the
 * library as a program. It has a context on both devices, and ends with the program. A mapping stays held where it is
 * until its copy has been made. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "holder.h"
#include "library.h"

enum { STREAMS = 4 };

/* Of the hash (gpustate/internal/chunkhash): bytes of a chunk, threads for one, bytes of its result, words of the key;
 * and how many are hashed at a time. */
enum { CHUNK = 256 << 10, LANES = 256, RESULT = 32, KEY = 2318, CHUNKS = 8192, RESULTS = CHUNKS * RESULT };

extern const char hf_hash_kernel[]; /* hash.S */

static struct place {
	CUuuid uuid;
	CUdevice device;
	CUcontext context;
	CUstream streams[STREAMS];
	CUfunction hash;
	CUdeviceptr key, results;
} places[HF_HOLD_DEVICES];
static size_t place_count;

static struct held {
	struct held_part {
		CUdeviceptr at; /* 0: nothing */
		const struct place *place;
	} is, next, was; /* next: its copy is under way; was: of the last copy, given up when there is time */
	size_t bytes;
} *all;
static size_t count;

static const char *doing; /* the call that fails, for the reply */

static CUresult tried(const char *what, CUresult e) {
	if (e != CUDA_SUCCESS) {
		doing = what;
	}
	return e;
}

#define TRY(name, ...) tried(#name, REAL(name)(__VA_ARGS__))

static const struct place *entered; /* whose context is current */

static CUresult enter(const struct place *p) {
	CUcontext popped;
	CUresult e;

	if (entered == p) {
		return CUDA_SUCCESS;
	}
	if (entered != NULL) {
		(void)REAL(cuCtxPopCurrent_v2)(&popped);
		entered = NULL;
	}
	if ((e = TRY(cuCtxPushCurrent_v2, p->context)) == CUDA_SUCCESS) {
		entered = p;
	}
	return e;
}

/* Makes a device ready to hash. All have one random key. */
static CUresult load(struct place *p) {
	static uint32_t key[KEY];
	static bool drawn;
	CUmodule module;
	CUresult e;

	if (!drawn && getrandom(key, sizeof key, 0) != sizeof key) {
		return tried("getrandom", CUDA_ERROR_NOT_SUPPORTED);
	}
	drawn = true;
	if ((e = TRY(cuModuleLoadData, &module, hf_hash_kernel)) != CUDA_SUCCESS ||
		(e = TRY(cuModuleGetFunction, &p->hash, module, "holdfast_chunk_hash")) != CUDA_SUCCESS ||
		(e = TRY(cuMemAlloc_v2, &p->key, sizeof key)) != CUDA_SUCCESS ||
		(e = TRY(cuMemAlloc_v2, &p->results, 2 * RESULTS)) != CUDA_SUCCESS) {
		return e;
	}
	return TRY(cuMemcpyHtoD_v2, p->key, key, sizeof key);
}

/* A device by its UUID, with a context of this process; NULL: e is the reason. */
static struct place *place_of(const CUuuid *uuid, CUresult *e) {
	struct place *p;
	int devices = 0, i;
	CUuuid is;
	size_t s;

	*e = CUDA_SUCCESS;
	for (p = places; p < places + place_count; p++) {
		if (memcmp(&p->uuid, uuid, sizeof *uuid) == 0) {
			return p;
		}
	}
	doing = "a process beside the program does not see the device";
	if (REAL(cuDeviceGetUuid) == NULL || place_count == HF_HOLD_DEVICES ||
		(*e = REAL(cuDeviceGetCount)(&devices)) != CUDA_SUCCESS) {
		*e = *e == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : *e;
		return NULL;
	}
	for (i = 0; i < devices; i++) {
		if (REAL(cuDeviceGetUuid)(&is, i) == CUDA_SUCCESS && memcmp(&is, uuid, sizeof is) == 0) {
			break;
		}
	}
	*e = i == devices ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
	*p = (struct place){ .uuid = *uuid, .device = i };
	place_count++; /* if a later step fails, the program has this process end */
	if (*e != CUDA_SUCCESS || (*e = REAL(cuDevicePrimaryCtxRetain)(&p->context, i)) != CUDA_SUCCESS ||
		(*e = enter(p)) != CUDA_SUCCESS) {
		return NULL;
	}
	for (s = 0; s < STREAMS; s++) {
		if ((*e = REAL(cuStreamCreate)(&p->streams[s], CU_STREAM_NON_BLOCKING)) != CUDA_SUCCESS) {
			return NULL;
		}
	}
	return (*e = load(p)) == CUDA_SUCCESS ? p : NULL;
}

static bool reaches(const struct place *a, const struct place *b) {
	int can = a == b;

	return can || (REAL(cuDeviceCanAccessPeer)(&can, a->device, b->device) == CUDA_SUCCESS && can);
}

static CUresult pair(const struct hf_hold_wish *w, uint64_t *free_bytes) {
	const struct place *from, *to;
	size_t bytes, whole;
	CUresult e;

	if ((from = place_of(&w->from, &e)) == NULL || (to = place_of(&w->to, &e)) == NULL) {
		return e;
	}
	if (!reaches(from, to) || !reaches(to, from)) {
		doing = "the devices do not reach each other's memory";
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if ((e = enter(to)) == CUDA_SUCCESS && (e = TRY(cuMemGetInfo_v2, &bytes, &whole)) == CUDA_SUCCESS) {
		*free_bytes = bytes;
	}
	return e;
}

static void drop(struct held_part *part, size_t bytes) {
	if (part->at != 0) {
		(void)hf_share_unmap(part->at, bytes);
	}
	*part = (struct held_part){ 0 };
}

/* Maps the memory of a descriptor, for kernels of its own device and of another one. */
static CUresult map(int descriptor, size_t bytes, const struct place *own, const struct place *other, CUdeviceptr *at) {
	CUmemAccessDesc access[2] = { { { CU_MEM_LOCATION_TYPE_DEVICE, own->device }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE },
		{ { CU_MEM_LOCATION_TYPE_DEVICE, other->device }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE } };
	CUresult e = enter(own);

	return e != CUDA_SUCCESS
		? e
		: tried("map memory of the program", hf_share_map(descriptor, bytes, access, own == other ? 1 : 2, at));
}

static CUresult keep(const struct hf_hold_wish *w, int descriptor) {
	const struct place *p;
	struct held *more;
	CUresult e;

	if ((p = place_of(&w->from, &e)) == NULL) {
		return e;
	}
	if (w->index != count || (more = realloc(all, (count + 1) * sizeof *all)) == NULL) {
		doing = "note one more mapping";
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	all = more;
	all[count] = (struct held){ .is.place = p, .bytes = w->bytes };
	if ((e = map(descriptor, w->bytes, p, p, &all[count].is.at)) == CUDA_SUCCESS) {
		count++;
	}
	return e;
}

/* Has a device hash so many chunks from an address on. Each side of a comparison has results of its own. */
static CUresult hash(const struct place *p, CUdeviceptr at, uint64_t bytes, bool copy) {
	uint64_t none = 0;
	CUdeviceptr results = p->results + (copy ? RESULTS : 0);
	void *params[] = { &at, &none, &bytes, (void *)(uintptr_t)&p->key, &results, &none };
	CUresult e = enter(p);

	return e != CUDA_SUCCESS ? e
							 : TRY(cuLaunchKernel, p->hash, (unsigned)((bytes + CHUNK - 1) / CHUNK), 1, 1, LANES, 1, 1,
								   0, p->streams[0], params, NULL);
}

static CUresult read_hashes(const struct place *p, unsigned char *to, size_t bytes, bool copy) {
	CUresult e = enter(p);

	if (e == CUDA_SUCCESS && (e = TRY(cuStreamSynchronize, p->streams[0])) == CUDA_SUCCESS) {
		e = TRY(cuMemcpyDtoH_v2, to, p->results + (copy ? RESULTS : 0), bytes);
	}
	return e;
}

/* Compares a copy with its original, by hashes that both devices make at the same time. */
static CUresult compare(const struct held *h) {
	static unsigned char was[RESULTS], is[RESULTS];
	size_t at, n, results;
	CUresult e;

	for (at = 0; at < h->bytes; at += n) {
		n = h->bytes - at < (size_t)CHUNKS * CHUNK ? h->bytes - at : (size_t)CHUNKS * CHUNK;
		results = (n + CHUNK - 1) / CHUNK * RESULT;
		if ((e = hash(h->is.place, h->is.at + at, n, false)) != CUDA_SUCCESS ||
			(e = hash(h->next.place, h->next.at + at, n, true)) != CUDA_SUCCESS ||
			(e = read_hashes(h->is.place, was, results, false)) != CUDA_SUCCESS ||
			(e = read_hashes(h->next.place, is, results, true)) != CUDA_SUCCESS) {
			return e;
		}
		if (memcmp(was, is, results) != 0) {
			doing = "a copy is not what it was made from";
			return CUDA_ERROR_INVALID_VALUE;
		}
	}
	return CUDA_SUCCESS;
}

/* Ends a copy: the new mapping is held instead, or the old one stays. */
static CUresult end(struct held *h) {
	CUresult e = CUDA_SUCCESS;
	size_t s;

	for (s = 0; s < STREAMS && e == CUDA_SUCCESS; s++) {
		e = TRY(cuStreamSynchronize, h->is.place->streams[s]);
	}
	if (e == CUDA_SUCCESS && (e = compare(h)) == CUDA_SUCCESS) {
		h->was = h->is;
		h->is = h->next;
		h->next = (struct held_part){ 0 };
		if (h->was.place == h->is.place) { /* there may be no room for a second one */
			drop(&h->was, h->bytes);
		}
	} else {
		drop(&h->next, h->bytes);
	}
	return e;
}

static CUresult fill(const struct hf_hold_wish *w, int descriptor) {
	struct place *to;
	struct held *h = w->index < count ? &all[w->index] : NULL;
	CUresult e;

	if (h == NULL || h->bytes != w->bytes || h->next.at != 0) {
		doing = "there is no such mapping";
		return CUDA_ERROR_INVALID_VALUE;
	}
	if ((to = place_of(&w->to, &e)) == NULL ||
		(e = map(descriptor, h->bytes, to, h->is.place, &h->next.at)) != CUDA_SUCCESS) {
		return e;
	}
	h->next.place = to;
	drop(&h->was, h->bytes);
	if ((e = enter(h->is.place)) != CUDA_SUCCESS ||
		(e = TRY(cuMemcpyDtoDAsync_v2, h->next.at, h->is.at, h->bytes, h->is.place->streams[w->index % STREAMS])) !=
			CUDA_SUCCESS) {
		drop(&h->next, h->bytes);
		return e;
	}
	return to == h->is.place ? end(h) : CUDA_SUCCESS;
}

static CUresult settle(void) {
	CUresult e = CUDA_SUCCESS, one;
	size_t i;

	for (i = 0; i < count; i++) {
		if (all[i].next.at != 0 && (one = end(&all[i])) != CUDA_SUCCESS) {
			e = one;
		}
	}
	return e;
}

static CUresult obey(const struct hf_hold_wish *w, int descriptor, uint64_t *number) {
	switch (w->what) {
	case HF_HOLD_PAIR:
		return pair(w, number);
	case HF_HOLD_KEEP:
		return keep(w, descriptor);
	case HF_HOLD_FILL:
		return fill(w, descriptor);
	case HF_HOLD_SETTLE:
		return settle();
	}
	doing = "an unknown wish";
	return CUDA_ERROR_INVALID_VALUE;
}

static int hold_memory(int argc, char **argv, char **variables) {
	struct hf_hold_reply reply;
	struct hf_hold_wish wish;
	int descriptor;

	(void)argc;
	(void)argv;
	(void)variables;
	(void)hf_bind(0);
	if (REAL(cuInit) == NULL || REAL(cuDeviceCanAccessPeer) == NULL || REAL(cuMemcpyDtoDAsync_v2) == NULL ||
		REAL(cuModuleLoadData) == NULL || REAL(cuLaunchKernel) == NULL || REAL(cuInit)(0) != CUDA_SUCCESS) {
		return 1;
	}
	while (hf_receive(HF_HOLD_CONN, &wish, sizeof wish, &descriptor)) {
		reply = (struct hf_hold_reply){ 0 };
		doing = "";
		reply.e = obey(&wish, descriptor, &reply.number);
		snprintf(reply.why, sizeof reply.why, "%s", doing);
		if (descriptor >= 0) {
			close(descriptor);
		}
		if (!hf_send(HF_HOLD_CONN, &reply, sizeof reply, -1, 0)) {
			break;
		}
	}
	return 0;
}

/* libc's own, as programs begin with it. */
int __libc_start_main(int (*run)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void),
	void (*loader_fini)(void), void *stack_end);

_Noreturn void hf_holder(long *stack, void (*loader_fini)(void));
_Noreturn void hf_holder(long *stack, void (*loader_fini)(void)) {
	__libc_start_main(hold_memory, (int)*stack, (char **)(stack + 1), NULL, NULL, loader_fini, stack);
	abort();
}
