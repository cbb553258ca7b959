/* Messages between libholdfast-opencl and its server, `holdfast opencl`. docs/OPENCL.md, chapter
   "The wire", says what each holds; internal/opencl has the same numbers, which a test compares. */
#ifndef HFCL_PROTOCOL_H
#define HFCL_PROTOCOL_H

#define HFCL_VERSION 1

/* A header is this many bytes: u32 body, u32 operation or i32 status, u64 bulk, u64 deliveries. */
#define HFCL_HEADER 24
#define HFCL_MAX_BODY (64u << 20)
#define HFCL_MAX_LIST 65536u

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
	HFCL_NOTE = 64,   /* from the server */
	HFCL_DELIVERY = 65
};

/* Flags of READ, WRITE, COPY, FILL and MARKER. */
enum { HFCL_BLOCKING = 1, HFCL_BARRIER = 2 };

/* How the bytes of a memory object are addressed: a range, a box of rows in a buffer, pixels. */
enum { HFCL_LINEAR = 0, HFCL_RECT = 1, HFCL_PIXELS = 2 };

/* Kinds of kernel arguments. */
enum { HFCL_ARG_MEM = 1, HFCL_ARG_SAMPLER = 2, HFCL_ARG_LOCAL = 3, HFCL_ARG_VALUE = 4 };

#endif
