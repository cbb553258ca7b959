/* Requests and replies: little-endian numbers of 4 and 8 bytes, and bytes with their length before. */
#include "wire.h"

/* The arrived part of messages that the server sends by itself. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint64_t count;
	bool ended;
} deliveries = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

void hfcl_delivered(void) {
	pthread_mutex_lock(&deliveries.lock);
	deliveries.count++;
	pthread_cond_broadcast(&deliveries.changed);
	pthread_mutex_unlock(&deliveries.lock);
}

void hfcl_end_deliveries(void) {
	pthread_mutex_lock(&deliveries.lock);
	deliveries.ended = true;
	pthread_cond_broadcast(&deliveries.changed);
	pthread_mutex_unlock(&deliveries.lock);
}

/* await_deliveries returns when so many deliveries have arrived, which the server has sent already. */
static void await_deliveries(uint64_t count) {
	int before = hfcl_no_cancel();
	pthread_mutex_lock(&deliveries.lock);
	while (deliveries.count < count && !deliveries.ended) {
		pthread_cond_wait(&deliveries.changed, &deliveries.lock);
	}
	pthread_mutex_unlock(&deliveries.lock);
	hfcl_cancel_again(before);
}

void hfcl_begin(struct call *c, uint32_t op) {
	c->op = op;
	c->failed = false;
	c->b = c->fixed;
	c->n = HFCL_HEADER_BYTES; /* filled in when it is sent */
	c->room = sizeof c->fixed;
	c->at = 0;
}

/* make_room gives memory for n more bytes, of which the caller writes all. */
static uint8_t *make_room(struct call *c, size_t n) {
	if (c->failed || n > HFCL_MAX_BODY || c->n + n > HFCL_MAX_BODY) {
		c->failed = true;
		return NULL;
	}
	if (c->n + n > c->room) {
		size_t room = 2 * (c->n + n);
		uint8_t *b = c->b == c->fixed ? malloc(room) : realloc(c->b, room);
		if (b == NULL) {
			c->failed = true;
			return NULL;
		}
		if (c->b == c->fixed) {
			memcpy(b, c->fixed, c->n);
		}
		c->b = b;
		c->room = room;
	}
	uint8_t *at = c->b + c->n;
	c->n += n;
	return at;
}

void hfcl_put32(struct call *c, uint32_t v) {
	uint8_t *at = make_room(c, sizeof v);
	if (at != NULL) {
		memcpy(at, &v, sizeof v);
	}
}

void hfcl_put64(struct call *c, uint64_t v) {
	uint8_t *at = make_room(c, sizeof v);
	if (at != NULL) {
		memcpy(at, &v, sizeof v);
	}
}

void hfcl_put_bytes(struct call *c, const void *b, size_t n) {
	if (n > HFCL_MAX_BODY) {
		c->failed = true;
		return;
	}
	hfcl_put32(c, (uint32_t)n);
	uint8_t *at = make_room(c, n);
	if (at != NULL && n > 0) {
		memcpy(at, b, n);
	}
}

void hfcl_put_box(struct call *c, const size_t *origin, const size_t *region) {
	for (int i = 0; i < 3; i++) {
		hfcl_put64(c, origin[i]);
	}
	for (int i = 0; i < 3; i++) {
		hfcl_put64(c, region[i]);
	}
}

/* seal fills in the header. */
static void seal(struct call *c, const struct rows *out, uint64_t last) {
	uint32_t body = (uint32_t)(c->n - HFCL_HEADER_BYTES);
	uint64_t bulk = out == NULL ? 0 : hfcl_rows_size(out);
	memcpy(c->b, &body, 4);
	memcpy(c->b + 4, &c->op, 4);
	memcpy(c->b + 8, &bulk, 8);
	memcpy(c->b + 16, &last, 8);
}

/* take_reply reads a reply; false when the connection is of no use any more. */
static bool take_reply(struct call *c, int fd, const struct rows *in, cl_int *status, uint64_t *deliveries) {
	uint8_t head[HFCL_HEADER_BYTES];
	if (!hfcl_receive(fd, head, sizeof head)) {
		return false;
	}
	uint32_t body;
	uint64_t bulk;
	memcpy(&body, head, 4);
	memcpy(status, head + 4, 4);
	memcpy(&bulk, head + 8, 8);
	memcpy(deliveries, head + 16, 8);
	if (body > HFCL_MAX_BODY || (bulk != 0 && (in == NULL || bulk != hfcl_rows_size(in)))) {
		return false;
	}
	c->n = 0;
	c->at = 0;
	if (make_room(c, body) == NULL || !hfcl_receive(fd, c->b, body)) {
		return false;
	}
	if (*status == CL_SUCCESS && in != NULL && bulk == 0 && hfcl_rows_size(in) != 0) {
		return false; /* the requested object is not there */
	}
	return bulk == 0 || hfcl_receive_rows(fd, in);
}

