/* Images: what they are like, what the device has. Images of one to three dimensions; arrays of images and images on
   buffers are refused. */
#include "hfcl.h"

/* hfcl_pixel_bytes is 0 for formats that OpenCL does not know. */
size_t hfcl_pixel_bytes(const cl_image_format *f) {
	size_t channels, bytes;
	switch (f->image_channel_order) {
	case CL_R:
	case CL_A:
	case CL_INTENSITY:
	case CL_LUMINANCE:
	case CL_Rx:
	case CL_DEPTH:
		channels = 1;
		break;
	case CL_RG:
	case CL_RA:
	case CL_RGx:
		channels = 2;
		break;
	case CL_RGB:
	case CL_RGBx:
		channels = 0; /* packed */
		break;
	case CL_RGBA:
	case CL_BGRA:
	case CL_ARGB:
	case CL_ABGR:
	case CL_sRGBA:
	case CL_sBGRA:
		channels = 4;
		break;
	default:
		return 0;
	}
	switch (f->image_channel_data_type) {
	case CL_SNORM_INT8:
	case CL_UNORM_INT8:
	case CL_SIGNED_INT8:
	case CL_UNSIGNED_INT8:
		bytes = 1;
		break;
	case CL_SNORM_INT16:
	case CL_UNORM_INT16:
	case CL_SIGNED_INT16:
	case CL_UNSIGNED_INT16:
	case CL_HALF_FLOAT:
		bytes = 2;
		break;
	case CL_SIGNED_INT32:
	case CL_UNSIGNED_INT32:
	case CL_FLOAT:
		bytes = 4;
		break;
	case CL_UNORM_SHORT_565:
	case CL_UNORM_SHORT_555:
		return channels == 0 ? 2 : 0;
	case CL_UNORM_INT_101010:
		return channels == 0 ? 4 : 0;
	default:
		return 0;
	}
	return channels * bytes;
}

bool hfcl_is_image(const struct _cl_mem *m) { return m->type != CL_MEM_OBJECT_BUFFER; }

void hfcl_image_extent(const struct _cl_mem *m, size_t extent[3]) {
	extent[0] = m->desc.image_width;
	extent[1] = m->type == CL_MEM_OBJECT_IMAGE1D ? 1 : m->desc.image_height;
	extent[2] = m->type == CL_MEM_OBJECT_IMAGE3D ? m->desc.image_depth : 1;
}

static cl_int check_pitches(const struct _cl_mem *m, const void *host) {
	size_t extent[3];
	const cl_image_desc *d = &m->desc;
	hfcl_image_extent(m, extent);
	if (host == NULL) {
		return d->image_row_pitch != 0 || d->image_slice_pitch != 0 ? CL_INVALID_IMAGE_DESCRIPTOR : CL_SUCCESS;
	}
	size_t row = extent[0] * m->pixel;
	size_t pitch = d->image_row_pitch == 0 ? row : d->image_row_pitch;
	if (pitch < row || pitch % m->pixel != 0) {
		return CL_INVALID_IMAGE_DESCRIPTOR;
	}
	if (d->image_slice_pitch != 0 && (d->image_slice_pitch < pitch * extent[1] || d->image_slice_pitch % pitch != 0)) {
		return CL_INVALID_IMAGE_DESCRIPTOR;
	}
	return CL_SUCCESS;
}

/* check looks at what is asked for; the device has the last word. */
static cl_int check(const struct _cl_mem *m, const void *host) {
	size_t extent[3];
	const cl_image_desc *d = &m->desc;
	if (m->pixel == 0) {
		return CL_INVALID_IMAGE_FORMAT_DESCRIPTOR;
	}
	if (d->num_mip_levels != 0 || d->num_samples != 0 || d->mem_object != NULL) {
		return CL_INVALID_IMAGE_DESCRIPTOR;
	}
	hfcl_image_extent(m, extent);
	if (extent[0] == 0 || extent[1] == 0 || extent[2] == 0) {
		return CL_INVALID_IMAGE_SIZE;
	}
	return check_pitches(m, host);
}

