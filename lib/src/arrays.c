/* arrays.c - protected things: arrays of the program, files, and streams. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client.h"

#define OURS "holdfast." /* names of the library's own begin so */

struct hf_array *hf_array_named(struct hf_client *c, const char *name) {
	size_t i;

	for (i = 0; i < c->narrays; i++) {
		if (strcmp(c->arrays[i].name, name) == 0) {
			return &c->arrays[i];
		}
	}
	return NULL;
}

/* Bytes of memory that belong to an array. */
static size_t memory_of(const struct hf_array *a) {
	const size_t n = a->kind == HF_GLOBAL ? a->room : a->count;

	return a->dropped || a->ptr == NULL || a->kind == HF_FILE || a->kind == HF_STREAM ? 0 : n * hf_elem(a->type);
}

const char *hf_array_of(const void *at, size_t bytes, const void *base, int64_t *offset) {
	const struct hf_client *c = &hf_the;
	size_t i;

	for (i = 0; i < c->narrays; i++) {
		const uintptr_t first = (uintptr_t)c->arrays[i].ptr, from = (uintptr_t)at;
		const size_t room = memory_of(&c->arrays[i]);
		if (from >= first && from - first <= room && bytes <= room - (from - first)) {
			*offset = (int64_t)((uintptr_t)base - first);
			return c->arrays[i].name;
		}
	}
	return NULL;
}

void *hf_base_in(const char *array, int64_t offset, int64_t from, size_t bytes) {
	const struct hf_array *a = hf_array_named(&hf_the, array);
	const size_t room = a != NULL ? memory_of(a) : 0;
	const int64_t first = offset + from;

	if (a == NULL || first < 0 || (uint64_t)first > room || bytes > room - (size_t)first) {
		return NULL;
	}
	return (void *)((uintptr_t)a->ptr + (uintptr_t)offset);
}

/* Makes room for one more array, which counts when narrays does. */
static struct hf_array *new_array(struct hf_client *c, const char *name) {
	struct hf_array *more;

	if (c->narrays == HFP_MOST_ARRAYS) {
		hf_fail(HF_E_ARG, "protect \"%s\": there are %d arrays already; protect them as one", name, HFP_MOST_ARRAYS);
		return NULL;
	}
	more = realloc(c->arrays, (c->narrays + 1) * sizeof *more);
	if (more != NULL) {
		c->arrays = more;
	}
	if (more == NULL) {
		hf_fail(HF_E_MEMORY, "protect \"%s\": no memory", name);
		return NULL;
	}
	more[c->narrays] = (struct hf_array){ .name = strdup(name) };
	if (more[c->narrays].name == NULL) {
		hf_fail(HF_E_MEMORY, "protect \"%s\": no memory", name);
		return NULL;
	}
	return &more[c->narrays];
}

/* Tells the daemon the present description of an array. */
static int tell(struct hf_client *c, const struct hf_array *a) {
	struct hfp_protect m = { .array = (uint32_t)(a - c->arrays), .type = (uint32_t)a->type, .count = a->count };
	const size_t n = strlen(a->name);

	m.flags = a->kind == HF_ARRAY && a->resize == NULL ? 0 : HFP_PROTECT_ANY_SIZE;
	if (a->item > 1) {
		m.flags |= a->item << HFP_PROTECT_ITEM;
	}
	m.n = (uint32_t)n;
	memcpy(m.text, a->name, n);
	return hf_tell(c, &m, HFP_PROTECT, offsetof(struct hfp_protect, text) + n);
}

/* Writes DECLARE's description of a box. */
static char *add_box(char *to, const hf_box *b, int dims) {
	int d;

	for (d = 0; d < dims; d++) {
		const bool runs = b->block[d] > 0 && b->block[d] < b->count[d];
		const uint64_t axis[4] = { (uint64_t)b->start[d], (uint64_t)b->count[d], runs ? (uint64_t)b->block[d] : 0,
			runs ? (uint64_t)b->stride[d] : 0 };
		memcpy(to, axis, sizeof axis);
		to += sizeof axis;
	}
	return to;
}

/* Keeps a message for a daemon after this one. It is aligned, as the ones before it are. */
static int keep(struct hf_array *a, struct hfp_declare *m, size_t bytes) {
	const size_t room = HF_ALIGNED(bytes);
	char *more = realloc(a->declared, a->declared_bytes + room);

	if (more == NULL) {
		return hf_fail(HF_E_MEMORY, "protect \"%s\": no memory", a->name);
	}
	m->h.length = (uint32_t)bytes;
	memcpy(more + a->declared_bytes, m, bytes);
	a->declared = more;
	a->declared_bytes += room;
	return HF_OK;
}

