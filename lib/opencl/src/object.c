/* Handles, their references, and answers to questions about them. */
#include "hfcl.h"

struct _cl_platform_id hfcl_platform = { { NULL, PLATFORM, 1, 0 } };

void hfcl_init(struct object *o, uint32_t kind) {
	o->dispatch = hfcl_platform.o.dispatch;
	atomic_store(&o->kind, kind);
	atomic_store(&o->refs, 1);
	o->id = hfcl_number();
}

uint64_t hfcl_number(void) {
	static _Atomic uint64_t last;
	return atomic_fetch_add(&last, 1) + 1;
}

bool hfcl_is(const void *handle, uint32_t kind) {
	const struct object *o = handle;
	return o != NULL && atomic_load(&o->kind) == kind;
}

void hfcl_retain(void *handle) {
	struct object *o = handle;
	atomic_fetch_add(&o->refs, 1);
}

bool hfcl_drop(void *handle) {
	struct object *o = handle;
	if (atomic_fetch_sub(&o->refs, 1) != 1) {
		return false;
	}
	hfcl_unlist(handle);
	atomic_store(&o->kind, DEAD);
	return true;
}

/* Memory objects and samplers that live: a kernel argument of eight bytes may be one of them or a number. */
static struct {
	pthread_mutex_t lock;
	void **slots;
	size_t used, size;
} live = { PTHREAD_MUTEX_INITIALIZER, NULL, 0, 0 };

static size_t slot_of(const void *handle, size_t size) {
	uint64_t h = (uint64_t)(uintptr_t)handle * UINT64_C(0x9E3779B97F4A7C15);
	return (size_t)(h >> 20) & (size - 1);
}

static void put(void **slots, size_t size, void *handle) {
	size_t i = slot_of(handle, size);
	while (slots[i] != NULL) {
		i = (i + 1) & (size - 1);
	}
	slots[i] = handle;
}

/* grow makes room for one more; without memory the object stays unlisted, and is refused as an argument. */
static bool grow(void) {
	if (2 * (live.used + 1) <= live.size) {
		return true;
	}
	size_t size = live.size == 0 ? 256 : 2 * live.size;
	void **slots = calloc(size, sizeof *slots);
	if (slots == NULL) {
		return false;
	}
	for (size_t i = 0; i < live.size; i++) {
		if (live.slots[i] != NULL) {
			put(slots, size, live.slots[i]);
		}
	}
	free(live.slots);
	live.slots = slots;
	live.size = size;
	return true;
}

void hfcl_list(void *handle) {
	pthread_mutex_lock(&live.lock);
	if (grow()) {
		put(live.slots, live.size, handle);
		live.used++;
	}
	pthread_mutex_unlock(&live.lock);
}

static size_t find(const void *handle) {
	if (live.size == 0) {
		return SIZE_MAX;
	}
	for (size_t i = slot_of(handle, live.size); live.slots[i] != NULL; i = (i + 1) & (live.size - 1)) {
		if (live.slots[i] == handle) {
			return i;
		}
	}
	return SIZE_MAX;
}

void hfcl_unlist(void *handle) {
	pthread_mutex_lock(&live.lock);
	size_t i = find(handle);
	if (i != SIZE_MAX) {
		live.slots[i] = NULL;
		live.used--;
		/* later entries of the same run may have been put there because of it */
		for (size_t j = (i + 1) & (live.size - 1); live.slots[j] != NULL; j = (j + 1) & (live.size - 1)) {
			void *moved = live.slots[j];
			live.slots[j] = NULL;
			put(live.slots, live.size, moved);
		}
	}
	pthread_mutex_unlock(&live.lock);
}

bool hfcl_live(const void *handle, uint32_t kind) {
	pthread_mutex_lock(&live.lock);
	bool is = handle != NULL && find(handle) != SIZE_MAX && hfcl_is(handle, kind);
	pthread_mutex_unlock(&live.lock);
	return is;
}

cl_int hfcl_answer(const void *value, size_t size, size_t room, void *to, size_t *size_ret) {
	if (to != NULL) {
		if (room < size) {
			return CL_INVALID_VALUE;
		}
		if (size > 0) {
			memcpy(to, value, size);
		}
	}
	if (size_ret != NULL) {
		*size_ret = size;
	}
	return CL_SUCCESS;
}

cl_int hfcl_answer_text(const char *text, size_t room, void *to, size_t *size_ret) {
	if (text == NULL) {
		text = "";
	}
	return hfcl_answer(text, strlen(text) + 1, room, to, size_ret);
}
