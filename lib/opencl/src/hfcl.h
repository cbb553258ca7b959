/* The common part of libholdfast-opencl's files: handles, the connection, messages. */
#ifndef HFCL_H
#define HFCL_H

#include "../wire/wire.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <CL/cl_egl.h>
#include <CL/cl_ext.h>
#include <CL/cl_gl.h>
#include <CL/cl_icd.h>
#pragma GCC diagnostic pop

/* The names that the loader looks for; all else it finds in the table. */
#define EXPORTED __attribute__((visibility("default")))
EXPORTED extern CL_API_ENTRY cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint, cl_platform_id *, cl_uint *);
EXPORTED extern CL_API_ENTRY void *CL_API_CALL clGetExtensionFunctionAddress(const char *);

/* The object of a handle; 0 once it is released. */
enum { DEAD, PLATFORM, DEVICE, CONTEXT, QUEUE, MEM, SAMPLER, PROGRAM, KERNEL, EVENT };

/* Every handle begins so: the loader reads the first word. */
struct object {
	const struct _cl_icd_dispatch *dispatch;
	_Atomic uint32_t kind;
	_Atomic cl_uint refs;
	uint64_t id; /* its number at the server */
};

struct _cl_platform_id {
	struct object o;
};

struct _cl_device_id {
	struct object o;
	cl_device_type type;
	pthread_mutex_t lock;
	struct answer *answers; /* earlier answers: they stay when the program is moved */
	_Atomic bool lost;      /* its server has gone */
};

/* A function to call when a context or a program goes, newest first. */
struct goodbye {
	struct goodbye *next;
	void(CL_CALLBACK *call)(void *, void *);
	void *data;
};

struct _cl_context {
	struct object o;
	cl_uint count;
	cl_device_id *devices;
	pthread_mutex_t lock;
	struct goodbye *goodbyes;
	cl_context_properties *properties;
	size_t properties_size;
	void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *);
	void *notify_data;
	_Atomic bool notified;              /* that a device is lost */
	struct _cl_context *next, **linked; /* in the list of those with a call-back; where it hangs there */
};

struct _cl_command_queue {
	struct object o;
	cl_context context;
	cl_device_id device;
	cl_command_queue_properties properties;
	cl_queue_properties list[3]; /* as given to clCreateCommandQueueWithProperties */
	size_t list_size;
};

/* A function to call when an object goes, newest first. */
struct destructor {
	struct destructor *next;
	void(CL_CALLBACK *call)(cl_mem, void *);
	void *data;
};

/* A mapping that is not ended. */
struct mapping {
	struct mapping *next;
	char *at;
	cl_map_flags flags;
	size_t origin[3], region[3]; /* of a buffer: bytes in the first number */
};

struct _cl_mem {
	struct object o;
	cl_context context;
	cl_mem parent; /* of a sub-buffer, or of an image on a buffer */
	cl_mem_object_type type;
	cl_mem_flags flags;
	size_t size, offset;
	cl_image_format format;
	cl_image_desc desc;
	size_t pixel; /* bytes, of images */
	void *host;   /* given with USE_HOST_PTR */
	pthread_mutex_t lock;
	char *shadow; /* where the host sees the object: host, or memory of the library */
	bool shadow_owned;
	struct area *area; /* that the shadow lies in, or NULL */
	bool area_shared;  /* the device knows it */
	size_t shadow_size;
	struct mapping *mappings;
	struct destructor *destructors;
};

struct _cl_sampler {
	struct object o;
	cl_context context;
	cl_bool normalized;
	cl_addressing_mode addressing;
	cl_filter_mode filter;
	cl_sampler_properties list[7]; /* as given to clCreateSamplerWithProperties */
	size_t list_size;
};

/* A source that is compiled by itself. */
struct unit {
	char *text;
	size_t size;
	char *options;
};

/* The input of a build: sources, and options of the linker for them. Builds of one program share it. */
struct recipe {
	cl_uint refs, count;
	struct unit *units;
	char *link; /* or NULL */
};

/* A device's build of a program. */
struct build {
	cl_build_status status;
	cl_program_binary_type type; /* of the last build that succeeded, or of the binary */
	char *options, *log;
	struct recipe *recipe; /* of the last build, or of the binary, or NULL */
};

