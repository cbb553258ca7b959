/* Commands that move bytes: between the program's memory and memory objects, among these, and patterns. */
#include "hfcl.h"

static cl_int check_buffer(cl_command_queue q, cl_mem m) {
	if (hfcl_check_queue(q) != CL_SUCCESS) {
		return CL_INVALID_COMMAND_QUEUE;
	}
	if (!hfcl_is(m, MEM) || hfcl_is_image(m)) {
		return CL_INVALID_MEM_OBJECT;
	}
	return m->context == q->context ? CL_SUCCESS : CL_INVALID_CONTEXT;
}

static cl_int check_range(cl_mem m, size_t offset, size_t size) {
	return size == 0 || offset > m->size || size > m->size - offset ? CL_INVALID_VALUE : CL_SUCCESS;
}

static cl_int check_host(cl_mem m, cl_mem_flags only_other) {
	return (m->flags & (only_other | CL_MEM_HOST_NO_ACCESS)) != 0 ? CL_INVALID_OPERATION : CL_SUCCESS;
}

/* Where the bytes of a command lie in a memory object. */
struct place {
	uint32_t form;
	size_t origin[3], region[3], row_pitch, slice_pitch;
};

static struct place linear(size_t offset, size_t size) {
	return (struct place){ HFCL_LINEAR, { offset, 0, 0 }, { size, 1, 1 }, 0, 0 };
}

static void put_place(struct call *c, cl_mem m, const struct place *p) {
	hfcl_put64(c, m->o.id);
	hfcl_put32(c, p->form);
	hfcl_put_box(c, p->origin, p->region);
	hfcl_put64(c, p->row_pitch);
	hfcl_put64(c, p->slice_pitch);
}

/* box fills in the pitches that are 0 and checks that the box lies within size bytes. */
static cl_int box(struct place *p, const size_t *origin, const size_t *region, size_t row_pitch, size_t slice_pitch,
	size_t size) {
	p->form = HFCL_RECT;
	if (region[0] == 0 || region[1] == 0 || region[2] == 0) {
		return CL_INVALID_VALUE;
	}
	row_pitch = row_pitch == 0 ? region[0] : row_pitch;
	size_t least;
	if (row_pitch < region[0] || __builtin_mul_overflow(row_pitch, region[1], &least)) {
		return CL_INVALID_VALUE;
	}
	slice_pitch = slice_pitch == 0 ? least : slice_pitch;
	if (slice_pitch < least || slice_pitch % row_pitch != 0) {
		return CL_INVALID_VALUE;
	}
	memcpy(p->origin, origin, sizeof p->origin);
	memcpy(p->region, region, sizeof p->region);
	p->row_pitch = row_pitch;
	p->slice_pitch = slice_pitch;
	size_t z, y, x, end;
	if (__builtin_add_overflow(origin[2], region[2] - 1, &z) || __builtin_mul_overflow(z, slice_pitch, &z) ||
		__builtin_add_overflow(origin[1], region[1] - 1, &y) || __builtin_mul_overflow(y, row_pitch, &y) ||
		__builtin_add_overflow(origin[0], region[0], &x) || __builtin_add_overflow(z, y, &end) ||
		__builtin_add_overflow(end, x, &end) || end > size) {
		return CL_INVALID_VALUE;
	}
	return CL_SUCCESS;
}

static struct rows rows_of(const struct place *p, void *host) {
	return (struct rows){ (char *)host + p->origin[2] * p->slice_pitch + p->origin[1] * p->row_pitch + p->origin[0],
		p->region[0], p->region[1], p->region[2], p->row_pitch, p->slice_pitch };
}

/* A transfer between an object and the program's memory. */
struct transfer {
	cl_command_queue q;
	cl_mem m;
	cl_command_type type;
	bool write, blocking;
	struct place place;
	struct rows host;
	cl_uint n;
	const cl_event *waits;
	cl_event *event;
};

static cl_int transfer(struct transfer *t) {
	struct command m;
	bool delivered = !t->write && !t->blocking;
	cl_int rc = hfcl_command(&m, t->write ? HFCL_WRITE : HFCL_READ, t->type, t->q, t->n, t->waits, t->event, delivered);
	if (rc != CL_SUCCESS) {
		return rc;
	}
	hfcl_put32(&m.call, t->blocking ? HFCL_BLOCKING : 0);
	put_place(&m.call, t->m, &t->place);
	hfcl_settle(&t->host);
	if (t->write) {
		return hfcl_issue(&m, &t->host, NULL);
	}
	if (t->blocking) {
		return hfcl_issue(&m, NULL, &t->host);
	}
	m.made->into = t->host;
	hfcl_retain(m.made);
	cl_event e = m.made;
	hfcl_expect(e);
	rc = hfcl_issue(&m, NULL, NULL);
	if (rc != CL_SUCCESS) {
		hfcl_unexpect(e);
	}
	clReleaseEvent(e);
	return rc;
}