/* Tells the daemon of an array, in as many messages as its boxes need. */
static int declare(struct hf_client *c, struct hf_array *a, uint32_t id, int dims, const int64_t *size,
	const hf_box *boxes, size_t n) {
	struct hfp_declare *m = malloc(HFP_MAX_BYTES);
	size_t i = 0;
	int code = HF_OK;

	if (m == NULL) {
		return hf_fail(HF_E_MEMORY, "protect \"%s\": no memory", a->name);
	}
	do {
		const char *end = (const char *)m + HFP_MAX_BYTES - (size_t)dims * 4 * sizeof(uint64_t);
		char *at = m->text;
		*m = (struct hfp_declare){ .array = id,
			.type = (uint32_t)a->type,
			.dims = (uint32_t)dims,
			.kind = dims > 0 ? HFP_KIND_DIVIDED : HFP_KIND_REPLICATED,
			.count = dims > 0 ? 0 : a->count,
			.n = (uint32_t)strlen(a->name) };
		memcpy(at, a->name, m->n);
		at += m->n;
		if (dims > 0) {
			memcpy(at, size, (size_t)dims * sizeof *size);
		}
		at += (size_t)dims * sizeof *size;
		for (; i < n && at <= end; i++) {
			if (hf_is_empty(&boxes[i], dims)) {
				continue;
			}
			at = add_box(at, &boxes[i], dims);
			m->boxes++;
		}
		m->flags = i < n ? HFP_DECLARE_MORE : 0;
		code = dims > 0 ? keep(a, m, (size_t)(at - (char *)m)) : HF_OK;
		if (code == HF_OK) {
			code = hf_tell(c, m, HFP_DECLARE, (size_t)(at - (char *)m));
		}
	} while (code == HF_OK && i < n);
	free(m);
	return code;
}

/* Tells a daemon that has taken the place of another all protected things. */
int hf_tell_all(struct hf_client *c) {
	size_t i, at;
	int code = HF_OK;

	for (i = 0; i < c->narrays && code == HF_OK; i++) {
		struct hf_array *a = &c->arrays[i];
		if (a->dropped) {
			continue;
		}
		if (a->kind == HF_REPLICATED) {
			code = declare(c, a, (uint32_t)i, 0, NULL, NULL, 0);
		} else if (a->kind != HF_GLOBAL) {
			code = tell(c, a);
		}
		for (at = 0; a->kind == HF_GLOBAL && at < a->declared_bytes && code == HF_OK;) {
			struct hfp_header h;
			memcpy(&h, a->declared + at, sizeof h);
			code = hf_call(c, a->declared + at, HFP_DECLARE, h.length, NULL);
			at += HF_ALIGNED(h.length);
		}
	}
	return code;
}

/* The description of a global array or a replicated value, for declare. */
struct shape {
	int dims;
	const int64_t *size;
	const hf_box *boxes;
	size_t n;
};

/* Protects as the caller has it; path, ptr and layout are the array's from then on. */
static int protect(const char *call, const struct hf_array *as, const struct shape *shape) {
	struct hf_client *c = &hf_the;
	const size_t n = as->name != NULL ? strnlen(as->name, HFP_NAME_BYTES + 1) : 0;
	struct hf_array *a, was;
	bool fresh;
	int code;

	if (n == 0 || n > HFP_NAME_BYTES || strpbrk(as->name, "/\n") != NULL) {
		return hf_fail(HF_E_ARG, "%s: a name has 1 to %d bytes, none of them '/' or a newline", call, HFP_NAME_BYTES);
	}
	if (strncmp(as->name, OURS, sizeof OURS - 1) == 0) {
		return hf_fail(
			HF_E_ARG, "%s \"%s\": names that begin with " OURS " are the library's; use another", call, as->name);
	}
	if ((code = hf_in_turn(call, HF_READY, HF_RESTORED_STAGE, "call it between hf_init and hf_finalize")) != HF_OK) {
		return code;
	}
	a = hf_array_named(c, as->name);
	fresh = a == NULL;
	if (fresh && (a = new_array(c, as->name)) == NULL) {
		return HF_E_MEMORY;
	}
	if (!fresh && a->kind != as->kind) {
		return hf_fail(HF_E_ARG,
			"%s \"%s\": another call has protected an array, a file or a stream by this name; use "
			"another",
			call, as->name);
	}
	was = *a;
	*a = *as;
	a->name = was.name;
	a->declared = NULL;
	if (shape == NULL) {
		code = tell(c, a);
	} else {
		code = declare(c, a, (uint32_t)(a - c->arrays), shape->dims, shape->size, shape->boxes, shape->n);
	}
	if (code < 0) {
		if (fresh) {
			free(was.name);
		}
		free(a->declared);
		*a = was;
		return code;
	}
	if (a->path != was.path) {
		free(was.path);
	}
	if (a->layout != was.layout) {
		free(was.layout);
	}
	free(was.declared);
	c->narrays += fresh;
	return HF_OK;
}

