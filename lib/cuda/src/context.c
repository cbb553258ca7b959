/* context.c - contexts, streams and captures: where work can be under way, and the objects that end with a context. */
#include <stdlib.h>

#include "library.h"

/* Streams whose capture is open. It can end with the stream, or with its context. The ledger's lock guards them. */
static struct capture {
	CUcontext context;
	CUstream stream;
	struct capture *next;
} *captures;

static void note_capture(CUstream stream) {
	struct capture *c = malloc(sizeof *c);

	if (c == NULL || REAL(cuCtxGetCurrent)(&c->context) != CUDA_SUCCESS) {
		free(c); /* it ends by cuStreamEndCapture alone */
		return;
	}
	c->stream = stream;
	hf_ledger_lock();
	c->next = captures;
	captures = c;
	hf_ledger_unlock();
}

/* Takes a capture of a stream out, or, where that is NULL, one of a context; false: there is none. */
static bool drop_capture(CUcontext context, CUstream stream) {
	struct capture **at, *c;

	hf_ledger_lock();
	for (at = &captures; (c = *at) != NULL; at = &c->next) {
		if (stream != NULL ? c->stream == stream : c->context == context) {
			*at = c->next;
			break;
		}
	}
	hf_ledger_unlock();
	free(c);
	return c != NULL;
}

static CUresult created(CUresult e, const CUcontext *context, CUdevice device) {
	if (e == CUDA_SUCCESS) {
		hf_ledger_context(*context, device);
	}
	hf_gate_leave();
	return e;
}

OWN(cuCtxCreate_v2)(CUcontext *context, unsigned flags, CUdevice device) {
	hf_gate_enter(HF_cuCtxCreate_v2);
	return created(REAL(cuCtxCreate_v2)(context, flags, device), context, device);
}

OWN(cuCtxCreate_v3)(CUcontext *context, void *affinity, int count, unsigned flags, CUdevice device) {
	hf_gate_enter(HF_cuCtxCreate_v3);
	return created(REAL(cuCtxCreate_v3)(context, affinity, count, flags, device), context, device);
}

OWN(cuCtxCreate_v4)(CUcontext *context, void *params, unsigned flags, CUdevice device) {
	hf_gate_enter(HF_cuCtxCreate_v4);
	return created(REAL(cuCtxCreate_v4)(context, params, flags, device), context, device);
}

OWN(cuDevicePrimaryCtxRetain)(CUcontext *context, CUdevice device) {
	hf_gate_enter(HF_cuDevicePrimaryCtxRetain);
	return created(REAL(cuDevicePrimaryCtxRetain)(context, device), context, device);
}

static void ended(CUcontext context) {
	hf_ledger_end(context);
	hf_streams_end(context, NULL);
	while (drop_capture(context, NULL)) {
		atomic_fetch_sub(&hf_captures, 1);
	}
}

OWN(cuCtxDestroy_v2)(CUcontext context) {
	CUresult e;

	hf_gate_enter(HF_cuCtxDestroy_v2);
	hf_pause_leave(context);
	if ((e = REAL(cuCtxDestroy_v2)(context)) == CUDA_SUCCESS) {
		ended(context);
	}
	hf_gate_leave();
	return e;
}

/* The old way to have several users of a context. When the last one has left, the context must not be pushed. */
OWN(cuCtxAttach)(CUcontext *context, unsigned flags) {
	CUdevice device;
	CUresult e;

	hf_gate_enter(HF_cuCtxAttach);
	if ((e = REAL(cuCtxAttach)(context, flags)) == CUDA_SUCCESS) {
		hf_ledger_context(*context, REAL(cuCtxGetDevice)(&device) == CUDA_SUCCESS ? device : -1);
		hf_ledger_attached(*context);
	}
	hf_gate_leave();
	return e;
}

OWN(cuCtxDetach)(CUcontext context) {
	CUresult e;

	hf_gate_enter(HF_cuCtxDetach);
	hf_pause_leave(context);
	if ((e = REAL(cuCtxDetach)(context)) == CUDA_SUCCESS && hf_ledger_detached(context)) {
		ended(context);
	}
	hf_gate_leave();
	return e;
}

/* A program that sets the size of the heap of kernels uses it. Memory in it has no address that is known here. */
OWN(cuCtxSetLimit)(int limit, size_t value) {
	CUcontext context = NULL;
	CUresult e;

	hf_gate_enter(HF_cuCtxSetLimit);
	e = REAL(cuCtxSetLimit)(limit, value);
	if (e == CUDA_SUCCESS && limit == CU_LIMIT_MALLOC_HEAP_SIZE && REAL(cuCtxGetCurrent)(&context) == CUDA_SUCCESS) {
		hf_ledger_add((struct hf_block){ .kind = HF_HEAP, .at = (CUdeviceptr)(hf_word)context, .bytes = value },
			__builtin_return_address(0));
	}
	hf_gate_leave();
	return e;
}

