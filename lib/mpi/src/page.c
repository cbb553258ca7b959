/* page.c - the node daemon's view of a rank's messages, and the messages of a restart. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "layer.h"

struct hfm_page *hfm_page;
uint64_t *hfm_sent, *hfm_received;
struct hfm_restored *hfm_restored;
struct hfm_unposted *hfm_unposted;
void (*hfm_turn)(void);
void (*hfm_cutting)(bool begins);
const char *(*hfm_save)(const void **record, size_t *bytes);
const char *(*hfm_sync)(uint32_t busy);
bool hfm_restarted;
static bool shared;

/* use makes a page that of the rank. */
static void use(struct hfm_page *p) {
	hfm_page = p;
	hfm_sent = p->counts;
	hfm_received = p->counts + hfm_size;
}

/* hfm_new_page is called when MPI has begun. The page has no members of communicators until it is shared. */
void hfm_new_page(void) {
	struct hfm_page *p = hfm_need(calloc(1, sizeof *p + 2 * (size_t)hfm_size * sizeof p->counts[0]));
	p->magic = HFM_PAGE_MAGIC;
	p->version = HFM_PAGE_VERSION;
	p->size = (uint32_t)hfm_size;
	p->rank = (uint32_t)hfm_rank;
	p->concurrent = hfm_threads;
	for (int i = 0; i < HFM_CALLS; i++) {
		snprintf(p->calls[i], sizeof p->calls[i], "MPI_%s", hfm_names[i]);
	}
	use(p);
}

/* members is where a slot has those of its communicator. */
static uint32_t *members(int slot) {
	return (uint32_t *)(void *)(hfm_page->counts + 2 * (size_t)hfm_size) + (size_t)slot * (size_t)hfm_size;
}

/* Those that messages come from: of an intercommunicator the remote group, which is not all. */
static void write_members(const struct hfm_comm *c) {
	if (shared && c->slot >= 0) {
		memcpy(members(c->slot), c->world, (size_t)c->size * sizeof *c->world);
		if (c->size < c->all) {
			members(c->slot)[c->size] = HFM_NO_MEMBER;
		}
	}
}

static void changing(void) { __atomic_add_fetch(&hfm_page->changes, 1, __ATOMIC_SEQ_CST); }

/* All slots before the first are taken; left counts those whose communicators are freed. */
static int first_free, left;

void hfm_place_comm(struct hfm_comm *c) {
	static uint32_t order;
	struct hfm_page *p = hfm_page;
	int i = first_free;
	while (i < HFM_MOST_COMMS && p->comms[i].state != 0) {
		i++;
	}
	first_free = i;
	c->slot = i < HFM_MOST_COMMS && strlen(c->name) < HFM_COMM_BYTES ? i : -1;
	if (c->slot < 0) {
		hfm_refuse(i < HFM_MOST_COMMS ? "communicators made on each other too deeply"
									  : "1024 communicators, files and windows at a time",
			hfm_names[c->how]);
		return;
	}
	changing();
	struct hfm_slot *s = &p->comms[i];
	s->entered = 0;
	s->leader = (uint32_t)c->leader;
	s->size = (uint32_t)c->all;
	s->order = ++order;
	strcpy(s->name, c->name);
	write_members(c);
	s->state = HFM_SLOT_LIVE;
	p->comms_n = p->comms_n > (uint32_t)i ? p->comms_n : (uint32_t)i + 1;
	changing();
}

/* Freeing is a collective that a rank can be behind with, so the slot stays. */
void hfm_leave_slot(struct hfm_comm *c) {
	if (c->slot >= 0) {
		changing();
		hfm_page->comms[c->slot].entered++;
		hfm_page->comms[c->slot].state = HFM_SLOT_FREED;
		left++;
		changing();
	}
}

