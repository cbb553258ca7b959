/* Events: the outcomes of commands, user events, call-backs. */
#include "hfcl.h"

#include <time.h>

/* Events with call-backs that have not been called, by the number of the call-back. */
static struct {
	pthread_mutex_t lock;
	struct waiting {
		struct waiting *next;
		uint64_t number;
		cl_event event; /* a reference */
		cl_int type, status;
		void(CL_CALLBACK *call)(cl_event, cl_int, void *);
		void *data;
	} *first;
} watches = { PTHREAD_MUTEX_INITIALIZER, NULL };

cl_event hfcl_event(cl_context context, cl_command_queue queue, cl_command_type type) {
	cl_event e = calloc(1, sizeof *e);
	if (e == NULL) {
		return NULL;
	}
	hfcl_init(&e->o, EVENT);
	hfcl_retain(context);
	e->context = context;
	if (queue != NULL) {
		hfcl_retain(queue);
	}
	e->queue = queue;
	e->type = type;
	pthread_mutex_init(&e->lock, NULL);
	atomic_store(&e->status, queue == NULL ? CL_SUBMITTED : CL_QUEUED);
	return e;
}

void hfcl_finish_event(cl_event e, cl_int status) {
	if (status <= CL_COMPLETE) {
		atomic_store(&e->status, status);
	}
}

void hfcl_put_events(struct call *c, cl_uint n, const cl_event *list) {
	hfcl_put32(c, n);
	for (cl_uint i = 0; i < n; i++) {
		hfcl_put64(c, list[i]->o.id);
	}
}

cl_int hfcl_check_waits(cl_context context, cl_uint n, const cl_event *list) {
	if ((n == 0) != (list == NULL)) {
		return CL_INVALID_EVENT_WAIT_LIST;
	}
	for (cl_uint i = 0; i < n; i++) {
		if (!hfcl_is(list[i], EVENT)) {
			return CL_INVALID_EVENT_WAIT_LIST;
		}
		if (context != NULL && list[i]->context != context) {
			return CL_INVALID_CONTEXT;
		}
	}
	return CL_SUCCESS;
}

/* ask_status is the state of a command by the server's account. */
static cl_int ask_status(cl_event e, cl_int *status) {
	*status = atomic_load(&e->status);
	if (*status <= CL_COMPLETE) {
		return CL_SUCCESS;
	}
	struct call c;
	hfcl_begin(&c, HFCL_EVENT_STATUS);
	hfcl_put64(&c, e->o.id);
	cl_int rc = hfcl_run(&c, NULL, NULL);
	if (rc == CL_SUCCESS) {
		*status = (cl_int)hfcl_get32(&c);
		hfcl_finish_event(e, *status);
	} else if (hfcl_lost()) {
		*status = CL_DEVICE_NOT_AVAILABLE;
		rc = CL_SUCCESS;
	}
	hfcl_end(&c);
	return rc;
}

/* look_until_complete waits for events without a connection. */
static cl_int look_until_complete(cl_uint n, const cl_event *list) {
	cl_int rc = CL_SUCCESS;
	long pause = 20000;
	for (cl_uint i = 0; i < n;) {
		cl_int status;
		if (ask_status(list[i], &status) != CL_SUCCESS) {
			return CL_DEVICE_NOT_AVAILABLE;
		}
		if (status > CL_COMPLETE) {
			int before = hfcl_no_cancel();
			nanosleep(&(struct timespec){ 0, pause }, NULL);
			hfcl_cancel_again(before);
			pause = pause < 5000000 ? 2 * pause : pause;
			continue;
		}
		if (status < 0 && rc != CL_DEVICE_NOT_AVAILABLE) {
			rc = status == CL_DEVICE_NOT_AVAILABLE ? status : CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
		}
		i++;
	}
	return rc;
}

/* wait_for is the wait for events that c is the request for. */
static cl_int wait_for(struct call *c, cl_uint n, const cl_event *list) {
	int slot = c->failed || c->n > HFCL_RING_MESSAGE ? -1 : hfcl_ring_ask();
	if (slot < 0) {
		/* in a child of fork the lock of the connections may be taken for ever */
		return !c->failed && !hfcl_lost() && hfcl_few_connections() ? look_until_complete(n, list)
																	: hfcl_run(c, NULL, NULL);
	}
	cl_int rc = hfcl_ask_in(c, slot);
	return rc == CL_SUCCESS ? hfcl_answer_in(slot) : rc;
}