struct _cl_program {
	struct object o;
	cl_context context;
	pthread_mutex_t lock;
	char *source;         /* NULL of binaries and linked programs */
	struct build *builds; /* by the devices of the context */
	bool served;          /* the server has it under the program's number */
	char *names;          /* of kernels with ; between */
	cl_uint kernels;      /* that the build has */
	cl_uint live;         /* kernel objects */
	struct goodbye *goodbyes;
};

struct argument {
	uint32_t address; /* CL_KERNEL_ARG_ADDRESS_..., 0 where it is not known */
	uint32_t takes;   /* HFCL_TAKES_... */
	uint32_t bytes;   /* of a number or a vector, 0 for all else */
	bool set;
	/* values that the device took: it takes such values again */
	uint32_t kind;
	size_t size;
	cl_mem_object_type type;
	cl_mem_flags access;
};

/* The work-groups of a launch; the device took them, and takes them again. */
enum { SHAPES = 4 };
struct shape {
	uint64_t queue; /* 0: none */
	cl_uint dims;
	bool chosen; /* by the program */
	size_t local[3];
};

struct _cl_kernel {
	struct object o;
	cl_program program;
	char *name, *attributes;
	cl_uint count;
	pthread_mutex_t lock; /* of the fields below */
	struct argument *args;
	struct shape shapes[SHAPES]; /* that were launched with success */
	unsigned next_shape;
};

struct watcher {
	struct watcher *next;
	cl_int type;
	void(CL_CALLBACK *call)(cl_event, cl_int, void *);
	void *data;
	uint64_t number;
};

struct _cl_event {
	struct object o;
	cl_context context;
	cl_command_queue queue; /* NULL of user events */
	cl_command_type type;
	pthread_mutex_t lock;
	_Atomic cl_int status; /* 0 or below: final */
	struct watcher *watchers;
	struct rows into;      /* of a read that does not block */
	struct bounce *bounce; /* that its bytes are in, or those of a write, or NULL */
	cl_mem shown;          /* a reference to the object whose mapping they are for, until they have come, or NULL */
	struct _cl_event *next_pending;
};

/* object.c */
extern struct _cl_platform_id hfcl_platform;
void hfcl_init(struct object *o, uint32_t kind);
bool hfcl_is(const void *handle, uint32_t kind);
void hfcl_retain(void *handle);
bool hfcl_drop(void *handle); /* true: that was the last reference, and nobody finds the object any more */
bool hfcl_live(const void *handle, uint32_t kind); /* for words that may be no handle at all: MEM and SAMPLER */
void hfcl_list(void *handle);
void hfcl_unlist(void *handle);
uint64_t hfcl_number(void);
cl_int hfcl_answer(const void *value, size_t size, size_t room, void *to, size_t *size_ret);
cl_int hfcl_answer_text(const char *text, size_t room, void *to, size_t *size_ret);
#define ANSWER(T, v) hfcl_answer((T[]){ v }, sizeof(T), room, to, size_ret)

/* connect.c */
bool hfcl_connect(void); /* false: there is no server, and none could be started */
extern void *(*hfcl_receiver)(
	void *); /* the thread that receives from the control socket, to which it gets a pointer */

/* pending.c */
void hfcl_expect(cl_event);
bool hfcl_unexpect(cl_event); /* true: the reference of the list is the caller's now */
cl_event hfcl_expected(uint64_t number);
cl_event hfcl_expect_no_more(void);            /* all that were expected, each with its reference */
bool hfcl_reads_pending(const struct rows *);  /* a read that does not block is on its way into this memory */
void hfcl_wait_for_reads(const struct rows *); /* waits until nothing is on its way into this memory */

/* delivery.c: messages that the server sends by itself */
void *hfcl_receive_all(void *control);

/* event.c */
cl_event hfcl_event(cl_context, cl_command_queue, cl_command_type);
void hfcl_put_events(struct call *, cl_uint n, const cl_event *);
cl_int hfcl_check_waits(cl_context, cl_uint n, const cl_event *);
void hfcl_finish_event(cl_event, cl_int status);
void hfcl_noted(uint64_t watch, uint64_t event, cl_int status);

