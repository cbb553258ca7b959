/* ledger.c - the device memory, its origin, and its callers. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "library.h"

struct hf_ledger hf_ledger;
const char *const hf_kinds[HF_KINDS] = { "device", "pitched", "pool", "mapped", "array", "variable", "managed", "host",
	"graph", "foreign", "mipmapped", "heap of kernels" };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, turn = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct hf_asker *) askers; /* a list that only grows */

/* Libraries whose buffers have partners outside of this process, by how their files' names begin. */
static const char *const transports[] = { "libnccl", "libnvshmem", "libucp", "libuct", "libucs", "libmpi",
	"libopen-pal", "mca_", "libmca_", "libfabric" };

/* Of these, one whose device memory is the program's: what nvshmem_malloc returns is part of a heap. */
static const char *const heaps[] = { "libnvshmem" };

/* Functions of transports that a program calls for memory of its own. */
static const char *const lenders[] = { "ncclMemAlloc", "pncclMemAlloc" };

/* Libraries that pass on the requests of others: NVIDIA's shared runtime, and UCX's hooks. */
static const char *const relays[] = { "libcudart", "libucm" };

/* In turns: a thread that forks all the time would have the lock nearly always. */
void hf_ledger_lock(void) {
	pthread_mutex_lock(&turn);
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&turn);
}

void hf_ledger_unlock(void) { pthread_mutex_unlock(&lock); }

void hf_close(int *descriptor) {
	hf_ledger_lock(); /* as a fork does */
	close(*descriptor);
	*descriptor = -1;
	hf_ledger_unlock();
}

/* A child of this process has no device. It calls the driver to be told so, and must not wait for a lock that another
 * thread held, or for a gate that one had shut. */
static void child(void) {
	hf_settings.moments = 0;
	hf_settings.list = NULL;
	hf_gate_child();
	hf_door_child();
	hf_share_child();
	hf_hold_child();
	hf_pause_child();
	pthread_mutex_init(&turn, NULL);
	hf_ledger_unlock();
}

void hf_ledger_start(void) { pthread_atfork(hf_ledger_lock, hf_ledger_unlock, child); }

/* Room for one more item; false: there is no memory, and the ledger is not to be trusted any more. */
static bool grown(void *list, size_t *room, size_t count, size_t item) {
	void *old, *more;
	size_t n = *room == 0 ? 64 : *room * 2;

	if (count < *room) {
		return true;
	}
	memcpy(&old, list, sizeof old);
	if ((more = realloc(old, n * item)) == NULL) {
		hf_ledger.lost = true;
		return false;
	}
	memcpy(list, &more, sizeof more);
	*room = n;
	return true;
}

/* The first block at or after an address. */
static size_t first(CUdeviceptr at) {
	size_t low = 0, high = hf_ledger.count, middle;

	while (low < high) {
		middle = low + (high - low) / 2;
		if (hf_ledger.blocks[middle]->at < at) {
			low = middle + 1;
		} else {
			high = middle;
		}
	}
	return low;
}

static void insert(const struct hf_block *b) {
	size_t i = first(b->at);
	struct hf_block *own;

	if (i < hf_ledger.count && hf_ledger.blocks[i]->at == b->at) {
		*hf_ledger.blocks[i] = *b;
		return;
	}
	if (!grown(&hf_ledger.blocks, &hf_ledger.room, hf_ledger.count, sizeof *hf_ledger.blocks) ||
		(own = malloc(sizeof *own)) == NULL) {
		hf_ledger.lost = true;
		return;
	}
	*own = *b;
	memmove(&hf_ledger.blocks[i + 1], &hf_ledger.blocks[i], (hf_ledger.count - i) * sizeof *hf_ledger.blocks);
	hf_ledger.blocks[i] = own;
	hf_ledger.count++;
}

static void erase(size_t i) {
	free(hf_ledger.blocks[i]);
	hf_ledger.count--;
	memmove(&hf_ledger.blocks[i], &hf_ledger.blocks[i + 1], (hf_ledger.count - i) * sizeof *hf_ledger.blocks);
}

static bool begins(const char *name, const char *const *with, size_t n) {
	while (n-- > 0) {
		if (strncmp(name, with[n], strlen(with[n])) == 0) {
			return true;
		}
	}
	return false;
}