static bool active(CUdevice device) {
	unsigned flags;
	int is = 0;

	return REAL(cuDevicePrimaryCtxGetState)(device, &flags, &is) == CUDA_SUCCESS && is;
}

/* The primary context of a device ends with its last user, or when it is reset. */
static CUresult primary(unsigned call, CUdevice device, __typeof__(cuDevicePrimaryCtxReset) *real) {
	CUcontext context = NULL;
	CUresult e;

	hf_gate_enter(call);
	if (active(device) && REAL(cuDevicePrimaryCtxRetain)(&context, device) == CUDA_SUCCESS) {
		REAL(cuDevicePrimaryCtxRelease_v2)(device);
		hf_pause_leave(context);
	}
	if ((e = real(device)) == CUDA_SUCCESS && context != NULL &&
		(call == HF_cuDevicePrimaryCtxReset || call == HF_cuDevicePrimaryCtxReset_v2 || !active(device))) {
		ended(context);
	}
	hf_gate_leave();
	return e;
}

/* A green context has a part of a device for work in the primary context, which waits for that. */
OWN(cuGreenCtxCreate)(CUgreenCtx *green, const void *part, CUdevice device, unsigned flags) {
	CUcontext context;
	CUresult e;

	hf_gate_enter(HF_cuGreenCtxCreate);
	e = REAL(cuGreenCtxCreate)(green, part, device, flags);
	if (e == CUDA_SUCCESS && REAL(cuDevicePrimaryCtxRetain)(&context, device) == CUDA_SUCCESS) {
		hf_ledger_context(context, device);
		REAL(cuDevicePrimaryCtxRelease_v2)(device);
	}
	hf_gate_leave();
	return e;
}

/* What was made in it is the primary context's, and ends with that one. */
OWN(cuGreenCtxDestroy)(CUgreenCtx green) {
	CUcontext context = NULL, primary = NULL, popped;
	CUdevice device = -1;
	CUresult e;

	hf_gate_enter(HF_cuGreenCtxDestroy);
	if (REAL(cuCtxFromGreenCtx)(&context, green) == CUDA_SUCCESS &&
		REAL(cuCtxPushCurrent_v2)(context) == CUDA_SUCCESS) {
		if (REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS ||
			REAL(cuDevicePrimaryCtxRetain)(&primary, device) != CUDA_SUCCESS) {
			primary = NULL;
		}
		REAL(cuCtxPopCurrent_v2)(&popped);
		hf_pause_leave(context);
	}
	if ((e = REAL(cuGreenCtxDestroy)(green)) == CUDA_SUCCESS && primary != NULL) {
		hf_ledger_pass(context, primary);
		hf_streams_end(context, NULL);
	}
	if (primary != NULL) {
		REAL(cuDevicePrimaryCtxRelease_v2)(device);
		if (!active(device)) {
			ended(primary);
		}
	}
	hf_gate_leave();
	return e;
}

OWN(cuDevicePrimaryCtxRelease)(CUdevice device) {
	return primary(HF_cuDevicePrimaryCtxRelease, device, REAL(cuDevicePrimaryCtxRelease));
}

OWN(cuDevicePrimaryCtxRelease_v2)(CUdevice device) {
	return primary(HF_cuDevicePrimaryCtxRelease_v2, device, REAL(cuDevicePrimaryCtxRelease_v2));
}

OWN(cuDevicePrimaryCtxReset)(CUdevice device) {
	return primary(HF_cuDevicePrimaryCtxReset, device, REAL(cuDevicePrimaryCtxReset));
}

OWN(cuDevicePrimaryCtxReset_v2)(CUdevice device) {
	return primary(HF_cuDevicePrimaryCtxReset_v2, device, REAL(cuDevicePrimaryCtxReset_v2));
}

static CUresult streams(CUresult e, const CUstream *stream) {
	if (e == CUDA_SUCCESS && hf_settings.gate) {
		hf_streams_note((hf_word)*stream, HF_COUNT, 0);
	}
	hf_gate_leave();
	return e;
}

OWN(cuStreamCreate)(CUstream *stream, unsigned flags) {
	hf_gate_enter(HF_cuStreamCreate);
	return streams(REAL(cuStreamCreate)(stream, flags), stream);
}

OWN(cuStreamCreateWithPriority)(CUstream *stream, unsigned flags, int priority) {
	hf_gate_enter(HF_cuStreamCreateWithPriority);
	return streams(REAL(cuStreamCreateWithPriority)(stream, flags, priority), stream);
}

