/* boxes.c - a rank's share of a global array: boxes in memory, with ghosts around them, and the same elements packed
 * one after the other, as a checkpoint has them. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"

/* The place of a box in memory, in elements: runs of neighbours, and along the dimensions outside these how many there
 * are and how far apart. */
struct part {
	size_t base, last, run, elems;
	int dims;
	size_t count[HF_MAX_DIMS], step[HF_MAX_DIMS];
};

struct hf_layout {
	size_t nparts;
	struct part parts[];
};

static int bad_box(const char *name, size_t i, const char *why, int64_t n, int d) {
	return hf_fail(
		HF_E_ARG, "hf_protect_global \"%s\": box %zu, in dimension %d: %s %lld", name, i, d, why, (long long)n);
}

/* Checks a box, and works out where it lies in room elements of memory. */
static int place(
	const char *name, size_t i, const hf_box *b, int dims, const int64_t *size, size_t room, struct part *to) {
	size_t step = 1, last = (size_t)b->offset, low = 0; /* all below 2^64: eight times HFP_MAX_ELEMS, and the offset */
	size_t steps[HF_MAX_DIMS];
	int d, inner;

	if (b->offset < 0 || b->offset > HFP_MAX_ELEMS) {
		return bad_box(name, i, "it begins outside the memory, at element", b->offset, 0);
	}
	for (d = dims - 1; d >= 0; d--) {
		int64_t whole, pitch;
		if (b->start[d] < 0 || b->start[d] > size[d] || b->count[d] > size[d] - b->start[d]) {
			return bad_box(name, i, "it is outside the array, which is as long as", size[d], d);
		}
		if (b->low[d] < 0 || b->high[d] < 0 || b->low[d] > HFP_MAX_ELEMS || b->high[d] > HFP_MAX_ELEMS) {
			return bad_box(name, i, "its ghosts are too many or fewer than 0:",
				b->low[d] < 0 || b->low[d] > HFP_MAX_ELEMS ? b->low[d] : b->high[d], d);
		}
		whole = b->low[d] + b->count[d] + b->high[d];
		pitch = b->pitch[d] != 0 ? b->pitch[d] : whole;
		if (pitch < 0 || (pitch > whole ? pitch : whole) > (int64_t)(HFP_MAX_ELEMS / step)) {
			return bad_box(name, i, "it cannot be part of memory with a pitch of", pitch, d);
		}
		if (pitch < whole && d > 0) {
			return bad_box(name, i, "with its ghosts it does not fit its pitch,", pitch, d);
		}
		if (b->block[d] < 0 || (b->block[d] == 0 && b->stride[d] != 0) ||
			(b->block[d] > 0 && b->block[d] < b->count[d] && b->stride[d] <= b->block[d])) {
			return bad_box(name, i, "its runs overlap or touch, the stride is", b->stride[d], d);
		}
		steps[d] = (size_t)step;
		low += step * (size_t)b->low[d];
		last += step * (size_t)(b->low[d] + b->count[d] - 1);
		step *= (size_t)(pitch > 0 ? pitch : 1);
	}
	if (last >= room) {
		return hf_fail(HF_E_ARG,
			"hf_protect_global \"%s\": box %zu reaches to element %llu of the memory, which has "
			"%zu; are count, ghosts, pitch and offset right?",
			name, i, (unsigned long long)last, room);
	}
	to->base = (size_t)b->offset + low;
	to->last = last;
	to->run = (size_t)b->count[dims - 1];
	for (inner = dims - 1; inner > 0 && steps[inner - 1] == to->run; inner--) {
		to->run *= (size_t)b->count[inner - 1];
	}
	to->dims = inner;
	to->elems = to->run;
	for (d = 0; d < inner; d++) {
		to->count[d] = (size_t)b->count[d];
		to->step[d] = steps[d];
		to->elems *= to->count[d];
	}
	return HF_OK;
}

bool hf_is_empty(const hf_box *b, int dims) {
	int d;

	for (d = 0; d < dims; d++) {
		if (b->count[d] == 0) {
			return true;
		}
	}
	return false;
}

