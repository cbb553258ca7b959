/* talk.c - messages to and from the daemon. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../common/messages.h"
#include "../common/shm.h"
#include "client.h"

/* A message as it came, with its descriptors. It is on the heap, so that bytes may be any structure. */
struct received {
	_Alignas(8) char bytes[HFP_MAX_BYTES];
	int fds[HF_MOST_FDS];
	int nfds;
};

#define AS(name, r) ((const struct hfp_##name *)(const void *)(r)->bytes)

/* Why this rank has ended the connection, if it has. */
static char given_up[1024];

static int gone(const struct hf_client *c, const char *what) {
	if (given_up[0] != 0) {
		return hf_fail(HF_E_DAEMON, "%s: the connection to the node daemon was given up before: %s", what, given_up);
	}
	if (c->heir != NULL) {
		return hf_fail(HF_E_DAEMON,
			"%s: the node daemon has died; another takes its place when all ranks have come to "
			"their next points. What was not durable before is lost",
			what);
	}
	return hf_fail(HF_E_DAEMON,
		"%s: the node daemon has ended; standard error says why, unless it was killed. Leave, and start the "
		"program again",
		what);
}

static int malformed(const char *what) {
	return hf_fail(
		HF_E_PROTOCOL, "malformed message of the node daemon: %s; use holdfast and libholdfast of one release", what);
}

static int put(struct hf_client *c, void *message, uint16_t type, size_t bytes) {
	struct hfp_header *h = message;

	*h = (struct hfp_header){ HFP_MAGIC, HFP_VERSION, type, (uint32_t)bytes, 0 };
	for (;;) {
		ssize_t n = send(c->sock, message, bytes, MSG_NOSIGNAL);
		if (n == (ssize_t)bytes) {
			return HF_OK;
		}
		if (n < 0 && errno == EINTR) {
			continue;
		}
		return gone(c, "send a request");
	}
}

static void close_fds(struct received *r) {
	while (r->nfds > 0) {
		close(r->fds[--r->nfds]);
	}
}

/* Takes the next message and checks the common fields. */
static int get(struct hf_client *c, struct received *r) {
	bool cut;
	const ssize_t n = hf_receive(c->sock, r->bytes, sizeof r->bytes, r->fds, &r->nfds, &cut);

	if (n <= 0) {
		return gone(c, "wait for an answer");
	}
	if (cut) {
		return malformed("longer than it may be, or this process has too many files open (ulimit -n)");
	}
	if ((size_t)n < sizeof(struct hfp_header) || AS(header, r)->magic != HFP_MAGIC) {
		return malformed("not of this protocol");
	}
	if (AS(header, r)->version != HFP_VERSION) {
		return malformed("another version");
	}
	if (AS(header, r)->length != (size_t)n || AS(header, r)->zero != 0) {
		return malformed("wrong length");
	}
	return HF_OK;
}

static int no_room(size_t bytes) {
	return hf_fail(HF_E_MEMORY,
		"map %zu bytes of shared memory: %s; raise the limit on address space (ulimit -v), or protect less", bytes,
		strerror(errno));
}

static int welcome(struct hf_client *c, struct received *r) {
	const struct hfp_welcome *m = AS(welcome, r);
	void *flags, *points;

	if (m->h.length != sizeof *m || r->nfds != 2 || m->page != HFP_PAGE_BYTES || c->page != NULL ||
		!hf_fd_holds(r->fds[0], HFP_PAGE_BYTES) || !hf_fd_holds(r->fds[1], HFP_PAGE_BYTES)) {
		return malformed("WELCOME");
	}
	flags = hf_map(r->fds[0], HFP_PAGE_BYTES, PROT_READ, MAP_SHARED | MAP_POPULATE);
	points = hf_map(r->fds[1], HFP_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE);
	if (flags == NULL || points == NULL) {
		int code = no_room(2 * (size_t)HFP_PAGE_BYTES);
		if (flags != NULL) {
			munmap(flags, HFP_PAGE_BYTES);
		}
		if (points != NULL) {
			munmap(points, HFP_PAGE_BYTES);
		}
		return code;
	}
	c->page = flags;
	atomic_store((_Atomic uint64_t *)points, c->count); /* of a rank that goes on: its place */
	c->points = points;
	c->calm = atomic_load(c->page) & ~(uint64_t)UINT32_MAX;
	c->fence = (m->flags & HFP_WELCOME_FENCE) != 0;
	c->checkpoint = m->checkpoint;
	c->stop = m->stop;
	return HF_OK;
}