/* Looks a place up. dladdr waits while another thread opens a library, whose constructors may allocate: the ledger's
 * lock is not held. */
static void look_up(struct hf_asker *a, const void *at) {
	const char *name;
	Dl_info info;

	a->at = at;
	if (dladdr(at, &info) == 0 || info.dli_fname == NULL) {
		return;
	}
	a->file = strdup(info.dli_fname);
	a->offset = (size_t)((const char *)at - (const char *)info.dli_fbase);
	name = strrchr(info.dli_fname, '/');
	name = name == NULL ? info.dli_fname : name + 1;
	a->transport = begins(name, transports, sizeof transports / sizeof *transports);
	a->heap = begins(name, heaps, sizeof heaps / sizeof *heaps);
	a->lends =
		a->transport && info.dli_sname != NULL && begins(info.dli_sname, lenders, sizeof lenders / sizeof *lenders);
	a->relay = begins(name, relays, sizeof relays / sizeof *relays);
}

/* Each place that calls is looked up once: dladdr reads all symbols of a file. Two threads may do so at once. */
static const struct hf_asker *asker(const void *at) {
	struct hf_asker *a;

	for (a = atomic_load(&askers); a != NULL; a = a->next) {
		if (a->at == at) {
			return a;
		}
	}
	if ((a = calloc(1, sizeof *a)) == NULL) {
		return NULL;
	}
	look_up(a, at);
	a->next = atomic_load(&askers);
	while (!atomic_compare_exchange_weak(&askers, &a->next, a)) {
	}
	return a;
}

/* Whether what a transport asks for will hold the program's data. */
static bool lent(const struct hf_asker *transport) {
	const struct hf_asker *a;
	bool lends = false;
	void *frames[64];
	int i, n;

	if (transport->heap) {
		return true;
	}
	n = backtrace(frames, sizeof frames / sizeof *frames);
	for (i = 0; i < n && (a = asker(frames[i])) != NULL; i++) {
		if (lends && !a->transport) {
			return true;
		}
		lends = a->lends;
	}
	return false;
}

/* The caller of the relay. */
static const struct hf_asker *behind(const struct hf_asker *relay) {
	const struct hf_asker *a = NULL;
	bool passed = false;
	void *frames[64];
	int i, n = backtrace(frames, sizeof frames / sizeof *frames);

	for (i = 0; i < n && (a = asker(frames[i])) != NULL && (a->relay || !passed); i++) {
		passed = passed || a->relay;
	}
	return i < n && a != NULL ? a : relay;
}

const char *hf_ledger_text(const char *text) {
	static struct text {
		struct text *next;
		char is[];
	} *texts;
	const size_t bytes = strlen(text) + 1;
	struct text *t;

	hf_ledger_lock();
	for (t = texts; t != NULL && strcmp(t->is, text) != 0; t = t->next) {
	}
	if (t == NULL && (t = malloc(sizeof *t + bytes)) != NULL) {
		memcpy(t->is, text, bytes);
		t->next = texts;
		texts = t;
	}
	hf_ledger.lost = hf_ledger.lost || t == NULL;
	hf_ledger_unlock();
	return t == NULL ? NULL : t->is;
}

static struct hf_used *used(CUcontext context) {
	size_t i;

	for (i = 0; i < hf_ledger.context_count && hf_ledger.contexts[i].context != context; i++) {
	}
	return i < hf_ledger.context_count ? &hf_ledger.contexts[i] : NULL;
}

static void uses(CUcontext context, int device) {
	if (context != NULL && used(context) == NULL &&
		grown(&hf_ledger.contexts, &hf_ledger.context_room, hf_ledger.context_count, sizeof *hf_ledger.contexts)) {
		hf_ledger.contexts[hf_ledger.context_count++] = (struct hf_used){ context, device, 0 };
	}
}

void hf_ledger_context(CUcontext context, int device) {
	hf_ledger_lock();
	uses(context, device);
	hf_ledger_unlock();
	hf_door_open();
}

const struct hf_asker *hf_ledger_asker(const void *caller) {
	const struct hf_asker *a = asker(caller);

	return a != NULL && a->relay ? behind(a) : a;
}

