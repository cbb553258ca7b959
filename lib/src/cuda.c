/* cuda.c - hf_protect_cuda: the memory in libholdfast-cuda's ledger, as arrays. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../common/ledger.h"
#include "client.h"

#define PREFIX "cuda."

static const struct hf_cuda_ledger *ledger;

/* The protected memory, by address. Texts are the ledger's. */
static struct hfl_allocation *now;
static size_t count;

void hf_own_allocations(bool on) {
	if (ledger != NULL) {
		ledger->own(on);
	}
}

/* The ledger, in memory of the caller; NULL with an error. */
static struct hfl_allocation *list(const char *call, size_t *n) {
	struct hfl_allocation *all = NULL, *more;
	size_t room = 0;

	for (*n = ledger->list(NULL, 0); *n != SIZE_MAX && *n > room; *n = ledger->list(all, room)) {
		room = *n + *n / 4 + 16;
		if ((more = realloc(all, room * sizeof *all)) == NULL) {
			*n = SIZE_MAX;
			break;
		}
		all = more;
	}
	if (*n == SIZE_MAX || (all == NULL && (all = malloc(sizeof *all)) == NULL)) {
		free(all);
		hf_fail(HF_E_MEMORY, "%s: no memory for the list of the program's device memory", call);
		return NULL;
	}
	return all;
}

/* Names an allocation for people. */
static const char *describe(const struct hfl_allocation *a, char *to, size_t room) {
	snprintf(to, room, "%llu bytes at %#llx by %s%s%s, allocation %llu, asked for by %s+%#zx",
		(unsigned long long)a->bytes, (unsigned long long)a->at, a->call, a->name != NULL ? ", variable " : "",
		a->name != NULL ? a->name : "", (unsigned long long)a->order, a->file != NULL ? a->file : "?", a->offset);
	return to;
}

static int refuse(const char *call, const struct hfl_allocation *a) {
	char text[512];

	describe(a, text, sizeof text);
	if (a->part == HFL_MOVING) {
		return hf_fail(HF_E_FAILED,
			"%s: device memory without a fixed place: %s: a restarted program would not find it there; set "
			"HOLDFAST_CUDA_ARENA=on and use memory of cudaMalloc, or free it before the point",
			call, text);
	}
	return hf_fail(HF_E_FAILED,
		"%s: device memory that a checkpoint cannot hold: %s: free it before the point, or protect what it is made "
		"from, and make it again after hf_restore",
		call, text);
}

/* The name of its array: by its address, as addresses in device memory point to it; that of a variable by its name,
 * of which a long one is cut and has a hash at its end. */
static int name_of(const struct hfl_allocation *a, char *to) {
	enum { WHOLE = HFP_NAME_BYTES - sizeof PREFIX, CUT = WHOLE - 17 };
	uint64_t hash = UINT64_C(14695981039346656037);
	const char *c;

	if (a->part == HFL_ARRAY) {
		return snprintf(to, HFP_NAME_BYTES + 1, PREFIX "array%llu.%s", (unsigned long long)a->order, a->shape);
	}
	if (a->name == NULL) {
		return snprintf(to, HFP_NAME_BYTES + 1, PREFIX "%llx", (unsigned long long)a->at);
	}
	if (strlen(a->name) <= WHOLE) {
		return snprintf(to, HFP_NAME_BYTES + 1, PREFIX "%s", a->name);
	}
	for (c = a->name; *c != 0; c++) {
		hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
	}
	return snprintf(to, HFP_NAME_BYTES + 1, PREFIX "%.*s~%016llx", (int)CUT, a->name, (unsigned long long)hash);
}

static bool same(const struct hfl_allocation *a, const struct hfl_allocation *b) {
	return a->bytes == b->bytes && a->context == b->context && a->name == b->name &&
		(a->part != HFL_ARRAY || a->order == b->order);
}

/* The daemon's error names arrays. Adds their kinds in this program. */
int hf_explain_ledger(int code) {
	char said[2048], more[1536] = "", name[HFP_NAME_BYTES + 3], text[512];
	size_t i, n = 0;

	snprintf(said, sizeof said, "%s", hf_error());
	for (i = 0; i < count; i++) {
		name[0] = '"';
		name_of(&now[i], name + 1);
		strcat(name, "\"");
		if (strstr(said, name) != NULL && n < sizeof more) {
			n += (size_t)snprintf(
				more + n, sizeof more - n, "\n%s in this program: %s", name, describe(&now[i], text, sizeof text));
		}
	}
	if (strstr(said, "\"" PREFIX) == NULL) {
		return code;
	}
	return hf_fail(code,
		"%s%s\nArrays \"" PREFIX
		"...\" are device memory, by address: make the same allocations, of the same sizes in the "
		"same order, before hf_restore",
		said, more);
}

void hf_forget_ledger(void) {
	size_t i;

	ledger = NULL;
	for (i = 0; i < count; i++) {
		free(now[i].copy);
	}
	free(now);
	now = NULL;
	count = 0;
}

/* Copies all arrays without an address to the host, or back. */
static int copy_arrays(const char *call, bool out) {
	char text[512];
	size_t i;
	int e;

	for (i = 0; i < count; i++) {
		if (now[i].part == HFL_ARRAY && (e = ledger->copy(&now[i], now[i].copy, out)) != 0) {
			return hf_fail(HF_E_FAILED, "%s: %s cannot be copied %s: the driver's error %d", call,
				describe(&now[i], text, sizeof text), out ? "to the host" : "back", e);
		}
	}
	return HF_OK;
}

