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

struct _cl_platform_id {
	struct object o;
};

struct _cl_device_id {
	struct object o;
	cl_device_type type;
	pthread_mutex_t lock;
	struct answer *answers; /* what was asked before: it stays as it was when the program is moved */
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

/* What is built: sources, and options of the linker for them. Builds of one program share it. */
struct recipe {
	cl_uint refs, count;
	struct unit *units;
	char *link; /* or NULL */
};

/* What a device has of a program. */
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
	/* what the device took: it takes such values again */
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
	pthread_mutex_t lock; /* of what follows */
	struct argument *args;
	struct shape shapes[SHAPES]; /* that were launched with success */
	unsigned next_shape;
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
	struct rows into;      /* of a read that does not block */
	struct bounce *bounce; /* that its bytes are in, or those of a write, or NULL */
	cl_mem shown;          /* a reference to the object whose mapping they are for, until they have come, or NULL */
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

/* A thread that is cancelled is so in no call of this library, which may hold what others wait for: each place that
   might let it end begins with the first of these, and ends with the second. */
static inline int hfcl_no_cancel(void) {
	int before;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}
static inline void hfcl_cancel_again(int before) { pthread_setcancelstate(before, &(int){ 0 }); }

/* channel.c: the server's process and the sockets to it */
struct lane {
	struct lane *next;
	int fd;
};
bool hfcl_connect(void); /* false: there is no server, and none could be started */
bool hfcl_lost(void);
void hfcl_lose(void); /* the server is gone */
/* hfcl_own gives a descriptor, which it takes, as one that is none of the program's standard files: one that began
   without them would write into it. -1: that cannot be. */
int hfcl_own(int fd);
bool hfcl_pass_area(int fd);
unsigned hfcl_max_areas(void);
bool hfcl_pass(int control, char what, int fd); /* sends a byte with a descriptor, -1: without */
struct lane *hfcl_take_lane(void);
void hfcl_give_lane(struct lane *, bool broken);
bool hfcl_few_lanes(void); /* a call that may last takes none of them: who ends that may need one */
bool hfcl_send(int fd, const void *head, size_t n, const void *body, size_t m, const struct rows *);
bool hfcl_receive(int fd, void *to, size_t n);
bool hfcl_receive_rows(int fd, const struct rows *);
size_t hfcl_rows_size(const struct rows *);
struct rows hfcl_linear(void *at, size_t n);

/* ring.c: requests that nobody answers, or with a status alone, in memory that the server maps */
bool hfcl_ring_open(int control);
bool hfcl_ring_put(const uint8_t *message, size_t n); /* false: the server is gone */
uint64_t hfcl_ring_position(void); /* what was put before this call is carried out before what waits for it */
bool hfcl_ring_careful(void);
void hfcl_ring_unask(int slot);
int hfcl_ring_ask(void);                                 /* a reply slot, -1: none is free */
cl_int hfcl_ring_answer(int slot, uint64_t *deliveries); /* waits; the slot is free then */
void hfcl_ring_end(void);
_Atomic uint32_t *hfcl_ring_word(size_t at);
void hfcl_ring_wake(_Atomic uint32_t *);
void hfcl_ring_sleep(_Atomic uint32_t *, uint32_t value); /* while it has this value, a second at most */
bool hfcl_ring_awake(_Atomic uint32_t *, uint32_t value); /* a moment; true: it has another value */

/* area.c: memory that the server maps too */
struct area {
	struct area *next;
	uint64_t number;
	char *at;
	size_t size;
};
int hfcl_shareable(size_t size);     /* a file of zeros in memory; -1, and errno, where that cannot be */
struct area *hfcl_area(size_t size); /* NULL where that cannot be */
void hfcl_area_share(struct area *, uint64_t device); /* the device moves bytes there without a copy from now on */
void hfcl_area_end(struct area *);                    /* unmaps it; commands that use it go on */
bool hfcl_in_area(const char *from, const char *to, uint64_t *number, uint64_t *offset);
struct slots { /* of one transfer, which uses them in turn */
	struct area *area;
	unsigned n;
	int list[HFCL_SLOTS];
};
unsigned hfcl_take_slots(uint64_t device, unsigned most, unsigned least, struct slots *); /* at least so many, or 0 */
void hfcl_give_slots(const struct slots *, bool reset);          /* reset: the server has done with all */
bool hfcl_take_run(uint64_t device, unsigned n, struct slots *); /* slots side by side, as memory without turns */
char *hfcl_slot(const struct slots *, size_t piece);
void hfcl_set_slot(const struct slots *, size_t piece, uint32_t to);
bool hfcl_await_slot(const struct slots *, size_t piece, uint32_t want); /* false: the command has failed */

/* bounce.c: shared memory for the bytes of one transfer, one behind the other */
struct bounce {
	struct bounce *next;
	struct area *area;
	char *at;
	uint64_t device;    /* that knows the area */
	struct slots slots; /* that it consists of, n is 0 where it is an area of its own */
};
/* hfcl_take_bounce gives NULL where the transfer goes another way; few bytes get an area where it is needed alone. */
struct bounce *hfcl_take_bounce(uint64_t device, size_t size, bool needed);
void hfcl_give_bounce(struct bounce *);
void hfcl_copy_rows(const struct rows *, char *packed, bool out); /* out: of the rows, else into them */

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
/* hfcl_ask is hfcl_run for a request whose reply is a status alone; it takes the ring where it can. */
cl_int hfcl_ask(struct call *);
cl_int hfcl_ask_in(struct call *, int slot); /* sends it; where it succeeds hfcl_answer_in must follow */
cl_int hfcl_answer_in(int slot);
/* hfcl_post sends a request whose reply tells nothing that the program must know now. It ends the call, and fails
   where the server is gone. */
cl_int hfcl_post(struct call *);
uint32_t hfcl_get32(struct call *);
uint64_t hfcl_get64(struct call *);
const char *hfcl_get_bytes(struct call *, size_t *n);
char *hfcl_get_text(struct call *); /* a copy that the caller frees, NULL without memory */
void hfcl_end(struct call *);
cl_int hfcl_release(uint64_t id); /* when the commands that use it are complete */

/* delivery.c: what the server sends by itself */
bool hfcl_listen(int fd);
bool hfcl_thread(void *(*run)(void *), void *data); /* one that takes no signals */
void hfcl_expect(cl_event);
bool hfcl_unexpect(cl_event); /* false: nobody expects it any more */
void hfcl_await(uint64_t deliveries);
const char *hfcl_end_of(const struct rows *);
bool hfcl_unsettled(const struct rows *); /* a read that does not block is on its way into this memory */
void hfcl_settle(const struct rows *);    /* waits until nothing is on its way into this memory */
void hfcl_call_later(void (*call)(void *), void *data);

/* event.c */
cl_event hfcl_event(cl_context, cl_command_queue, cl_command_type);
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
void hfcl_tell_contexts(void); /* some device, or the server, is lost */
extern struct _cl_platform_id hfcl_platform;

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

/* build.c: builds for n devices of the context, at least one; others keep what they have. The lock is held */
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

/* state.c: what holdfast_opencl.h finds by name. They give an error of OpenCL. */
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

#endif
