/* stream.c - hf_fopen: memory of the library as a FILE. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "client.h"

/* A stream that is open. It has bytes of its own, which fclose puts in place of the protected ones. */
struct stream {
	char *name;
	char *at;
	size_t bytes, room, pos;
	bool writes, appends;
};

static ssize_t stream_read(void *cookie, char *to, size_t n) {
	struct stream *s = cookie;

	if (n > s->bytes - s->pos) {
		n = s->bytes - s->pos;
	}
	memcpy(to, s->at + s->pos, n);
	s->pos += n;
	return (ssize_t)n;
}

static ssize_t stream_write(void *cookie, const char *from, size_t n) {
	struct stream *s = cookie;

	if (s->appends) {
		s->pos = s->bytes;
	}
	if (n > SIZE_MAX / 4 - s->pos) {
		errno = EFBIG;
		return 0;
	}
	if (s->pos + n > s->room) {
		const size_t room = 2 * (s->pos + n) + 4096;
		char *more = realloc(s->at, room);
		if (more == NULL) {
			return 0; /* with errno */
		}
		s->at = more;
		s->room = room;
	}
	if (s->pos > s->bytes) { /* a seek beyond the end leaves zeros, as in a file */
		memset(s->at + s->bytes, 0, s->pos - s->bytes);
	}
	memcpy(s->at + s->pos, from, n);
	s->pos += n;
	if (s->pos > s->bytes) {
		s->bytes = s->pos;
	}
	return (ssize_t)n;
}

static int stream_seek(void *cookie, off64_t *offset, int whence) {
	struct stream *s = cookie;
	const off64_t base = whence == SEEK_SET ? 0 : (off64_t)(whence == SEEK_CUR ? s->pos : s->bytes);

	if (*offset < -base || *offset > (off64_t)(SIZE_MAX / 8) || (!s->writes && base + *offset > (off64_t)s->bytes)) {
		errno = EINVAL;
		return -1;
	}
	*offset += base;
	s->pos = (size_t)*offset;
	return 0;
}

static void stream_free(struct stream *s) {
	free(s->name);
	free(s->at);
	free(s);
}

static int stream_close(void *cookie) {
	struct stream *s = cookie;
	struct hf_array *a = hf_array_named(&hf_the, s->name);
	int err = 0;

	if (s->writes) {
		if (a == NULL || a->kind != HF_STREAM || a->dropped) {
			err = EBADF; /* hf_unprotect or hf_finalize came first */
		} else {
			free(a->ptr);
			a->ptr = s->at;
			a->count = s->bytes;
			a->dirty = true;
			s->at = NULL;
		}
	}
	stream_free(s);
	errno = err;
	return err == 0 ? 0 : -1;
}

/* Makes the buffer of an open stream; with the protected bytes if it is to keep them. */
static struct stream *new_stream(const struct hf_array *a, const char *mode) {
	struct stream *s = calloc(1, sizeof *s);

	if (s == NULL) {
		return NULL;
	}
	s->writes = mode[0] != 'r';
	s->appends = mode[0] == 'a';
	s->name = strdup(a->name);
	s->room = mode[0] == 'w' ? 4096 : a->count + 4096;
	s->at = malloc(s->room);
	if (s->name == NULL || s->at == NULL) {
		stream_free(s);
		return NULL;
	}
	if (mode[0] != 'w' && a->count > 0) {
		memcpy(s->at, a->ptr, a->count);
	}
	if (mode[0] != 'w') {
		s->bytes = a->count;
	}
	if (s->appends) {
		s->pos = s->bytes; /* which ftell says */
	}
	return s;
}

API FILE *hf_fopen(const char *name, const char *mode) {
	static const cookie_io_functions_t does = { stream_read, stream_write, stream_seek, stream_close };
	struct stream *s;
	FILE *f;

	if (name == NULL || mode == NULL || strchr("rwa", mode[0]) == NULL || mode[0] == 0 ||
		strspn(mode + 1, "be") != strlen(mode + 1)) {
		hf_fail(HF_E_ARG,
			"hf_fopen: give a name, and \"r\", \"w\" or \"a\"; a stream that reads and writes (\"+\") is "
			"not to be had");
		return NULL;
	}
	if (hf_protect_stream(name) < 0) {
		return NULL;
	}
	s = new_stream(hf_array_named(&hf_the, name), mode);
	f = s != NULL ? fopencookie(s, mode, does) : NULL;
	if (f == NULL) {
		if (s != NULL) {
			stream_free(s);
		}
		hf_fail(HF_E_MEMORY, "hf_fopen \"%s\": no memory", name);
	}
	return f;
}
