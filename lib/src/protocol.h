/* protocol.h - the messages between a rank and the node daemon: docs/internals/NODE.md, version 1. The package
 * internal/node/wire has the same for Go, and a test that compares the two. */
#ifndef HF_PROTOCOL_H
#define HF_PROTOCOL_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the protocol is little-endian, and this library copies structures as they are"
#endif

#define HFP_MAGIC 0x444e4648u
#define HFP_VERSION 1
#define HFP_EXIT_OFF 3
#define HFP_MAX_BYTES 65536
#define HFP_PAGE_BYTES 4096
#define HFP_NAME_BYTES 200
#define HFP_VALUE_BYTES 512
#define HFP_MOST_ARRAYS 65536
#define HFP_MOST_RANKS 1048576
#define HFP_MOST_BYTES 0x400000000000u
#define HFP_MOST_PICKED 15000
#define HFP_MOST_BOXES 65536
#define HFP_MAX_DIMS 8
#define HFP_MAX_ELEMS 0x1000000000000000
#define HFP_ALL 0xffffffffu
#define HFP_NO_ARENA 0xffffffffu

#define HFP_HELLO 1
#define HFP_PROTECT 2
#define HFP_RESTORE 3
#define HFP_POINT 4
#define HFP_CHECKPOINT 5
#define HFP_WAIT 6
#define HFP_SIGNAL 7
#define HFP_FINALIZE 8
#define HFP_COPIED 9
#define HFP_EXCHANGED 10
#define HFP_UNPROTECT 11
#define HFP_SAVE 12
#define HFP_FIND 13
#define HFP_BEGIN 14
#define HFP_HELD 15
#define HFP_RECOVER 16
#define HFP_END 17
#define HFP_DECLARE 18
#define HFP_ARRIVED 19
#define HFP_MAILED 20
#define HFP_WELCOME 32
#define HFP_EXCHANGE 33
#define HFP_ARENA 34
#define HFP_DROP 35
#define HFP_COPY 36
#define HFP_DONE 37
#define HFP_ERROR 38
#define HFP_SHADOW 39
#define HFP_MESSAGES 40
#define HFP_MAIL 41

#define HFP_HELLO_GATHERS 1u
#define HFP_HELLO_MEMBARRIER 2u
#define HFP_HELLO_FRESH 4u
#define HFP_HELLO_ELASTIC 8u
#define HFP_HELLO_SHADOWS 16u
#define HFP_HELLO_GOES_ON 32u
#define HFP_HELLO_ALL_HERE 64u
#define HFP_HELLO_MESSAGES 128u
#define HFP_HELLO_WATCHED 256u
#define HFP_MEETS_OFF 1u
#define HFP_WELCOME_FENCE 1u
#define HFP_ARENA_SEALED 1u
#define HFP_PROTECT_ANY_SIZE 1u
#define HFP_PROTECT_ITEM 4
#define HFP_MOST_ITEM 0xfffffffu
#define HFP_WAIT_LOOK 1u
#define HFP_DECLARE_MORE 1u
#define HFP_COPIED_LATER 1u
#define HFP_COPY_LATE 0x80000000u
#define HFP_KIND_DIVIDED 1u
#define HFP_KIND_REPLICATED 2u
#define HFP_POINT_ARMED 1u
#define HFP_POINT_OVER 2u
#define HFP_POINT_ENDED 4u
#define HFP_POINT_STOPPED 8u
#define HFP_CODE_STOP 1
#define HFP_CODE_AGAIN 2
#define HFP_VALUE_CUT 1
#define HFP_MAIL_CUT 0
#define HFP_MAIL_SAVE 1
#define HFP_MAIL_TAKE 2
#define HFP_MAIL_LOAD 3
#define HFP_MAIL_SYNC 4

struct hfp_header {
	uint32_t magic;
	uint16_t version, type;
	uint32_t length, zero;
};

struct hfp_hello {
	struct hfp_header h;
	int32_t rank, size;
	uint32_t flags;
	char text[3 * (4 + HFP_VALUE_BYTES)];
};

struct hfp_protect {
	struct hfp_header h;
	uint32_t array, type;
	uint64_t count;
	uint32_t flags, n;
	char text[HFP_NAME_BYTES];
};

