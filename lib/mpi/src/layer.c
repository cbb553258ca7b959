/* layer.c - the tables of a rank, and how the library of the program's MPI is found. */
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "layer.h"

hfm_function *hfm_real[HFM_CALLS], *hfm_inner[HFM_CALLS], *hfm_outer[HFM_CALLS];
void *hfm_symbols[9];

struct hfm_map hfm_comms, hfm_files, hfm_windows, hfm_requests, hfm_messages;
struct hfm_comm *hfm_first_comm, *hfm_parents;
struct hfm_last hfm_last = { UINT64_MAX, NULL };
static struct hfm_comm **last_comm = &hfm_first_comm;
struct hfm_request *hfm_orphans;
struct hfm_plain hfm_plains[1 << HFM_PLAIN_BITS];
size_t hfm_plains_n;
uint64_t hfm_order;
static struct hfm_request *free_requests;
int hfm_rank, hfm_size;
__thread const char *hfm_within;
__thread const void *hfm_caller;
bool hfm_on, hfm_threads;
pthread_mutex_t hfm_mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_rwlock_t hfm_gate = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
uint64_t hfm_cut_every;
static bool cut_random;
static uint64_t cut_state;
void (*hfm_drain)(void);

/* fatal ends the program as the loader would for a symbol that is missing. */
static _Noreturn void fatal(const char *why, const char *name) {
	fprintf(stderr, "libholdfast-mpi: %s%s\n", why, name);
	_exit(127);
}

void *hfm_need(void *p) {
	if (p == NULL) {
		fatal("out of memory", "");
	}
	return p;
}

/* The library of MPI among the loaded objects: its name, and a handle on it. */
struct library {
	char names[256][512];
	int n;
};

static int note_object(struct dl_phdr_info *info, size_t size, void *to) {
	(void)size;
	struct library *l = to;
	const char *base = strrchr(info->dlpi_name, '/');
	if (strncmp(base ? base + 1 : info->dlpi_name, "libmpi", 6) == 0 && l->n < 256 &&
		strlen(info->dlpi_name) < sizeof l->names[0]) {
		strcpy(l->names[l->n++], info->dlpi_name);
	}
	return 0;
}

/* open_library finds the object that has MPI_Init itself, not only among those that it depends on. */
static void *open_library(const char **name) {
	static struct library l;
	dl_iterate_phdr(note_object, &l);
	for (int i = 0; i < l.n; i++) {
		void *handle = dlopen(l.names[i], RTLD_LAZY | RTLD_NOLOAD);
		void *init = handle ? dlsym(handle, "PMPI_Init") : NULL;
		Dl_info from;
		if (init != NULL && dladdr(init, &from) != 0 && strcmp(from.dli_fname, l.names[i]) == 0) {
			*name = l.names[i];
			return handle;
		}
	}
	return NULL;
}

static void find_all(void) {
	const char *name = NULL;
	void *library = open_library(&name);
	if (library == NULL) {
		return;
	}
	const char *base = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
	hfm_function *const *bodies = strncmp(base, "libmpi_abi", 10) == 0 ? hfm_bodies_standard : hfm_bodies_mpich;
	if (dlsym(library, "ompi_mpi_comm_world") != NULL) {
		bodies = hfm_bodies_openmpi;
		const char *const symbols[9] = { "ompi_mpi_comm_world", "ompi_mpi_comm_self", "ompi_mpi_comm_null",
			"ompi_request_null", "ompi_message_null", "ompi_message_no_proc", "ompi_mpi_packed",
			"ompi_mpi_errors_return", "ompi_mpi_byte" };
		for (int i = 0; i < 9; i++) {
			/* A program that is linked with the library may have copies, which stand for the library's. */
			void *own = dlsym(RTLD_DEFAULT, symbols[i]);
			hfm_symbols[i] = own ? own : dlsym(library, symbols[i]);
		}
	}
	for (int i = 0; i < HFM_CALLS; i++) {
		char full[80];
		snprintf(full, sizeof full, "PMPI_%s", hfm_names[i]);
		void *real = dlsym(library, full);
		void *weak = dlsym(library, full + 1);
		void *next = dlsym(RTLD_NEXT, full + 1);
		if (real == NULL) {
			continue;
		}
		memcpy(&hfm_real[i], &real, sizeof real);
		hfm_function *inner = bodies[i] ? bodies[i] : hfm_real[i], *outer = inner;
		if (next != NULL && next != weak && next != real) { /* a tool stands behind: it calls the PMPI_ name */
			memcpy(&outer, &next, sizeof next);
		}
		__atomic_store_n(&hfm_inner[i], inner, __ATOMIC_RELEASE);
		__atomic_store_n(&hfm_outer[i], outer, __ATOMIC_RELEASE);
	}
}

