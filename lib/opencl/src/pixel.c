/* The colours of clEnqueueFillImage as pixels. */
#include "hfcl.h"

/* half_of rounds to the nearest number of 16 bits, ties to even. */
static uint16_t half_of(float f) {
	uint32_t b;
	memcpy(&b, &f, sizeof b);
	uint32_t sign = (b >> 16) & 0x8000u, magnitude = b & 0x7FFFFFFFu;
	if (magnitude > 0x7F800000u) {
		return (uint16_t)(sign | 0x7E00u);
	}
	if (magnitude >= 0x477FF000u) {
		return (uint16_t)(sign | 0x7C00u);
	}
	if (magnitude < 0x33000001u) {
		return (uint16_t)sign;
	}
	uint32_t exponent = magnitude >> 23, mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
	uint32_t shift = exponent < 113 ? 126 - exponent : 13;
	uint32_t kept = mantissa >> shift, rest = mantissa & ((1u << shift) - 1), tie = 1u << (shift - 1);
	if (rest > tie || (rest == tie && (kept & 1u) != 0)) {
		kept++;
	}
	return (uint16_t)(sign | (exponent < 113 ? kept : kept + ((exponent - 113) << 10)));
}

/* scaled rounds f times limit to the nearest whole number between low and limit, ties to even. */
static long scaled(float f, long low, long limit) {
	double v = (double)f * (double)limit;
	if (!(v > (double)low)) { /* what is no number, too */
		return f != f ? 0 : low;
	}
	if (v >= (double)limit) {
		return limit;
	}
	long floor = (long)v - (v < 0 && (double)(long)v != v);
	double rest = v - (double)floor;
	return floor + (rest > 0.5 || (rest == 0.5 && (floor & 1) != 0));
}

static long clamped(long v, long low, long high) { return v < low ? low : v > high ? high : v; }

/* channel writes one channel and says how many bytes it has, 0: unknown. */
static size_t channel(cl_channel_type type, const uint8_t *color, uint8_t *to) {
	float f;
	int32_t i;
	uint32_t u;
	memcpy(&f, color, 4);
	memcpy(&i, color, 4);
	memcpy(&u, color, 4);
	uint16_t two;
	switch (type) {
	case CL_UNORM_INT8:
		to[0] = (uint8_t)scaled(f, 0, 255);
		return 1;
	case CL_SNORM_INT8:
		to[0] = (uint8_t)scaled(f, -127, 127);
		return 1;
	case CL_SIGNED_INT8:
		to[0] = (uint8_t)clamped(i, -128, 127);
		return 1;
	case CL_UNSIGNED_INT8:
		to[0] = (uint8_t)(u > 255 ? 255 : u);
		return 1;
	case CL_UNORM_INT16:
		two = (uint16_t)scaled(f, 0, 65535);
		break;
	case CL_SNORM_INT16:
		two = (uint16_t)scaled(f, -32767, 32767);
		break;
	case CL_SIGNED_INT16:
		two = (uint16_t)clamped(i, -32768, 32767);
		break;
	case CL_UNSIGNED_INT16:
		two = (uint16_t)(u > 65535 ? 65535 : u);
		break;
	case CL_HALF_FLOAT:
		two = half_of(f);
		break;
	case CL_SIGNED_INT32:
	case CL_UNSIGNED_INT32:
	case CL_FLOAT:
		memcpy(to, color, 4);
		return 4;
	default:
		return 0;
	}
	memcpy(to, &two, 2);
	return 2;
}

/* hfcl_pixel_of makes a pixel of four numbers, red, green, blue, alpha; false for formats that it does not know. */
bool hfcl_pixel_of(const cl_image_format *f, const void *color, uint8_t pixel[16]) {
	static const struct {
		cl_channel_order order;
		int count, from[4];
	} known[] = {
		{ CL_R, 1, { 0 } }, { CL_A, 1, { 3 } }, { CL_INTENSITY, 1, { 0 } }, { CL_LUMINANCE, 1, { 0 } },
		{ CL_Rx, 1, { 0 } }, { CL_DEPTH, 1, { 0 } }, { CL_RG, 2, { 0, 1 } }, { CL_RGx, 2, { 0, 1 } },
		{ CL_RA, 2, { 0, 3 } }, { CL_RGBA, 4, { 0, 1, 2, 3 } }, { CL_BGRA, 4, { 2, 1, 0, 3 } },
		{ CL_ARGB, 4, { 3, 0, 1, 2 } }, { CL_ABGR, 4, { 3, 2, 1, 0 } } };
	for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
		if (known[k].order != f->image_channel_order) {
			continue;
		}
		size_t at = 0, n = 1;
		for (int c = 0; c < known[k].count && n > 0; c++, at += n) {
			n = channel(f->image_channel_data_type, (const uint8_t *)color + 4 * known[k].from[c], pixel + at);
		}
		return n > 0;
	}
	return false;
}