/* Gathers for the agent. */
static int exchange(struct hf_client *c, struct received *r) {
	struct hfp_word answer = { .flags = 0 };
	size_t bytes, all;
	char *at;

	if (AS(header, r)->length != sizeof *AS(number, r) || r->nfds != 1 || c->allgather == NULL ||
		AS(number, r)->value > SIZE_MAX / ((size_t)c->size + 1) || AS(number, r)->value == 0) {
		return malformed("EXCHANGE");
	}
	bytes = (size_t)AS(number, r)->value;
	all = bytes * ((size_t)c->size + 1);
	if (!hf_fd_holds(r->fds[0], all)) {
		return malformed("EXCHANGE with too little room");
	}
	at = hf_map(r->fds[0], all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE);
	if (at == NULL) {
		return no_room(all);
	}
	answer.value = hf_gather(c, at + bytes, at, bytes);
	munmap(at, all);
	return put(c, &answer, HFP_EXCHANGED, sizeof answer);
}

static int arena(struct hf_client *c, struct received *r) {
	const struct hfp_arena *m = AS(arena, r);
	struct hf_arena *more;
	bool sealed;
	char *at;

	if (m->h.length != sizeof *m || r->nfds != 1 || m->bytes == 0 || m->bytes > SIZE_MAX ||
		(m->flags & ~HFP_ARENA_SEALED) != 0 || !hf_fd_holds(r->fds[0], m->bytes)) {
		return malformed("ARENA");
	}
	sealed = (m->flags & HFP_ARENA_SEALED) != 0;
	more = realloc(c->arenas, (c->narenas + 1) * sizeof *more);
	if (more == NULL) {
		return hf_fail(HF_E_MEMORY, "no memory for the list of arenas");
	}
	c->arenas = more;
	/* Linux before 6.7 shares no memory that is sealed against writing. */
	at = sealed ? hf_map(r->fds[0], (size_t)m->bytes, PROT_READ, MAP_PRIVATE | MAP_POPULATE)
				: hf_map(r->fds[0], (size_t)m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE);
	if (at == NULL) {
		return no_room((size_t)m->bytes);
	}
	(void)madvise(at, (size_t)m->bytes, MADV_DONTFORK); /* a child has no use for it */
	c->arenas[c->narenas++] = (struct hf_arena){ .id = m->id, .at = at, .bytes = (size_t)m->bytes, .sealed = sealed };
	return HF_OK;
}

static struct hf_arena *arena_of(struct hf_client *c, uint32_t id) {
	size_t i;

	for (i = 0; i < c->narenas; i++) {
		if (c->arenas[i].id == id) {
			return &c->arenas[i];
		}
	}
	return NULL;
}

static int drop(struct hf_client *c, struct received *r) {
	struct hf_arena *a;

	if (AS(header, r)->length != sizeof *AS(word, r) || (a = arena_of(c, (uint32_t)AS(word, r)->value)) == NULL) {
		return malformed("DROP");
	}
	if (a->late) {
		hf_await_shadow(c, false);
	}
	hf_unlock_memory(a->locked, a->at);
	munmap(a->at, a->bytes);
	*a = c->arenas[--c->narenas];
	return HF_OK;
}

/* Whether so many bytes can be copied of an array, or to it. */
static bool fits(const struct hf_array *p, size_t bytes, bool load) {
	const size_t now = p->count * hf_elem(p->type);

	if (load) {
		return p->kind == HF_FILE || p->kind == HF_STREAM || p->resize != NULL ||
			(p->kind == HF_ARRAY ? bytes <= now : bytes == now);
	}
	return bytes == now;
}

