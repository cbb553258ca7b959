/* streams.c - streams that the program has made or submitted work to, so that they can be waited for and named. */
#include <pthread.h>
#include <stdlib.h>

#include "library.h"

struct hf_streams hf_streams;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void hf_streams_lock(void) { pthread_mutex_lock(&lock); }

void hf_streams_unlock(void) { pthread_mutex_unlock(&lock); }

/* Default streams have the same number in each context. */
static struct hf_stream *find(CUcontext context, hf_word stream) {
	size_t i;

	for (i = 0; i < hf_streams.count; i++) {
		if (hf_streams.list[i].stream == stream &&
			(stream > CU_STREAM_PER_THREAD || hf_streams.list[i].context == context)) {
			return &hf_streams.list[i];
		}
	}
	return NULL;
}

void hf_streams_note(hf_word stream, unsigned call, uint64_t number) {
	struct hf_stream *s, *more;
	CUcontext context = NULL;
	size_t room;

	if (REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS) {
		context = NULL;
	}
	hf_streams_lock();
	if ((s = find(context, stream)) == NULL && hf_streams.count == hf_streams.room) {
		room = hf_streams.room == 0 ? 64 : hf_streams.room * 2;
		if ((more = realloc(hf_streams.list, room * sizeof *more)) == NULL) {
			hf_streams_unlock();
			return;
		}
		hf_streams.list = more;
		hf_streams.room = room;
	}
	if (s == NULL) {
		s = &hf_streams.list[hf_streams.count++];
		*s = (struct hf_stream){ .context = context, .stream = stream };
	}
	s->call = call;
	s->number = number;
	hf_streams_unlock();
}

void hf_streams_end(CUcontext context, CUstream stream) {
	const struct hf_stream *s;
	size_t i;

	hf_streams_lock();
	for (i = hf_streams.count; i-- > 0;) {
		s = &hf_streams.list[i];
		if (stream == NULL ? s->context == context : s->stream == (hf_word)stream) {
			hf_streams.list[i] = hf_streams.list[--hf_streams.count];
		}
	}
	hf_streams_unlock();
}