hfm_function *hfm_resolve(hfm_function **table, enum hfm_call call) {
	static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
	static bool found;
	pthread_mutex_lock(&once);
	if (!found) {
		find_all();
		found = hfm_real[HFM_Init] != NULL;
	}
	pthread_mutex_unlock(&once);
	if (!found) {
		fatal("no library of MPI is loaded, but the program calls MPI_", hfm_names[call]);
	}
	if (table[call] == NULL) {
		fatal("the MPI of this program has no MPI_", hfm_names[call]);
	}
	return table[call];
}

bool hfm_passed_by(void) {
	const char *name;
	void *library = hfm_on ? NULL : open_library(&name);
	void *at = library != NULL ? dlsym(library, "PMPI_Initialized") : NULL;
	int (*initialized)(int *), yes = 0;
	memcpy(&initialized, &at, sizeof at);
	return at != NULL && initialized(&yes) == 0 && yes;
}

static size_t place(const struct hfm_map *map, uint64_t key) {
	return (size_t)((key * 0x9e3779b97f4a7c15u) >> 32) & (map->room - 1);
}

/* seek returns where key is, or the free place where it would be. */
static size_t seek(const struct hfm_map *map, uint64_t key) {
	size_t i = place(map, key);
	while (map->values[i] != NULL && map->keys[i] != key) {
		i = (i + 1) & (map->room - 1);
	}
	return i;
}

void *hfm_get(const struct hfm_map *map, uint64_t key) {
	hfm_lock();
	void *value = map->used == 0 ? NULL : map->values[seek(map, key)];
	hfm_unlock();
	return value;
}

static void grow(struct hfm_map *map) {
	struct hfm_map old = *map;
	map->room = old.room == 0 ? 64 : 2 * old.room;
	map->keys = hfm_need(calloc(map->room, sizeof *map->keys));
	map->values = hfm_need(calloc(map->room, sizeof *map->values));
	for (size_t i = 0; i < old.room; i++) {
		if (old.values[i] != NULL) {
			size_t to = seek(map, old.keys[i]);
			map->keys[to] = old.keys[i];
			map->values[to] = old.values[i];
		}
	}
	free(old.keys);
	free(old.values);
}

void hfm_put(struct hfm_map *map, uint64_t key, void *value) {
	hfm_lock();
	if (2 * map->used >= map->room) {
		grow(map);
	}
	size_t i = seek(map, key);
	map->used += map->values[i] == NULL;
	map->keys[i] = key;
	map->values[i] = value;
	hfm_unlock();
}

void *hfm_remove(struct hfm_map *map, uint64_t key, const void *which) {
	hfm_lock();
	size_t i = map->used == 0 ? 0 : seek(map, key);
	void *value = map->used == 0 ? NULL : map->values[i];
	if (value != NULL && (which == NULL || value == which)) {
		map->used--;
		map->values[i] = NULL;
		/* Later entries move up, so that no search ends at the gap. */
		for (size_t j = (i + 1) & (map->room - 1); map->values[j] != NULL; j = (j + 1) & (map->room - 1)) {
			size_t home = place(map, map->keys[j]);
			if (((j - home) & (map->room - 1)) >= ((j - i) & (map->room - 1))) {
				map->keys[i] = map->keys[j];
				map->values[i] = map->values[j];
				map->values[j] = NULL;
				i = j;
			}
		}
	}
	hfm_unlock();
	return value;
}

struct hfm_comm *hfm_new_comm(const struct hfm_comm *like, const struct hfm_comm *parent, enum hfm_call how) {
	struct hfm_comm *c = hfm_need(calloc(1, sizeof *c));
	*c = *like;
	c->name = hfm_need(strdup(like->name));
	c->parent = hfm_need(strdup(parent != NULL ? parent->name : ""));
	c->how = how;
	hfm_lock();
	hfm_place_comm(c);
	hfm_unlock();
	return c;
}

const char *hfm_list_comm(struct hfm_comm *c, uint64_t handle) {
	c->handle = handle;
	hfm_lock();
	*last_comm = c;
	last_comm = &c->next;
	hfm_unlock();
	hfm_put(&hfm_comms, handle, c);
	return hfm_deliver(c);
}