static int add(struct hf_client *c, const char *call, struct hfl_allocation *a) {
	char name[HFP_NAME_BYTES + 1], text[512];
	const struct hf_array *other;
	struct hf_array as = { .name = name, .ptr = (void *)(uintptr_t)a->at, .count = a->bytes, .type = HF_BYTE };
	int code;

	name_of(a, name);
	other = a->name != NULL ? hf_array_named(c, name) : NULL;
	if (other != NULL && !other->dropped && other->ptr != as.ptr) {
		return hf_fail(HF_E_FAILED,
			"%s: two variables have one name: %s, and another one at %p: protect both by "
			"hf_protect instead of hf_protect_cuda",
			call, describe(a, text, sizeof text), other->ptr);
	}
	if (a->part == HFL_ARRAY) {
		if ((as.ptr = a->copy = calloc(1, a->bytes)) == NULL) {
			return hf_fail(HF_E_MEMORY, "%s: no memory for a copy of %s", call, describe(a, text, sizeof text));
		}
		if ((code = hf_protect_array(call, &as)) != HF_OK) {
			free(a->copy);
		}
		return code;
	}
	if (!hf_cuda_place(a->context, &as.place)) {
		return hf_fail(HF_E_FAILED, "%s: the driver lacks calls that copy device memory", call);
	}
	return hf_protect_array(call, &as);
}

static int drop(const struct hfl_allocation *a) {
	char name[HFP_NAME_BYTES + 1];

	name_of(a, name);
	return hf_unprotect(name);
}

/* Whether a list that is sorted by address has an allocation. *from moves on with the address. */
static bool has(const struct hfl_allocation *list, size_t n, size_t *from, const struct hfl_allocation *a) {
	while (*from < n && list[*from].at < a->at) {
		++*from;
	}
	return *from < n && list[*from].at == a->at && same(&list[*from], a);
}

/* Leaves only protected memory in a list. */
static size_t held(struct hfl_allocation *list, size_t n) {
	size_t i, left = 0;

	for (i = 0; i < n; i++) {
		if (list[i].part != HFL_NONE) {
			list[left++] = list[i];
		}
	}
	return left;
}

/* Has the arrays follow the ledger. The next call repeats failed steps. */
int hf_follow_ledger(struct hf_client *c, const char *call) {
	struct hfl_allocation *all;
	size_t i, j, n;
	int code = HF_OK;

	if (ledger == NULL || c->pid != getpid()) {
		return HF_OK;
	}
	if (ledger->passed_by()) {
		return hf_fail(HF_E_FAILED,
			"%s: the program has opened CUDA's driver by a path or another name, past libholdfast-cuda: start it by "
			"holdfast run --cuda=audit, or with LD_AUDIT=.../libholdfast-cuda.so in place of LD_PRELOAD",
			call);
	}
	if ((all = list(call, &n)) == NULL) {
		return HF_E_MEMORY;
	}
	for (i = 0; i < n && code == HF_OK; i++) {
		if (all[i].part == HFL_MOVING || all[i].part == HFL_REFUSED) {
			code = refuse(call, &all[i]);
		} else if (all[i].bytes == 0) {
			all[i].part = HFL_NONE;
		}
	}
	n = held(all, n);
	/* Removed memory goes first: a variable may have another place. */
	for (i = j = 0; i < count && code == HF_OK; i++) {
		if (!has(all, n, &j, &now[i]) && (code = drop(&now[i])) == HF_OK) {
			free(now[i].copy);
			now[i].part = HFL_NONE;
		}
	}
	count = held(now, count);
	if (code != HF_OK) {
		free(all);
		return code;
	}
	for (i = j = 0; i < n; i++) {
		if (has(now, count, &j, &all[i])) {
			all[i].copy = now[j].copy;
		} else if (code != HF_OK || (code = add(c, call, &all[i])) != HF_OK) {
			all[i].part = HFL_NONE;
		}
	}
	free(now);
	now = all;
	count = held(all, n);
	return code != HF_OK ? code : copy_arrays(call, true);
}

int hf_refill_arrays(void) { return ledger == NULL ? HF_OK : copy_arrays("hf_restore", false); }

API int hf_protect_cuda(void) {
	struct hf_client *c = &hf_the;
	hf_cuda_ledger_fn *find = NULL;
	void *driver, *at;
	int code = hf_in_turn("hf_protect_cuda", HF_READY, HF_RESTORED_STAGE, "call it between hf_init and hf_finalize");

	if (code != HF_OK) {
		return code;
	}
	/* The library has the driver's name; where it is not preloaded its names are found only there. */
	driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	at = driver != NULL ? dlsym(driver, "hf_cuda_ledger") : NULL;
	if (at == NULL) {
		return hf_fail(HF_E_FAILED,
			"hf_protect_cuda: libholdfast-cuda does not stand in front of the driver, so nobody has noted the "
			"program's "
			"device memory: start the program with LD_PRELOAD=.../libholdfast-cuda.so (docs/CUDA.md)");
	}
	memcpy(&find, &at, sizeof find);
	if (find()->version != HFL_VERSION) {
		return hf_fail(HF_E_PROTOCOL, "hf_protect_cuda: libholdfast-cuda and libholdfast are of different releases");
	}
	ledger = find();
	return hf_follow_ledger(c, "hf_protect_cuda");
}
