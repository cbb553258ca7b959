/* Command queues, and the common part of all commands. */
#include "hfcl.h"

cl_int hfcl_check_queue(cl_command_queue q) { return hfcl_is(q, QUEUE) ? CL_SUCCESS : CL_INVALID_COMMAND_QUEUE; }

static cl_command_queue create(
	cl_context context, cl_device_id device, cl_command_queue_properties properties, cl_int *rc) {
	if (!hfcl_is(context, CONTEXT)) {
		*rc = CL_INVALID_CONTEXT;
		return NULL;
	}
	if (!hfcl_is(device, DEVICE) || hfcl_device_index(context, device) == context->count) {
		*rc = CL_INVALID_DEVICE;
		return NULL;
	}
	if ((properties & ~(cl_ulong)(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE)) != 0) {
		*rc = (properties & ~(cl_ulong)15) != 0 ? CL_INVALID_VALUE : CL_INVALID_QUEUE_PROPERTIES;
		return NULL;
	}
	cl_command_queue q = calloc(1, sizeof *q);
	if (q == NULL) {
		*rc = CL_OUT_OF_HOST_MEMORY;
		return NULL;
	}
	hfcl_init(&q->o, QUEUE);
	q->context = context;
	q->device = device;
	q->properties = properties;
	struct call c;
	hfcl_begin(&c, HFCL_CREATE_QUEUE);
	hfcl_put64(&c, q->o.id);
	hfcl_put64(&c, context->o.id);
	hfcl_put64(&c, device->o.id);
	hfcl_put32(&c, (uint32_t)properties);
	*rc = hfcl_run(&c, NULL, NULL);
	hfcl_end(&c);
	if (*rc != CL_SUCCESS) {
		free(q);
		return NULL;
	}
	hfcl_retain(context);
	return q;
}

CL_API_ENTRY cl_command_queue CL_API_CALL clCreateCommandQueue(
	cl_context context, cl_device_id device, cl_command_queue_properties properties, cl_int *rc) {
	cl_int ignored;
	return create(context, device, properties, rc == NULL ? &ignored : rc);
}

CL_API_ENTRY cl_command_queue CL_API_CALL clCreateCommandQueueWithProperties(
	cl_context context, cl_device_id device, const cl_queue_properties *list, cl_int *rc_ret) {
	cl_int ignored, *rc = rc_ret == NULL ? &ignored : rc_ret;
	cl_command_queue_properties properties = 0;
	size_t n = 0;
	for (; list != NULL && list[n] != 0; n += 2) {
		if (list[n] != CL_QUEUE_PROPERTIES || n > 0) {
			*rc = CL_INVALID_VALUE;
			return NULL;
		}
		properties = list[n + 1];
	}
	cl_command_queue q = create(context, device, properties, rc);
	if (q != NULL && list != NULL) {
		q->list_size = (n + 1) * sizeof *list;
		memcpy(q->list, list, q->list_size);
	}
	return q;
}