struct hfm_comm *hfm_new_object(struct hfm_map *map, const struct hfm_comm *on, char kind, uint64_t number,
	enum hfm_call how, uint64_t handle, const char *path) {
	struct hfm_comm *c = hfm_need(calloc(1, sizeof *c));
	const size_t room = strlen(on->name) + 64;
	c->name = hfm_need(malloc(room));
	snprintf(c->name, room, "%s.%c%llu[%d]", on->name, kind, (unsigned long long)number, on->leader);
	c->parent = hfm_need(strdup(path));
	c->how = how;
	c->handle = handle;
	c->rank = on->rank;
	c->size = c->all = on->size;
	c->leader = on->leader;
	c->split = c->epochs.fenced = HFM_CALLS;
	c->world = on->world;
	if (c->world != hfm_first_comm->world) { /* the communicator may be freed before */
		c->world = hfm_need(malloc((size_t)c->size * sizeof *c->world));
		memcpy(c->world, on->world, (size_t)c->size * sizeof *c->world);
	}
	hfm_lock();
	hfm_place_comm(c);
	hfm_unlock();
	hfm_put(map, handle, c);
	return c;
}

static void forget_comm(struct hfm_comm *c) {
	for (struct hfm_mail *m = c->first, *next; m != NULL; m = next) {
		next = m->next;
		free(m);
	}
	for (struct hfm_group *g = c->groups, *next; g != NULL; g = next) {
		next = g->next;
		free(g->name);
		free(g);
	}
	if (c->world != hfm_first_comm->world) {
		free(c->world);
	}
	free((char *)c->parent);
	free(c->name);
	free(c);
}

/* leave is called with the lock held, and gives it up: requests may need a communicator for longer than the program. */
static void leave(struct hfm_comm *c) {
	c->freed = true;
	hfm_leave_slot(c);
	bool last = c->requests == 0;
	hfm_unlock();
	if (last) {
		forget_comm(c);
	}
}

void hfm_free_comm(struct hfm_comm *c) {
	hfm_track_all(); /* their requests keep it */
	if (hfm_last.comm == c) {
		hfm_last = (struct hfm_last){ UINT64_MAX, NULL };
	}
	hfm_remove(&hfm_comms, c->handle, c);
	hfm_lock();
	struct hfm_comm **at = &hfm_first_comm;
	while (*at != c) {
		at = &(*at)->next;
	}
	*at = c->next;
	if (last_comm == &c->next) {
		last_comm = at;
	}
	c->freed = true;
	hfm_leave_slot(c);
	for (struct hfm_mail *m = c->first, *next; m != NULL; m = next) {
		next = m->next;
		free(m);
	}
	c->first = c->last = NULL;
	c->mails = 0;
	c->kept = true;
	c->next = hfm_parents;
	hfm_parents = c;
	hfm_unlock();
	hfm_forget_parents();
}

void hfm_drop_comm(struct hfm_comm *c) {
	hfm_lock();
	leave(c);
}

void hfm_free_object(struct hfm_map *map, struct hfm_comm *c) {
	hfm_remove(map, c->handle, c);
	hfm_lock();
	leave(c);
}

bool hfm_is_parent(const struct hfm_comm *p) {
	if (p->children == 0 && p->groups == NULL && !hfm_restarted) {
		return false;
	}
	for (const struct hfm_comm *lists[] = { hfm_first_comm, hfm_parents }, **c = lists; c < lists + 2; c++) {
		for (; *c != NULL; *c = (*c)->next) {
			if (strcmp((*c)->parent, p->name) == 0) {
				return true;
			}
		}
	}
	for (const struct hfm_restored *r = hfm_restored; r != NULL; r = r->next) {
		if (strcmp(r->parent, p->name) == 0) {
			return true;
		}
	}
	return false;
}

void hfm_forget_parents(void) {
	hfm_lock();
	for (struct hfm_comm **at = &hfm_parents; *at != NULL;) {
		struct hfm_comm *c = *at;
		if (c->requests > 0 || hfm_is_parent(c)) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		forget_comm(c);
		at = &hfm_parents; /* its own parent may be over now */
	}
	hfm_unlock();
}

uint64_t hfm_next_order(void) {
	return HFM_LIKELY(!hfm_threads) ? ++hfm_order : __atomic_add_fetch(&hfm_order, 1, __ATOMIC_RELAXED);
}