CL_API_ENTRY cl_mem CL_API_CALL clCreateImage(cl_context context, cl_mem_flags flags, const cl_image_format *format,
	const cl_image_desc *desc, void *host, cl_int *rc_ret) {
	cl_int ignored, *rc = rc_ret == NULL ? &ignored : rc_ret;
	*rc = hfcl_is(context, CONTEXT) ? hfcl_check_flags(flags, host) : CL_INVALID_CONTEXT;
	if (*rc == CL_SUCCESS && format == NULL) {
		*rc = CL_INVALID_IMAGE_FORMAT_DESCRIPTOR;
	}
	if (*rc == CL_SUCCESS && desc == NULL) {
		*rc = CL_INVALID_IMAGE_DESCRIPTOR;
	}
	if (*rc != CL_SUCCESS) {
		return NULL;
	}
	cl_uint dims = desc->image_type == CL_MEM_OBJECT_IMAGE1D ? 1
		: desc->image_type == CL_MEM_OBJECT_IMAGE2D        ? 2
		: desc->image_type == CL_MEM_OBJECT_IMAGE3D        ? 3
		                                                   : 0;
	if (dims == 0) {
		*rc = CL_INVALID_IMAGE_DESCRIPTOR;
		return NULL;
	}
	cl_mem m = hfcl_new_mem(context, desc->image_type, flags, 0, host);
	if (m == NULL) {
		*rc = CL_OUT_OF_HOST_MEMORY;
		return NULL;
	}
	m->format = *format;
	m->desc = *desc;
	m->pixel = hfcl_pixel_bytes(format);
	*rc = check(m, host);
	if (*rc != CL_SUCCESS) {
		pthread_mutex_destroy(&m->lock);
		free(m);
		return NULL;
	}
	size_t e[3];
	hfcl_image_extent(m, e);
	m->size = e[0] * e[1] * e[2] * m->pixel;
	size_t row = e[0] * m->pixel, pitch = desc->image_row_pitch == 0 ? row : desc->image_row_pitch;
	m->desc.image_row_pitch = pitch;
	m->desc.image_slice_pitch = dims < 3 ? 0 : desc->image_slice_pitch == 0 ? pitch * e[1] : desc->image_slice_pitch;
	struct call c;
	hfcl_begin(&c, HFCL_CREATE_IMAGE);
	hfcl_put64(&c, m->o.id);
	hfcl_put64(&c, context->device->o.id);
	hfcl_put32(&c, hfcl_access_of(flags));
	hfcl_put32(&c, dims);
	hfcl_put32(&c, format->image_channel_order);
	hfcl_put32(&c, format->image_channel_data_type);
	for (int i = 0; i < 3; i++) {
		hfcl_put64(&c, e[i]);
	}
	hfcl_put32(&c, (uint32_t)m->pixel);
	struct rows all = { host, row, e[1], e[2], pitch, m->desc.image_slice_pitch };
	cl_mem made = hfcl_made_mem(m, &c, host == NULL ? NULL : &all, rc);
	if (made != NULL && (flags & CL_MEM_USE_HOST_PTR) == 0) {
		made->desc.image_row_pitch = row;
		made->desc.image_slice_pitch = dims < 3 ? 0 : row * e[1];
	}
	return made;
}

CL_API_ENTRY cl_mem CL_API_CALL clCreateImageWithProperties(cl_context context, const cl_mem_properties *list,
	cl_mem_flags flags, const cl_image_format *format, const cl_image_desc *desc, void *host, cl_int *rc) {
	if (list != NULL && list[0] != 0) {
		if (rc != NULL) {
			*rc = CL_INVALID_PROPERTY;
		}
		return NULL;
	}
	return clCreateImage(context, flags, format, desc, host, rc);
}

CL_API_ENTRY cl_mem CL_API_CALL clCreateImage2D(cl_context context, cl_mem_flags flags, const cl_image_format *format,
	size_t width, size_t height, size_t row_pitch, void *host, cl_int *rc) {
	cl_image_desc d = { .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = width, .image_height = height,
		.image_row_pitch = row_pitch };
	return clCreateImage(context, flags, format, &d, host, rc);
}

