/* shadow.c - device memory on its way to arenas. While the program stands at a point it is copied aside on the device,
 * to a shadow, which is several times as fast as a copy to the host. A thread then brings the shadow to the arenas and
 * tells the daemon. The program has at most one such thread, and waits for it before the next shadow is made and before
 * an arena goes that it writes to. Bytes without room in the shadow are copied while the program waits. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "client.h"

enum {
	ALIGN = 256,
	LEAST = 1 << 20,  /* of an array that does not fit, so much at least is worth a copy of its own */
	PIECE = 64 << 20, /* copied at a time: in between the thread looks whether anybody waits for the bytes still */
	STACK = 2 << 20   /* the driver runs on it */
};

/* The shadow at one place. */
struct block {
	struct hf_place place;
	uintptr_t at;
	size_t wanted, room, used;
};

/* An array, or the beginning of one, in a shadow, and its destination. */
struct piece {
	const struct block *block;
	struct hf_array a; /* its memory is the shadow, its layout is the piece's own */
	char *to;
	size_t bytes;
};

struct hf_shadow {
	pthread_t thread;
	int sock;
	atomic_bool cancelled;
	size_t nblocks, npieces;
	struct block blocks[8]; /* of more places the memory is copied while the program waits */
	struct piece *pieces;
};

static struct block *block_of(struct hf_shadow *s, const struct hf_place *p) {
	size_t i;

	for (i = 0; i < s->nblocks; i++) {
		struct block *b = &s->blocks[i];
		if (b->place.device == p->device && b->place.context == p->context && b->place.ordinal == p->ordinal) {
			return b;
		}
	}
	return NULL;
}

