/* client.h - the common part of the library's files. Nothing here is exported. */
#ifndef HF_CLIENT_H
#define HF_CLIENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define API __attribute__((visibility("default")))

#include "../holdfast.h"
#include "protocol.h"

struct hf_message_layer;

enum hf_kind { HF_ARRAY, HF_FILE, HF_STREAM, HF_GLOBAL, HF_REPLICATED };

/* Where memory lies: at a GPU if device is not NULL. */
struct hf_place {
	const struct hf_device *device;
	void *context; /* CUDA */
	int ordinal;   /* HIP */
	void *stream;  /* to copy by, without waiting for anything else; NULL: none */
	bool managed;  /* it may lie on the host at present */
};

/* A protected thing with its name. */
struct hf_array {
	char *name;
	enum hf_kind kind;
	void *ptr; /* of a stream: the library's */
	struct hf_place place;
	char *path;   /* of a file */
	size_t count; /* of a file: as the daemon was told last; of a global array: elements that the rank owns */
	struct hf_layout *layout; /* of a global array */
	size_t room;              /* of a global array: elements at ptr */
	char *declared;           /* of a global array: the messages that told the daemon of it */
	size_t declared_bytes;
	hf_type type;
	hf_resize_fn *resize; /* for another count in a restore; NULL: it keeps the one that it has */
	void *resize_arg;
	uint32_t item; /* elements by which such a count grows */
	bool dirty;    /* the daemon has another count */
	bool dropped;  /* by hf_unprotect */
};

/* How many checkpoints of a name to keep. */
struct hf_kept {
	char *name;
	uint32_t keep;
};

/* Shared memory that captures go to. */
struct hf_arena {
	uint32_t id;
	char *at;
	size_t bytes;
	bool tried;  /* to lock it */
	bool sealed; /* it can only be read, and is used once */
	bool late;   /* a shadow is on its way to it */
	const struct hf_device *locked;
};

/* State of the rank's link to its daemon: served; waiting, as it computes, until all ranks have come to the one that
 * has taken the place of one that died; or without one. */
enum hf_link { HF_SERVED, HF_JOINING, HF_ALONE };

enum hf_stage { HF_NEW, HF_CONNECTED, HF_READY, HF_RESTORED_STAGE, HF_FINAL };

/* The one client of this process. */
struct hf_client {
	/* The memory of hf_point. */
	_Atomic uint64_t *flags;  /* page of the daemon once it has restored, or hf_armed or hf_idle below */
	uint64_t calm;            /* its value while nothing is asked and the daemon lives */
	_Atomic uint64_t *points; /* page for the daemon, or hf_unseen below */
	uint64_t count;           /* of points */
	_Atomic uint64_t *page;   /* of the daemon */
	bool fence;
	bool elastic;
	bool off;     /* the program runs without checkpoints, and without a daemon */
	bool dialled; /* hf_connect has succeeded */
	bool heard;   /* an answer to HELLO, or something before it */

	enum hf_stage stage;
	pid_t pid; /* that connected: a child is another process */
	_Atomic int sock;
	int rank, size;
	hf_allgather_fn *allgather;
	void *arg;
	hf_before_fn *before; /* called by hf_refresh */
	void *before_arg;
	uint64_t signals; /* whose handlers are the library's */
	uint64_t checkpoint, stop;
	atomic_bool stopped;
	struct hf_array *arrays;
	size_t narrays;
	struct hf_arena *arenas;
	size_t narenas;
	struct hf_kept *kept;
	size_t nkept;
	const struct hf_array *failed;        /* the part that could not be copied in this call */
	uint64_t shadow_limit;                /* bytes of each device; UINT64_MAX: the library decides, 0: none */
	const struct hf_message_layer *layer; /* that counts the program's messages; NULL: there is none */
	bool drains;                          /* the request under way leaves messages to the layer */
	struct hf_shadow *shadow;             /* on its way to the arenas, by a thread */
	bool restarting;                      /* between hf_restart_begin and hf_restart_end */

	/* For the time after the daemon has died: heir.c. */
	enum hf_link link;
	char key[65]; /* of the job: the next daemon has it too */
	pid_t daemon;
	struct hf_heir *heir;   /* NULL: there will be none */
	struct hfp_hello hello; /* as the first one had it */
	size_t hello_bytes;
	int64_t pause;           /* seconds before another daemon is started; 0: the last one has served a point */
	uint32_t here;           /* ranks of the job on this node */
	bool first;              /* of them */
	bool unsure;             /* since a daemon has died not all ranks have stopped at one point */
	bool unsaid;             /* that it has died */
	uint32_t last;           /* flags when it died */
	_Atomic uint64_t unsent; /* signals that no daemon has heard of */
};

extern struct hf_client hf_the;
extern _Atomic uint64_t hf_armed, hf_idle;
extern _Atomic uint64_t hf_unseen;