/* While threads are being stopped a slot has a target, which must not become that of another communicator. */
void hfm_forget_slots(const char *parent) {
	const size_t n = parent != NULL ? strlen(parent) : 0;
	for (int i = 0; left > 0 && i < (int)hfm_page->comms_n && !(parent != NULL && hfm_is_closed()); i++) {
		struct hfm_slot *s = &hfm_page->comms[i];
		if (s->state == HFM_SLOT_FREED && (parent == NULL || (strncmp(s->name, parent, n) == 0 && s->name[n] == '.'))) {
			changing();
			s->state = 0;
			changing();
			left--;
			first_free = first_free < i ? first_free : i;
		}
	}
}

/* alone keeps calls of other threads out, while the rank's own thread changes mailboxes and protected requests. */
static void alone(void) {
	if (hfm_threads) {
		pthread_rwlock_wrlock(&hfm_gate);
	}
}

static const char *share(void *page, size_t bytes) {
	static char text[200];
	if (!hfm_on) {
		return "MPI is not in use";
	}
	if (bytes < hfm_page_bytes((size_t)hfm_size)) {
		snprintf(text, sizeof text, "%zu bytes for the page of messages, %zu are needed", bytes,
			hfm_page_bytes((size_t)hfm_size));
		return text;
	}
	alone();
	size_t threads = 0; /* the rest of the page stays untouched: a rank has few */
	while (
		threads < HFM_MOST_THREADS - 1 && hfm_page->threads[threads].state.seq + hfm_page->threads[threads].used > 0) {
		threads++;
	}
	memcpy(page, hfm_page, offsetof(struct hfm_page, threads) + threads * sizeof(struct hfm_thread));
	memcpy(((struct hfm_page *)page)->counts, hfm_page->counts, 2 * (size_t)hfm_size * sizeof hfm_page->counts[0]);
	if (!shared && !hfm_threads) { /* a thread that waits may write to it yet */
		free(hfm_page);
	}
	hfm_watch_ends(2);
	use(page);
	hfm_drain_ends();
	shared = true;
	for (const struct hfm_comm *c = hfm_first_comm; c != NULL; c = c->next) {
		write_members(c);
	}
	const struct hfm_map *const maps[] = { &hfm_files, &hfm_windows };
	for (int k = 0; k < 2; k++) {
		for (size_t i = 0; i < maps[k]->room; i++) {
			if (maps[k]->values[i] != NULL) {
				write_members(maps[k]->values[i]);
			}
		}
	}
	return NULL;
}

void hfm_add(struct hfm_text *t, const void *from, size_t bytes) {
	if (t->room - t->bytes < bytes) {
		t->room = 2 * (t->bytes + bytes) + 64;
		t->at = hfm_need(realloc(t->at, t->room));
	}
	if (bytes > 0) {
		memcpy(t->at + t->bytes, from, bytes);
		t->bytes += bytes;
	}
}

void hfm_add_u32(struct hfm_text *t, uint32_t v) { hfm_add(t, &v, sizeof v); }

void hfm_add_text(struct hfm_text *t, const char *text) {
	hfm_add_u32(t, (uint32_t)strlen(text));
	hfm_add(t, text, strlen(text));
}

/* A record as it is read. It trusts no length. */
struct reading {
	const char *at, *end;
	bool bad;
};

static const char *take(struct reading *r, size_t bytes) {
	const char *at = r->at;
	if (r->bad || (size_t)(r->end - r->at) < bytes) {
		r->bad = true;
		return NULL;
	}
	r->at += bytes;
	return at;
}

static uint32_t take_u32(struct reading *r) {
	uint32_t v = 0;
	const char *at = take(r, sizeof v);
	if (at != NULL) {
		memcpy(&v, at, sizeof v);
	}
	return v;
}

static char *take_text(struct reading *r) {
	const uint32_t n = take_u32(r);
	const char *at = take(r, n);
	return at != NULL ? hfm_need(strndup(at, n)) : NULL;
}