struct hfp_declare {
	struct hfp_header h;
	uint32_t array, type, kind, flags;
	uint64_t count;
	uint32_t dims, boxes, n;
	char text[]; /* name, dimensions, boxes */
};

struct hfp_text { /* WAIT, HELD */
	struct hfp_header h;
	uint32_t flags, n;
	char text[HFP_NAME_BYTES];
};

struct hfp_named { /* SAVE, FIND, BEGIN */
	struct hfp_header h;
	int64_t version;
	uint32_t keep, picked, n;
	char text[HFP_NAME_BYTES + HFP_MOST_PICKED * 4]; /* the name, and numbers of arrays */
};

struct hfp_picked { /* RECOVER */
	struct hfp_header h;
	uint32_t picked, zero;
	uint32_t array[HFP_MOST_PICKED];
};

struct hfp_number { /* POINT, EXCHANGE, SHADOW, MESSAGES */
	struct hfp_header h;
	uint64_t value;
};

struct hfp_word { /* CHECKPOINT, SIGNAL, EXCHANGED, COPIED, UNPROTECT, ARRIVED, DROP */
	struct hfp_header h;
	int32_t value;
	uint32_t flags; /* of COPIED; else 0 */
};

struct hfp_welcome {
	struct hfp_header h;
	uint64_t checkpoint, stop;
	uint32_t flags, page;
};

struct hfp_arena {
	struct hfp_header h;
	uint32_t id, flags;
	uint64_t bytes;
};

struct hfp_item {
	uint32_t array, arena;
	uint64_t offset, bytes;
};

struct hfp_copy {
	struct hfp_header h;
	uint32_t load, n;
	struct hfp_item items[];
};

struct hfp_mail {
	struct hfp_header h;
	uint32_t what, zero;
	uint64_t bytes;
};

struct hfp_mailed {
	struct hfp_header h;
	uint64_t bytes;
	uint32_t n; /* of the text that describes the failure; 0: none */
	char text[HFP_VALUE_BYTES];
};

struct hfp_done {
	struct hfp_header h;
	int32_t code;
	uint32_t zero;
	uint64_t value;
};

struct hfp_error {
	struct hfp_header h;
	int32_t code;
	uint32_t n;
	char text[];
};

static_assert(sizeof(struct hfp_header) == 16, "header");
static_assert(offsetof(struct hfp_hello, rank) == 16 && offsetof(struct hfp_hello, text) == 28, "HELLO");
static_assert(offsetof(struct hfp_protect, count) == 24 && offsetof(struct hfp_protect, text) == 40, "PROTECT");
static_assert(offsetof(struct hfp_declare, count) == 32 && offsetof(struct hfp_declare, text) == 52, "DECLARE");
static_assert(offsetof(struct hfp_text, text) == 24, "WAIT");
static_assert(offsetof(struct hfp_named, version) == 16 && offsetof(struct hfp_named, text) == 36, "SAVE");
static_assert(offsetof(struct hfp_picked, array) == 24 && sizeof(struct hfp_picked) <= HFP_MAX_BYTES, "RECOVER");
static_assert(offsetof(struct hfp_number, value) == 16 && sizeof(struct hfp_number) == 24, "POINT");
static_assert(offsetof(struct hfp_word, value) == 16 && sizeof(struct hfp_word) == 24, "SIGNAL");
static_assert(offsetof(struct hfp_welcome, flags) == 32 && sizeof(struct hfp_welcome) == 40, "WELCOME");
static_assert(offsetof(struct hfp_arena, bytes) == 24 && sizeof(struct hfp_arena) == 32, "ARENA");
static_assert(offsetof(struct hfp_mail, bytes) == 24 && sizeof(struct hfp_mail) == 32, "MAIL");
static_assert(offsetof(struct hfp_mailed, n) == 24 && offsetof(struct hfp_mailed, text) == 28, "MAILED");
static_assert(sizeof(struct hfp_item) == 24 && offsetof(struct hfp_copy, items) == 24, "COPY");
static_assert(offsetof(struct hfp_done, value) == 24 && sizeof(struct hfp_done) == 32, "DONE");
static_assert(offsetof(struct hfp_error, text) == 24, "ERROR");

#endif