int hf_protect_array(const char *call, const struct hf_array *as) { return protect(call, as, NULL); }

/* Checks the description of count elements at ptr, and finds their place. */
static int check_memory(const char *call, struct hf_array *a, size_t count) {
	if (a->name == NULL) {
		return HF_OK; /* which protect refuses */
	}
	if (hf_elem(a->type) == 0) {
		return hf_fail(HF_E_ARG, "%s \"%s\": there is no type %d; use HF_DOUBLE or another of holdfast.h", call,
			a->name, (int)a->type);
	}
	if (a->ptr == NULL && count > 0) {
		return hf_fail(
			HF_E_ARG, "%s \"%s\": %zu elements at address 0; allocate the array before", call, a->name, count);
	}
	if (count > HFP_MOST_BYTES / hf_elem(a->type)) {
		return hf_fail(
			HF_E_ARG, "%s \"%s\": %zu elements are more than 64 TiB; is the count right?", call, a->name, count);
	}
	return hf_place_of(a->name, a->ptr, &a->place);
}

API int hf_protect(const char *name, void *ptr, size_t count, hf_type type) {
	struct hf_array a = { .name = (char *)(uintptr_t)name, .kind = HF_ARRAY, .ptr = ptr, .count = count, .type = type };
	int code = check_memory("hf_protect", &a, count);

	return code != HF_OK ? code : protect("hf_protect", &a, NULL);
}

API int hf_protect_resizable(
	const char *name, void *ptr, size_t count, hf_type type, size_t item, hf_resize_fn *resize, void *arg) {
	struct hf_array a = { .name = (char *)(uintptr_t)name, .kind = HF_ARRAY, .ptr = ptr, .count = count, .type = type };
	int code = check_memory("hf_protect_resizable", &a, count);

	if (code != HF_OK) {
		return code;
	}
	if (name == NULL) {
		return protect("hf_protect_resizable", &a, NULL); /* which says so */
	}
	if (resize == NULL) {
		return hf_fail(HF_E_ARG, "hf_protect_resizable \"%s\": give a function, or use hf_protect", name);
	}
	if (item < 1 || item > HFP_MOST_ITEM || count % item != 0) {
		return hf_fail(HF_E_ARG,
			"hf_protect_resizable \"%s\": %zu elements are no multiple of an item of %zu, which "
			"may be 1 to %u",
			name, count, item, HFP_MOST_ITEM);
	}
	a.resize = resize;
	a.resize_arg = arg;
	a.item = (uint32_t)item;
	return protect("hf_protect_resizable", &a, NULL);
}

API int hf_protect_replicated(const char *name, void *ptr, size_t count, hf_type type) {
	const struct shape none = { 0, NULL, NULL, 0 };
	struct hf_array a = {
		.name = (char *)(uintptr_t)name, .kind = HF_REPLICATED, .ptr = ptr, .count = count, .type = type
	};
	int code = check_memory("hf_protect_replicated", &a, count);

	return code != HF_OK ? code : protect("hf_protect_replicated", &a, &none);
}

API int hf_protect_global(const char *name, void *ptr, size_t count, hf_type type, int dims, const int64_t *size,
	const hf_box *boxes, size_t n) {
	const struct shape shape = { dims, size, boxes, n };
	struct hf_array a = { .name = (char *)(uintptr_t)name, .kind = HF_GLOBAL, .ptr = ptr, .type = type, .room = count };
	int code = check_memory("hf_protect_global", &a, count), d;

	if (code != HF_OK) {
		return code;
	}
	if (name == NULL) {
		return protect("hf_protect_global", &a, NULL); /* which says so */
	}
	if (dims < 1 || dims > HF_MAX_DIMS || size == NULL || (boxes == NULL && n > 0) || n > HFP_MOST_BOXES) {
		return hf_fail(HF_E_ARG,
			"hf_protect_global \"%s\": an array has 1 to %d dimensions, and a rank %d boxes of it "
			"at most",
			name, HF_MAX_DIMS, HFP_MOST_BOXES);
	}
	for (d = 0; d < dims; d++) {
		if (size[d] < 0 || size[d] > HFP_MAX_ELEMS) {
			return hf_fail(
				HF_E_ARG, "hf_protect_global \"%s\": dimension %d has length %lld", name, d, (long long)size[d]);
		}
	}
	code = hf_layout_of(name, dims, size, boxes, n, count, &a.layout, &a.count);
	if (code == HF_OK && (code = protect("hf_protect_global", &a, &shape)) < 0) {
		free(a.layout);
	}
	return code;
}

