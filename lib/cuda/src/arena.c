/* arena.c - the program's memory at addresses that the library chooses: one range for each device, at a fixed base.
 * Blocks of more than 1 MiB are mapped by themselves, smaller ones share slabs. The memory behind the addresses can be
 * given up and put back, so that a pause needs no change in the program. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "library.h"

/* Behind the addresses of the program's heap and below those of its libraries. */
static const CUdeviceptr base_of_all = 0x500000000000u;

enum { DEVICES = 64, UNIT = 512, UNITS = 4096, SLABS_FROM = 1 << 20, PATIENCE = 10 /* seconds */ };
static const size_t slot = (size_t)UNIT * UNITS; /* the least that the driver maps */
static const size_t range = (size_t)1 << 40;
#define SLOTS ((size_t)1 << 19)

/* A slab is one slot, in units. */
struct slab {
	CUdeviceptr at;
	uint64_t taken[UNITS / 64];
	unsigned free;
	struct slab *next, **link; /* among those of its device with free units */
};

struct arena {
	CUdeviceptr base; /* 0: the device has no arena */
	bool tried, rdma;
	uint64_t reached_by; /* devices whose kernels use its memory, a bit each */
	uint32_t *lengths;   /* slots of the mapping that begins at a slot, or 0 */
	uint32_t *born;      /* which of all mappings that is, so that a later one at its place is told from it */
	uint64_t *taken;     /* slots, a bit each */
	size_t end;          /* no slot is taken from here on */
	struct slab **slabs; /* by slot */
	struct slab *open;
};