/* Visits `n` elements of all boxes, from element `from` on, as runs that lie together in memory. */
static int each(const struct hf_layout *l, size_t from, size_t n,
	int (*visit)(void *arg, size_t memory, size_t packed, size_t elems), void *arg) {
	size_t i, done = from;
	int err = 0;

	for (i = 0; i < l->nparts && n > 0 && err == 0; i++) {
		const struct part *p = &l->parts[i];
		size_t at[HF_MAX_DIMS], row, skip, memory;
		int d;
		if (from >= p->elems) {
			from -= p->elems;
			continue;
		}
		row = from / p->run;
		skip = from % p->run;
		memory = p->base;
		for (d = p->dims - 1; d >= 0; d--) {
			at[d] = row % p->count[d];
			row /= p->count[d];
			memory += at[d] * p->step[d];
		}
		from = 0;
		while (n > 0 && err == 0) {
			const size_t some = p->run - skip < n ? p->run - skip : n;
			err = visit(arg, memory + skip, done, some);
			done += some;
			n -= some;
			skip = 0;
			for (d = p->dims - 1; d >= 0; d--) { /* the next run */
				memory += p->step[d];
				if (++at[d] < p->count[d]) {
					break;
				}
				memory -= at[d] * p->step[d];
				at[d] = 0;
			}
			if (d < 0) {
				break;
			}
		}
	}
	return err;
}

struct run {
	size_t at, n;
};

struct runs {
	struct run *list;
	size_t n, room;
};

static int note_run(void *arg, size_t memory, size_t packed, size_t elems) {
	struct runs *r = arg;

	(void)packed;
	if (r->n == r->room) {
		const size_t room = 2 * r->room + 1024;
		struct run *more = realloc(r->list, room * sizeof *more);
		if (more == NULL) {
			return ENOMEM;
		}
		r->list = more;
		r->room = room;
	}
	r->list[r->n++] = (struct run){ memory, elems };
	return 0;
}

static int by_place(const void *a, const void *b) {
	const struct run *x = a, *y = b;

	return x->at < y->at ? -1 : x->at > y->at;
}

/* Makes sure that no two elements have one place in memory: a restore would write both there. Boxes that lie one behind
 * the other, as most do, cost a comparison each. */
static int apart(const char *name, const struct hf_layout *l, size_t elems) {
	struct runs r = { NULL, 0, 0 };
	size_t i;
	int code = HF_OK;

	for (i = 1; i < l->nparts && l->parts[i - 1].last < l->parts[i].base; i++) {
		continue;
	}
	if (i >= l->nparts) {
		return HF_OK;
	}
	if (each(l, 0, elems, note_run, &r) != 0) {
		code = hf_fail(HF_E_MEMORY, "hf_protect_global \"%s\": no memory", name);
	} else {
		qsort(r.list, r.n, sizeof *r.list, by_place);
	}
	for (i = 1; i < r.n && code == HF_OK; i++) {
		if (r.list[i - 1].at + r.list[i - 1].n > r.list[i].at) {
			code = hf_fail(HF_E_ARG,
				"hf_protect_global \"%s\": two boxes take element %zu of the memory; give each "
				"its own offset",
				name, r.list[i].at);
		}
	}
	free(r.list);
	return code;
}

int hf_layout_of(const char *name, int dims, const int64_t *size, const hf_box *boxes, size_t n, size_t room,
	struct hf_layout **layout, size_t *elems) {
	struct hf_layout *l = malloc(sizeof *l + n * sizeof l->parts[0]);
	size_t i;
	int code = HF_OK;

	*elems = 0;
	if (l == NULL) {
		return hf_fail(HF_E_MEMORY, "hf_protect_global \"%s\": no memory", name);
	}
	l->nparts = 0;
	for (i = 0; i < n && code == HF_OK; i++) {
		int d;
		for (d = 0; d < dims; d++) {
			if (boxes[i].count[d] < 0) {
				code = bad_box(name, i, "its count is negative,", boxes[i].count[d], d);
			}
		}
		if (code != HF_OK || hf_is_empty(&boxes[i], dims)) {
			continue;
		}
		code = place(name, i, &boxes[i], dims, size, room, &l->parts[l->nparts]);
		if (code == HF_OK) {
			*elems += l->parts[l->nparts++].elems;
		}
	}
	if (code == HF_OK) {
		code = apart(name, l, *elems);
	}
	if (code != HF_OK) {
		free(l);
		return code;
	}
	*layout = l;
	return HF_OK;
}