/* platform.c */
void hfcl_lose_device(uint64_t number);

/* context.c */
cl_uint hfcl_device_index(cl_context, cl_device_id); /* count where the context does not have it */
cl_int hfcl_check_devices(cl_context, cl_uint n, const cl_device_id *);
bool hfcl_goodbye(pthread_mutex_t *, struct goodbye **, void(CL_CALLBACK *)(void *, void *), void *data);
void hfcl_say_goodbye(struct goodbye *, void *handle);
void hfcl_report_loss(void); /* some device, or the server, is lost */

/* memory.c */
cl_int hfcl_check_flags(cl_mem_flags, const void *host);
uint32_t hfcl_access_of(cl_mem_flags);
cl_mem hfcl_new_mem(cl_context, cl_mem_object_type, cl_mem_flags, size_t, void *);
cl_mem hfcl_made_mem(cl_mem, struct call *, const struct rows *, cl_int *);

/* image.c */
size_t hfcl_pixel_bytes(const cl_image_format *);
bool hfcl_is_image(const struct _cl_mem *);
uint32_t hfcl_shape(cl_mem_object_type); /* 1 to 3 dimensions, of arrays with HFCL_ARRAY, 0: no image */
void hfcl_image_extent(const struct _cl_mem *, size_t extent[3]);
struct rows hfcl_pixel_rows(
	const struct _cl_mem *, void *at, const size_t *region, size_t row_pitch, size_t slice_pitch);

/* program.c */
cl_program hfcl_new_program(cl_context, cl_int *);
struct recipe *hfcl_new_recipe(const char *link); /* NULL without memory */
void hfcl_drop_recipe(struct recipe *);           /* or NULL */
bool hfcl_add_unit(struct recipe *, const char *text, size_t, const char *options);
bool hfcl_built(const struct _cl_program *);

/* options.c: hfcl_add_unit with options of the program's own; names of files in them are made whole */
bool hfcl_add_source(struct recipe *, const char *text, size_t, const char *options);

/* build.c: builds for n devices of the context, at least one; others keep their builds. The lock is held */
cl_int hfcl_build(cl_program, struct recipe *, uint32_t form, cl_program_binary_type, const char *options, cl_uint n,
	const cl_device_id *);

/* binary.c */
size_t hfcl_binary_size(const struct _cl_program *, cl_uint device);
void hfcl_binary(const struct _cl_program *, cl_uint device, unsigned char *to);

/* transfer.c */
cl_int hfcl_transfer_range(cl_command_queue, cl_mem, cl_command_type, bool write, bool blocking, size_t offset,
	size_t size, void *host, cl_uint n, const cl_event *waits, cl_event *);
cl_int hfcl_transfer_pixels(cl_command_queue, cl_mem, cl_command_type, bool write, bool blocking, const size_t *origin,
	const size_t *region, const struct rows *host, cl_uint n, const cl_event *waits, cl_event *);

/* state.c: functions that holdfast_opencl.h finds by name. They give an error of OpenCL. */
cl_int hfcl_capture(int (*take)(const void *, size_t, void *), void *data);
cl_int hfcl_restore(const void *state, size_t bytes);
extern _Atomic int hfcl_mapped; /* mappings that are not ended */

/* queue.c: a command with the event that the program wants, and its wait list */
struct command {
	struct call call;
	cl_event made;
	cl_event *wanted;
	bool rings; /* the ring takes it */
};
cl_int hfcl_command(struct command *, uint32_t op, cl_command_type, cl_command_queue, cl_uint n, const cl_event *waits,
	cl_event *wanted, bool tracked);
cl_int hfcl_issue(struct command *, const struct rows *out, const struct rows *in);
cl_int hfcl_answered(struct command *, cl_int rc); /* ends a command that was sent otherwise */
cl_int hfcl_submit(struct command *); /* hfcl_issue without waiting: an error comes to the event, or to clFinish */
cl_int hfcl_check_queue(cl_command_queue);

/* The place of a command's bytes in a memory object. */
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
