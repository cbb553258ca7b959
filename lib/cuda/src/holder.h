/* holder.h - the packets between a program and the holder of its memory: holder.c. */
#ifndef HF_CUDA_HOLDER_H
#define HF_CUDA_HOLDER_H

#include "driver.h"

enum { HF_HOLD_CONN = 3 /* the holder's descriptor */, HF_HOLD_DEVICES = 16 };

enum hf_hold_what {
	HF_HOLD_PAIR,  /* memory is to move between two devices, either way: how much is free at the second one? */
	HF_HOLD_KEEP,  /* hold a mapping; its descriptor comes along */
	HF_HOLD_FILL,  /* copy the held memory to a new mapping, whose descriptor comes along, and hold that one instead */
	HF_HOLD_SETTLE /* answer once all copies are made */
};

struct hf_hold_wish {
	uint32_t what, index; /* of the mapping */
	uint64_t bytes;
	CUuuid from, to; /* KEEP: from; FILL: to */
};

struct hf_hold_reply {
	CUresult e;
	uint32_t unused;
	uint64_t number;
	char why[160]; /* the failure */
};

#endif