cl_int hfcl_transfer_pixels(cl_command_queue q, cl_mem m, cl_command_type type, bool write, bool blocking,
	const size_t *origin, const size_t *region, const struct rows *host, cl_uint n, const cl_event *waits,
	cl_event *event) {
	struct transfer t = { q, m, type, write, blocking, { .form = HFCL_PIXELS }, *host, n, waits, event };
	memcpy(t.place.origin, origin, sizeof t.place.origin);
	memcpy(t.place.region, region, sizeof t.place.region);
	return transfer(&t);
}

cl_int hfcl_transfer_range(cl_command_queue q, cl_mem m, cl_command_type type, bool write, bool blocking, size_t offset,
	size_t size, void *host, cl_uint n, const cl_event *waits, cl_event *event) {
	struct transfer t = { q, m, type, write, blocking, linear(offset, size), hfcl_linear(host, size), n, waits, event };
	return transfer(&t);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueReadBuffer(cl_command_queue q, cl_mem m, cl_bool blocking, size_t offset,
	size_t size, void *to, cl_uint n, const cl_event *waits, cl_event *event) {
	cl_int rc = check_buffer(q, m);
	if (rc == CL_SUCCESS && (to == NULL || check_range(m, offset, size) != CL_SUCCESS)) {
		rc = CL_INVALID_VALUE;
	}
	if (rc == CL_SUCCESS) {
		rc = check_host(m, CL_MEM_HOST_WRITE_ONLY);
	}
	if (rc != CL_SUCCESS) {
		return rc;
	}
	return hfcl_transfer_range(q, m, CL_COMMAND_READ_BUFFER, false, blocking != CL_FALSE, offset, size, to, n, waits,
		event);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueWriteBuffer(cl_command_queue q, cl_mem m, cl_bool blocking, size_t offset,
	size_t size, const void *from, cl_uint n, const cl_event *waits, cl_event *event) {
	cl_int rc = check_buffer(q, m);
	if (rc == CL_SUCCESS && (from == NULL || check_range(m, offset, size) != CL_SUCCESS)) {
		rc = CL_INVALID_VALUE;
	}
	if (rc == CL_SUCCESS) {
		rc = check_host(m, CL_MEM_HOST_READ_ONLY);
	}
	if (rc != CL_SUCCESS) {
		return rc;
	}
	return hfcl_transfer_range(q, m, CL_COMMAND_WRITE_BUFFER, true, blocking != CL_FALSE, offset, size,
		(void *)(uintptr_t)from, n, waits, event);
}

static cl_int transfer_box(struct transfer *t, const size_t *origin, const size_t *host_origin, const size_t *region,
	const size_t pitches[4], void *host) {
	cl_int rc = check_buffer(t->q, t->m);
	if (rc == CL_SUCCESS && (host == NULL || origin == NULL || host_origin == NULL || region == NULL)) {
		rc = CL_INVALID_VALUE;
	}
	struct place there;
	if (rc == CL_SUCCESS) {
		rc = box(&t->place, origin, region, pitches[0], pitches[1], t->m->size);
	}
	if (rc == CL_SUCCESS) {
		rc = box(&there, host_origin, region, pitches[2], pitches[3], SIZE_MAX / 2);
	}
	if (rc == CL_SUCCESS) {
		rc = check_host(t->m, t->write ? CL_MEM_HOST_READ_ONLY : CL_MEM_HOST_WRITE_ONLY);
	}
	if (rc != CL_SUCCESS) {
		return rc;
	}
	t->host = rows_of(&there, host);
	return transfer(t);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueReadBufferRect(cl_command_queue q, cl_mem m, cl_bool blocking,
	const size_t *origin, const size_t *host_origin, const size_t *region, size_t row_pitch, size_t slice_pitch,
	size_t host_row_pitch, size_t host_slice_pitch, void *to, cl_uint n, const cl_event *waits, cl_event *event) {
	struct transfer t = { q, m, CL_COMMAND_READ_BUFFER_RECT, false, blocking != CL_FALSE, { 0 }, { 0 }, n, waits,
		event };
	const size_t pitches[4] = { row_pitch, slice_pitch, host_row_pitch, host_slice_pitch };
	return transfer_box(&t, origin, host_origin, region, pitches, to);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueWriteBufferRect(cl_command_queue q, cl_mem m, cl_bool blocking,
	const size_t *origin, const size_t *host_origin, const size_t *region, size_t row_pitch, size_t slice_pitch,
	size_t host_row_pitch, size_t host_slice_pitch, const void *from, cl_uint n, const cl_event *waits,
	cl_event *event) {
	struct transfer t = { q, m, CL_COMMAND_WRITE_BUFFER_RECT, true, blocking != CL_FALSE, { 0 }, { 0 }, n, waits,
		event };
	const size_t pitches[4] = { row_pitch, slice_pitch, host_row_pitch, host_slice_pitch };
	return transfer_box(&t, origin, host_origin, region, pitches, (void *)(uintptr_t)from);
}

/* overlap tells whether two ranges of one object, or of two that lie in the same one, share bytes. */
static bool overlap(cl_mem a, size_t a_at, size_t a_size, cl_mem b, size_t b_at, size_t b_size) {
	cl_mem a_root = a->parent != NULL ? a->parent : a, b_root = b->parent != NULL ? b->parent : b;
	a_at += a->offset;
	b_at += b->offset;
	return a_root == b_root && a_at < b_at + b_size && b_at < a_at + a_size;
}

/* copy sends a copy between two places. */
static cl_int copy(cl_command_queue q, cl_command_type type, cl_mem from, const struct place *src, cl_mem to,
	const struct place *dst, cl_uint n, const cl_event *waits, cl_event *event) {
	struct command m;
	cl_int rc = hfcl_command(&m, HFCL_COPY, type, q, n, waits, event, false);
	if (rc != CL_SUCCESS) {
		return rc;
	}
	hfcl_put32(&m.call, 0);
	put_place(&m.call, from, src);
	put_place(&m.call, to, dst);
	return hfcl_issue(&m, NULL, NULL);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueCopyBuffer(cl_command_queue q, cl_mem from, cl_mem to, size_t from_at,
	size_t to_at, size_t size, cl_uint n, const cl_event *waits, cl_event *event) {
	cl_int rc = check_buffer(q, from);
	if (rc == CL_SUCCESS) {
		rc = check_buffer(q, to);
	}
	if (rc == CL_SUCCESS) {
		rc = check_range(from, from_at, size);
	}
	if (rc == CL_SUCCESS) {
		rc = check_range(to, to_at, size);
	}
	if (rc == CL_SUCCESS && overlap(from, from_at, size, to, to_at, size)) {
		rc = CL_MEM_COPY_OVERLAP;
	}
	if (rc != CL_SUCCESS) {
		return rc;
	}
	struct place src = linear(from_at, size), dst = linear(to_at, size);
	return copy(q, CL_COMMAND_COPY_BUFFER, from, &src, to, &dst, n, waits, event);
}

/* boxes_overlap: rows of two boxes in one buffer may share bytes. */
static bool boxes_overlap(cl_mem from, const struct place *a, cl_mem to, const struct place *b) {
	for (size_t z = 0; z < a->region[2]; z++) {
		for (size_t y = 0; y < a->region[1]; y++) {
			size_t at = (a->origin[2] + z) * a->slice_pitch + (a->origin[1] + y) * a->row_pitch + a->origin[0];
			for (size_t v = 0; v < b->region[2]; v++) {
				size_t slice = (b->origin[2] + v) * b->slice_pitch + b->origin[1] * b->row_pitch + b->origin[0];
				size_t end = slice + (b->region[1] - 1) * b->row_pitch + b->region[0];
				if (!overlap(from, at, a->region[0], to, slice, end - slice)) {
					continue;
				}
				for (size_t u = 0; u < b->region[1]; u++) {
					if (overlap(from, at, a->region[0], to, slice + u * b->row_pitch, b->region[0])) {
						return true;
					}
				}
			}
		}
	}
	return false;
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueCopyBufferRect(cl_command_queue q, cl_mem from, cl_mem to,
	const size_t *from_origin, const size_t *to_origin, const size_t *region, size_t from_row, size_t from_slice,
	size_t to_row, size_t to_slice, cl_uint n, const cl_event *waits, cl_event *event) {
	cl_int rc = check_buffer(q, from);
	struct place src, dst;
	if (rc == CL_SUCCESS) {
		rc = check_buffer(q, to);
	}
	if (rc == CL_SUCCESS && (from_origin == NULL || to_origin == NULL || region == NULL)) {
		rc = CL_INVALID_VALUE;
	}
	if (rc == CL_SUCCESS) {
		rc = box(&src, from_origin, region, from_row, from_slice, from->size);
	}
	if (rc == CL_SUCCESS) {
		rc = box(&dst, to_origin, region, to_row, to_slice, to->size);
	}
	if (rc == CL_SUCCESS && from == to && (src.row_pitch != dst.row_pitch || src.slice_pitch != dst.slice_pitch)) {
		rc = CL_INVALID_VALUE;
	}
	if (rc == CL_SUCCESS && boxes_overlap(from, &src, to, &dst)) {
		rc = CL_MEM_COPY_OVERLAP;
	}
	return rc != CL_SUCCESS ? rc : copy(q, CL_COMMAND_COPY_BUFFER_RECT, from, &src, to, &dst, n, waits, event);
}

static cl_int fill(cl_command_queue q, cl_command_type type, cl_mem m, const struct place *p, const void *pattern,
	size_t size, cl_uint n, const cl_event *waits, cl_event *event) {
	struct command c;
	cl_int rc = hfcl_command(&c, HFCL_FILL, type, q, n, waits, event, false);
	if (rc != CL_SUCCESS) {
		return rc;
	}
	hfcl_put32(&c.call, 0);
	put_place(&c.call, m, p);
	hfcl_put_bytes(&c.call, pattern, size);
	return hfcl_issue(&c, NULL, NULL);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueFillBuffer(cl_command_queue q, cl_mem m, const void *pattern,
	size_t pattern_size, size_t offset, size_t size, cl_uint n, const cl_event *waits, cl_event *event) {
	cl_int rc = check_buffer(q, m);
	if (rc != CL_SUCCESS) {
		return rc;
	}
	if (pattern == NULL || pattern_size == 0 || pattern_size > 128 || (pattern_size & (pattern_size - 1)) != 0 ||
		offset % pattern_size != 0 || size % pattern_size != 0 || check_range(m, offset, size) != CL_SUCCESS) {
		return CL_INVALID_VALUE;
	}
	struct place p = linear(offset, size);
	return fill(q, CL_COMMAND_FILL_BUFFER, m, &p, pattern, pattern_size, n, waits, event);
}

/* pixels checks a box of an image. */
static cl_int pixels(struct place *p, cl_command_queue q, cl_mem m, const size_t *origin, const size_t *region) {
	size_t extent[3];
	if (hfcl_check_queue(q) != CL_SUCCESS) {
		return CL_INVALID_COMMAND_QUEUE;
	}
	if (!hfcl_is(m, MEM) || !hfcl_is_image(m)) {
		return CL_INVALID_MEM_OBJECT;
	}
	if (m->context != q->context) {
		return CL_INVALID_CONTEXT;
	}
	if (origin == NULL || region == NULL) {
		return CL_INVALID_VALUE;
	}
	hfcl_image_extent(m, extent);
	for (int i = 0; i < 3; i++) {
		if (region[i] == 0 || origin[i] > extent[i] || region[i] > extent[i] - origin[i]) {
			return CL_INVALID_VALUE;
		}
		p->origin[i] = origin[i];
		p->region[i] = region[i];
	}
	p->form = HFCL_PIXELS;
	p->row_pitch = p->slice_pitch = 0;
	return CL_SUCCESS;
}

static cl_int transfer_image(struct transfer *t, const size_t *origin, const size_t *region, size_t row_pitch,
	size_t slice_pitch, void *host) {
	cl_int rc = pixels(&t->place, t->q, t->m, origin, region);
	if (rc != CL_SUCCESS) {
		return rc;
	}
	size_t row = region[0] * t->m->pixel;
	row_pitch = row_pitch == 0 ? row : row_pitch;
	if (host == NULL || row_pitch < row || (slice_pitch != 0 && slice_pitch < row_pitch * region[1])) {
		return CL_INVALID_VALUE;
	}
	slice_pitch = slice_pitch == 0 ? row_pitch * region[1] : slice_pitch;
	rc = check_host(t->m, t->write ? CL_MEM_HOST_READ_ONLY : CL_MEM_HOST_WRITE_ONLY);
	if (rc != CL_SUCCESS) {
		return rc;
	}
	t->host = (struct rows){ host, row, region[1], region[2], row_pitch, slice_pitch };
	return transfer(t);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueReadImage(cl_command_queue q, cl_mem m, cl_bool blocking,
	const size_t *origin, const size_t *region, size_t row_pitch, size_t slice_pitch, void *to, cl_uint n,
	const cl_event *waits, cl_event *event) {
	struct transfer t = { q, m, CL_COMMAND_READ_IMAGE, false, blocking != CL_FALSE, { 0 }, { 0 }, n, waits,
		event };
	return transfer_image(&t, origin, region, row_pitch, slice_pitch, to);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueWriteImage(cl_command_queue q, cl_mem m, cl_bool blocking,
	const size_t *origin, const size_t *region, size_t row_pitch, size_t slice_pitch, const void *from, cl_uint n,
	const cl_event *waits, cl_event *event) {
	struct transfer t = { q, m, CL_COMMAND_WRITE_IMAGE, true, blocking != CL_FALSE, { 0 }, { 0 }, n, waits,
		event };
	return transfer_image(&t, origin, region, row_pitch, slice_pitch, (void *)(uintptr_t)from);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueCopyImage(cl_command_queue q, cl_mem from, cl_mem to,
	const size_t *from_origin, const size_t *to_origin, const size_t *region, cl_uint n, const cl_event *waits,
	cl_event *event) {
	struct place src, dst;
	cl_int rc = pixels(&src, q, from, from_origin, region);
	if (rc == CL_SUCCESS) {
		rc = pixels(&dst, q, to, to_origin, region);
	}
	if (rc == CL_SUCCESS && memcmp(&from->format, &to->format, sizeof from->format) != 0) {
		rc = CL_IMAGE_FORMAT_MISMATCH;
	}
	bool apart = from != to;
	for (int i = 0; i < 3 && rc == CL_SUCCESS; i++) {
		apart = apart || from_origin[i] >= to_origin[i] + region[i] || to_origin[i] >= from_origin[i] + region[i];
	}
	if (rc == CL_SUCCESS && !apart) {
		rc = CL_MEM_COPY_OVERLAP;
	}
	return rc != CL_SUCCESS ? rc : copy(q, CL_COMMAND_COPY_IMAGE, from, &src, to, &dst, n, waits, event);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueCopyImageToBuffer(cl_command_queue q, cl_mem from, cl_mem to,
	const size_t *origin, const size_t *region, size_t offset, cl_uint n, const cl_event *waits, cl_event *event) {
	struct place src, dst;
	cl_int rc = pixels(&src, q, from, origin, region);
	if (rc == CL_SUCCESS) {
		rc = check_buffer(q, to);
	}
	if (rc != CL_SUCCESS) {
		return rc;
	}
	dst = linear(offset, region[0] * region[1] * region[2] * from->pixel);
	rc = check_range(to, offset, dst.region[0]);
	return rc != CL_SUCCESS ? rc : copy(q, CL_COMMAND_COPY_IMAGE_TO_BUFFER, from, &src, to, &dst, n, waits, event);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueCopyBufferToImage(cl_command_queue q, cl_mem from, cl_mem to, size_t offset,
	const size_t *origin, const size_t *region, cl_uint n, const cl_event *waits, cl_event *event) {
	struct place src, dst;
	cl_int rc = pixels(&dst, q, to, origin, region);
	if (rc == CL_SUCCESS) {
		rc = check_buffer(q, from);
	}
	if (rc != CL_SUCCESS) {
		return rc;
	}
	src = linear(offset, region[0] * region[1] * region[2] * to->pixel);
	rc = check_range(from, offset, src.region[0]);
	return rc != CL_SUCCESS ? rc : copy(q, CL_COMMAND_COPY_BUFFER_TO_IMAGE, from, &src, to, &dst, n, waits, event);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueFillImage(cl_command_queue q, cl_mem m, const void *color,
	const size_t *origin, const size_t *region, cl_uint n, const cl_event *waits, cl_event *event) {
	struct place p;
	cl_int rc = pixels(&p, q, m, origin, region);
	if (rc == CL_SUCCESS && color == NULL) {
		rc = CL_INVALID_VALUE;
	}
	return rc != CL_SUCCESS ? rc : fill(q, CL_COMMAND_FILL_IMAGE, m, &p, color, 16, n, waits, event);
}
