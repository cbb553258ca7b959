/* What the files of libholdfast-opencl share: handles, the connection, messages. */
#ifndef HFCL_H
#define HFCL_H

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#define CL_USE_DEPRECATED_OPENCL_2_1_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>
#pragma GCC diagnostic pop

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "protocol.h"

_Static_assert(sizeof(void *) == 8 && sizeof(size_t) == 8, "the wire and kernel arguments have 8-byte addresses");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little-endian");

/* What the loader looks for by name; all else it finds in the table. */
#define EXPORTED __attribute__((visibility("default")))
EXPORTED extern CL_API_ENTRY cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint, cl_platform_id *, cl_uint *);
EXPORTED extern CL_API_ENTRY void *CL_API_CALL clGetExtensionFunctionAddress(const char *);

/* What a handle stands for; 0 once it is released. */
enum { DEAD, PLATFORM, DEVICE, CONTEXT, QUEUE, MEM, SAMPLER, PROGRAM, KERNEL, EVENT };

/* Every handle begins so: the loader reads the first word. */
struct object {
	const struct _cl_icd_dispatch *dispatch;
	_Atomic uint32_t kind;
	_Atomic cl_uint refs;
	uint64_t id; /* its number at the server */
};

struct _cl_platform_id { struct object o; };

struct _cl_device_id {
	struct object o;
	cl_device_type type;
	pthread_mutex_t lock;
	struct answer *answers; /* what was asked before: it stays as it was when the program is moved */
};

struct _cl_context {
	struct object o;
	cl_device_id device;
	cl_context_properties *properties;
	size_t properties_size;
};

struct _cl_command_queue {
	struct object o;
	cl_context context;
	cl_command_queue_properties properties;
	cl_queue_properties list[8]; /* as given to clCreateCommandQueueWithProperties */
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
};

struct _cl_program {
	struct object o;
	cl_context context;
	pthread_mutex_t lock;
	char *source;
	size_t source_size;
	char *text; /* the source with the headers of the last compilation, NULL without any */
	size_t text_size;
	bool from_binary;
	char *options, *log, *names; /* of the last build; names of kernels with ; between */
	cl_uint kernels;             /* that the build has */
	cl_uint live;                /* kernel objects */
	cl_build_status status;
	cl_program_binary_type type; /* of the last build that succeeded */
};

struct argument {
	uint32_t address; /* CL_KERNEL_ARG_ADDRESS_..., 0 where it is not known */
	bool set;
};

struct _cl_kernel {
	struct object o;
	cl_program program;
	char *name;
	cl_uint count;
	pthread_mutex_t lock; /* of args' flags */
	struct argument *args;
};

/* Bytes of the program as the API addresses them: slices of rows. */
struct rows {
	char *at;
	size_t row, rows, slices, row_pitch, slice_pitch;
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
	struct rows into; /* of a read that does not block */
	struct _cl_event *next_pending;
};

/* object.c */
extern const struct _cl_icd_dispatch hfcl_dispatch;
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

/* channel.c: the server's process and the sockets to it */
struct lane {
	struct lane *next;
	int fd;
};
bool hfcl_connect(void); /* false: there is no server, and none could be started */
bool hfcl_lost(void);
struct lane *hfcl_take_lane(void);
void hfcl_give_lane(struct lane *, bool broken);
bool hfcl_send(int fd, const void *head, size_t n, const void *body, size_t m, const struct rows *);
bool hfcl_receive(int fd, void *to, size_t n);
bool hfcl_receive_rows(int fd, const struct rows *);
size_t hfcl_rows_size(const struct rows *);
struct rows hfcl_linear(void *at, size_t n);

/* message.c: a request, its reply */
struct call {
	uint32_t op;
	bool failed; /* no memory, or a reply that says less than is read from it */
	uint8_t *b;
	size_t n, room, at;
	uint8_t fixed[512];
};
void hfcl_begin(struct call *, uint32_t op);
void hfcl_put32(struct call *, uint32_t);
void hfcl_put64(struct call *, uint64_t);
void hfcl_put_bytes(struct call *, const void *, size_t); /* with their length before */
void hfcl_put_events(struct call *, cl_uint n, const cl_event *);
void hfcl_put_box(struct call *, const size_t *origin, const size_t *region);
/* hfcl_run sends the request with the bytes of out, and receives a reply, whose bulk goes to in. It gives the
   status. hfcl_end must follow. */
cl_int hfcl_run(struct call *, const struct rows *out, const struct rows *in);
void hfcl_post(struct call *); /* a request without reply; ends the call */
uint32_t hfcl_get32(struct call *);
uint64_t hfcl_get64(struct call *);
const char *hfcl_get_bytes(struct call *, size_t *n);
char *hfcl_get_text(struct call *); /* a copy that the caller frees, NULL without memory */
void hfcl_end(struct call *);
cl_int hfcl_release(uint64_t id);

/* delivery.c: what the server sends by itself */
bool hfcl_listen(int fd);
void hfcl_expect(cl_event);
void hfcl_unexpect(cl_event);
void hfcl_await(uint64_t deliveries);
void hfcl_settle(const struct rows *); /* waits until nothing is on its way into this memory */
void hfcl_call_later(void (*call)(void *), void *data);

/* event.c */
cl_event hfcl_event(cl_context, cl_command_queue, cl_command_type);
cl_int hfcl_check_waits(cl_context, cl_uint n, const cl_event *);
void hfcl_finish_event(cl_event, cl_int status);
void hfcl_noted(uint64_t watch, uint64_t event, cl_int status);

/* memory.c */
cl_int hfcl_check_flags(cl_mem_flags, const void *host);
uint32_t hfcl_access_of(cl_mem_flags);
cl_mem hfcl_new_mem(cl_context, cl_mem_object_type, cl_mem_flags, size_t, void *);
cl_mem hfcl_made_mem(cl_mem, struct call *, const struct rows *, cl_int *);

/* image.c */
size_t hfcl_pixel_bytes(const cl_image_format *);
bool hfcl_is_image(const struct _cl_mem *);
void hfcl_image_extent(const struct _cl_mem *, size_t extent[3]);

/* program.c */
cl_program hfcl_new_program(cl_context, size_t source_size, cl_int *);
const char *hfcl_text(const struct _cl_program *, size_t *size);
cl_int hfcl_build(cl_program, const char *options, cl_program_binary_type);

/* transfer.c */
cl_int hfcl_transfer_range(cl_command_queue, cl_mem, cl_command_type, bool write, bool blocking, size_t offset,
	size_t size, void *host, cl_uint n, const cl_event *waits, cl_event *);
cl_int hfcl_transfer_pixels(cl_command_queue, cl_mem, cl_command_type, bool write, bool blocking, const size_t *origin,
	const size_t *region, const struct rows *host, cl_uint n, const cl_event *waits, cl_event *);

/* queue.c: a command with the event that the program wants, and its wait list */
struct command {
	struct call call;
	cl_event made;
	cl_event *wanted;
};
cl_int hfcl_command(struct command *, uint32_t op, cl_command_type, cl_command_queue, cl_uint n, const cl_event *waits,
	cl_event *wanted, bool tracked);
cl_int hfcl_issue(struct command *, const struct rows *out, const struct rows *in);
cl_int hfcl_check_queue(cl_command_queue);

#endif
