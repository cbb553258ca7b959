/* The place of a command's bytes in a memory object. */
#include "hfcl.h"

cl_int hfcl_check_buffer(cl_command_queue q, cl_mem m) {
	if (hfcl_check_queue(q) != CL_SUCCESS) {
		return CL_INVALID_COMMAND_QUEUE;
	}
	if (!hfcl_is(m, MEM) || hfcl_is_image(m)) {
		return CL_INVALID_MEM_OBJECT;
	}
	return m->context == q->context ? CL_SUCCESS : CL_INVALID_CONTEXT;
}

cl_int hfcl_check_range(cl_mem m, size_t offset, size_t size) {
	return size == 0 || offset > m->size || size > m->size - offset ? CL_INVALID_VALUE : CL_SUCCESS;
}

cl_int hfcl_check_host(cl_mem m, cl_mem_flags only_other) {
	return (m->flags & (only_other | CL_MEM_HOST_NO_ACCESS)) != 0 ? CL_INVALID_OPERATION : CL_SUCCESS;
}

struct place hfcl_place_linear(size_t offset, size_t size) {
	return (struct place){ HFCL_LINEAR, { offset, 0, 0 }, { size, 1, 1 }, 0, 0 };
}

void hfcl_put_place(struct call *c, cl_mem m, const struct place *p) {
	hfcl_put64(c, m->o.id);
	hfcl_put32(c, p->form);
	hfcl_put_box(c, p->origin, p->region);
	hfcl_put64(c, p->row_pitch);
	hfcl_put64(c, p->slice_pitch);
}

cl_int hfcl_place_box(
	struct place *p, const size_t *origin, const size_t *region, size_t row_pitch, size_t slice_pitch, size_t size) {
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
	if (row_pitch > HFCL_MAX_NUMBER) { /* of one row, which needs none */
		p->row_pitch = region[0];
	}
	if (slice_pitch > HFCL_MAX_NUMBER) {
		p->slice_pitch = p->row_pitch * region[1];
	}
	return CL_SUCCESS;
}
