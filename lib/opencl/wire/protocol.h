/* Messages between libholdfast-opencl and its server, `holdfast opencl`. docs/internals/OPENCL.md, chapter "The wire",
 * has their contents; internal/opencl has the same numbers, which a test compares. */
#ifndef HFCL_PROTOCOL_H
#define HFCL_PROTOCOL_H

#define HFCL_VERSION 5

/* A header is this many bytes: u32 body, u32 operation or i32 status, u64 bulk, and u64: on a connection how far
   the ring was written, in the ring the reply slot, in a reply the deliveries. */
#define HFCL_HEADER_BYTES 24
#define HFCL_MAX_BODY (64u << 20)
#define HFCL_MAX_LIST 65536u              /* devices, arguments of a kernel */
#define HFCL_MAX_NUMBER ((size_t)1 << 62) /* places and sizes */
#define HFCL_MAX_CONNECTIONS 1024

/* The shared memory of the ring: numbers in cache lines of their own, reply slots, the bytes of the ring. */
#define HFCL_RING_WRITTEN 0    /* u64, bytes ever written; the library's */
#define HFCL_RING_ASLEEP 64    /* u32, 1: the server wants to be woken */
#define HFCL_RING_READ 128     /* u64, bytes ever read; the server's */
#define HFCL_RING_LOST 192     /* u32, 1: a device is lost, the library waits for each reply; the server's */
#define HFCL_RING_REPLIES 4096 /* from here on 64 slots of 64 bytes */
#define HFCL_RING_SLOTS 64
#define HFCL_RING_SLOT 64    /* u32 state, i32 status, u64 deliveries */
#define HFCL_RING_WORDS 8192 /* from here on a word for each slot, and two: the library, the server sleeps on it */
#define HFCL_RING_DATA 16384
#define HFCL_RING_BYTES 262144
#define HFCL_RING_MESSAGE 65536 /* a request in the ring is no longer */

/* Slots of transfers, in an area of their own. */
#define HFCL_SLOTS 32
#define HFCL_SLOT_BYTES 524288

/* Whose turn a slot is: it is to be filled, to be emptied, the device's, or given up. */
enum { HFCL_EMPTY = 0, HFCL_FULL = 1, HFCL_TAKEN = 2, HFCL_REFUSED = 3 };

/* States of a reply slot. */
enum { HFCL_SLOT_FREE = 0, HFCL_SLOT_ASKED = 1, HFCL_SLOT_SLEEPS = 2, HFCL_SLOT_ANSWERED = 3 };

enum {
	HFCL_HELLO = 1,
	HFCL_DEVICES = 2,
	HFCL_DEVICE_INFO = 3,
	HFCL_CREATE_QUEUE = 4,
	HFCL_CREATE_BUFFER = 5,
	HFCL_CREATE_SUB = 6,
	HFCL_CREATE_IMAGE = 7,
	HFCL_CREATE_SAMPLER = 8,
	HFCL_RELEASE = 9,
	HFCL_BUILD = 10,
	HFCL_CREATE_KERNEL = 11,
	HFCL_SET_ARG = 12,
	HFCL_WORK_GROUP = 13,
	HFCL_ARG_INFO = 14,
	HFCL_FORMATS = 15,
	HFCL_LAUNCH = 16,
	HFCL_READ = 17,
	HFCL_WRITE = 18,
	HFCL_COPY = 19,
	HFCL_FILL = 20,
	HFCL_MARKER = 21,
	HFCL_FLUSH = 22,
	HFCL_FINISH = 23,
	HFCL_USER_EVENT = 24,
	HFCL_SET_USER_EVENT = 25,
	HFCL_EVENT_STATUS = 26,
	HFCL_EVENT_TIMES = 27,
	HFCL_WAIT = 28,
	HFCL_WATCH = 29,
	HFCL_FORGET = 30, /* no reply */
	HFCL_SHARE = 31,
	HFCL_UNSHARE = 32,
	HFCL_AREA_WAIT = 33,
	HFCL_CONTEXT = 34,
	HFCL_CAPTURE = 35,
	HFCL_STATE = 36,
	HFCL_RESTORE = 37,
	HFCL_CLONE_KERNEL = 38,
	HFCL_NOTE = 64, /* from the server */
	HFCL_DELIVERY = 65,
	HFCL_LOST = 66
};

/* Flags of READ, WRITE, COPY, FILL and MARKER. */
enum {
	HFCL_BLOCKING = 1,
	HFCL_BARRIER = 2,
	HFCL_IN_AREA = 4,
	HFCL_IN_SLOTS = 8,
	HFCL_DELIVER = 16,
	HFCL_NO_EVENT = 32
};
/* A MARKER that does not wait for its queue. */
enum { HFCL_ALONE = 4 };

/* How the bytes of a memory object are addressed: a range, a box of rows in a buffer, pixels. */
enum { HFCL_LINEAR = 0, HFCL_RECT = 1, HFCL_PIXELS = 2 };

/* Kinds of kernel arguments. */
enum { HFCL_ARG_MEM = 1, HFCL_ARG_SAMPLER = 2, HFCL_ARG_LOCAL = 3, HFCL_ARG_VALUE = 4, HFCL_ARG_NULL = 5 };

/* The kinds of handles that an argument of a kernel takes: not known or none, buffers, samplers, images for both or one
 * way. */
enum {
	HFCL_TAKES_UNKNOWN = 0,
	HFCL_TAKES_BUFFER = 1,
	HFCL_TAKES_SAMPLER = 2,
	HFCL_TAKES_IMAGE = 3,
	HFCL_TAKES_IMAGE_READ = 4,
	HFCL_TAKES_IMAGE_WRITE = 5
};

/* The kinds of builds: a program of one source, an object, which is compiled alone, a program linked from objects. */
enum { HFCL_PROGRAM = 0, HFCL_OBJECT = 1, HFCL_LINKED = 2 };

/* Added to the dimensions of an image that is an array. */
enum { HFCL_ARRAY = 4 };

#endif