cl_int hfcl_run(struct call *c, const struct rows *out, const struct rows *in) {
	if (c->failed) {
		return CL_OUT_OF_HOST_MEMORY;
	}
	struct connection *l = hfcl_take_connection();
	if (l == NULL) {
		c->failed = true;
		return CL_DEVICE_NOT_AVAILABLE;
	}
	seal(c, out, hfcl_ring_position());
	cl_int status = CL_DEVICE_NOT_AVAILABLE;
	uint64_t count = 0;
	bool ok = hfcl_send(l->fd, c->b, c->n, NULL, 0, out) && take_reply(c, l->fd, in, &status, &count);
	hfcl_give_connection(l, !ok);
	if (!ok) {
		c->failed = true;
		return CL_DEVICE_NOT_AVAILABLE;
	}
	await_deliveries(count);
	return status;
}

cl_int hfcl_ask_in(struct call *c, int slot) {
	if (c->failed) {
		hfcl_ring_unask(slot);
		return CL_OUT_OF_HOST_MEMORY;
	}
	seal(c, NULL, (uint64_t)slot);
	hfcl_ring_put(c->b, c->n); /* the answer tells of a server that is gone */
	return CL_SUCCESS;
}

cl_int hfcl_answer_in(int slot) {
	uint64_t count = 0;
	cl_int status = hfcl_ring_answer(slot, &count);
	await_deliveries(count);
	return status;
}

cl_int hfcl_ask(struct call *c) {
	int slot = c->failed || c->n > HFCL_RING_MESSAGE ? -1 : hfcl_ring_ask();
	if (slot < 0) {
		return hfcl_run(c, NULL, NULL);
	}
	cl_int rc = hfcl_ask_in(c, slot);
	return rc == CL_SUCCESS ? hfcl_answer_in(slot) : rc;
}

cl_int hfcl_post(struct call *c) {
	cl_int rc = CL_OUT_OF_HOST_MEMORY;
	if (!c->failed && c->n > HFCL_RING_MESSAGE) {
		rc = hfcl_run(c, NULL, NULL);
	} else if (!c->failed) {
		seal(c, NULL, 0);
		rc = hfcl_ring_put(c->b, c->n) ? CL_SUCCESS : CL_DEVICE_NOT_AVAILABLE;
	}
	hfcl_end(c);
	return rc;
}

static const uint8_t *take(struct call *c, size_t n) {
	if (c->failed || n > c->n - c->at) {
		c->failed = true;
		return NULL;
	}
	const uint8_t *b = c->b + c->at;
	c->at += n;
	return b;
}

uint32_t hfcl_get32(struct call *c) {
	uint32_t v = 0;
	const uint8_t *b = take(c, sizeof v);
	if (b != NULL) {
		memcpy(&v, b, sizeof v);
	}
	return v;
}

uint64_t hfcl_get64(struct call *c) {
	uint64_t v = 0;
	const uint8_t *b = take(c, sizeof v);
	if (b != NULL) {
		memcpy(&v, b, sizeof v);
	}
	return v;
}

const char *hfcl_get_bytes(struct call *c, size_t *n) {
	*n = hfcl_get32(c);
	const uint8_t *b = take(c, *n);
	if (b == NULL) {
		*n = 0;
	}
	return (const char *)b;
}

char *hfcl_get_text(struct call *c) {
	size_t n;
	const char *b = hfcl_get_bytes(c, &n);
	char *text = malloc(n + 1);
	if (text != NULL) {
		if (n > 0) {
			memcpy(text, b, n);
		}
		text[n] = 0;
	}
	return text;
}

void hfcl_end(struct call *c) {
	if (c->b != c->fixed) {
		free(c->b);
	}
	c->b = c->fixed;
}

cl_int hfcl_release(uint64_t id) {
	struct call c;
	hfcl_begin(&c, HFCL_RELEASE);
	hfcl_put64(&c, id);
	return hfcl_post(&c);
}