static struct hfm_restored *restored_named(const char *name) {
	struct hfm_restored *r = hfm_restored;
	while (r != NULL && strcmp(r->name, name) != 0) {
		r = r->next;
	}
	return r;
}

static void forget_restored(struct hfm_restored *r) {
	free(r->name);
	free(r->parent);
	free(r->how);
	free(r->world);
	free(r);
}

/* least returns the lesser of two numbers; 0 is none. */
static uint64_t least(uint64_t a, uint64_t b) { return b != 0 && (a == 0 || b < a) ? b : a; }

uint64_t hfm_claim(const char *parent) {
	const size_t n = strlen(parent);
	uint64_t first = 0;
	for (const struct hfm_restored *r = hfm_restored; r != NULL; r = r->next) {
		if (strcmp(r->parent, parent) == 0 && r->name[n] == '.') {
			first = least(first, strtoull(r->name + n + 1, NULL, 10)); /* 0 for those of a group */
		}
	}
	return first;
}

uint64_t hfm_claim_group(const char *begin, const char *end) {
	const size_t n = strlen(begin);
	uint64_t first = 0;
	for (const struct hfm_restored *r = hfm_restored; r != NULL; r = r->next) {
		char *rest;
		if (strncmp(r->name, begin, n) == 0) {
			const uint64_t number = strtoull(r->name + n, &rest, 10);
			first = strcmp(rest, end) == 0 ? least(first, number) : first;
		}
	}
	return first;
}

static void read_comm(struct reading *r) {
	struct hfm_restored *c = hfm_need(calloc(1, sizeof *c)), **last = &hfm_restored;
	c->name = take_text(r);
	c->parent = take_text(r);
	c->how = take_text(r);
	c->children = take_u32(r);
	const uint32_t n = take_u32(r);
	const char *at = take(r, (size_t)n * sizeof(int));
	if (at == NULL) {
		forget_restored(c);
		return;
	}
	c->size = (int)n;
	c->world = hfm_need(malloc((size_t)n * sizeof(int) + 1));
	memcpy(c->world, at, (size_t)n * sizeof(int));
	while (*last != NULL) {
		last = &(*last)->next;
	}
	*last = c;
}

/* read_box makes a message whose bytes follow later in the record. */
static void read_box(struct reading *r, struct reading *data) {
	char *name = take_text(r);
	const int source = (int)take_u32(r), tag = (int)take_u32(r);
	const uint32_t receive = take_u32(r);
	uint64_t bytes = 0;
	const char *at = take(r, sizeof bytes);
	if (at != NULL) {
		memcpy(&bytes, at, sizeof bytes);
	}
	at = take(data, bytes);
	struct hfm_restored *c = name != NULL ? restored_named(name) : NULL;
	free(name);
	if (at == NULL || c == NULL) {
		r->bad = true;
		return;
	}
	struct hfm_mail *m = hfm_need(malloc(sizeof *m + bytes)), **last = &c->first;
	m->next = NULL;
	m->unposted = NULL;
	m->message = m->order = 0;
	m->receive = receive;
	m->source = source;
	m->tag = tag;
	m->bytes = bytes;
	memcpy(m->data, at, bytes);
	while (*last != NULL) {
		last = &(*last)->next;
	}
	*last = m;
}

/* read_receive reads one of the receives, which come behind the messages: number is its own, from 1. */
static void read_receive(struct reading *r, uint32_t number) {
	struct hfm_unposted *u = hfm_need(calloc(1, sizeof *u));
	u->comm = take_text(r);
	u->source = (int)take_u32(r);
	u->tag = (int)take_u32(r);
	u->came = (take_u32(r) & HFM_RECEIVE_CAME) != 0;
	u->number = number;
	u->next = hfm_unposted;
	hfm_unposted = u;
	hfm_page->unposted++;
	for (struct hfm_restored *c = hfm_restored; c != NULL; c = c->next) {
		for (struct hfm_mail *m = c->first; m != NULL; m = m->next) {
			m->unposted = m->receive == number ? u : m->unposted;
		}
	}
}