void hf_ledger_add(struct hf_block block, const void *caller) {
	int device = -1;

	if (block.at == 0) {
		return;
	}
	if (REAL(cuCtxGetCurrent) == NULL || REAL(cuCtxGetCurrent)(&block.context) != CUDA_SUCCESS) {
		block.context = NULL;
	}
	if (block.context != NULL && REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS) {
		device = -1;
	}
	if (block.asker == NULL) {
		block.asker = hf_ledger_asker(caller);
	}
	block.device = device;
	block.lent = block.kind <= HF_MAPPED && block.asker != NULL && block.asker->transport && lent(block.asker);
	hf_ledger_lock();
	uses(block.context, device);
	block.order = ++hf_ledger.order;
	block.own = hf_not_the_programs;
	insert(&block);
	hf_ledger_unlock();
	hf_door_open();
}

bool hf_ledger_take(CUdeviceptr at, struct hf_block *old) {
	bool found;
	size_t i;

	hf_ledger_lock();
	i = first(at);
	if ((found = i < hf_ledger.count && hf_ledger.blocks[i]->at == at)) {
		*old = *hf_ledger.blocks[i];
		erase(i);
	}
	hf_ledger_unlock();
	return found;
}

void hf_ledger_put(const struct hf_block *old) {
	hf_ledger_lock();
	insert(old);
	hf_ledger_unlock();
}

void hf_ledger_unmap(CUdeviceptr at, size_t bytes) {
	size_t i;

	hf_ledger_lock();
	for (i = first(at); i < hf_ledger.count && hf_ledger.blocks[i]->at < at + bytes;) {
		erase(i);
	}
	hf_ledger_unlock();
}

void hf_ledger_leaves(const void *owner) {
	size_t i;

	hf_ledger_lock();
	for (i = 0; i < hf_ledger.count; i++) {
		if (owner != NULL && hf_ledger.blocks[i]->owner == owner) {
			hf_ledger.blocks[i]->leaves = true;
		}
	}
	hf_ledger_unlock();
}

/* A block that another thread was given meanwhile does not leave. */
void hf_ledger_left(const void *owner, bool has) {
	struct hf_block *b;
	size_t i;

	hf_ledger_lock();
	for (i = hf_ledger.count; i-- > 0;) {
		b = hf_ledger.blocks[i];
		if (b->leaves && b->owner == owner) {
			b->leaves = false;
			if (has) {
				erase(i);
			}
		}
	}
	hf_ledger_unlock();
}

static void forget(CUcontext context) {
	struct hf_used *u = used(context);

	if (u != NULL) {
		*u = hf_ledger.contexts[--hf_ledger.context_count];
	}
}

/* Mappings belong to the process, and memory of pools and graphs to the device. */
static bool outlives_context(enum hf_kind kind) {
	return kind == HF_MAPPED || kind == HF_FOREIGN || kind == HF_POOL || kind == HF_GRAPH;
}

void hf_ledger_end(CUcontext context) {
	size_t i;

	hf_ledger_lock();
	for (i = hf_ledger.count; i-- > 0;) {
		if (hf_ledger.blocks[i]->context != context) {
			continue;
		}
		if (outlives_context(hf_ledger.blocks[i]->kind)) {
			hf_ledger.blocks[i]->context = NULL;
		} else {
			if (hf_ledger.blocks[i]->arena) {
				hf_arena_drop(hf_ledger.blocks[i]);
			}
			erase(i);
		}
	}
	forget(context);
	hf_ledger_unlock();
	hf_arena_pass(context, NULL);
}

void hf_ledger_attached(CUcontext context) {
	struct hf_used *u;

	hf_ledger_lock();
	if ((u = used(context)) != NULL) {
		u->attached++;
	}
	hf_ledger_unlock();
}

bool hf_ledger_detached(CUcontext context) {
	struct hf_used *u;
	bool last;

	hf_ledger_lock();
	u = used(context);
	if (!(last = u == NULL || u->attached == 0)) {
		u->attached--;
	}
	hf_ledger_unlock();
	return last;
}