/* A free that could not wait for the device, since a stream was being captured. */
struct late {
	struct hf_block block;
	struct late *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct arena arenas[DEVICES];
static _Atomic(struct late *) late;
static pthread_cond_t no_waits = PTHREAD_COND_INITIALIZER;
static unsigned waits;    /* frees that wait for the device */
static uint32_t mappings; /* so far */
static char held[200];

static bool taken(const uint64_t *map, size_t i) { return map[i / 64] >> (i % 64) & 1; }

static void mark(uint64_t *map, size_t i, size_t count, bool as) {
	for (; count > 0; i++, count--) {
		if (as) {
			map[i / 64] |= (uint64_t)1 << (i % 64);
		} else {
			map[i / 64] &= ~((uint64_t)1 << (i % 64));
		}
	}
}

/* The first run of free places, or limit. */
static size_t fit(const uint64_t *map, size_t limit, size_t count) {
	size_t i = 0, n = 0;

	while (i < limit) {
		if (n == 0 && i % 64 == 0 && map[i / 64] == UINT64_MAX) {
			i += 64;
		} else if (taken(map, i++)) {
			n = 0;
		} else if (++n == count) {
			return i - count;
		}
	}
	return limit;
}

static bool can(int attribute, int device) {
	int value = 0;

	return REAL(cuDeviceGetAttribute)(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

static CUmemAllocationProp prop_of(const struct arena *a) {
	return (CUmemAllocationProp){ .type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, (int)(a - arenas) },
		.gpuDirectRDMACapable = a->rdma };
}

/* Reserves the range of a device, once. If that fails the driver makes the memory of this device. */
static void reserve(struct arena *a, int device) {
	CUdeviceptr want = base_of_all + (CUdeviceptr)device * range, at = 0;
	CUmemAllocationProp prop;
	size_t least = 0;

	a->tried = true;
	if (REAL(cuMemAddressReserve) == NULL || REAL(cuDeviceGetAttribute) == NULL ||
		!can(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device) ||
		!can(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device)) {
		hf_say("device %d cannot map memory: it has no arena, and a pause of the program takes longer", device);
		return;
	}
	a->rdma = can(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device);
	a->reached_by = (uint64_t)1 << device;
	prop = prop_of(a);
	if (REAL(cuMemGetAllocationGranularity)(&least, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS ||
		least == 0 || slot % least != 0) {
		hf_say("device %d maps no %zu bytes: it has no arena, and a pause of the program takes longer", device, slot);
		return;
	}
	a->lengths = calloc(SLOTS, sizeof *a->lengths);
	a->born = calloc(SLOTS, sizeof *a->born);
	a->taken = calloc(SLOTS / 64, sizeof *a->taken);
	a->slabs = calloc(SLOTS, sizeof *a->slabs);
	if (a->lengths == NULL || a->born == NULL || a->taken == NULL || a->slabs == NULL ||
		REAL(cuMemAddressReserve)(&at, range, 0, want, 0) != CUDA_SUCCESS) {
		at = 0;
	} else if (at != want) {
		REAL(cuMemAddressFree)(at, range);
	}
	if (at != want) {
		hf_say("the addresses from %#llx are not free: device %d has no arena, and a pause of the program takes longer",
			want, device);
		return;
	}
	a->base = at;
}

/* Puts memory behind addresses, which the mapping keeps. */
static CUresult map(const struct arena *a, CUdeviceptr at, size_t bytes) {
	CUmemAllocationProp prop = prop_of(a);
	CUmemAccessDesc access[DEVICES];
	CUmemGenericAllocationHandle handle;
	size_t count = 0;
	CUresult e;
	int d;

	for (d = 0; d < DEVICES; d++) {
		if (a->reached_by >> d & 1) {
			access[count++] =
				(CUmemAccessDesc){ { CU_MEM_LOCATION_TYPE_DEVICE, d }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
		}
	}
	if ((e = REAL(cuMemCreate)(&handle, bytes, &prop, 0)) != CUDA_SUCCESS) {
		return e;
	}
	if ((e = REAL(cuMemMap)(at, bytes, 0, handle, 0)) == CUDA_SUCCESS &&
		(e = REAL(cuMemSetAccess)(at, bytes, access, count)) != CUDA_SUCCESS) {
		REAL(cuMemUnmap)(at, bytes);
	}
	REAL(cuMemRelease)(handle);
	return e;
}

/* Maps so many slots at the first place where they fit; *at is NULL where there is none. */
static CUresult take(struct arena *a, size_t slots, CUdeviceptr *at) {
	size_t i = fit(a->taken, SLOTS, slots);
	CUresult e;

	*at = 0;
	if (i == SLOTS) {
		return CUDA_SUCCESS;
	}
	if ((e = map(a, a->base + i * slot, slots * slot)) == CUDA_SUCCESS) {
		mark(a->taken, i, slots, true);
		a->lengths[i] = (uint32_t)slots;
		a->born[i] = ++mappings;
		a->end = i + slots > a->end ? i + slots : a->end;
		*at = a->base + i * slot;
	}
	return e;
}

static CUresult give(struct arena *a, CUdeviceptr at) {
	size_t i = (at - a->base) / slot, slots = a->lengths[i];
	CUresult e = REAL(cuMemUnmap)(at, slots * slot);

	if (e == CUDA_SUCCESS) {
		mark(a->taken, i, slots, false);
		a->lengths[i] = 0;
	}
	return e;
}

static void open_slab(struct arena *a, struct slab *s) {
	s->link = &a->open;
	s->next = a->open;
	if (s->next != NULL) {
		s->next->link = &s->next;
	}
	a->open = s;
}

static void close_slab(struct slab *s) {
	*s->link = s->next;
	if (s->next != NULL) {
		s->next->link = s->link;
	}
}

static CUresult take_small(struct arena *a, size_t units, CUdeviceptr *at) {
	struct slab *s;
	size_t i = UNITS;
	CUresult e;

	for (s = a->open; s != NULL; s = s->next) {
		if (s->free >= units && (i = fit(s->taken, UNITS, units)) < UNITS) {
			break;
		}
	}
	if (s == NULL) {
		if ((s = calloc(1, sizeof *s)) == NULL) {
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		if ((e = take(a, 1, &s->at)) != CUDA_SUCCESS || s->at == 0) {
			free(s);
			return e;
		}
		s->free = UNITS;
		a->slabs[(s->at - a->base) / slot] = s;
		open_slab(a, s);
		i = 0;
	}
	mark(s->taken, i, units, true);
	if ((s->free -= (unsigned)units) == 0) {
		close_slab(s);
	}
	*at = s->at + i * UNIT;
	return CUDA_SUCCESS;
}

static CUresult give_small(struct arena *a, struct slab *s, CUdeviceptr at, size_t units) {
	mark(s->taken, (at - s->at) / UNIT, units, false);
	if (s->free == 0) {
		open_slab(a, s);
	}
	if ((s->free += (unsigned)units) < UNITS || (a->open == s && s->next == NULL)) {
		return CUDA_SUCCESS; /* the last one with room stays: a program that frees and allocates in turn needs it */
	}
	close_slab(s);
	a->slabs[(s->at - a->base) / slot] = NULL;
	at = s->at;
	free(s);
	return give(a, at);
}

static struct arena *arena_of(CUdeviceptr at) {
	size_t i = at < base_of_all ? DEVICES : (at - base_of_all) / range;

	return i < DEVICES && arenas[i].base != 0 ? &arenas[i] : NULL;
}

static size_t units_of(size_t bytes) { return (bytes + UNIT - 1) / UNIT; }

/* The lock is held. */
static CUresult release(const struct hf_block *b) {
	struct arena *a = arena_of(b->at);
	struct slab *s = a->slabs[(b->at - a->base) / slot];

	return s != NULL ? give_small(a, s, b->at, units_of(b->bytes)) : give(a, b->at);
}

static CUresult wait_for(CUcontext context) {
	CUresult e = REAL(cuCtxPushCurrent_v2)(context);

	if (e == CUDA_SUCCESS) {
		e = REAL(cuCtxSynchronize)();
		REAL(cuCtxPopCurrent_v2)(&context);
	}
	return e;
}

static void waited(void) {
	if (--waits == 0) {
		pthread_cond_broadcast(&no_waits);
	}
}

/* The device may wait for what the caller submits after its capture. */
void hf_arena_capture(void) {
	struct timespec until;
	int cancels;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
	pthread_mutex_lock(&lock);
	atomic_fetch_add(&hf_captures, 1);
	while (waits > 0 && pthread_cond_timedwait(&no_waits, &lock, &until) == 0) {
	}
	pthread_mutex_unlock(&lock);
	pthread_setcancelstate(cancels, NULL);
}

/* Makes the frees that could not be made before. */
static void catch_up(void) {
	struct late *l;

	pthread_mutex_lock(&lock);
	while (atomic_load(&hf_captures) == 0 && (l = late) != NULL) {
		late = l->next;
		waits++;
		pthread_mutex_unlock(&lock);
		if (l->block.context != NULL) {
			(void)wait_for(l->block.context);
		}
		pthread_mutex_lock(&lock);
		waited();
		(void)release(&l->block);
		free(l);
	}
	pthread_mutex_unlock(&lock);
}

CUresult hf_arena_alloc(CUdeviceptr *at, size_t bytes) {
	struct arena *a;
	CUdevice device;
	CUresult e;

	*at = 0;
	if (REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS || device < 0 || device >= DEVICES) {
		return CUDA_SUCCESS; /* the driver reports the fault */
	}
	if (atomic_load(&late) != NULL) {
		catch_up();
	}
	pthread_mutex_lock(&lock);
	a = &arenas[device];
	if (!a->tried) {
		reserve(a, device);
	}
	e = a->base == 0 || bytes > range ? CUDA_SUCCESS
		: bytes <= SLABS_FROM         ? take_small(a, units_of(bytes), at)
									  : take(a, (bytes + slot - 1) / slot, at);
	pthread_mutex_unlock(&lock);
	return e;
}

CUresult hf_arena_free(const struct hf_block *block) {
	CUresult e = CUDA_SUCCESS;
	struct late *l;

	pthread_mutex_lock(&lock);
	if (atomic_load(&hf_captures) > 0) {
		if ((l = malloc(sizeof *l)) == NULL) {
			e = CUDA_ERROR_OUT_OF_MEMORY;
		} else {
			l->block = *block;
			l->next = late;
			late = l;
		}
	} else {
		waits++;
		pthread_mutex_unlock(&lock);
		e = wait_for(block->context);
		pthread_mutex_lock(&lock);
		waited();
		e = e == CUDA_SUCCESS ? release(block) : e;
	}
	pthread_mutex_unlock(&lock);
	return e;
}

void hf_arena_pass(CUcontext from, CUcontext to) {
	struct late *l;

	pthread_mutex_lock(&lock);
	for (l = atomic_load(&late); l != NULL; l = l->next) {
		l->block.context = l->block.context == from ? to : l->block.context;
	}
	pthread_mutex_unlock(&lock);
}

void hf_arena_drop(const struct hf_block *block) {
	pthread_mutex_lock(&lock);
	(void)release(block);
	pthread_mutex_unlock(&lock);
}

bool hf_arena_mapping(CUdeviceptr at, struct hf_mapping *m, uint32_t *born) {
	struct arena *a = arena_of(at);
	bool found = false;
	size_t i;

	if (a == NULL) {
		return false;
	}
	pthread_mutex_lock(&lock);
	for (i = (at - a->base) / slot + 1; i-- > 0 && !found;) {
		if ((found = a->lengths[i] != 0)) {
			*m = (struct hf_mapping){ a->base + i * slot, a->lengths[i] * slot, (int)(a - arenas) };
			*born = a->born[i];
		}
	}
	pthread_mutex_unlock(&lock);
	return found && at - m->at < m->bytes;
}

CUresult hf_arena_export(const struct hf_mapping *m, uint32_t born, int *descriptor) {
	struct arena *a = arena_of(m->at);
	CUmemGenericAllocationHandle handle;
	size_t i = a == NULL ? 0 : (m->at - a->base) / slot;
	CUresult e = CUDA_ERROR_INVALID_VALUE;
	void *at;

	memcpy(&at, &m->at, sizeof at);
	pthread_mutex_lock(&lock);
	if (a != NULL && a->lengths[i] * slot == m->bytes && a->born[i] == born &&
		(e = REAL(cuMemRetainAllocationHandle)(&handle, at)) == CUDA_SUCCESS) {
		e = REAL(cuMemExportToShareableHandle)(descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
		REAL(cuMemRelease)(handle);
	}
	pthread_mutex_unlock(&lock);
	return e;
}

void hf_arena_shared(unsigned call, CUdeviceptr at) {
	if (arena_of(at) == NULL) {
		return;
	}
	pthread_mutex_lock(&lock);
	snprintf(held, sizeof held, "%s has handed out the memory at %#llx, which others may use", hf_names[call], at);
	pthread_mutex_unlock(&lock);
}

const char *hf_arena_held(void) { return *held == 0 ? NULL : held; }

size_t hf_arena_list(struct hf_mapping **list) {
	size_t count = 0, i;
	struct arena *a;

	*list = NULL;
	pthread_mutex_lock(&lock);
	for (a = arenas; a < arenas + DEVICES; a++) {
		for (i = 0; i < a->end; i++) {
			count += a->lengths[i] != 0;
		}
	}
	if ((*list = calloc(count + 1, sizeof **list)) == NULL) {
		pthread_mutex_unlock(&lock);
		return SIZE_MAX;
	}
	count = 0;
	for (a = arenas; a < arenas + DEVICES; a++) {
		for (i = 0; i < a->end; i++) {
			if (a->lengths[i] != 0) {
				(*list)[count++] = (struct hf_mapping){ a->base + i * slot, a->lengths[i] * slot, (int)(a - arenas) };
			}
		}
	}
	pthread_mutex_unlock(&lock);
	return count;
}

size_t hf_arena_unmap(const struct hf_mapping *list, size_t count, CUresult *e) {
	size_t i;

	*e = CUDA_SUCCESS;
	for (i = 0; i < count; i++) {
		if ((*e = REAL(cuMemUnmap)(list[i].at, list[i].bytes)) != CUDA_SUCCESS) {
			break;
		}
	}
	return i;
}

CUresult hf_arena_map(const struct hf_mapping *list, size_t count) {
	CUresult e, ignored;
	size_t i;

	for (i = 0; i < count; i++) {
		if ((e = map(&arenas[list[i].device], list[i].at, list[i].bytes)) != CUDA_SUCCESS) {
			(void)hf_arena_unmap(list, i, &ignored);
			return e;
		}
	}
	return CUDA_SUCCESS;
}

/* Another device may use plain memory of a device that it can reach; for mapped memory it must be told. */
OWN(cuCtxEnablePeerAccess)(CUcontext peer, unsigned flags) {
	CUdevice own, other;
	struct arena *a;
	CUmemAccessDesc access;
	CUresult e;
	size_t i;

	hf_gate_enter(HF_cuCtxEnablePeerAccess);
	e = REAL(cuCtxEnablePeerAccess)(peer, flags);
	if (e == CUDA_SUCCESS && REAL(cuCtxGetDevice)(&own) == CUDA_SUCCESS &&
		REAL(cuCtxPushCurrent_v2)(peer) == CUDA_SUCCESS) {
		bool known = REAL(cuCtxGetDevice)(&other) == CUDA_SUCCESS && other >= 0 && other < DEVICES && own < DEVICES;

		REAL(cuCtxPopCurrent_v2)(&peer);
		if (known && own != other) {
			pthread_mutex_lock(&lock);
			a = &arenas[other];
			if (!a->tried) {
				reserve(a, other);
			}
			a->reached_by |= (uint64_t)1 << own;
			access = (CUmemAccessDesc){ { CU_MEM_LOCATION_TYPE_DEVICE, own }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
			for (i = 0; i < a->end && e == CUDA_SUCCESS; i++) {
				if (a->lengths[i] != 0) {
					e = REAL(cuMemSetAccess)(a->base + i * slot, a->lengths[i] * slot, &access, 1);
				}
			}
			pthread_mutex_unlock(&lock);
		}
	}
	hf_gate_leave();
	return e;
}