/* read_kept reads a protected request. Only it gets the data of its receive. */
static void read_kept(struct reading *r) {
	struct hfm_kept *k = hfm_need(calloc(1, sizeof *k)), **last = &hfm_kept;
	k->name = take_text(r);
	k->comm = take_text(r);
	k->call = take_text(r);
	k->array = take_text(r);
	k->type = take_text(r);
	k->peer = (int)take_u32(r);
	k->tag = (int)take_u32(r);
	const uint32_t receive = take_u32(r);
	k->flags = take_u32(r);
	const char *at = take(r, 2 * sizeof k->offset);
	if (at == NULL || k->type == NULL) {
		r->bad = true;
		hfm_forget_kept(k);
		return;
	}
	memcpy(&k->offset, at, sizeof k->offset);
	memcpy(&k->count, at + sizeof k->offset, sizeof k->count);
	for (struct hfm_unposted *u = hfm_unposted; u != NULL && receive > 0; u = u->next) {
		if (u->number == receive) {
			k->unposted = u;
			u->kept = true;
		}
	}
	for (struct hfm_restored *c = hfm_restored; c != NULL && receive > 0; c = c->next) {
		struct hfm_mail **m = &c->first;
		while (*m != NULL && (*m)->receive != receive) {
			m = &(*m)->next;
		}
		if (*m != NULL) {
			k->mail = *m;
			*m = k->mail->next;
			break;
		}
	}
	while (*last != NULL) {
		last = &(*last)->next;
	}
	*last = k;
}

void hfm_forget_unposted(const struct hfm_unposted *which) {
	struct hfm_unposted **at = &hfm_unposted, *u;
	while (*at != which) {
		at = &(*at)->next;
	}
	u = *at;
	*at = u->next;
	free(u->comm);
	free(u);
	hfm_page->unposted--;
}

void hfm_posted(const char *comm, int source, int tag) {
	hfm_lock();
	for (const struct hfm_unposted *u = hfm_unposted; u != NULL; u = u->next) {
		if (!u->came && !u->kept && u->source == source && u->tag == tag && strcmp(u->comm, comm) == 0) {
			hfm_forget_unposted(u);
			break;
		}
	}
	hfm_unlock();
}

void hfm_taken(struct hfm_mail *m) {
	if (m->unposted != NULL) {
		hfm_forget_unposted(m->unposted);
		m->unposted = NULL;
	}
}

/* The record has the bytes of its messages at its end. */
const char *hfm_load(const void *record, size_t bytes) {
	static const char broken[] = "the record of the checkpoint's messages is broken";
	struct reading r = { record, (const char *)record + bytes, false };
	const uint32_t magic = take_u32(&r), version = take_u32(&r), rank = take_u32(&r), size = take_u32(&r);
	const uint32_t comms = take_u32(&r), boxes = take_u32(&r), receives = take_u32(&r), refused = take_u32(&r);
	const uint32_t requests = take_u32(&r), text = take_u32(&r); /* text: bytes up to the messages */
	if (r.bad || magic != HFM_RECORD_MAGIC || version != HFM_RECORD_VERSION || (int)rank != hfm_rank ||
		(int)size != hfm_size || refused != 0 || text > bytes) {
		return broken;
	}
	struct reading data = { (const char *)record + text, r.end, false };
	hfm_restarted = true;
	for (uint32_t i = 0; i < comms && !r.bad; i++) {
		read_comm(&r);
	}
	for (uint32_t i = 0; i < boxes && !r.bad; i++) {
		read_box(&r, &data);
	}
	for (uint32_t i = 0; i < receives && !r.bad; i++) {
		read_receive(&r, i + 1);
	}
	for (uint32_t i = 0; i < requests && !r.bad; i++) {
		read_kept(&r);
	}
	if (r.bad) {
		return broken;
	}
	for (struct hfm_comm *c = hfm_first_comm; c != NULL; c = c->next) {
		const char *why = hfm_deliver(c);
		if (why != NULL) {
			return why;
		}
	}
	return NULL;
}