/* A request is cleared in parts: the compiler makes stores of these, and a slow instruction of the whole. */
enum { REQUEST_PART = 76 };
static_assert(offsetof(struct hfm_request, status) % REQUEST_PART == 0, "parts of a request");

struct hfm_request *hfm_new_request(enum hfm_kind kind, enum hfm_call call, struct hfm_comm *c, uint64_t handle) {
	hfm_lock();
	struct hfm_request *r = free_requests;
	if (r != NULL) {
		free_requests = r->next;
	} else {
		r = hfm_need(malloc(sizeof *r));
	}
	c->requests++;
	hfm_unlock();
	for (char *at = (char *)r; at < (char *)r + offsetof(struct hfm_request, status); at += REQUEST_PART) {
		memset(at, 0, REQUEST_PART);
	}
	r->kind = kind;
	r->call = call;
	r->order = hfm_next_order();
	r->comm = c;
	r->handle = handle;
	r->next = NULL;
	return r;
}

void hfm_free_request(struct hfm_request *r) {
	struct hfm_comm *c = r->comm;
	if (r->held != NULL) {
		free(r->held);
	}
	hfm_lock();
	r->next = free_requests;
	free_requests = r;
	bool last = --c->requests == 0 && c->freed, kept = c->kept;
	hfm_unlock();
	if (last && kept) {
		hfm_forget_parents();
	} else if (last) {
		forget_comm(c);
	}
}

struct hfm_request *hfm_track(struct hfm_plain *p) {
	struct hfm_request *r = hfm_new_request(HFM_RECEIVE, HFM_Irecv, p->comm, p->handle);
	r->order = p->order;
	r->source = p->source;
	r->tag = p->tag;
	r->buffer = p->buffer;
	r->count = p->count;
	r->datatype = p->datatype;
	r->active = true;
	hfm_plain_ends(p);
	hfm_put(&hfm_requests, r->handle, r);
	return r;
}

void hfm_track_all(void) {
	for (struct hfm_plain *p = hfm_plains; hfm_plains_n > 0; p++) {
		if (p->comm != NULL) {
			hfm_track(p);
		}
	}
}

void hfm_add_mail(struct hfm_comm *c, struct hfm_mail *m) {
	hfm_lock();
	m->next = NULL;
	if (c->first == NULL) {
		c->first = m;
	} else {
		c->last->next = m;
	}
	c->last = m;
	c->mails++;
	m->arrived = hfm_next_order();
	hfm_unlock();
}

void hfm_return_mail(struct hfm_comm *c, struct hfm_mail *m) {
	hfm_lock();
	struct hfm_mail **at = &c->first;
	while (*at != NULL && (*at)->arrived < m->arrived) {
		at = &(*at)->next;
	}
	m->next = *at;
	*at = m;
	if (m->next == NULL) {
		c->last = m;
	}
	c->mails++;
	hfm_unlock();
}

struct hfm_mail *hfm_find_mail(struct hfm_comm *c, int source, int tag, int any_source, int any_tag, bool take) {
	static __thread struct hfm_mail head;
	hfm_lock();
	struct hfm_mail *before = NULL, *m = c->first;
	while (m != NULL && !((source == any_source || source == m->source) && (tag == any_tag || tag == m->tag))) {
		before = m;
		m = m->next;
	}
	if (m != NULL && take) {
		if (before == NULL) {
			c->first = m->next;
		} else {
			before->next = m->next;
		}
		if (c->last == m) {
			c->last = before;
		}
		c->mails--;
		hfm_taken(m);
	} else if (m != NULL) {
		head = *m;
		m = &head;
	}
	hfm_unlock();
	return m;
}

const char *hfm_refused_what, *hfm_refused_call;

void hfm_refuse(const char *what, const char *call) {
	hfm_note_refused(what, call);
	if (hfm_refused_what == NULL) {
		hfm_refused_call = call;
		hfm_refused_what = what;
	}
}

unsigned hfm_state, hfm_synchronous;

void hfm_set_state(void) {
	hfm_state = !hfm_on ? 0
						: HFM_ON | (hfm_cut_every > 0 ? HFM_CUTS : 0) | (hfm_threads ? HFM_MANY_THREADS : 0) |
			(hfm_synchronous > 0 ? HFM_SENDS : 0);
}

