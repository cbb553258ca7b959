/* Commands on memory objects: where their bytes lie, and how they are sent. */
#ifndef HFCL_PLACE_H
#define HFCL_PLACE_H

#include "hfcl.h"

/* Where the bytes of a command lie in a memory object. */
struct place {
	uint32_t form;
	size_t origin[3], region[3], row_pitch, slice_pitch;
};

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

/* place.c */
cl_int hfcl_check_buffer(cl_command_queue, cl_mem);
cl_int hfcl_check_range(cl_mem, size_t offset, size_t size);
cl_int hfcl_check_host(cl_mem, cl_mem_flags only_other); /* the program may touch the bytes */
struct place hfcl_place_linear(size_t offset, size_t size);
cl_int hfcl_place_box(struct place *, const size_t *origin, const size_t *region, size_t row_pitch, size_t slice_pitch,
	size_t size); /* fills in the pitches that are 0 and checks that the box lies within size bytes */
void hfcl_put_place(struct call *, cl_mem, const struct place *);

/* transfer.c */
cl_int hfcl_transfer(struct transfer *);

/* copy.c */
cl_int hfcl_copy(cl_command_queue, cl_command_type, cl_mem from, const struct place *src, cl_mem to,
	const struct place *dst, cl_uint n, const cl_event *waits, cl_event *);
cl_int hfcl_fill(cl_command_queue, cl_command_type, cl_mem, const struct place *, const void *pattern, size_t size,
	cl_uint n, const cl_event *waits, cl_event *);

#endif