/* Answers COPY, and lets the bytes that were copied aside go to the arenas. */
static int copied(struct hf_client *c, struct hfp_word *answer, struct hf_shadow *shadow) {
	int code;

	if (answer->value == 0) {
		answer->value = hf_finish_aside(shadow);
	}
	if (answer->value != 0 || !hf_has_aside(shadow)) {
		hf_drop_shadow(shadow);
		return put(c, answer, HFP_COPIED, sizeof *answer);
	}
	answer->flags = HFP_COPIED_LATER;
	code = put(c, answer, HFP_COPIED, sizeof *answer);
	if (code == HF_OK) {
		hf_bring_shadow(c, shadow);
	} else {
		hf_drop_shadow(shadow);
	}
	return code;
}

/* How much of devices the daemon lets this process take for shadows. */
static int may_shadow(struct hf_client *c, struct received *r) {
	if (AS(header, r)->length != sizeof *AS(number, r)) {
		return malformed("SHADOW");
	}
	c->shadow_limit = AS(number, r)->value;
	return HF_OK;
}

/* Copies between the program's arrays and arenas. All of a message is checked before any byte moves. */
static int copy(struct hf_client *c, struct received *r) {
	const struct hfp_copy *m = AS(copy, r);
	struct hfp_word answer = { .value = 0 };
	struct hf_shadow *shadow = NULL;
	int pass;

	if (m->h.length < sizeof *m || (m->h.length - sizeof *m) / sizeof m->items[0] != m->n ||
		(m->h.length - sizeof *m) % sizeof m->items[0] != 0 || m->load > 1) {
		return malformed("COPY");
	}
	for (pass = 0; pass < 2; pass++) {
		uint32_t i;
		if (pass == 1 && shadow != NULL) {
			hf_make_shadow(c, shadow);
		}
		for (i = 0; i < m->n; i++) {
			const struct hfp_item *item = &m->items[i];
			const bool late = m->load == 0 && (item->array & HFP_COPY_LATE) != 0;
			const uint32_t id = item->array & ~(late ? HFP_COPY_LATE : 0);
			struct hf_arena *a = arena_of(c, item->arena);
			struct hf_array *p = id < c->narrays ? &c->arrays[id] : NULL;
			size_t aside = 0;
			const size_t room = a != NULL ? a->bytes : 0;
			char *at = a != NULL && item->offset <= room ? a->at + item->offset : NULL;
			if ((a == NULL && (item->arena != HFP_NO_ARENA || item->bytes > 0)) || p == NULL || item->offset > room ||
				item->bytes > room - item->offset || (m->load == 0 && a != NULL && a->sealed) ||
				!fits(p, (size_t)item->bytes, m->load == 1)) {
				hf_drop_shadow(shadow);
				return malformed("COPY names an unknown array or arena");
			}
			if (pass == 0 && late && a != NULL) {
				shadow = hf_want_shadow(c, shadow, p, (size_t)item->bytes, m->n);
			}
			if (pass == 0 || answer.value != 0) {
				continue;
			}
			if (a != NULL && p->place.device != NULL && !a->tried && !a->sealed) {
				a->tried = true;
				a->locked = hf_lock_memory(&p->place, a->at, a->bytes);
			}
			if (late && a != NULL) {
				aside = hf_copy_aside(shadow, p, at, (size_t)item->bytes);
			}
			if (aside > 0) {
				a->late = true;
			}
			if (m->load == 0) {
				answer.value = hf_save_to(p, at, (size_t)item->bytes, aside);
			} else {
				answer.value = hf_load_from(p, at, (size_t)item->bytes, a != NULL && a->sealed);
			}
			if (answer.value != 0) {
				c->failed = p;
				answer.flags = (id + 1) << 1;
			}
		}
	}
	return copied(c, &answer, shadow);
}

