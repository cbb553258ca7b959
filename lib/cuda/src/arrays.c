/* arrays.c - arrays, which have no address: textures and surfaces read them. They are copied by their handles. */
#include <stdio.h>

#include "library.h"

#define CALLER __builtin_return_address(0)

static CUdeviceptr host(const void *at) { return (CUdeviceptr)(hf_word)at; }

/* Bytes of an element of an array; 0: of a format that is not copied as bytes. */
static size_t element(int format) {
	switch (format) {
	case 0x01: /* unsigned and signed of 8 bits */
	case 0x08:
		return 1;
	case 0x02: /* of 16 bits, half */
	case 0x09:
	case 0x10:
		return 2;
	case 0x03: /* of 32 bits, float */
	case 0x0a:
	case 0x20:
		return 4;
	}
	return 0;
}

bool hf_is_array(enum hf_kind kind) { return kind == HF_ARRAY || kind == HF_MIPMAPPED; }

/* Each level of a mipmapped array is half of the one before; layers stay. */
static CUDA_ARRAY3D_DESCRIPTOR level_of(const struct hf_block *b, unsigned level) {
	CUDA_ARRAY3D_DESCRIPTOR d = b->array;

	d.Width = d.Width >> level != 0 ? d.Width >> level : 1;
	d.Height = d.Height >> level != 0 ? d.Height >> level : 1;
	if ((d.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) == 0) {
		d.Depth = d.Depth >> level != 0 ? d.Depth >> level : 1;
	}
	return d;
}

static size_t row_of(const CUDA_ARRAY3D_DESCRIPTOR *d) { return d->Width * d->NumChannels * element(d->Format); }

static CUresult copy(CUarray array, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned char *bytes, bool out) {
	CUDA_MEMCPY3D c = { .WidthInBytes = row_of(d), .Height = d->Height, .Depth = d->Depth };

	if (out) {
		c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
		c.srcArray = array;
		c.dstMemoryType = CU_MEMORYTYPE_HOST;
		c.dstHost = bytes;
		c.dstPitch = c.WidthInBytes;
		c.dstHeight = c.Height;
	} else {
		c.srcMemoryType = CU_MEMORYTYPE_HOST;
		c.srcHost = bytes;
		c.srcPitch = c.WidthInBytes;
		c.srcHeight = c.Height;
		c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
		c.dstArray = array;
	}
	return REAL(cuMemcpy3D_v2)(&c);
}

CUresult hf_array_copy(const struct hf_block *b, unsigned char *bytes, bool out) {
	CUDA_ARRAY3D_DESCRIPTOR d;
	CUresult e = CUDA_SUCCESS;
	CUarray array;
	unsigned level;

	if (b->kind == HF_ARRAY) {
		return copy((CUarray)(hf_word)b->at, &b->array, bytes, out);
	}
	for (level = 0; level < b->levels && e == CUDA_SUCCESS; level++) {
		d = level_of(b, level);
		e = REAL(cuMipmappedArrayGetLevel)(&array, (CUmipmappedArray)(hf_word)b->at, level);
		if (e == CUDA_SUCCESS) {
			e = copy(array, &d, bytes, out);
			bytes += row_of(&d) * d.Height * d.Depth;
		}
	}
	return e;
}

void hf_array_shape(const struct hf_block *b, char *to, size_t room) {
	snprintf(to, room, "%zux%zux%zu.%x.%u.%u.%x", b->array.Width, b->array.Height, b->array.Depth,
		(unsigned)b->array.Format, b->array.NumChannels, b->levels, b->array.Flags);
}

/* An array of a format that cannot be copied, or whose memory the program maps, has 0 bytes in the ledger. */
static CUresult note(
	CUresult e, const void *handle, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels, const void *caller) {
	struct hf_block b = { .kind = levels == 0 ? HF_ARRAY : HF_MIPMAPPED, .at = host(handle), .array = *d };
	unsigned level;

	if (e == CUDA_SUCCESS) {
		b.levels = levels;
		b.array.Height += b.array.Height == 0;
		b.array.Depth += b.array.Depth == 0;
		for (level = 0; level < (levels == 0 ? 1 : levels); level++) {
			const CUDA_ARRAY3D_DESCRIPTOR l = level_of(&b, level);

			b.bytes += row_of(&l) * l.Height * l.Depth;
		}
		if ((d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0) {
			b.bytes = 0;
		}
		hf_ledger_add(b, caller);
	}
	hf_gate_leave();
	return e;
}

OWN(cuArrayCreate_v2)(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *d) {
	CUDA_ARRAY3D_DESCRIPTOR all = { 0 };
	CUresult e;

	hf_gate_enter(HF_cuArrayCreate_v2);
	if ((e = REAL(cuArrayCreate_v2)(array, d)) == CUDA_SUCCESS) {
		all = (CUDA_ARRAY3D_DESCRIPTOR){
			.Width = d->Width, .Height = d->Height, .Format = d->Format, .NumChannels = d->NumChannels
		};
	}
	return note(e, e == CUDA_SUCCESS ? *array : NULL, &all, 0, CALLER);
}

OWN(cuArray3DCreate_v2)(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *d) {
	CUresult e;

	hf_gate_enter(HF_cuArray3DCreate_v2);
	e = REAL(cuArray3DCreate_v2)(array, d);
	return note(e, e == CUDA_SUCCESS ? *array : NULL, d, 0, CALLER);
}

OWN(cuMipmappedArrayCreate)(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels) {
	CUresult e;

	hf_gate_enter(HF_cuMipmappedArrayCreate);
	e = REAL(cuMipmappedArrayCreate)(array, d, levels);
	return note(e, e == CUDA_SUCCESS ? *array : NULL, d, levels, CALLER);
}

/* Takes an array out before the driver frees it, and puts it back if that fails. */
static CUresult destroy(unsigned call, const void *handle, __typeof__(cuArrayDestroy) *real) {
	struct hf_block b;
	bool known;
	CUresult e;

	hf_gate_enter(call);
	known = hf_ledger_take(host(handle), &b);
	if ((e = real((CUarray)(hf_word)handle)) != CUDA_SUCCESS && known) {
		hf_ledger_put(&b);
	}
	hf_gate_leave();
	return e;
}

OWN(cuArrayDestroy)(CUarray array) { return destroy(HF_cuArrayDestroy, array, REAL(cuArrayDestroy)); }

OWN(cuMipmappedArrayDestroy)(CUmipmappedArray array) {
	return destroy(
		HF_cuMipmappedArrayDestroy, array, (__typeof__(cuArrayDestroy) *)(hf_any *)REAL(cuMipmappedArrayDestroy));
}