CL_API_ENTRY cl_int CL_API_CALL clWaitForEvents(cl_uint n, const cl_event *list) {
	if (n == 0 || list == NULL) {
		return CL_INVALID_VALUE;
	}
	struct call c;
	hfcl_begin(&c, HFCL_WAIT);
	for (cl_uint i = 0; i < n; i++) {
		if (!hfcl_is(list[i], EVENT)) {
			hfcl_end(&c);
			return CL_INVALID_EVENT;
		}
		if (list[i]->context != list[0]->context) {
			hfcl_end(&c);
			return CL_INVALID_CONTEXT;
		}
	}
	hfcl_put_events(&c, n, list);
	cl_int rc = wait_for(&c, n, list);
	hfcl_end(&c);
	if (rc == CL_SUCCESS) {
		for (cl_uint i = 0; i < n; i++) {
			hfcl_finish_event(list[i], CL_COMPLETE);
		}
	}
	return rc;
}

CL_API_ENTRY cl_int CL_API_CALL clGetEventInfo(
	cl_event e, cl_event_info what, size_t room, void *to, size_t *size_ret) {
	if (!hfcl_is(e, EVENT)) {
		return CL_INVALID_EVENT;
	}
	switch (what) {
	case CL_EVENT_COMMAND_QUEUE:
		return ANSWER(cl_command_queue, e->queue);
	case CL_EVENT_CONTEXT:
		return ANSWER(cl_context, e->context);
	case CL_EVENT_COMMAND_TYPE:
		return ANSWER(cl_command_type, e->type);
	case CL_EVENT_REFERENCE_COUNT:
		return ANSWER(cl_uint, atomic_load(&e->o.refs));
	case CL_EVENT_COMMAND_EXECUTION_STATUS: {
		cl_int status, rc = ask_status(e, &status);
		return rc != CL_SUCCESS ? rc : ANSWER(cl_int, status);
	}
	default:
		return CL_INVALID_VALUE;
	}
}

CL_API_ENTRY cl_int CL_API_CALL clGetEventProfilingInfo(
	cl_event e, cl_profiling_info what, size_t room, void *to, size_t *size_ret) {
	if (!hfcl_is(e, EVENT)) {
		return CL_INVALID_EVENT;
	}
	if (what < CL_PROFILING_COMMAND_QUEUED || what > CL_PROFILING_COMMAND_END) {
		return CL_INVALID_VALUE;
	}
	if (e->queue == NULL || (e->queue->properties & CL_QUEUE_PROFILING_ENABLE) == 0) {
		return CL_PROFILING_INFO_NOT_AVAILABLE;
	}
	struct call c;
	cl_ulong times[4] = { 0 };
	hfcl_begin(&c, HFCL_EVENT_TIMES);
	hfcl_put64(&c, e->o.id);
	cl_int rc = hfcl_run(&c, NULL, NULL);
	for (int i = 0; i < 4 && rc == CL_SUCCESS; i++) {
		times[i] = hfcl_get64(&c);
	}
	hfcl_end(&c);
	return rc != CL_SUCCESS ? rc : ANSWER(cl_ulong, times[what - CL_PROFILING_COMMAND_QUEUED]);
}

