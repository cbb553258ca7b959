/* Images: their descriptions, and the device's limits. */
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
	const cl_image_desc *d = &m->desc;
	uint32_t shape = hfcl_shape(m->type);
	extent[0] = d->image_width;
	extent[1] = shape == 1 ? 1 : shape == HFCL_ARRAY + 1 ? d->image_array_size : d->image_height;
	extent[2] = shape == 3 ? d->image_depth : shape == HFCL_ARRAY + 2 ? d->image_array_size : 1;
}

uint32_t hfcl_shape(cl_mem_object_type type) {
	switch (type) {
	case CL_MEM_OBJECT_IMAGE1D:
	case CL_MEM_OBJECT_IMAGE1D_BUFFER:
		return 1;
	case CL_MEM_OBJECT_IMAGE2D:
		return 2;
	case CL_MEM_OBJECT_IMAGE3D:
		return 3;
	case CL_MEM_OBJECT_IMAGE1D_ARRAY:
		return HFCL_ARRAY + 1;
	case CL_MEM_OBJECT_IMAGE2D_ARRAY:
		return HFCL_ARRAY + 2;
	default:
		return 0;
	}
}

/* slices reports whether the images or planes of one lie a slice pitch apart. */
static bool slices(const struct _cl_mem *m) { return hfcl_shape(m->type) >= 3; }

struct rows hfcl_pixel_rows(
	const struct _cl_mem *m, void *at, const size_t *region, size_t row_pitch, size_t slice_pitch) {
	size_t row = region[0] * m->pixel;
	if (m->type == CL_MEM_OBJECT_IMAGE1D_ARRAY) { /* lines are slices */
		return (struct rows){ at, row, region[1], 1, slice_pitch, slice_pitch * region[1] };
	}
	return (struct rows){ at, row, region[1], region[2], row_pitch, slice_pitch };
}

/* slice_height is how many rows lie in a slice. */
static size_t slice_height(const struct _cl_mem *m) {
	return m->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? 1 : m->desc.image_height;
}

static cl_int check_pitches(const struct _cl_mem *m, const void *host) {
	const cl_image_desc *d = &m->desc;
	if (host == NULL) {
		return d->image_row_pitch != 0 || d->image_slice_pitch != 0 ? CL_INVALID_IMAGE_DESCRIPTOR : CL_SUCCESS;
	}
	size_t row = d->image_width * m->pixel;
	size_t pitch = d->image_row_pitch == 0 ? row : d->image_row_pitch;
	if (pitch < row || pitch % m->pixel != 0) {
		return CL_INVALID_IMAGE_DESCRIPTOR;
	}
	if (slices(m) && d->image_slice_pitch != 0 &&
		(d->image_slice_pitch < pitch * slice_height(m) || d->image_slice_pitch % pitch != 0)) {
		return CL_INVALID_IMAGE_DESCRIPTOR;
	}
	return CL_SUCCESS;
}

/* check_on looks at the buffer that an image is to be on. */
static cl_int check_on(const struct _cl_mem *m, cl_mem_flags flags, const void *host) {
	cl_mem b = m->desc.buffer;
	if (m->type != CL_MEM_OBJECT_IMAGE1D_BUFFER) {
		return b == NULL ? CL_SUCCESS : CL_INVALID_IMAGE_DESCRIPTOR;
	}
	if (!hfcl_is(b, MEM) || hfcl_is_image(b) || b->context != m->context) {
		return CL_INVALID_IMAGE_DESCRIPTOR;
	}
	if (host != NULL || (flags & (CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR)) != 0) {
		return CL_INVALID_VALUE;
	}
	for (cl_uint i = 0; i < m->context->count; i++) {
		size_t most = 0;
		clGetDeviceInfo(m->context->devices[i], CL_DEVICE_IMAGE_MAX_BUFFER_SIZE, sizeof most, &most, NULL);
		if (m->desc.image_width > most) {
			return CL_INVALID_IMAGE_SIZE;
		}
	}
	return m->desc.image_width > b->size / m->pixel ? CL_INVALID_IMAGE_SIZE : CL_SUCCESS;
}

/* exceeds reports whether a number is larger than what each device of the context allows. */
static bool exceeds(cl_context c, cl_device_info limit, size_t n) {
	for (cl_uint i = 0; i < c->count; i++) {
		size_t most = 0;
		if (clGetDeviceInfo(c->devices[i], limit, sizeof most, &most, NULL) != CL_SUCCESS || n <= most) {
			return false;
		}
	}
	return true;
}

