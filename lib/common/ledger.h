/* ledger.h - libholdfast-cuda's account of a program's device memory for libholdfast. */
#ifndef HF_LEDGER_H
#define HF_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HFL_VERSION 3

/* The treatment of an allocation in a checkpoint. */
enum hfl_part {
	HFL_SAVED,   /* saved, and restored at the same address */
	HFL_NAMED,   /* a variable: saved, and restored where the variable of that name is */
	HFL_ARRAY,   /* saved by its handle, and restored to the array of the same order and shape */
	HFL_MOVING,  /* refused: it may lie elsewhere in a restarted program */
	HFL_REFUSED, /* refused: it cannot be copied by address */
	HFL_NONE     /* not part of it: host memory, and buffers of libraries that move messages */
};

struct hfl_allocation {
	uint64_t at, bytes;
	uint64_t order;   /* of all allocations, from 1 */
	void *context;    /* NULL: none is known */
	const char *call; /* the call that makes such memory */
	const char *name; /* of a variable, else NULL */
	const char *file; /* that asked for it, or NULL */
	size_t offset;    /* there */
	enum hfl_part part;
	char shape[80]; /* of an array */
	void *copy;     /* of an array: the reader's, on the host */
};

struct hf_cuda_ledger {
	uint32_t version;
	/* Copies the allocations, by address, and returns their number; SIZE_MAX: the ledger is not complete, since there
	 * was no memory. Texts stay as long as the process. */
	size_t (*list)(struct hfl_allocation *to, size_t room);
	/* Allocations of this thread from now on are not the program's. */
	void (*own)(bool on);
	/* Copies an array to the host or back, once its context has done all its work: the driver's error code. */
	int (*copy)(const struct hfl_allocation *array, void *host, bool out);
	/* Whether the driver is there, and no call has come to the library. */
	bool (*passed_by)(void);
};

/* Exported by libholdfast-cuda. */
const struct hf_cuda_ledger *hf_cuda_ledger(void);
typedef const struct hf_cuda_ledger *hf_cuda_ledger_fn(void);

#endif