/* The thread's place in the page: 0 none yet, 1 that of the thread that has called MPI_Init. */
static __thread size_t place_of_thread;
static __thread struct hfm_call_state unseen;
static pthread_key_t leaves;

static void thread_ends(void *place) {
	struct hfm_thread *t = &hfm_page->threads[(size_t)(uintptr_t)place - 2];
	hfm_lock();
	t->state.seq += t->state.seq & 1;
	__atomic_store_n(&t->used, 0, __ATOMIC_RELEASE);
	hfm_unlock();
}

void hfm_first_thread(void) {
	if (hfm_threads) {
		place_of_thread = 1;
		pthread_key_create(&leaves, thread_ends);
	}
}

static void find_place(void) {
	hfm_lock();
	size_t i = 0;
	while (i < HFM_MOST_THREADS - 1 && hfm_page->threads[i].used != 0) {
		i++;
	}
	if (i < HFM_MOST_THREADS - 1) {
		place_of_thread = i + 2;
		__atomic_store_n(&hfm_page->threads[i].used, 1, __ATOMIC_RELEASE);
	} else {
		hfm_page->concurrent = 2;
	}
	hfm_unlock();
	if (place_of_thread != 0) {
		pthread_setspecific(leaves, (void *)(uintptr_t)place_of_thread);
	}
}

struct hfm_here hfm_of_thread(void) {
	if (hfm_threads && place_of_thread == 0) {
		find_place();
	}
	if (hfm_threads && place_of_thread == 0) {
		return (struct hfm_here){ &unseen, NULL, 0 };
	}
	if (!hfm_threads || place_of_thread == 1) {
		return (struct hfm_here){ &hfm_page->state, hfm_page->waits, HFM_MOST_WAITS };
	}
	struct hfm_thread *t = &hfm_page->threads[place_of_thread - 2];
	return (struct hfm_here){ &t->state, t->waits, HFM_THREAD_WAITS };
}

/* closed: hfm_close. inside: threads in calls, but for those that wait without harm; this one is counted. It holds the
 * gate. */
static bool closed;
static uint64_t inside;
static __thread bool counted __attribute__((tls_model("initial-exec")));
static __thread bool holds __attribute__((tls_model("initial-exec")));

/* A call of the program's that has called it back, as it was then. */
struct hfm_outer {
	struct hfm_outer *next;
	const char *within;
	struct hfm_call_state state;
	bool counted, holds;
};
__thread struct hfm_outer *hfm_outer_calls;

/* A call within one that is counted goes on with that: no cut is taken in between. */
static bool goes_on(void) { return hfm_outer_calls != NULL && hfm_outer_calls->counted; }

uint64_t hfm_inside(void) { return __atomic_load_n(&inside, __ATOMIC_SEQ_CST); }

/* behind reports whether a collective of other ranks waits for a thread of this one. */
static bool behind(void) {
	for (uint32_t i = 0; i < hfm_page->comms_n; i++) {
		if (hfm_page->comms[i].entered < __atomic_load_n(&hfm_page->targets[i], __ATOMIC_ACQUIRE)) {
			return true;
		}
	}
	return false;
}

static void wait_a_little(void) {
	const struct timespec pause = { .tv_nsec = 100000 };
	nanosleep(&pause, NULL);
}

/* A thread that counts itself first and then looks is seen by a thread that closes first and then counts. */
static void come_in(void) {
	__atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&closed, __ATOMIC_SEQ_CST) && !behind()) {
		__atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
		wait_a_little();
		__atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);
	}
	counted = true;
	hfm_in();
}

static void go_out(void) {
	__atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
	counted = false;
}

void hfm_out(void) {
	if (hfm_threads) {
		pthread_rwlock_unlock(&hfm_gate);
		holds = false;
	}
}

void hfm_in(void) {
	if (hfm_threads) {
		pthread_rwlock_rdlock(&hfm_gate);
		holds = true;
	}
}

void hfm_pause(bool harmless) {
	hfm_out();
	if (!harmless || goes_on()) {
		sched_yield();
		hfm_in();
		return;
	}
	go_out();
	sched_yield();
	come_in();
}

bool hfm_close(void) {
	if (hfm_is_closed()) {
		return false;
	}
	memset(hfm_page->targets, 0, sizeof hfm_page->targets);
	__atomic_store_n(&closed, true, __ATOMIC_SEQ_CST);
	return true;
}

bool hfm_is_closed(void) { return __atomic_load_n(&closed, __ATOMIC_SEQ_CST); }

