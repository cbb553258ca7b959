/* Commands on the pixels of images. */
#include "hfcl.h"

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

static cl_int transfer_image(
	struct transfer *t, const size_t *origin, const size_t *region, size_t row_pitch, size_t slice_pitch, void *host) {
	cl_int rc = pixels(&t->place, t->q, t->m, origin, region);
	if (rc != CL_SUCCESS) {
		return rc;
	}
	size_t row = region[0] * t->m->pixel, rows = t->m->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? 1 : region[1];
	row_pitch = row_pitch == 0 ? row : row_pitch;
	if (host == NULL || row_pitch < row || (slice_pitch != 0 && slice_pitch < row_pitch * rows)) {
		return CL_INVALID_VALUE;
	}
	slice_pitch = slice_pitch == 0 ? row_pitch * rows : slice_pitch;
	rc = hfcl_check_host(t->m, t->write ? CL_MEM_HOST_READ_ONLY : CL_MEM_HOST_WRITE_ONLY);
	if (rc != CL_SUCCESS) {
		return rc;
	}
	t->host = hfcl_pixel_rows(t->m, host, region, row_pitch, slice_pitch);
	return hfcl_transfer(t);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueReadImage(cl_command_queue q, cl_mem m, cl_bool blocking, const size_t *origin,
	const size_t *region, size_t row_pitch, size_t slice_pitch, void *to, cl_uint n, const cl_event *waits,
	cl_event *event) {
	struct transfer t = { q, m, CL_COMMAND_READ_IMAGE, false, blocking != CL_FALSE, { 0 }, { 0 }, n, waits, event };
	return transfer_image(&t, origin, region, row_pitch, slice_pitch, to);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueWriteImage(cl_command_queue q, cl_mem m, cl_bool blocking,
	const size_t *origin, const size_t *region, size_t row_pitch, size_t slice_pitch, const void *from, cl_uint n,
	const cl_event *waits, cl_event *event) {
	struct transfer t = { q, m, CL_COMMAND_WRITE_IMAGE, true, blocking != CL_FALSE, { 0 }, { 0 }, n, waits, event };
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
	return rc != CL_SUCCESS ? rc : hfcl_copy(q, CL_COMMAND_COPY_IMAGE, from, &src, to, &dst, n, waits, event);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueCopyImageToBuffer(cl_command_queue q, cl_mem from, cl_mem to,
	const size_t *origin, const size_t *region, size_t offset, cl_uint n, const cl_event *waits, cl_event *event) {
	struct place src, dst;
	cl_int rc = pixels(&src, q, from, origin, region);
	if (rc == CL_SUCCESS) {
		rc = hfcl_check_buffer(q, to);
	}
	if (rc != CL_SUCCESS) {
		return rc;
	}
	dst = hfcl_place_linear(offset, region[0] * region[1] * region[2] * from->pixel);
	rc = hfcl_check_range(to, offset, dst.region[0]);
	return rc != CL_SUCCESS ? rc : hfcl_copy(q, CL_COMMAND_COPY_IMAGE_TO_BUFFER, from, &src, to, &dst, n, waits, event);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueCopyBufferToImage(cl_command_queue q, cl_mem from, cl_mem to, size_t offset,
	const size_t *origin, const size_t *region, cl_uint n, const cl_event *waits, cl_event *event) {
	struct place src, dst;
	cl_int rc = pixels(&dst, q, to, origin, region);
	if (rc == CL_SUCCESS) {
		rc = hfcl_check_buffer(q, from);
	}
	if (rc != CL_SUCCESS) {
		return rc;
	}
	src = hfcl_place_linear(offset, region[0] * region[1] * region[2] * to->pixel);
	rc = hfcl_check_range(from, offset, src.region[0]);
	return rc != CL_SUCCESS ? rc : hfcl_copy(q, CL_COMMAND_COPY_BUFFER_TO_IMAGE, from, &src, to, &dst, n, waits, event);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueFillImage(cl_command_queue q, cl_mem m, const void *color,
	const size_t *origin, const size_t *region, cl_uint n, const cl_event *waits, cl_event *event) {
	struct place p;
	cl_int rc = pixels(&p, q, m, origin, region);
	if (rc == CL_SUCCESS && color == NULL) {
		rc = CL_INVALID_VALUE;
	}
	return rc != CL_SUCCESS ? rc : hfcl_fill(q, CL_COMMAND_FILL_IMAGE, m, &p, color, 16, n, waits, event);
}