CL_API_ENTRY cl_int CL_API_CALL clRetainCommandQueue(cl_command_queue q) {
	if (!hfcl_is(q, QUEUE)) {
		return CL_INVALID_COMMAND_QUEUE;
	}
	hfcl_retain(q);
	return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clReleaseCommandQueue(cl_command_queue q) {
	if (!hfcl_is(q, QUEUE)) {
		return CL_INVALID_COMMAND_QUEUE;
	}
	if (!hfcl_drop(q)) {
		return CL_SUCCESS;
	}
	hfcl_release(q->o.id); /* the server completes its commands before */
	clReleaseContext(q->context);
	free(q);
	return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clGetCommandQueueInfo(
	cl_command_queue q, cl_command_queue_info what, size_t room, void *to, size_t *size_ret) {
	if (!hfcl_is(q, QUEUE)) {
		return CL_INVALID_COMMAND_QUEUE;
	}
	switch (what) {
	case CL_QUEUE_CONTEXT:
		return ANSWER(cl_context, q->context);
	case CL_QUEUE_DEVICE:
		return ANSWER(cl_device_id, q->device);
	case CL_QUEUE_REFERENCE_COUNT:
		return ANSWER(cl_uint, atomic_load(&q->o.refs));
	case CL_QUEUE_PROPERTIES:
		return ANSWER(cl_command_queue_properties, q->properties);
	case CL_QUEUE_PROPERTIES_ARRAY:
		return hfcl_answer(q->list, q->list_size, room, to, size_ret);
	default:
		return CL_INVALID_VALUE;
	}
}

CL_API_ENTRY cl_int CL_API_CALL clSetCommandQueueProperty(
	cl_command_queue q, cl_command_queue_properties properties, cl_bool enable, cl_command_queue_properties *old) {
	(void)properties;
	(void)enable;
	(void)old;
	return hfcl_is(q, QUEUE) ? CL_INVALID_OPERATION : CL_INVALID_COMMAND_QUEUE;
}

/* hfcl_command begins a command: checks, the event, and the common beginning of all commands' messages. A tracked one
 * has an
   event even if the program wants none. Only if it succeeds must hfcl_issue follow. */
cl_int hfcl_command(struct command *m, uint32_t op, cl_command_type type, cl_command_queue q, cl_uint n,
	const cl_event *waits, cl_event *wanted, bool tracked) {
	cl_int rc = hfcl_check_queue(q);
	if (rc == CL_SUCCESS) {
		rc = hfcl_check_waits(q->context, n, waits);
	}
	if (rc != CL_SUCCESS) {
		return rc;
	}
	m->wanted = wanted;
	m->rings = op != HFCL_READ && op != HFCL_WRITE;
	m->made = NULL;
	if (wanted != NULL || tracked) {
		m->made = hfcl_event(q->context, q, type);
		if (m->made == NULL) {
			return CL_OUT_OF_HOST_MEMORY;
		}
	}
	hfcl_begin(&m->call, op);
	hfcl_put64(&m->call, q->o.id);
	hfcl_put64(&m->call, m->made == NULL ? 0 : m->made->o.id);
	hfcl_put_events(&m->call, n, waits);
	return CL_SUCCESS;
}

/* hfcl_answered gives the program the event of a command that was taken. */
cl_int hfcl_answered(struct command *m, cl_int rc) {
	if (m->made == NULL) {
		return rc;
	}
	if (rc == CL_SUCCESS && m->wanted != NULL) {
		*m->wanted = m->made;
	} else {
		clReleaseEvent(m->made);
	}
	return rc;
}

/* hfcl_issue sends the command, waits for its outcome, and gives the program its event. */
cl_int hfcl_issue(struct command *m, const struct rows *out, const struct rows *in) {
	cl_int rc = out == NULL && in == NULL && m->rings ? hfcl_ask(&m->call) : hfcl_run(&m->call, out, in);
	hfcl_end(&m->call);
	return hfcl_answered(m, rc);
}

cl_int hfcl_submit(struct command *m) {
	return hfcl_ring_device_lost() ? hfcl_issue(m, NULL, NULL) : hfcl_answered(m, hfcl_post(&m->call));
}

static cl_int plain(cl_command_queue q, uint32_t op) {
	cl_int rc = hfcl_check_queue(q);
	if (rc != CL_SUCCESS) {
		return rc;
	}
	struct call c;
	hfcl_begin(&c, op);
	hfcl_put64(&c, q->o.id);
	if (op == HFCL_FLUSH && !hfcl_ring_device_lost()) {
		return hfcl_post(&c);
	}
	rc = hfcl_ask(&c);
	hfcl_end(&c);
	return rc;
}

CL_API_ENTRY cl_int CL_API_CALL clFlush(cl_command_queue q) { return plain(q, HFCL_FLUSH); }

CL_API_ENTRY cl_int CL_API_CALL clFinish(cl_command_queue q) { return plain(q, HFCL_FINISH); }

static cl_int mark(
	cl_command_queue q, cl_command_type type, uint32_t flags, cl_uint n, const cl_event *waits, cl_event *event) {
	struct command m;
	cl_int rc = hfcl_command(&m, HFCL_MARKER, type, q, n, waits, event, false);
	if (rc != CL_SUCCESS) {
		return rc;
	}
	hfcl_put32(&m.call, flags);
	return hfcl_submit(&m);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueMarkerWithWaitList(
	cl_command_queue q, cl_uint n, const cl_event *waits, cl_event *event) {
	return mark(q, CL_COMMAND_MARKER, 0, n, waits, event);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueBarrierWithWaitList(
	cl_command_queue q, cl_uint n, const cl_event *waits, cl_event *event) {
	return mark(q, CL_COMMAND_BARRIER, HFCL_BARRIER, n, waits, event);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueMarker(cl_command_queue q, cl_event *event) {
	return event == NULL ? CL_INVALID_VALUE : mark(q, CL_COMMAND_MARKER, 0, 0, NULL, event);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueBarrier(cl_command_queue q) {
	return mark(q, CL_COMMAND_BARRIER, HFCL_BARRIER, 0, NULL, NULL);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueWaitForEvents(cl_command_queue q, cl_uint n, const cl_event *waits) {
	if (n == 0 || waits == NULL) {
		return CL_INVALID_VALUE;
	}
	for (cl_uint i = 0; i < n; i++) {
		if (!hfcl_is(waits[i], EVENT)) {
			return CL_INVALID_EVENT;
		}
	}
	return mark(q, CL_COMMAND_BARRIER, HFCL_BARRIER, n, waits, NULL);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueMigrateMemObjects(cl_command_queue q, cl_uint count, const cl_mem *mems,
	cl_mem_migration_flags flags, cl_uint n, const cl_event *waits, cl_event *event) {
	if (hfcl_check_queue(q) != CL_SUCCESS) {
		return CL_INVALID_COMMAND_QUEUE;
	}
	if (count == 0 || mems == NULL ||
		(flags & ~(cl_ulong)(CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED)) != 0) {
		return CL_INVALID_VALUE;
	}
	for (cl_uint i = 0; i < count; i++) {
		if (!hfcl_is(mems[i], MEM)) {
			return CL_INVALID_MEM_OBJECT;
		}
		if (mems[i]->context != q->context) {
			return CL_INVALID_CONTEXT;
		}
	}
	return mark(q, CL_COMMAND_MIGRATE_MEM_OBJECTS, HFCL_ALONE, n, waits, event);
}