void hf_ledger_pass(CUcontext from, CUcontext to) {
	size_t i;

	hf_ledger_lock();
	for (i = 0; i < hf_ledger.count; i++) {
		if (hf_ledger.blocks[i]->context == from) {
			hf_ledger.blocks[i]->context = to;
		}
	}
	forget(from);
	hf_ledger_unlock();
	hf_arena_pass(from, to);
}

static CUcontext context_on(int device) {
	CUcontext context = NULL;
	size_t i;

	for (i = 0; i < hf_ledger.context_count && context == NULL; i++) {
		if (hf_ledger.contexts[i].device == device) {
			context = hf_ledger.contexts[i].context;
		}
	}
	return context;
}

CUcontext hf_context_of(int device) {
	CUcontext context;

	hf_ledger_lock();
	context = context_on(device);
	hf_ledger_unlock();
	return context;
}

CUcontext hf_ledger_context_for(const struct hf_block *b) {
	return b->context != NULL ? b->context : context_on(b->device);
}

void hf_ledger_reach(CUdeviceptr at, size_t bytes, int device) {
	struct hf_block *b;
	size_t i;

	hf_ledger_lock();
	for (i = first(at); i < hf_ledger.count && hf_ledger.blocks[i]->at < at + bytes; i++) {
		b = hf_ledger.blocks[i];
		if (b->kind == HF_MAPPED && b->bytes <= at + bytes - b->at) {
			b->reachable = device >= 0;
			b->device = device;
		}
	}
	hf_ledger_unlock();
}

void hf_ledger_graph(CUdeviceptr at) {
	size_t i;

	hf_ledger_lock();
	i = first(at);
	if (i < hf_ledger.count && hf_ledger.blocks[i]->at == at) {
		hf_ledger.blocks[i]->kind = HF_GRAPH;
	}
	hf_ledger_unlock();
}

/* The block that holds an address, or NULL. */
static const struct hf_block *holds(CUdeviceptr at) {
	size_t i = first(at + 1);
	const struct hf_block *b = i > 0 ? hf_ledger.blocks[i - 1] : NULL;

	return b != NULL && at - b->at < b->bytes && !hf_is_array(b->kind) && b->kind != HF_HEAP ? b : NULL;
}

bool hf_ledger_covers(CUdeviceptr at) {
	bool covers;

	hf_ledger_lock();
	covers = holds(at) != NULL;
	hf_ledger_unlock();
	return covers;
}

bool hf_ledger_arena(CUdeviceptr at, struct hf_block *block) {
	const struct hf_block *b;
	bool found;

	hf_ledger_lock();
	b = holds(at);
	if ((found = b != NULL && (b->arena || b->opened))) {
		*block = *b;
	}
	hf_ledger_unlock();
	return found;
}

bool hf_ledger_array(CUdeviceptr at, struct hf_block *block) {
	bool found;
	size_t i;

	hf_ledger_lock();
	i = first(at);
	if ((found = i < hf_ledger.count && hf_ledger.blocks[i]->at == at && hf_is_array(hf_ledger.blocks[i]->kind))) {
		*block = *hf_ledger.blocks[i];
	}
	hf_ledger_unlock();
	return found;
}

/* Writes the rest at the end of the program, for people. */
__attribute__((destructor)) static void list(void) {
	const struct hf_block *b;
	FILE *out;
	size_t i;

	if (hf_settings.list == NULL) {
		return;
	}
	if ((out = fopen(hf_settings.list, "w")) == NULL) {
		hf_say("HOLDFAST_CUDA_LIST: %s: %s", hf_settings.list, strerror(errno));
		return;
	}
	fprintf(out, "%-6s %-10s %-18s %12s %-18s %s\n", "order", "kind", "address", "bytes", "context", "asked by");
	hf_ledger_lock();
	for (i = 0; i < hf_ledger.count; i++) {
		b = hf_ledger.blocks[i];
		fprintf(out, "%-6llu %-10s %#-18llx %12zu %-18p %s+%#zx\n", (unsigned long long)b->order, hf_kinds[b->kind],
			b->at, b->bytes, (void *)b->context, b->asker != NULL && b->asker->file != NULL ? b->asker->file : "?",
			b->asker != NULL ? b->asker->offset : 0);
	}
	hf_ledger_unlock();
	fclose(out);
}