/* Whether the message ends the request: code and value are its result then. */
static bool final(const struct hf_client *c, struct received *r, int *code, uint64_t *value) {
	const char *path = c->failed != NULL ? c->failed->path : NULL;

	if (AS(header, r)->type == HFP_DONE) {
		*code = AS(done, r)->code;
		if (AS(header, r)->length != sizeof *AS(done, r) || *code < 0) {
			*code = malformed("DONE");
		} else if (value != NULL) {
			*value = AS(done, r)->value;
		}
		return true;
	}
	if (AS(header, r)->type != HFP_ERROR) {
		return false;
	}
	if (AS(header, r)->length < sizeof *AS(error, r) ||
		AS(error, r)->n != AS(header, r)->length - sizeof *AS(error, r) || AS(error, r)->code >= 0) {
		*code = malformed("ERROR");
	} else {
		*code = hf_fail(AS(error, r)->code, "%s%s%.*s", path != NULL ? path : "", path != NULL ? ": " : "",
			(int)AS(error, r)->n, AS(error, r)->text);
	}
	return true;
}

static int messages(struct hf_client *c, struct received *r) {
	if (AS(header, r)->length != sizeof *AS(number, r) || r->nfds != 1 || c->layer == NULL ||
		!hf_fd_holds(r->fds[0], AS(number, r)->value)) {
		return malformed("MESSAGES");
	}
	return hf_messages(c, r->fds[0], AS(number, r)->value);
}

static int mail(struct hf_client *c, struct received *r) {
	const struct hfp_mail *m = AS(mail, r);
	struct hfp_mailed answer = { .n = 0 };
	const char *why;

	if (m->h.length != sizeof *m || c->layer == NULL || m->what > HFP_MAIL_SYNC ||
		r->nfds != (m->what == HFP_MAIL_TAKE || m->what == HFP_MAIL_LOAD) ||
		(r->nfds == 1 && !hf_fd_holds(r->fds[0], m->bytes))) {
		return malformed("MAIL");
	}
	answer.bytes = m->bytes;
	why = hf_mail(c, m->what, r->fds[0], &answer.bytes);
	if (why != NULL) {
		answer.n = (uint32_t)strnlen(why, sizeof answer.text);
		memcpy(answer.text, why, answer.n);
	}
	return put(c, &answer, HFP_MAILED, offsetof(struct hfp_mailed, text) + answer.n);
}

static int serve(struct hf_client *c, struct received *r) {
	switch (AS(header, r)->type) {
	case HFP_WELCOME:
		return welcome(c, r);
	case HFP_EXCHANGE:
		return exchange(c, r);
	case HFP_ARENA:
		return arena(c, r);
	case HFP_DROP:
		return drop(c, r);
	case HFP_COPY:
		return copy(c, r);
	case HFP_SHADOW:
		return may_shadow(c, r);
	case HFP_MESSAGES:
		return messages(c, r);
	case HFP_MAIL:
		return mail(c, r);
	}
	return malformed("a type that is not known");
}

enum until { WELCOMED, READ, ANSWERED };

/* Serves the daemon until WELCOME has come, or nothing is left to read, or the request is answered: *over says so. */
static int listen_to(struct hf_client *c, enum until until, bool *over, uint64_t *value) {
	struct received *r = malloc(sizeof *r);
	int code = HF_OK;

	*over = false;
	if (r == NULL) {
		return hf_fail(HF_E_MEMORY, "no memory for a message");
	}
	while (code == HF_OK && !*over && (until != WELCOMED || c->page == NULL)) {
		struct pollfd some = { .fd = c->sock, .events = POLLIN };
		if (until == READ && poll(&some, 1, 0) <= 0) {
			break;
		}
		if (c->drains && c->layer != NULL) {
			hf_drain_until(c);
		}
		code = get(c, r);
		c->heard = c->heard || code == HF_OK;
		*over = code == HF_OK && final(c, r, &code, value);
		if (code == HF_OK && !*over) {
			code = serve(c, r);
		}
		close_fds(r);
	}
	free(r);
	return code;
}

/* Ends the connection where an error leaves no other way. */
static int ended(struct hf_client *c, int code) {
	if (code == HF_E_PROTOCOL || code == HF_E_MEMORY) {
		snprintf(given_up, sizeof given_up, "%s", hf_error());
	}
	if (code == HF_E_PROTOCOL || code == HF_E_MEMORY) {
		hf_free_heir(c); /* the daemon has taken this rank for dead */
	}
	if (code == HF_E_DAEMON || code == HF_E_PROTOCOL || code == HF_E_MEMORY) {
		hf_hang_up(c);
	}
	return code;
}