static size_t round_up(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

/* The bytes of an array on a device: with those between the boxes of a global one. */
static size_t span(const struct hf_array *a, size_t bytes) {
	return a->kind == HF_GLOBAL ? a->room * hf_elem(a->type) : bytes;
}

static void free_shadow(struct hf_shadow *s) {
	size_t i;

	for (i = 0; i < s->nblocks; i++) {
		if (s->blocks[i].at != 0) {
			hf_free_on_device(&s->blocks[i].place, s->blocks[i].at);
		}
	}
	for (i = 0; i < s->npieces; i++) {
		free(s->pieces[i].a.layout);
	}
	free(s->pieces);
	free(s);
}

void hf_await_shadow(struct hf_client *c, bool cancel) {
	struct hf_shadow *s = c->shadow;
	size_t i;

	if (s == NULL) {
		return;
	}
	c->shadow = NULL;
	atomic_store(&s->cancelled, cancel);
	pthread_join(s->thread, NULL);
	for (i = 0; i < c->narenas; i++) {
		c->arenas[i].late = false;
	}
	for (i = 0; i < s->nblocks; i++) {
		s->blocks[i].at = 0; /* the thread has freed it */
	}
	free_shadow(s);
}

struct hf_shadow *hf_want_shadow(
	struct hf_client *c, struct hf_shadow *s, const struct hf_array *a, size_t bytes, uint32_t most) {
	struct hf_place place = a->place;
	struct block *b;

	if (c->shadow_limit == 0 || bytes == 0 || !hf_can_copy_aside(&place)) {
		return s;
	}
	if (s == NULL) {
		hf_await_shadow(c, false); /* this one may get its memory */
		if ((s = calloc(1, sizeof *s)) == NULL || (s->pieces = calloc(most, sizeof *s->pieces)) == NULL) {
			free(s);
			return NULL;
		}
	}
	if ((b = block_of(s, &place)) == NULL) {
		if (s->nblocks == sizeof s->blocks / sizeof s->blocks[0]) {
			return s;
		}
		b = &s->blocks[s->nblocks++];
		*b = (struct block){ .place = place };
	}
	b->wanted += round_up(span(a, bytes));
	return s;
}

void hf_make_shadow(struct hf_client *c, struct hf_shadow *s) {
	size_t i;

	for (i = 0; i < s->nblocks; i++) {
		struct block *b = &s->blocks[i];
		const size_t unused = hf_synchronize(&b->place) == 0 ? hf_unused_on_device(&b->place) : 0;
		const size_t most = c->shadow_limit == UINT64_MAX ? unused / 2 /* the program may want to allocate meanwhile */
			: c->shadow_limit < unused                    ? (size_t)c->shadow_limit
														  : unused;
		b->room = b->wanted < most ? b->wanted : most / ALIGN * ALIGN;
		if (b->room > 0 && hf_allocate_on_device(&b->place, b->room, &b->at) != 0) {
			b->at = 0;
			b->room = 0;
		}
	}
}

size_t hf_copy_aside(struct hf_shadow *s, const struct hf_array *a, char *to, size_t bytes) {
	const size_t whole = s != NULL ? span(a, bytes) : 0;
	struct hf_place place = a->place;
	struct hf_layout *layout = NULL;
	struct block *b;
	struct piece *p;
	size_t some;

	if (s == NULL || !hf_can_copy_aside(&place) || (b = block_of(s, &place)) == NULL || b->at == 0) {
		return 0;
	}
	some = whole < b->room - b->used ? whole : b->room - b->used;
	if (some == 0 || (some < whole && (a->kind == HF_GLOBAL || some < LEAST))) {
		return 0;
	}
	if (a->layout != NULL && (layout = hf_copy_layout(a->layout)) == NULL) {
		return 0;
	}
	if (hf_copy_on_device(&place, b->at + b->used, (uintptr_t)a->ptr, some) != 0) {
		free(layout);
		return 0; /* the copy to the host reports a fault, if there is one */
	}
	p = &s->pieces[s->npieces++];
	p->block = b;
	p->a = *a;
	p->a.place = place;
	p->a.ptr = (void *)(b->at + b->used);
	p->a.layout = layout;
	p->to = to;
	p->bytes = a->kind == HF_GLOBAL ? bytes : some;
	b->used += round_up(some);
	b->used = b->used < b->room ? b->used : b->room;
	return p->bytes;
}

static int bring_piece(struct hf_shadow *s, const struct piece *p) {
	size_t at, n;
	int err = 0;

	if (p->a.kind == HF_GLOBAL) {
		return atomic_load(&s->cancelled) ? ECANCELED : hf_save_to(&p->a, p->to, p->bytes, 0);
	}
	for (at = 0; at < p->bytes && err == 0; at += n) {
		n = p->bytes - at < PIECE ? p->bytes - at : PIECE;
		err = atomic_load(&s->cancelled) ? ECANCELED
										 : hf_copy_from_device(&p->a.place, (const char *)p->a.ptr + at, p->to + at, n);
	}
	return err;
}

/* Brings the pieces of one place, by a stream of its own: others would have the program's kernels wait for it. */
static int bring_block(struct hf_shadow *s, const struct block *b) {
	struct hf_place place = b->place;
	size_t i;
	int err = 0;

	hf_ignore_captures(&place);
	hf_open_stream(&place); /* without one it copies as ever */
	for (i = 0; i < s->npieces && err == 0; i++) {
		struct piece *p = &s->pieces[i];
		if (p->block != b) {
			continue;
		}
		p->a.place = place;
		err = bring_piece(s, p);
	}
	hf_close_stream(&place);
	return err;
}

static void *bring(void *arg) {
	struct hf_shadow *s = arg;
	struct hfp_word m = { { HFP_MAGIC, HFP_VERSION, HFP_ARRIVED, sizeof m, 0 }, 0, 0 };
	size_t i;

	for (i = 0; i < s->nblocks && m.value == 0; i++) {
		if (s->blocks[i].used > 0) {
			m.value = bring_block(s, &s->blocks[i]);
		}
	}
	while (send(s->sock, &m, sizeof m, MSG_NOSIGNAL) < 0 && errno == EINTR) {
		continue; /* a daemon that has gone needs no answer */
	}
	for (i = 0; i < s->nblocks; i++) {
		if (s->blocks[i].at != 0) {
			hf_free_on_device(&s->blocks[i].place, s->blocks[i].at);
		}
	}
	return NULL;
}

int hf_finish_aside(struct hf_shadow *s) {
	int err = 0;
	size_t i;

	for (i = 0; s != NULL && i < s->nblocks; i++) {
		if (s->blocks[i].used > 0 && hf_synchronize(&s->blocks[i].place) != 0) {
			err = EIO;
		}
	}
	return err;
}

bool hf_has_aside(const struct hf_shadow *s) { return s != NULL && s->npieces > 0; }

void hf_drop_shadow(struct hf_shadow *s) {
	if (s != NULL) {
		free_shadow(s);
	}
}

void hf_bring_shadow(struct hf_client *c, struct hf_shadow *s) {
	pthread_attr_t attr;
	sigset_t all, was;
	bool started = false;
	size_t i;

	s->sock = atomic_load(&c->sock);
	if (pthread_attr_init(&attr) == 0) {
		sigfillset(&all); /* signals are for the threads of the program */
		if (pthread_attr_setstacksize(&attr, STACK) == 0 && pthread_sigmask(SIG_SETMASK, &all, &was) == 0) {
			started = pthread_create(&s->thread, &attr, bring, s) == 0;
			pthread_sigmask(SIG_SETMASK, &was, NULL);
		}
		pthread_attr_destroy(&attr);
	}
	if (started) {
		c->shadow = s;
		return;
	}
	bring(s); /* the program waits for it */
	for (i = 0; i < s->nblocks; i++) {
		s->blocks[i].at = 0;
	}
	for (i = 0; i < c->narenas; i++) {
		c->arenas[i].late = false;
	}
	free_shadow(s);
}