const char *hfm_deliver(struct hfm_comm *c) {
	static char text[300];
	struct hfm_restored **at = &hfm_restored;
	while (*at != NULL && strcmp((*at)->name, c->name) != 0) {
		at = &(*at)->next;
	}
	struct hfm_restored *r = *at;
	if (r == NULL) {
		return NULL;
	}
	if (r->first != NULL &&
		(r->size != c->size || memcmp(r->world, c->world, (size_t)c->size * sizeof *c->world) != 0)) {
		snprintf(text, sizeof text,
			"the checkpoint has messages for the communicator %s, which has other members now: make communicators "
			"in the same order as before the restart",
			c->name);
		return text;
	}
	*at = r->next;
	c->children = c->children > r->children ? c->children : r->children;
	struct hfm_mail *first = r->first, *last = first;
	for (; last != NULL; last = last->next) {
		c->mails++;
		if (last->next == NULL) {
			last->next = c->first;
			c->last = c->last != NULL ? c->last : last;
			c->first = first;
			break;
		}
	}
	forget_restored(r);
	return NULL;
}

static void place(int *rank, int *size) {
	*rank = hfm_rank;
	*size = hfm_size;
}

static uint64_t seen(void) {
	uint64_t n = 0;
	if (!hfm_on) {
		return UINT64_MAX;
	}
	for (uint32_t i = 0; i < hfm_page->comms_n; i++) {
		n += hfm_page->comms[i].entered;
	}
	for (int r = 0; r < hfm_size; r++) {
		n += hfm_sent[r] + hfm_received[r];
	}
	return n;
}

static void turn(void) {
	if (hfm_turn != NULL) {
		hfm_turn();
	}
}

/* cut is called once more where threads had to stop first. */
static const char *cut(void) {
	static char text[200];
	if (hfm_left != NULL || hfm_within != NULL) {
		snprintf(text, sizeof text, "the program has left %s by longjmp or an exception%s",
			hfm_left != NULL ? hfm_left : "a call of MPI",
			hfm_left != NULL ? "" : ", or the point is in a function that such a call has called back");
		return text;
	}
	if (hfm_threads && hfm_close()) {
		return NULL;
	}
	alone();
	hfm_lock();
	hfm_forget_slots(NULL);
	hfm_unlock();
	if (hfm_cutting != NULL) {
		hfm_cutting(true);
	}
	hfm_drain_ends();
	return NULL;
}

static void resume(void) {
	if (hfm_cutting != NULL) {
		hfm_cutting(false);
	}
	hfm_stands(false);
	hfm_open();
}

static const char *save(const void **record, size_t *bytes) { return hfm_save(record, bytes); }

static const char *sync_now(uint32_t busy) { return hfm_sync(busy); }

static const char *load(const void *record, size_t bytes) {
	alone();
	const char *why = hfm_load(record, bytes);
	hfm_drain_ends();
	return why;
}

static const char *protect(const char *name, void *variable, int fortran, const struct hf_memory *memory) {
	alone();
	const char *why = hfm_protect(name, variable, fortran, memory);
	hfm_drain_ends();
	return why;
}

static bool unprotect(const char *name) {
	alone();
	const bool any = hfm_unprotect(name);
	hfm_drain_ends();
	return any;
}

static const char *post_again(void) {
	alone();
	const char *why = hfm_post_again();
	hfm_drain_ends();
	return why;
}

/* libholdfast looks for hf_message_layer. */
HFM_EXPORT const struct hf_message_layer *hf_message_layer(void) {
	static const struct hf_message_layer layer = { HFM_PAGE_VERSION, seen, hfm_passed_by, place, share, turn, cut,
		sync_now, save, load, resume, protect, unprotect, post_again };
	return &layer;
}