/* The answer to a request of a program without checkpoints: there are none, and all that it waits for is done. */
static int answer_without(const void *message, uint16_t type) {
	if (type == HFP_WAIT) {
		return (((const struct hfp_text *)message)->flags & HFP_WAIT_LOOK) != 0 ? HF_FOUND : HF_OK;
	}
	if (type == HFP_BEGIN) {
		return hf_fail(HF_E_FAILED,
			"there is nothing to restart from: the program runs without checkpoints (%s); ask "
			"hf_restart_test first",
			hf_off_by());
	}
	return HF_OK;
}

int hf_call(struct hf_client *c, void *message, uint16_t type, size_t bytes, uint64_t *value) {
	bool over;
	int code;

	if (c->pid != getpid()) {
		return hf_fail(HF_E_ORDER, "%s", HF_IS_CHILD);
	}
	if (c->off) {
		return answer_without(message, type);
	}
	if (c->sock < 0 || c->link != HF_SERVED) {
		return gone(c, "send a request");
	}
	c->failed = NULL;
	if (type == HFP_HELLO) {
		given_up[0] = 0;
		c->heard = false;
	}
	code = put(c, message, type, bytes);
	if (code == HF_OK) {
		c->drains = type == HFP_POINT || type == HFP_CHECKPOINT || type == HFP_FINALIZE;
		code = listen_to(c, ANSWERED, &over, value);
		if (c->drains && c->layer != NULL) {
			c->layer->resume();
		}
		c->drains = false;
	}
	if (code >= 0 && (type == HFP_POINT || type == HFP_CHECKPOINT || type == HFP_SAVE)) {
		c->pause = 0;
	}
	return ended(c, code);
}

int hf_tell(struct hf_client *c, void *message, uint16_t type, size_t bytes) {
	int code = HF_E_DAEMON;

	if (c->pid != getpid() || c->heir == NULL) {
		return hf_call(c, message, type, bytes, NULL);
	}
	if (c->link == HF_SERVED) {
		code = hf_call(c, message, type, bytes, NULL);
	}
	return code == HF_E_DAEMON ? HF_OK : code;
}

int hf_greet(struct hf_client *c, struct hfp_hello *hello, size_t bytes) {
	bool over = false;
	int code;

	c->failed = NULL;
	code = put(c, hello, HFP_HELLO, bytes);
	if (code == HF_OK) {
		code = listen_to(c, WELCOMED, &over, NULL);
	}
	if (code == HF_OK && over) {
		code = malformed("DONE before WELCOME");
	}
	return ended(c, code);
}

int hf_answered(struct hf_client *c, bool wait, bool *over) {
	return ended(c, listen_to(c, wait ? ANSWERED : READ, over, NULL));
}

/* Ends the connection. Points pass from now on, and calls return HF_E_DAEMON, unless another daemon is to be found. */
void hf_hang_up(struct hf_client *c) {
	size_t i;
	int sock = atomic_exchange(&c->sock, -1);

	/* Not closed: a signal handler of another thread, or that of a shadow, may be about to use its number. */
	if (sock >= 0) {
		shutdown(sock, SHUT_RDWR);
	}
	hf_await_shadow(c, true);
	c->shadow_limit = 0;
	c->restarting = false;
	if (c->heir != NULL) {
		c->link = HF_ALONE;
		c->unsure = c->unsaid = true;
	}
	if (c->page != NULL) {
		c->last = (uint32_t)atomic_load(c->page);
	}
	if (c->page != NULL) {
		munmap((void *)c->page, HFP_PAGE_BYTES);
	}
	if (c->points != &hf_unseen) {
		munmap((void *)c->points, HFP_PAGE_BYTES);
	}
	c->page = NULL;
	c->flags = c->heir != NULL ? &hf_armed : &hf_idle;
	c->calm = 0;
	c->points = &hf_unseen;
	for (i = 0; i < c->narenas; i++) {
		hf_unlock_memory(c->arenas[i].locked, c->arenas[i].at);
		munmap(c->arenas[i].at, c->arenas[i].bytes);
	}
	free(c->arenas);
	c->arenas = NULL;
	c->narenas = 0;
}