OWN(cuGreenCtxStreamCreate)(CUstream *stream, CUgreenCtx green, unsigned flags, int priority) {
	CUcontext context, popped;
	CUresult e;

	hf_gate_enter(HF_cuGreenCtxStreamCreate);
	e = REAL(cuGreenCtxStreamCreate)(stream, green, flags, priority);
	if (e == CUDA_SUCCESS && REAL(cuCtxFromGreenCtx)(&context, green) == CUDA_SUCCESS &&
		REAL(cuCtxPushCurrent_v2)(context) == CUDA_SUCCESS) { /* the stream ends with that one */
		e = streams(e, stream);
		REAL(cuCtxPopCurrent_v2)(&popped);
		return e;
	}
	hf_gate_leave();
	return e;
}

OWN(cuStreamDestroy_v2)(CUstream stream) {
	bool captured;
	CUresult e;

	hf_gate_enter(HF_cuStreamDestroy_v2);
	hf_streams_end(NULL, stream);
	captured = stream != NULL && atomic_load(&hf_captures) > 0 && drop_capture(NULL, stream);
	e = REAL(cuStreamDestroy_v2)(stream);
	if (captured && e == CUDA_SUCCESS) {
		atomic_fetch_sub(&hf_captures, 1);
	} else if (captured) {
		note_capture(stream);
	}
	hf_gate_leave();
	return e;
}

/* While a capture is open the driver must not be asked to wait for anything. */
static void begins(unsigned call) {
	hf_gate_enter(call);
	hf_arena_capture();
}

static CUresult begun(CUresult e, CUstream stream) {
	if (e == CUDA_SUCCESS) {
		note_capture(stream);
		hf_check_captures(stream);
	} else {
		atomic_fetch_sub(&hf_captures, 1);
	}
	hf_gate_leave();
	return e;
}

OWN(cuStreamBeginCapture)(CUstream stream) {
	begins(HF_cuStreamBeginCapture);
	return begun(REAL(cuStreamBeginCapture)(stream), stream);
}

OWN(cuStreamBeginCapture_ptsz)(CUstream stream) {
	begins(HF_cuStreamBeginCapture_ptsz);
	return begun(REAL(cuStreamBeginCapture_ptsz)(stream), hf_own_stream(stream));
}

OWN(cuStreamBeginCapture_v2)(CUstream stream, int mode) {
	begins(HF_cuStreamBeginCapture_v2);
	return begun(REAL(cuStreamBeginCapture_v2)(stream, mode), stream);
}

OWN(cuStreamBeginCapture_v2_ptsz)(CUstream stream, int mode) {
	begins(HF_cuStreamBeginCapture_v2_ptsz);
	return begun(REAL(cuStreamBeginCapture_v2_ptsz)(stream, mode), hf_own_stream(stream));
}

OWN(cuStreamBeginCaptureToGraph)
(CUstream stream, CUgraph graph, const void *dependencies, const void *edges, size_t count, int mode) {
	begins(HF_cuStreamBeginCaptureToGraph);
	return begun(REAL(cuStreamBeginCaptureToGraph)(stream, graph, dependencies, edges, count, mode), stream);
}

OWN(cuStreamBeginCaptureToGraph_ptsz)
(CUstream stream, CUgraph graph, const void *dependencies, const void *edges, size_t count, int mode) {
	begins(HF_cuStreamBeginCaptureToGraph_ptsz);
	return begun(
		REAL(cuStreamBeginCaptureToGraph_ptsz)(stream, graph, dependencies, edges, count, mode), hf_own_stream(stream));
}

/* The end of a capture that has become invalid reports that, and is its end. A stream that is not captured keeps the
 * count as it is. */
static CUresult end(
	unsigned call, CUstream stream, CUstream own, CUgraph *graph, __typeof__(cuStreamEndCapture) *real) {
	int status = 0;
	bool open;
	CUresult e;

	hf_gate_enter(call);
	open = REAL(cuStreamIsCapturing)(own, &status) == CUDA_SUCCESS && status != 0;
	e = real(stream, graph);
	if (open && (REAL(cuStreamIsCapturing)(own, &status) != CUDA_SUCCESS || status == 0)) {
		(void)drop_capture(NULL, own);
		atomic_fetch_sub(&hf_captures, 1);
	}
	hf_gate_leave();
	return e;
}

OWN(cuStreamEndCapture)(CUstream stream, CUgraph *graph) {
	return end(HF_cuStreamEndCapture, stream, stream, graph, REAL(cuStreamEndCapture));
}

OWN(cuStreamEndCapture_ptsz)(CUstream stream, CUgraph *graph) {
	return end(HF_cuStreamEndCapture_ptsz, stream, hf_own_stream(stream), graph, REAL(cuStreamEndCapture_ptsz));
}