API int hf_protect_file(const char *name, const char *path) {
	struct hf_array a = { .name = (char *)(uintptr_t)name, .kind = HF_FILE, .count = 1, .type = HF_BYTE };
	int code;

	if (path == NULL || *path == 0) {
		return hf_fail(HF_E_ARG, "hf_protect_file: give the path of a file");
	}
	if ((a.path = strdup(path)) == NULL) {
		return hf_fail(HF_E_MEMORY, "hf_protect_file \"%s\": no memory", path);
	}
	code = protect("hf_protect_file", &a, NULL);
	if (code < 0) {
		free(a.path);
	}
	return code;
}

API int hf_protect_stream(const char *name) {
	const struct hf_array a = { .name = (char *)(uintptr_t)name, .kind = HF_STREAM, .type = HF_BYTE };
	const struct hf_array *now = name != NULL ? hf_array_named(&hf_the, name) : NULL;

	if (now != NULL && now->kind == HF_STREAM && !now->dropped) {
		return HF_OK; /* it keeps its contents */
	}
	return protect("hf_protect_stream", &a, NULL);
}

API int hf_unprotect(const char *name) {
	struct hf_client *c = &hf_the;
	struct hf_array *a;
	struct hfp_word m = { .flags = 0 };
	int code;

	if ((code = hf_in_turn("hf_unprotect", HF_READY, HF_RESTORED_STAGE, "call it between hf_init and hf_finalize")) !=
		HF_OK) {
		return code;
	}
	if (name != NULL && hf_forget_request(c, name)) {
		return HF_OK;
	}
	if (name == NULL || (a = hf_array_named(c, name)) == NULL || a->dropped) {
		return hf_fail(
			HF_E_ARG, "hf_unprotect \"%s\": nothing is protected under this name", name != NULL ? name : "NULL");
	}
	m.value = (int32_t)(a - c->arrays);
	if ((code = hf_tell(c, &m, HFP_UNPROTECT, sizeof m)) < 0) {
		return code;
	}
	if (a->kind == HF_STREAM) {
		free(a->ptr);
	}
	free(a->layout);
	free(a->declared);
	a->layout = NULL;
	a->declared = NULL;
	a->ptr = NULL;
	a->count = 0;
	a->dropped = true;
	a->dirty = false;
	return HF_OK;
}

/* Lets the program bring its state into protected memory, and tells the daemon of files and streams whose size has
 * changed. It comes before each checkpoint. */
int hf_refresh(struct hf_client *c) {
	size_t i;
	int code;

	if (c->off) {
		return HF_OK;
	}
	if (c->before != NULL && c->pid == getpid()) {
		const int failed = c->before(c->before_arg);
		if (failed != 0) {
			return hf_fail(HF_E_FAILED, "no checkpoint: the function of hf_before returned %d", failed);
		}
	}
	if ((code = hf_follow_ledger(c, "no checkpoint")) != HF_OK) {
		return code;
	}
	for (i = 0; i < c->narrays; i++) {
		struct hf_array *a = &c->arrays[i];
		struct stat st;
		if (a->dropped) {
			continue;
		}
		if (a->kind == HF_FILE) {
			/* One byte of a file that cannot be read: asked for it, the client gives the reason. */
			const size_t now = stat(a->path, &st) == 0 && S_ISREG(st.st_mode) ? (size_t)st.st_size : 1;
			a->dirty = a->dirty || now != a->count;
			a->count = now;
		}
		if (!a->dirty) {
			continue;
		}
		if ((code = tell(c, a)) < 0) {
			return code;
		}
		a->dirty = false;
	}
	return HF_OK;
}

void hf_free_arrays(struct hf_client *c) {
	size_t i;

	for (i = 0; i < c->narrays; i++) {
		if (c->arrays[i].kind == HF_STREAM) {
			free(c->arrays[i].ptr);
		}
		free(c->arrays[i].layout);
		free(c->arrays[i].declared);
		free(c->arrays[i].path);
		free(c->arrays[i].name);
	}
	free(c->arrays);
	c->arrays = NULL;
	c->narrays = 0;
	for (i = 0; i < c->nkept; i++) {
		free(c->kept[i].name);
	}
	hf_forget_ledger();
	free(c->kept);
	c->kept = NULL;
	c->nkept = 0;
}