/* client.c. Notes the text of an error and returns its code; hf_fail_plain has a text without arguments, and may be
 * called by signal handlers. */
int hf_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
int hf_fail_plain(int code, const char *text);

/* The end of a message, so that one behind it is aligned. */
#define HF_ALIGNED(bytes) (((bytes) + 7) & ~(size_t)7)

#define HF_IS_CHILD "this process is a child of the rank, after fork; only the rank may call the library"

/* Size of an element; 0 for a type that is none. */
size_t hf_elem(hf_type type);

/* Whether the client may make a call at this stage; else HF_E_ORDER with the remedy. */
int hf_in_turn(const char *call, enum hf_stage from, enum hf_stage to, const char *remedy);

/* arrays.c */
struct hf_array *hf_array_named(struct hf_client *c, const char *name);

/* arrays.c: the array that bytes at an address are a part of, and how far from its beginning base is, and the other way
 * round. NULL: there is none, or less of it. */
const char *hf_array_of(const void *at, size_t bytes, const void *base, int64_t *offset);
void *hf_base_in(const char *array, int64_t offset, int64_t from, size_t bytes);
int hf_refresh(struct hf_client *c);
int hf_protect_array(const char *call, const struct hf_array *as);
void hf_free_arrays(struct hf_client *c);
int hf_tell_all(struct hf_client *c);

/* values.c. Both return 0 or an errno. */
int hf_save_to(const struct hf_array *a, char *to, size_t bytes, size_t from);
int hf_load_from(struct hf_array *a, const char *from, size_t bytes, bool once);

/* boxes.c: elements of a global array, in bytes of the packed form. Copies of a device return 0 or an errno.
 * hf_copy_array copies a rank's elements to the packed form, or from there; once as in hf_copy. */
int hf_layout_of(const char *name, int dims, const int64_t *size, const hf_box *boxes, size_t n, size_t room,
	struct hf_layout **layout, size_t *elems);
bool hf_is_empty(const hf_box *b, int dims);
void hf_copy_array(const struct hf_array *a, char *packed, size_t bytes, bool save, bool once);
int hf_copy_device_boxes(const struct hf_array *a, char *packed, size_t bytes, bool save);
struct hf_layout *hf_copy_layout(const struct hf_layout *l);

/* messages.c: the layer between the program and its MPI. hf_find_layer looks for it, and fails if a program of MPI
 * passes it by; hf_gather gathers from all ranks; hf_messages and hf_mail serve the daemon; hf_drain_until waits
 * until the daemon has said something, and receives messages meanwhile. hf_forget_request is false where no request has
 * the name, and of NULL forgets all; hf_post_again makes those of a checkpoint again. */
int hf_find_layer(struct hf_client *c, bool mpi);
int hf_gather(struct hf_client *c, void *all, const void *mine, size_t bytes);
int hf_messages(struct hf_client *c, int fd, uint64_t bytes);
const char *hf_mail(struct hf_client *c, uint32_t what, int fd, uint64_t *bytes);
void hf_drain_until(struct hf_client *c);
bool hf_forget_request(const struct hf_client *c, const char *name);
int hf_post_again(const struct hf_client *c);

/* copies.c. hf_copy is memcpy; once: from is page-aligned memory of a sealed arena, of which this is the only copy,
 * most likely. hf_copy_pieces calls move for pieces of n bytes, by several threads if there are many; memory at
 * once, unless NULL, is of no use when its piece is copied. */
typedef void hf_piece_fn(void *arg, size_t at, size_t n);
void hf_copy(char *to, const char *from, size_t bytes, bool once);
void hf_copy_pieces(hf_piece_fn *move, void *arg, size_t bytes, char *once);

/* named.c: hf_checkpoint with a name; of all arrays, or of those that are named. */
int hf_save(const char *name, int64_t version, const char *const *arrays, size_t n, bool all);

/* start.c. With settings of a daemon before, hf_connect starts one with these. */
struct hf_settings {
	char *program, *dir; /* that it ran, and where */
	char **environ;      /* into text */
	char *text;
};
struct hf_heir {                 /* data for the next daemon */
	struct hf_settings settings; /* of the first */
	int64_t next;                /* when another may be started */
	char over[1024];             /* why there will be none, and the job has to end */
};
void hf_free_heir(struct hf_client *c);                                  /* client.c */
int hf_connect(struct hf_client *c, const struct hf_settings *settings); /* HF_OFF: nothing to connect to is needed */
#define HF_OFF 1

/* start.c. Whether the environment alone makes the program run without checkpoints, and the setting in words. */
bool hf_switched_off(void);
const char *hf_off_by(void);
int hf_rank_of_environment(int *rank, int *size);
int hf_launched(const char **by); /* the number of ranks by the launcher, and the variable that has it; 0: not known */