/* too_large: no device of the context has images of this size. */
static bool too_large(const struct _cl_mem *m) {
	const cl_image_desc *d = &m->desc;
	bool space = m->type == CL_MEM_OBJECT_IMAGE3D;
	cl_device_info height = space ? CL_DEVICE_IMAGE3D_MAX_HEIGHT : CL_DEVICE_IMAGE2D_MAX_HEIGHT;
	if (m->type == CL_MEM_OBJECT_IMAGE1D_BUFFER) {
		return false; /* the device's limit of its buffers counts */
	}
	return exceeds(m->context, space ? CL_DEVICE_IMAGE3D_MAX_WIDTH : CL_DEVICE_IMAGE2D_MAX_WIDTH, d->image_width) ||
		(hfcl_shape(m->type) % HFCL_ARRAY != 1 && exceeds(m->context, height, d->image_height)) ||
		(space && exceeds(m->context, CL_DEVICE_IMAGE3D_MAX_DEPTH, d->image_depth)) ||
		(hfcl_shape(m->type) > HFCL_ARRAY && exceeds(m->context, CL_DEVICE_IMAGE_MAX_ARRAY_SIZE, d->image_array_size));
}

/* check looks at the request; the device has the last word. */
static cl_int check(const struct _cl_mem *m, cl_mem_flags flags, const void *host) {
	size_t extent[3];
	const cl_image_desc *d = &m->desc;
	if (m->pixel == 0) {
		return CL_INVALID_IMAGE_FORMAT_DESCRIPTOR;
	}
	if (d->num_mip_levels != 0 || d->num_samples != 0) {
		return CL_INVALID_IMAGE_DESCRIPTOR;
	}
	hfcl_image_extent(m, extent);
	if (extent[0] == 0 || extent[1] == 0 || extent[2] == 0 || too_large(m)) {
		return CL_INVALID_IMAGE_SIZE;
	}
	cl_int rc = check_on(m, flags, host);
	return rc != CL_SUCCESS ? rc : check_pitches(m, host);
}

/* on_buffer gives an image the properties of its buffer. */
static void on_buffer(cl_mem m) {
	cl_mem b = m->desc.buffer;
	const cl_mem_flags access = CL_MEM_READ_WRITE | CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY;
	const cl_mem_flags host = CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS;
	m->parent = b;
	m->host = b->host;
	m->flags |= b->flags & (CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR);
	if ((m->flags & host) == 0) {
		m->flags |= b->flags & host;
	}
	if ((m->flags & access) == CL_MEM_READ_WRITE) {
		m->flags = (m->flags & ~access) | (b->flags & access);
	}
}

/* set_pitches fills in pitches that are 0. */
static void set_pitches(cl_mem m, size_t row_pitch, size_t slice_pitch) {
	row_pitch = row_pitch == 0 ? m->desc.image_width * m->pixel : row_pitch;
	m->desc.image_row_pitch = row_pitch;
	m->desc.image_slice_pitch = !slices(m) ? 0 : slice_pitch == 0 ? row_pitch * slice_height(m) : slice_pitch;
}

/* create sends the checked request. */
static cl_mem create(cl_mem m, void *host, cl_int *rc) {
	size_t e[3];
	bool on = m->type == CL_MEM_OBJECT_IMAGE1D_BUFFER;
	hfcl_image_extent(m, e);
	m->size = e[0] * e[1] * e[2] * m->pixel;
	if (on) {
		on_buffer(m);
	}
	set_pitches(m, m->desc.image_row_pitch, m->desc.image_slice_pitch);
	struct call c;
	hfcl_begin(&c, HFCL_CREATE_IMAGE);
	hfcl_put64(&c, m->o.id);
	hfcl_put64(&c, m->context->o.id);
	hfcl_put32(&c, hfcl_access_of(m->flags));
	hfcl_put32(&c, hfcl_shape(m->type));
	hfcl_put32(&c, m->format.image_channel_order);
	hfcl_put32(&c, m->format.image_channel_data_type);
	for (int i = 0; i < 3; i++) {
		hfcl_put64(&c, e[i]);
	}
	hfcl_put32(&c, (uint32_t)m->pixel);
	hfcl_put64(&c, on ? m->parent->o.id : 0);
	struct rows all = hfcl_pixel_rows(m, host, e, m->desc.image_row_pitch, m->desc.image_slice_pitch);
	cl_mem made = hfcl_made_mem(m, &c, host == NULL ? NULL : &all, rc);
	if (made != NULL && (made->flags & CL_MEM_USE_HOST_PTR) == 0) {
		set_pitches(made, 0, 0);
	}
	return made;
}

