/* Memory that the server also maps: the contents of mapped buffers, and slots, through which bytes of other memory of
 * the program pass. Whose turn a slot is says a word beside the ring. */
#define _GNU_SOURCE
#include "../../common/shm.h"
#include "wire.h"

#include <sys/mman.h>
#include <unistd.h>

static struct {
	pthread_rwlock_t lock;
	struct area *first;
	uint64_t last;
	unsigned count;
} areas = { .lock = PTHREAD_RWLOCK_INITIALIZER };

enum { HUGE_PAGE = 2 << 20 };

/* map_file maps a file, from 2 MiB on so that it may have huge pages; NULL when it cannot. */
static void *map_file(int fd, size_t size) {
	if (size < HUGE_PAGE) {
		return hf_map(fd, size, PROT_READ | PROT_WRITE, MAP_SHARED);
	}
	char *room = mmap(NULL, size + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (room == MAP_FAILED) {
		return NULL;
	}
	char *at = room + (-(uintptr_t)room & (HUGE_PAGE - 1));
	size_t whole = (size + 4095) & ~(size_t)4095;
	void *p = mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	if (p == MAP_FAILED) {
		munmap(room, size + HUGE_PAGE);
		return NULL;
	}
	if (at > room) {
		munmap(room, (size_t)(at - room));
	}
	size_t after = (size_t)(room + size + HUGE_PAGE - (at + whole)) & ~(size_t)4095;
	if (after > 0) {
		munmap(at + whole, after);
	}
	return p;
}

/* reserve counts an area; false: there are as many as the server may have. */
static bool reserve(void) {
	pthread_rwlock_wrlock(&areas.lock);
	bool ok = areas.count < hfcl_max_areas();
	areas.count += ok;
	pthread_rwlock_unlock(&areas.lock);
	return ok;
}

static void unreserve(void) {
	pthread_rwlock_wrlock(&areas.lock);
	areas.count--;
	pthread_rwlock_unlock(&areas.lock);
}

struct area *hfcl_area(size_t size) {
	if (hfcl_lost() || !reserve()) { /* lost: also a child of fork, whose lock may be taken for ever */
		return NULL;
	}
	int before = hfcl_no_cancel(); /* its callers hold locks */
	struct area *a = calloc(1, sizeof *a);
	int fd = a == NULL ? -1 : hf_memfd("holdfast opencl", size);
	void *at = fd < 0 ? NULL : map_file(fd, size);
	bool passed = false;
	if (at != NULL) {
		a->at = at;
		a->size = size;
		pthread_rwlock_wrlock(&areas.lock);
		passed = hfcl_pass_area(fd); /* the server counts them too */
		if (passed) {
			a->number = ++areas.last;
			a->next = areas.first;
			areas.first = a;
		}
		pthread_rwlock_unlock(&areas.lock);
	}
	if (fd >= 0) {
		close(fd);
	}
	hfcl_cancel_again(before);
	if (!passed) {
		if (at != NULL) {
			munmap(at, size);
		}
		free(a);
		unreserve();
		return NULL;
	}
	return a;
}

void hfcl_area_share(struct area *a, uint64_t device) {
	struct call c;
	hfcl_begin(&c, HFCL_SHARE);
	hfcl_put64(&c, a->number);
	hfcl_put64(&c, device);
	hfcl_ask(&c); /* where it fails transfers take longer */
	hfcl_end(&c);
}

void hfcl_area_end(struct area *a) {
	pthread_rwlock_wrlock(&areas.lock);
	struct area **at = &areas.first;
	while (*at != a) {
		at = &(*at)->next;
	}
	*at = a->next;
	areas.count--;
	pthread_rwlock_unlock(&areas.lock);
	struct call c;
	hfcl_begin(&c, HFCL_UNSHARE);
	hfcl_put64(&c, a->number);
	hfcl_post(&c);
	munmap(a->at, a->size);
	free(a);
}

bool hfcl_in_area(const char *from, const char *to, uint64_t *number, uint64_t *offset) {
	bool in = false;
	pthread_rwlock_rdlock(&areas.lock);
	for (const struct area *a = areas.first; a != NULL && !in; a = a->next) {
		if (from >= a->at && to <= a->at + a->size) {
			in = true;
			*number = a->number;
			*offset = (uint64_t)(from - a->at);
		}
	}
	pthread_rwlock_unlock(&areas.lock);
	return in;
}

/* The slots, in an area that is made for the first transfer. */
static struct {
	pthread_mutex_t lock;
	struct area *area;
	bool failed;
	uint32_t mine;      /* slots of transfers that are going on, a bit for each */
	uint64_t shared[8]; /* devices that know the area */
	unsigned devices;
} slots = { .lock = PTHREAD_MUTEX_INITIALIZER };

static _Atomic uint32_t *state_of(int slot) { return hfcl_ring_word(HFCL_RING_WORDS + (size_t)slot * HFCL_RING_SLOT); }

static bool known(uint64_t device) {
	for (unsigned i = 0; i < slots.devices; i++) {
		if (slots.shared[i] == device) {
			return true;
		}
	}
	return slots.devices == sizeof slots.shared / sizeof slots.shared[0];
}

/* prepare makes the area and lets the device know it. */
static bool prepare(uint64_t device) {
	bool first = false;
	pthread_mutex_lock(&slots.lock);
	if (slots.area == NULL && !slots.failed) {
		slots.area = hfcl_area((size_t)HFCL_SLOTS * HFCL_SLOT_BYTES);
		slots.failed = slots.area == NULL;
	}
	if (slots.area != NULL && !known(device)) {
		slots.shared[slots.devices++] = device;
		first = true;
	}
	bool ok = slots.area != NULL;
	pthread_mutex_unlock(&slots.lock);
	if (first) {
		hfcl_area_share(slots.area, device);
	}
	return ok;
}

/* free_slot reports that no transfer uses a slot; the lock is held. */
static bool free_slot(int i) {
	if ((slots.mine >> i & 1) != 0) {
		return false;
	}
	uint32_t state = atomic_load(state_of(i));
	return state == HFCL_EMPTY || state == HFCL_REFUSED; /* the server has done with it */
}

unsigned hfcl_take_slots(uint64_t device, unsigned most, unsigned least, struct slots *s) {
	s->n = 0;
	if (most > HFCL_SLOTS || hfcl_lost() || !prepare(device)) {
		return 0;
	}
	pthread_mutex_lock(&slots.lock);
	s->area = slots.area;
	for (int i = 0; i < HFCL_SLOTS && s->n < most; i++) {
		if (free_slot(i)) {
			s->list[s->n++] = i;
		}
	}
	if (s->n < least) {
		s->n = 0;
	}
	for (unsigned i = 0; i < s->n; i++) {
		slots.mine |= UINT32_C(1) << s->list[i];
		atomic_store(state_of(s->list[i]), HFCL_EMPTY);
	}
	pthread_mutex_unlock(&slots.lock);
	return s->n;
}

bool hfcl_take_run(uint64_t device, unsigned n, struct slots *s) {
	s->n = 0;
	if (n > HFCL_SLOTS || hfcl_lost() || !prepare(device)) {
		return false;
	}
	pthread_mutex_lock(&slots.lock);
	s->area = slots.area;
	for (int i = 0; i < HFCL_SLOTS && s->n < n; i++) {
		if (free_slot(i)) {
			s->list[s->n++] = i;
		} else {
			s->n = 0;
		}
	}
	if (s->n < n) {
		s->n = 0;
	}
	for (unsigned i = 0; i < s->n; i++) {
		slots.mine |= UINT32_C(1) << s->list[i];
		atomic_store(state_of(s->list[i]), HFCL_EMPTY);
	}
	pthread_mutex_unlock(&slots.lock);
	return s->n > 0;
}

void hfcl_give_slots(const struct slots *s, bool reset) {
	pthread_mutex_lock(&slots.lock);
	for (unsigned i = 0; i < s->n; i++) {
		if (reset) {
			atomic_store(state_of(s->list[i]), HFCL_EMPTY);
		}
		slots.mine &= ~(UINT32_C(1) << s->list[i]);
	}
	pthread_mutex_unlock(&slots.lock);
}

char *hfcl_slot(const struct slots *s, size_t piece) {
	return s->area->at + (size_t)s->list[piece % s->n] * HFCL_SLOT_BYTES;
}

void hfcl_set_slot(const struct slots *s, size_t piece, uint32_t to) {
	_Atomic uint32_t *state = state_of(s->list[piece % s->n]);
	atomic_store(state, to);
	if (atomic_load(state + 2) != 0) { /* the server sleeps on it */
		hfcl_ring_wake(state);
	}
}

bool hfcl_await_slot(const struct slots *s, size_t piece, uint32_t want) {
	_Atomic uint32_t *state = state_of(s->list[piece % s->n]);
	uint32_t have = atomic_load(state);
	bool awake = true;
	while (have != want && have != HFCL_REFUSED && !hfcl_lost()) {
		if (!awake) {
			atomic_store(state + 1, 1);
			if (atomic_load(state) == have) {
				hfcl_ring_sleep(state, have);
			}
			atomic_store(state + 1, 0);
		}
		awake = awake && hfcl_ring_awake(state, have);
		have = atomic_load(state);
	}
	return have == want;
}