CL_API_ENTRY cl_mem CL_API_CALL clCreateImage3D(cl_context context, cl_mem_flags flags, const cl_image_format *format,
	size_t width, size_t height, size_t depth, size_t row_pitch, size_t slice_pitch, void *host, cl_int *rc) {
	cl_image_desc d = { .image_type = CL_MEM_OBJECT_IMAGE3D, .image_width = width, .image_height = height,
		.image_depth = depth, .image_row_pitch = row_pitch, .image_slice_pitch = slice_pitch };
	return clCreateImage(context, flags, format, &d, host, rc);
}

CL_API_ENTRY cl_int CL_API_CALL clGetSupportedImageFormats(cl_context context, cl_mem_flags flags,
	cl_mem_object_type type, cl_uint room, cl_image_format *list, cl_uint *count) {
	if (!hfcl_is(context, CONTEXT)) {
		return CL_INVALID_CONTEXT;
	}
	if ((room == 0 && list != NULL) || type < CL_MEM_OBJECT_IMAGE2D || type > CL_MEM_OBJECT_IMAGE1D_BUFFER) {
		return CL_INVALID_VALUE;
	}
	uint32_t dims = type == CL_MEM_OBJECT_IMAGE1D ? 1
		: type == CL_MEM_OBJECT_IMAGE2D           ? 2
		: type == CL_MEM_OBJECT_IMAGE3D           ? 3
		                                          : 0;
	cl_uint n = 0;
	cl_int rc = CL_SUCCESS;
	struct call c;
	hfcl_begin(&c, HFCL_FORMATS);
	hfcl_put64(&c, context->device->o.id);
	hfcl_put32(&c, hfcl_access_of(flags));
	hfcl_put32(&c, dims);
	if (dims != 0 && (rc = hfcl_run(&c, NULL, NULL)) == CL_SUCCESS) {
		cl_uint all = hfcl_get32(&c);
		for (cl_uint i = 0; i < all && !c.failed; i++) {
			cl_image_format f = { hfcl_get32(&c), hfcl_get32(&c) };
			if (hfcl_pixel_bytes(&f) != 0) { /* what can be moved to and from the host */
				if (list != NULL && n < room) {
					list[n] = f;
				}
				n++;
			}
		}
	}
	hfcl_end(&c);
	if (count != NULL) {
		*count = n;
	}
	return rc;
}

CL_API_ENTRY cl_int CL_API_CALL clGetImageInfo(cl_mem m, cl_image_info what, size_t room, void *to, size_t *size_ret) {
	if (!hfcl_is(m, MEM) || !hfcl_is_image(m)) {
		return CL_INVALID_MEM_OBJECT;
	}
	switch (what) {
	case CL_IMAGE_FORMAT:
		return ANSWER(cl_image_format, m->format);
	case CL_IMAGE_ELEMENT_SIZE:
		return ANSWER(size_t, m->pixel);
	case CL_IMAGE_ROW_PITCH:
		return ANSWER(size_t, m->desc.image_row_pitch);
	case CL_IMAGE_SLICE_PITCH:
		return ANSWER(size_t, m->desc.image_slice_pitch);
	case CL_IMAGE_WIDTH:
		return ANSWER(size_t, m->desc.image_width);
	case CL_IMAGE_HEIGHT:
		return ANSWER(size_t, m->type == CL_MEM_OBJECT_IMAGE1D ? 0 : m->desc.image_height);
	case CL_IMAGE_DEPTH:
		return ANSWER(size_t, m->type == CL_MEM_OBJECT_IMAGE3D ? m->desc.image_depth : 0);
	case CL_IMAGE_ARRAY_SIZE:
		return ANSWER(size_t, 0);
	case CL_IMAGE_BUFFER:
		return ANSWER(cl_mem, NULL);
	case CL_IMAGE_NUM_MIP_LEVELS:
	case CL_IMAGE_NUM_SAMPLES:
		return ANSWER(cl_uint, 0);
	default:
		return CL_INVALID_VALUE;
	}
}