struct hf_layout *hf_copy_layout(const struct hf_layout *l) {
	const size_t bytes = sizeof *l + l->nparts * sizeof l->parts[0];
	struct hf_layout *to = malloc(bytes);

	if (to != NULL) {
		memcpy(to, l, bytes);
	}
	return to;
}

struct host {
	char *memory, *packed;
	size_t elem;
	bool save;
};

static int copy_run(void *arg, size_t memory, size_t packed, size_t elems) {
	const struct host *h = arg;
	char *mine = h->memory + memory * h->elem, *theirs = h->packed + packed * h->elem;

	memcpy(h->save ? theirs : mine, h->save ? mine : theirs, elems * h->elem);
	return 0;
}

static void copy_boxes(const struct hf_array *a, char *packed, size_t from, size_t bytes, bool save) {
	struct host h = { a->ptr, packed, hf_elem(a->type), save };

	(void)each(a->layout, from / h.elem, bytes / h.elem, copy_run, &h);
}

/* Elements of a device come and go by way of a window of host memory: short runs would cost a call each. The rest of
 * the window is written back unchanged. */
enum { WINDOW = 16 << 20, DIRECT = 1 << 20 };

struct device {
	const struct hf_array *a;
	char *packed, *window;
	size_t elem, room; /* bytes of the memory */
	size_t at, n;      /* its part in the window */
	bool save, dirty;
};

static int flush(struct device *v) {
	int err = 0;

	if (v->dirty) {
		err = hf_copy_to_device(&v->a->place, (char *)v->a->ptr + v->at, v->window, v->n);
	}
	v->dirty = false;
	v->n = 0;
	return err;
}

static int device_run(void *arg, size_t memory, size_t packed, size_t elems) {
	struct device *v = arg;
	const size_t at = memory * v->elem, bytes = elems * v->elem;
	char *theirs = v->packed + packed * v->elem, *mine = (char *)v->a->ptr + at;
	int err;

	if (bytes >= DIRECT) {
		if ((err = flush(v)) != 0) {
			return err;
		}
		return v->save ? hf_copy_from_device(&v->a->place, mine, theirs, bytes)
					   : hf_copy_to_device(&v->a->place, mine, theirs, bytes);
	}
	if (v->n == 0 || at < v->at || at + bytes > v->at + v->n) {
		if ((err = flush(v)) != 0) {
			return err;
		}
		v->n = v->room - at < WINDOW ? v->room - at : WINDOW;
		v->at = at;
		err = hf_copy_from_device(&v->a->place, mine, v->window, v->n);
		if (err != 0) {
			return err;
		}
	}
	if (v->save) {
		memcpy(theirs, v->window + (at - v->at), bytes);
	} else {
		memcpy(v->window + (at - v->at), theirs, bytes);
		v->dirty = true;
	}
	return 0;
}

int hf_copy_device_boxes(const struct hf_array *a, char *packed, size_t bytes, bool save) {
	struct device v = { .a = a, .packed = packed, .elem = hf_elem(a->type), .save = save };
	int err, last;

	v.room = a->room * v.elem;
	if ((v.window = malloc(v.room < WINDOW ? v.room + 1 : WINDOW)) == NULL) {
		return ENOMEM;
	}
	err = each(a->layout, 0, bytes / v.elem, device_run, &v);
	last = err == 0 ? flush(&v) : 0;
	free(v.window);
	return err != 0 ? err : last;
}

struct packed {
	const struct hf_array *array;
	char *at;
	bool save;
};

static void copy_piece(void *arg, size_t at, size_t n) {
	const struct packed *p = arg;

	copy_boxes(p->array, p->at, at, n, p->save);
}

void hf_copy_array(const struct hf_array *a, char *packed, size_t bytes, bool save, bool once) {
	struct packed p = { a, packed, save };

	hf_copy_pieces(copy_piece, &p, bytes, once ? packed : NULL);
}