CL_API_ENTRY cl_int CL_API_CALL clRetainEvent(cl_event e) {
	if (!hfcl_is(e, EVENT)) {
		return CL_INVALID_EVENT;
	}
	hfcl_retain(e);
	return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clReleaseEvent(cl_event e) {
	if (!hfcl_is(e, EVENT)) {
		return CL_INVALID_EVENT;
	}
	if (!hfcl_drop(e)) {
		return CL_SUCCESS;
	}
	struct call c;
	hfcl_begin(&c, HFCL_FORGET);
	hfcl_put64(&c, e->o.id);
	hfcl_post(&c);
	if (e->queue != NULL) {
		clReleaseCommandQueue(e->queue);
	}
	clReleaseContext(e->context);
	pthread_mutex_destroy(&e->lock);
	free(e);
	return CL_SUCCESS;
}

CL_API_ENTRY cl_event CL_API_CALL clCreateUserEvent(cl_context context, cl_int *rc_ret) {
	cl_int ignored, *rc = rc_ret == NULL ? &ignored : rc_ret;
	if (!hfcl_is(context, CONTEXT)) {
		*rc = CL_INVALID_CONTEXT;
		return NULL;
	}
	cl_event e = hfcl_event(context, NULL, CL_COMMAND_USER);
	if (e == NULL) {
		*rc = CL_OUT_OF_HOST_MEMORY;
		return NULL;
	}
	struct call c;
	hfcl_begin(&c, HFCL_USER_EVENT);
	hfcl_put64(&c, e->o.id);
	*rc = hfcl_post(&c);
	if (*rc != CL_SUCCESS) {
		clReleaseEvent(e);
		return NULL;
	}
	return e;
}

CL_API_ENTRY cl_int CL_API_CALL clSetUserEventStatus(cl_event e, cl_int status) {
	if (!hfcl_is(e, EVENT) || e->type != CL_COMMAND_USER) {
		return CL_INVALID_EVENT;
	}
	if (status > CL_COMPLETE) {
		return CL_INVALID_VALUE;
	}
	pthread_mutex_lock(&e->lock);
	bool again = atomic_load(&e->status) <= CL_COMPLETE;
	if (!again) {
		atomic_store(&e->status, status);
	}
	pthread_mutex_unlock(&e->lock);
	if (again) {
		return CL_INVALID_OPERATION;
	}
	struct call c;
	hfcl_begin(&c, HFCL_SET_USER_EVENT);
	hfcl_put64(&c, e->o.id);
	hfcl_put32(&c, (uint32_t)status);
	return hfcl_post(&c);
}

static void call_back(void *arg) {
	struct waiting *w = arg;
	w->call(w->event, w->status < 0 ? w->status : w->type, w->data);
	clReleaseEvent(w->event);
	free(w);
}

/* take_watch takes the call-back of this number, 0: any, out of those that wait. */
static struct waiting *take_watch(uint64_t number) {
	pthread_mutex_lock(&watches.lock);
	struct waiting **at = &watches.first;
	while (*at != NULL && number != 0 && (*at)->number != number) {
		at = &(*at)->next;
	}
	struct waiting *w = *at;
	if (w != NULL) {
		*at = w->next;
	}
	pthread_mutex_unlock(&watches.lock);
	return w;
}

/* hfcl_noted: an event has come to where a call-back is due; watch 0 stands for all, of a server that is gone. */
void hfcl_noted(uint64_t watch, uint64_t event, cl_int status) {
	(void)event;
	struct waiting *w;
	while ((w = take_watch(watch)) != NULL) {
		if (w->type == CL_COMPLETE || status < 0) {
			hfcl_finish_event(w->event, status);
		}
		w->status = status;
		hfcl_call_later(call_back, w);
		if (watch != 0) {
			return;
		}
	}
}

CL_API_ENTRY cl_int CL_API_CALL clSetEventCallback(
	cl_event e, cl_int type, void(CL_CALLBACK *call)(cl_event, cl_int, void *), void *data) {
	if (!hfcl_is(e, EVENT)) {
		return CL_INVALID_EVENT;
	}
	if (call == NULL || (type != CL_COMPLETE && type != CL_SUBMITTED && type != CL_RUNNING)) {
		return CL_INVALID_VALUE;
	}
	struct waiting *w = calloc(1, sizeof *w);
	if (w == NULL) {
		return CL_OUT_OF_HOST_MEMORY;
	}
	uint64_t number = hfcl_number();
	hfcl_retain(e);
	*w = (struct waiting){ NULL, number, e, type, 0, call, data };
	pthread_mutex_lock(&watches.lock);
	w->next = watches.first;
	watches.first = w;
	pthread_mutex_unlock(&watches.lock);
	struct call c;
	hfcl_begin(&c, HFCL_WATCH);
	hfcl_put64(&c, number);
	hfcl_put64(&c, e->o.id);
	hfcl_put32(&c, (uint32_t)type);
	cl_int rc = hfcl_post(&c);
	if (rc == CL_SUCCESS || (w = take_watch(number)) == NULL) {
		return CL_SUCCESS; /* without w the server has just gone, and the call-back is called with that */
	}
	clReleaseEvent(w->event);
	free(w);
	return rc;
}