/* talk.c: sends a request and serves the daemon until it is answered. */
int hf_call(struct hf_client *c, void *message, uint16_t type, size_t bytes, uint64_t *value);

/* talk.c: hf_call of a message about protected data. Without a daemon it does nothing: the next one gets all. */
int hf_tell(struct hf_client *c, void *message, uint16_t type, size_t bytes);

/* talk.c: hf_call of HELLO in parts. hf_greet returns when WELCOME has come. hf_answered returns the answer if it is
 * there, or waits for it; *over reports whether it was. */
int hf_greet(struct hf_client *c, struct hfp_hello *hello, size_t bytes);
int hf_answered(struct hf_client *c, bool wait, bool *over);

/* heir.c. hf_note_daemon remembers the data for a next daemon. hf_reach returns HF_OK if the daemon lives. Else it
 * finds or starts another one, or learns that this has all ranks now, for which it waits if wait is set. Without
 * waiting it returns HF_E_DAEMON once for each death, and HF_OK with another link than HF_SERVED later.
 *
 * hf_unsure says that ranks may differ in which calls a daemon has seen: some were in one when it died. Until they have
 * stopped at one point, hf_checkpoint is a point like others, and hf_refuse refuses checkpoints with a name. */
void hf_note_daemon(struct hf_client *c);
int hf_reach(struct hf_client *c, bool wait);
int hf_alone(struct hf_client *c); /* says that there is no daemon, and will be none */
bool hf_unsure(const struct hf_client *c);
int hf_refuse(struct hf_client *c, const char *call);
void hf_hang_up(struct hf_client *c);

/* device.c. Copies return 0 or an errno. */
int hf_place_of(const char *name, const void *ptr, struct hf_place *to);
int hf_copy_from_device(const struct hf_place *p, const void *device, char *host, size_t bytes);
int hf_copy_to_device(const struct hf_place *p, void *device, const char *host, size_t bytes);
const struct hf_device *hf_lock_memory(const struct hf_place *p, void *at, size_t bytes);
void hf_unlock_memory(const struct hf_device *d, void *at);

/* Where memory lies that the ledger of libholdfast-cuda has; false: there is no driver that can copy it. */
bool hf_cuda_place(void *context, struct hf_place *to);

/* cuda.c. After hf_protect_cuda: has the arrays of device memory follow the ledger; the call is for errors. Memory that
 * this thread allocates while hf_own_allocations is on is the library's. */
int hf_follow_ledger(struct hf_client *c, const char *call);
int hf_refill_arrays(void);      /* after hf_restore: arrays without an address of their own */
int hf_explain_ledger(int code); /* adds the kinds of arrays of device memory to the error of hf_restore */
void hf_own_allocations(bool on);
void hf_forget_ledger(void);

/* device.c, for shadow.c. All take a place that hf_can_copy_aside has completed; numbers are 0 or an errno. */
bool hf_can_copy_aside(struct hf_place *p);
size_t hf_unused_on_device(const struct hf_place *p);
int hf_allocate_on_device(const struct hf_place *p, size_t bytes, uintptr_t *at);
void hf_free_on_device(const struct hf_place *p, uintptr_t at);
int hf_copy_on_device(const struct hf_place *p, uintptr_t to, uintptr_t from, size_t bytes);
int hf_synchronize(const struct hf_place *p);
void hf_open_stream(struct hf_place *p);
void hf_close_stream(struct hf_place *p);
void hf_ignore_captures(const struct hf_place *p);

/* shadow.c. hf_want_shadow notes that an array of a device could go by way of a shadow, the first of `most` that one
 * message asks for makes it, once the one before has arrived. hf_make_shadow takes memory of the devices, or less or
 * none. hf_copy_aside copies an array there, or its beginning; it returns how many bytes the caller need not copy.
 * hf_finish_aside waits for that and returns 0 or an errno. Then it is brought or dropped. */
struct hf_shadow *hf_want_shadow(
	struct hf_client *c, struct hf_shadow *s, const struct hf_array *a, size_t bytes, uint32_t most);
void hf_make_shadow(struct hf_client *c, struct hf_shadow *s);
size_t hf_copy_aside(struct hf_shadow *s, const struct hf_array *a, char *to, size_t bytes);
int hf_finish_aside(struct hf_shadow *s);
bool hf_has_aside(const struct hf_shadow *s);
void hf_drop_shadow(struct hf_shadow *s);
void hf_bring_shadow(struct hf_client *c, struct hf_shadow *s);

/* Waits until the shadow on its way has arrived; with cancel, until its thread has stopped. */
void hf_await_shadow(struct hf_client *c, bool cancel);

/* signals.c */
void hf_take_signals(struct hf_client *c);
void hf_give_signals_back(struct hf_client *c);
int hf_send_signal(struct hf_client *c, int signal);

#endif