CL_API_ENTRY cl_mem CL_API_CALL clCreateImage(cl_context context, cl_mem_flags flags, const cl_image_format *format,
	const cl_image_desc *desc, void *host, cl_int *rc_ret) {
	cl_int ignored, *rc = rc_ret == NULL ? &ignored : rc_ret;
	*rc = hfcl_is(context, CONTEXT) ? hfcl_check_flags(flags, host) : CL_INVALID_CONTEXT;
	if (*rc == CL_SUCCESS && format == NULL) {
		*rc = CL_INVALID_IMAGE_FORMAT_DESCRIPTOR;
	}
	if (*rc == CL_SUCCESS && (desc == NULL || hfcl_shape(desc->image_type) == 0)) {
		*rc = CL_INVALID_IMAGE_DESCRIPTOR;
	}
	if (*rc != CL_SUCCESS) {
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
	*rc = check(m, flags, host);
	if (*rc != CL_SUCCESS) {
		pthread_mutex_destroy(&m->lock);
		free(m);
		return NULL;
	}
	return create(m, host, rc);
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
	cl_image_desc d = {
		.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = width, .image_height = height, .image_row_pitch = row_pitch
	};
	return clCreateImage(context, flags, format, &d, host, rc);
}

CL_API_ENTRY cl_mem CL_API_CALL clCreateImage3D(cl_context context, cl_mem_flags flags, const cl_image_format *format,
	size_t width, size_t height, size_t depth, size_t row_pitch, size_t slice_pitch, void *host, cl_int *rc) {
	cl_image_desc d = { .image_type = CL_MEM_OBJECT_IMAGE3D,
		.image_width = width,
		.image_height = height,
		.image_depth = depth,
		.image_row_pitch = row_pitch,
		.image_slice_pitch = slice_pitch };
	return clCreateImage(context, flags, format, &d, host, rc);
}

CL_API_ENTRY cl_int CL_API_CALL clGetSupportedImageFormats(cl_context context, cl_mem_flags flags,
	cl_mem_object_type type, cl_uint room, cl_image_format *list, cl_uint *count) {
	if (!hfcl_is(context, CONTEXT)) {
		return CL_INVALID_CONTEXT;
	}
	if ((room == 0 && list != NULL) || hfcl_shape(type) == 0 || hfcl_check_flags(flags, NULL) == CL_INVALID_VALUE) {
		return CL_INVALID_VALUE;
	}
	cl_uint n = 0;
	struct call c;
	hfcl_begin(&c, HFCL_FORMATS);
	hfcl_put64(&c, context->o.id);
	hfcl_put32(&c, hfcl_access_of(flags));
	hfcl_put32(&c, hfcl_shape(type));
	cl_int rc = hfcl_run(&c, NULL, NULL);
	if (rc == CL_SUCCESS) {
		cl_uint all = hfcl_get32(&c);
		for (cl_uint i = 0; i < all && !c.failed; i++) {
			cl_image_format f = { hfcl_get32(&c), hfcl_get32(&c) };
			if (hfcl_pixel_bytes(&f) != 0) { /* formats that can be moved to and from the host */
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
		return ANSWER(size_t, hfcl_shape(m->type) % HFCL_ARRAY == 1 ? 0 : m->desc.image_height);
	case CL_IMAGE_DEPTH:
		return ANSWER(size_t, m->type == CL_MEM_OBJECT_IMAGE3D ? m->desc.image_depth : 0);
	case CL_IMAGE_ARRAY_SIZE:
		return ANSWER(size_t, hfcl_shape(m->type) > HFCL_ARRAY ? m->desc.image_array_size : 0);
	case CL_IMAGE_BUFFER:
		return ANSWER(cl_mem, m->parent);
	case CL_IMAGE_NUM_MIP_LEVELS:
	case CL_IMAGE_NUM_SAMPLES:
		return ANSWER(cl_uint, 0);
	default:
		return CL_INVALID_VALUE;
	}
}