void hfm_open(void) { __atomic_store_n(&closed, false, __ATOMIC_SEQ_CST); }

/* When the rank came to the point at which it stands, in nanoseconds; 0: it does not. */
static int64_t stands_since;

static int64_t now_ns(void) {
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void hfm_stands(bool still) {
	if (!still || stands_since == 0) {
		__atomic_store_n(&stands_since, still ? now_ns() : 0, __ATOMIC_RELAXED);
	}
}

/* The longer a rank stands at a point, the longer its threads pause before a collective: else those that do nothing but
 * collectives would leave no moment at which all ranks have entered as many. */
static void let_level(void) {
	enum { PART = 8, MOST = 20000000 };
	const int64_t since = __atomic_load_n(&stands_since, __ATOMIC_RELAXED);
	const int64_t ns = since != 0 ? (now_ns() - since) / PART : 0;
	const struct timespec pause = { .tv_nsec = (long)(ns < MOST ? ns : MOST) };
	if (ns > 0) {
		hfm_out();
		go_out();
		nanosleep(&pause, NULL);
		come_in();
	}
}

void hfm_may_enter(const struct hfm_comm *c) {
	if (goes_on()) {
		return;
	}
	let_level();
	while (c->slot >= 0 && __atomic_load_n(&closed, __ATOMIC_SEQ_CST) &&
		*hfm_entered(c) >= __atomic_load_n(&hfm_page->targets[c->slot], __ATOMIC_ACQUIRE)) {
		hfm_out();
		go_out();
		wait_a_little();
		come_in();
	}
}

/* A thread that is in the library briefly is waited for; others begin no call meanwhile. */
bool hfm_drain_begins(void) {
	struct timespec until;
	if (!hfm_threads) {
		return true;
	}
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 2000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	return pthread_rwlock_timedwrlock(&hfm_gate, &until) == 0;
}

void hfm_drain_ends(void) {
	if (hfm_threads) {
		pthread_rwlock_unlock(&hfm_gate);
	}
}

bool hfm_enter_slowly(const char *here) {
	if (hfm_state == 0) {
		return false;
	}
	hfm_within = here;
	if ((hfm_state & HFM_CUTS) != 0 && hfm_cut_now()) {
		hfm_drain();
	}
	if (hfm_threads) {
		come_in();
	}
	return true;
}

void hfm_leave_slowly(void) {
	struct hfm_call_state *s = hfm_of_thread().state;
	struct hfm_outer *o = hfm_outer_calls;
	__atomic_store_n(&s->seq, s->seq + (s->seq & 1), __ATOMIC_RELEASE);
	if (hfm_threads && holds && !(o != NULL && o->holds)) {
		hfm_out();
	}
	if (hfm_threads && counted && !goes_on()) {
		go_out();
	}
	hfm_within = NULL;
	if (o != NULL) {
		hfm_within = o->within;
		hfm_outer_calls = o->next;
		if ((o->state.seq & 1) != 0) { /* the outer call blocks again; what it waits for is not told any more */
			s->call = o->state.call;
			s->call_flags = o->state.call_flags | HFM_CALL_MORE;
			s->call_comm = o->state.call_comm;
			s->waits_n = 0;
			__atomic_store_n(&s->seq, s->seq + 1, __ATOMIC_RELEASE);
		}
		free(o);
	}
}

/* Whose code makes a call. MPI's own is that of the library, or of a component of Open MPI; its bindings for languages
 * are libraries of their own, which pass on the program's calls. A tool passes on the calls of both. */
enum maker { PROGRAM, LIBRARY, TOOL, MAKERS };

static enum maker look_up(const void *code) {
	Dl_info library, from, init;
	if (dladdr((void *)(uintptr_t)hfm_real[HFM_Init], &library) == 0 || dladdr(code, &from) == 0) {
		return PROGRAM;
	}
	const char *base = strrchr(from.dli_fname, '/') ? strrchr(from.dli_fname, '/') + 1 : from.dli_fname;
	if (from.dli_fbase == library.dli_fbase || strncmp(base, "mca_", 4) == 0 || strncmp(base, "libmca_", 7) == 0) {
		return LIBRARY;
	}
	void *object = dlopen(from.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	void *tool = object != NULL ? dlsym(object, "MPI_Init") : NULL;
	const bool own = tool != NULL && dladdr(tool, &init) != 0 && init.dli_fbase == from.dli_fbase;
	if (object != NULL) {
		dlclose(object);
	}
	return own ? TOOL : PROGRAM;
}

static enum maker maker_of(const void *code) {
	static uint64_t known[256]; /* by place: the address, and who it is */
	const uint64_t at = (uint64_t)(uintptr_t)code;
	uint64_t *k = &known[(at * 0x9e3779b97f4a7c15u) >> 56], v = __atomic_load_n(k, __ATOMIC_RELAXED);
	if (v / MAKERS != at) {
		v = at * MAKERS + look_up(code);
		__atomic_store_n(k, v, __ATOMIC_RELAXED);
	}
	return v % MAKERS;
}

bool hfm_by_program(void) {
	enum maker m = hfm_within == NULL ? PROGRAM : maker_of(hfm_caller);
	if (m == TOOL) { /* whose call it passes on: what is above it, and above the layer, which is as one */
		void *stack[32];
		int n = backtrace(stack, 32), i = 0;
		while (i < n && maker_of(stack[i]) == TOOL) {
			i++;
		}
		m = i < n ? maker_of(stack[i]) : PROGRAM;
	}
	return m != LIBRARY;
}

const char *hfm_left;
pthread_mutex_t hfm_sends_mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

/* leave_behind ends a call that the program has left by longjmp or an exception. The reason was an error: a send has
 * sent nothing, and a collective has not begun. */
static void leave_behind(void) {
	static char left[80];
	const struct hfm_here h = hfm_of_thread();
	const struct hfm_call_state s = *h.state;
	const bool blocks = (s.seq & 1) != 0;
	snprintf(left, sizeof left, "%s%s", blocks ? "MPI_" : "a call of MPI", blocks ? hfm_names[s.call] : "");
	hfm_left = left;
	hfm_note_refused("the program has left it by longjmp or an exception", left);
	if (blocks && s.waits_n == 1 && h.waits[0].source >= 0 &&
		(s.call == HFM_Send || s.call == HFM_Bsend || s.call == HFM_Ssend || s.call == HFM_Rsend)) {
		__atomic_sub_fetch(&hfm_sent[h.waits[0].source], 1, __ATOMIC_RELAXED);
	}
	if (blocks && (s.call_flags & HFM_CALL_COLLECTIVE) != 0 && s.call_comm >= 0) {
		__atomic_sub_fetch(&hfm_page->comms[s.call_comm].entered, 1, __ATOMIC_RELAXED);
	}
	while (pthread_mutex_unlock(&hfm_sends_mutex) == 0) {
	}
	hfm_leave_slowly();
}

/* A call with many arguments has its place so much below that of another of the same function. */
enum { ARGUMENTS = 64 };

bool hfm_enter_within(const char *here) {
	if (!hfm_on || !hfm_by_program()) {
		return false;
	}
	while (hfm_within != NULL && here + ARGUMENTS >= hfm_within) {
		leave_behind();
	}
	if (hfm_within == NULL) {
		return hfm_enter_slowly(here);
	}
	struct hfm_call_state *s = hfm_of_thread().state;
	struct hfm_outer *o = hfm_need(malloc(sizeof *o));
	*o = (struct hfm_outer){ hfm_outer_calls, hfm_within, *s, counted, holds };
	__atomic_store_n(&s->seq, s->seq + (s->seq & 1), __ATOMIC_RELEASE);
	hfm_outer_calls = o;
	hfm_within = here;
	if (hfm_threads && !counted) {
		come_in();
	} else if (hfm_threads && !holds) {
		hfm_in();
	}
	return true;
}

void hfm_cut_setup(void) {
	const char *text = getenv("HOLDFAST_MPI_CUT");
	if (text == NULL || *text == 0) {
		return;
	}
	cut_random = *text == 'r';
	hfm_cut_every = strtoull(text + cut_random, NULL, 10);
	cut_state = (uint64_t)hfm_rank * 0x9e3779b97f4a7c15u + 1;
}

bool hfm_cut_now(void) {
	if (hfm_watching != NULL) {
		return __atomic_load_n(&hfm_watching->asked, __ATOMIC_RELAXED) != hfm_watching->answered;
	}
	if (!cut_random) {
		return ++cut_state % hfm_cut_every == 0;
	}
	cut_state ^= cut_state << 13;
	cut_state ^= cut_state >> 7;
	cut_state ^= cut_state << 17;
	return cut_state % hfm_cut_every == 0;
}
