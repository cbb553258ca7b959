/* Commands that copy among buffers, and fill them. */
#include "hfcl.h"

/* overlap reports whether two ranges of one object, or of two that lie in the same one, share bytes. */
static bool overlap(cl_mem a, size_t a_at, size_t a_size, cl_mem b, size_t b_at, size_t b_size) {
	cl_mem a_root = a->parent != NULL ? a->parent : a, b_root = b->parent != NULL ? b->parent : b;
	a_at += a->offset;
	b_at += b->offset;
	return a_root == b_root && a_at < b_at + b_size && b_at < a_at + a_size;
}

/* hfcl_copy sends a copy between two places. */
cl_int hfcl_copy(cl_command_queue q, cl_command_type type, cl_mem from, const struct place *src, cl_mem to,
	const struct place *dst, cl_uint n, const cl_event *waits, cl_event *event) {
	struct command m;
	cl_int rc = hfcl_command(&m, HFCL_COPY, type, q, n, waits, event, false);
	if (rc != CL_SUCCESS) {
		return rc;
	}
	hfcl_put32(&m.call, 0);
	hfcl_put_place(&m.call, from, src);
	hfcl_put_place(&m.call, to, dst);
	return hfcl_submit(&m);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueCopyBuffer(cl_command_queue q, cl_mem from, cl_mem to, size_t from_at,
	size_t to_at, size_t size, cl_uint n, const cl_event *waits, cl_event *event) {
	cl_int rc = hfcl_check_buffer(q, from);
	if (rc == CL_SUCCESS) {
		rc = hfcl_check_buffer(q, to);
	}
	if (rc == CL_SUCCESS) {
		rc = hfcl_check_range(from, from_at, size);
	}
	if (rc == CL_SUCCESS) {
		rc = hfcl_check_range(to, to_at, size);
	}
	if (rc == CL_SUCCESS && overlap(from, from_at, size, to, to_at, size)) {
		rc = CL_MEM_COPY_OVERLAP;
	}
	if (rc != CL_SUCCESS) {
		return rc;
	}
	struct place src = hfcl_place_linear(from_at, size), dst = hfcl_place_linear(to_at, size);
	return hfcl_copy(q, CL_COMMAND_COPY_BUFFER, from, &src, to, &dst, n, waits, event);
}

/* begin_of is where a box begins in the whole buffer. */
static size_t begin_of(cl_mem m, const struct place *p) {
	return m->offset + p->origin[2] * p->slice_pitch + p->origin[1] * p->row_pitch + p->origin[0];
}

/* meets reports whether size bytes, no more than a row has, share some with a box that begins at 0. They meet the
   slice that begins before them or the one after it, and there such a row. */
static bool meets(int64_t at, int64_t size, const struct place *b) {
	const int64_t slice = (int64_t)b->slice_pitch, row = (int64_t)b->row_pitch;
	int64_t v = at < 0 ? 0 : at / slice;
	for (int64_t end = v + 2; v < end && v < (int64_t)b->region[2]; v++) {
		int64_t in = at - v * slice, u = in < 0 ? 0 : in / row;
		for (int64_t last = u + 2; u < last && u < (int64_t)b->region[1]; u++) {
			if (in < u * row + (int64_t)b->region[0] && u * row < in + size) {
				return true;
			}
		}
	}
	return false;
}

/* boxes_overlap: rows of two boxes in one buffer share bytes. */
static bool boxes_overlap(cl_mem from, const struct place *a, cl_mem to, const struct place *b) {
	if ((from->parent != NULL ? from->parent : from) != (to->parent != NULL ? to->parent : to)) {
		return false;
	}
	int64_t at = (int64_t)begin_of(from, a) - (int64_t)begin_of(to, b);
	for (size_t z = 0; z < a->region[2]; z++) {
		for (size_t y = 0; y < a->region[1]; y++) {
			if (meets(at + (int64_t)(z * a->slice_pitch + y * a->row_pitch), (int64_t)a->region[0], b)) {
				return true;
			}
		}
	}
	return false;
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueCopyBufferRect(cl_command_queue q, cl_mem from, cl_mem to,
	const size_t *from_origin, const size_t *to_origin, const size_t *region, size_t from_row, size_t from_slice,
	size_t to_row, size_t to_slice, cl_uint n, const cl_event *waits, cl_event *event) {
	cl_int rc = hfcl_check_buffer(q, from);
	struct place src, dst;
	if (rc == CL_SUCCESS) {
		rc = hfcl_check_buffer(q, to);
	}
	if (rc == CL_SUCCESS && (from_origin == NULL || to_origin == NULL || region == NULL)) {
		rc = CL_INVALID_VALUE;
	}
	if (rc == CL_SUCCESS) {
		rc = hfcl_place_box(&src, from_origin, region, from_row, from_slice, from->size);
	}
	if (rc == CL_SUCCESS) {
		rc = hfcl_place_box(&dst, to_origin, region, to_row, to_slice, to->size);
	}
	if (rc == CL_SUCCESS && from == to && (src.row_pitch != dst.row_pitch || src.slice_pitch != dst.slice_pitch)) {
		rc = CL_INVALID_VALUE;
	}
	if (rc == CL_SUCCESS && boxes_overlap(from, &src, to, &dst)) {
		rc = CL_MEM_COPY_OVERLAP;
	}
	return rc != CL_SUCCESS ? rc : hfcl_copy(q, CL_COMMAND_COPY_BUFFER_RECT, from, &src, to, &dst, n, waits, event);
}

cl_int hfcl_fill(cl_command_queue q, cl_command_type type, cl_mem m, const struct place *p, const void *pattern,
	size_t size, cl_uint n, const cl_event *waits, cl_event *event) {
	struct command c;
	cl_int rc = hfcl_command(&c, HFCL_FILL, type, q, n, waits, event, false);
	if (rc != CL_SUCCESS) {
		return rc;
	}
	hfcl_put32(&c.call, 0);
	hfcl_put_place(&c.call, m, p);
	hfcl_put_bytes(&c.call, pattern, size);
	return hfcl_submit(&c);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueFillBuffer(cl_command_queue q, cl_mem m, const void *pattern,
	size_t pattern_size, size_t offset, size_t size, cl_uint n, const cl_event *waits, cl_event *event) {
	cl_int rc = hfcl_check_buffer(q, m);
	if (rc != CL_SUCCESS) {
		return rc;
	}
	if (pattern == NULL || pattern_size == 0 || pattern_size > 128 || (pattern_size & (pattern_size - 1)) != 0 ||
		offset % pattern_size != 0 || size % pattern_size != 0 || hfcl_check_range(m, offset, size) != CL_SUCCESS) {
		return CL_INVALID_VALUE;
	}
	struct place p = hfcl_place_linear(offset, size);
	return hfcl_fill(q, CL_COMMAND_FILL_BUFFER, m, &p, pattern, pattern_size, n, waits, event);
}
