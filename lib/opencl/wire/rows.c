/* Bytes of the program, as rows, and their way through sockets. */
#define _GNU_SOURCE
#include "wire.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

struct rows hfcl_linear(void *at, size_t n) { return (struct rows){ at, n, 1, 1, n, n }; }

size_t hfcl_rows_size(const struct rows *r) { return r->row * r->rows * r->slices; }

const char *hfcl_end_of(const struct rows *r) {
	return r->at + (r->slices - 1) * r->slice_pitch + (r->rows - 1) * r->row_pitch + r->row;
}

void hfcl_copy_rows(const struct rows *r, char *packed, bool out) {
	for (size_t z = 0; z < r->slices; z++) {
		for (size_t y = 0; y < r->rows; y++, packed += r->row) {
			char *at = r->at + z * r->slice_pitch + y * r->row_pitch;
			if (out) {
				memcpy(packed, at, r->row);
			} else {
				memcpy(at, packed, r->row);
			}
		}
	}
}

/* Parts of one call of the kernel. */
enum { PARTS = 64 };

/* next_parts fills in rows from number *k on, and moves it. */
static int next_parts(const struct rows *r, size_t *k, struct iovec *parts) {
	if (r->slices * r->rows == 0 || r->row == 0) {
		return 0;
	}
	bool whole = r->row_pitch == r->row && (r->slices == 1 || r->slice_pitch == r->row * r->rows);
	if (whole || r->rows * r->slices == 1) {
		if (*k > 0) {
			return 0;
		}
		*k = r->rows * r->slices;
		parts[0] = (struct iovec){ r->at, hfcl_rows_size(r) };
		return 1;
	}
	int n = 0;
	for (; n < PARTS && *k < r->rows * r->slices; n++, (*k)++) {
		parts[n] = (struct iovec){ r->at + *k / r->rows * r->slice_pitch + *k % r->rows * r->row_pitch, r->row };
	}
	return n;
}

/* move_parts sends or receives all bytes of the parts. */
static bool move_parts(int fd, struct iovec *parts, int n, bool out) {
	while (n > 0) {
		struct msghdr m = { .msg_iov = parts, .msg_iovlen = (size_t)n };
		int before = hfcl_no_cancel();
		ssize_t moved = out ? sendmsg(fd, &m, MSG_NOSIGNAL) : recvmsg(fd, &m, MSG_WAITALL);
		hfcl_cancel_again(before);
		if (moved < 0 && errno == EINTR) {
			continue;
		}
		if (moved <= 0) {
			return false;
		}
		size_t left = (size_t)moved;
		while (n > 0 && left >= parts->iov_len) {
			left -= parts->iov_len;
			parts++;
			n--;
		}
		if (n > 0) {
			parts->iov_base = (char *)parts->iov_base + left;
			parts->iov_len -= left;
		}
	}
	return true;
}

bool hfcl_send(int fd, const void *head, size_t n, const void *body, size_t m, const struct rows *bulk) {
	struct iovec parts[PARTS] = { { (void *)(uintptr_t)head, n }, { (void *)(uintptr_t)body, m } };
	if (!move_parts(fd, parts, m > 0 ? 2 : 1, true)) {
		return false;
	}
	size_t k = 0;
	int count;
	while (bulk != NULL && (count = next_parts(bulk, &k, parts)) > 0) {
		if (!move_parts(fd, parts, count, true)) {
			return false;
		}
	}
	return true;
}

bool hfcl_receive(int fd, void *to, size_t n) {
	struct iovec part = { to, n };
	return n == 0 || move_parts(fd, &part, 1, false);
}

bool hfcl_receive_rows(int fd, const struct rows *r) {
	struct iovec parts[PARTS];
	size_t k = 0;
	int count;
	while ((count = next_parts(r, &k, parts)) > 0) {
		if (!move_parts(fd, parts, count, false)) {
			return false;
		}
	}
	return true;
}
