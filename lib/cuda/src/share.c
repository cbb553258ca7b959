/* share.c - memory of the arena for other processes. The driver makes no handles of memory that is mapped, so the
 * library has its own: a ticket says which process has which memory, and that process passes a descriptor of it over a
 * socket of its own. The connection stays for as long as the memory is open elsewhere, so that no process gives up
 * memory that another one uses. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "library.h"

static const char magic[8] = "HFarena1";

/* The contents of a handle. */
struct ticket {
	char magic[8];
	uint32_t pid, key; /* the process that has the memory, and a random number of its own */
	uint64_t at;       /* the mapping there */
	uint64_t bytes;
	uint32_t offset, born; /* the block in it; and which of all mappings it is */
	uint64_t length;       /* of the block */
	CUuuid device;
};
_Static_assert(sizeof(struct ticket) == sizeof(CUipcMemHandle), "as the driver's");

enum { USERS = 4096 };

/* The side that has the memory. */
static struct {
	pthread_mutex_t lock;
	uint32_t key; /* 0: nobody listens yet */
	int listener;
	struct user {
		int conn;
		struct ticket uses; /* magic is 0 until it has asked */
	} list[USERS];
	size_t count;
} users = { .lock = PTHREAD_MUTEX_INITIALIZER, .listener = -1 };

/* The side that opens it. */
static struct {
	pthread_mutex_t lock;
	struct entry {
		struct ticket ticket;
		CUdeviceptr base; /* of the mapping here */
		int conn;
		unsigned count;
	} *list;
	size_t count, room;
} opens = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The key keeps apart processes of one number in several PID namespaces. */
static socklen_t name_of(uint32_t pid, uint32_t key, struct sockaddr_un *name) {
	int n;

	*name = (struct sockaddr_un){ .sun_family = AF_UNIX };
	n = snprintf(name->sun_path + 1, sizeof name->sun_path - 1, "holdfast-cuda-memory-%u-%u", pid, key);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static bool peer_of(int conn, struct ucred *who) {
	socklen_t length = sizeof *who;

	return getsockopt(conn, SOL_SOCKET, SO_PEERCRED, who, &length) == 0 && (who->uid == geteuid() || who->uid == 0);
}

static bool ticket_of(const CUipcMemHandle *handle, struct ticket *t) {
	memcpy(t, handle, sizeof *t);
	return memcmp(t->magic, magic, sizeof magic) == 0;
}

bool hf_share_ours(const CUipcMemHandle *handle) {
	struct ticket t;

	return ticket_of(handle, &t);
}

bool hf_send(int conn, const void *bytes, size_t length, int descriptor, int flags) {
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { .bytes = { 0 } };
	struct iovec all = { (void *)(uintptr_t)bytes, length };
	struct msghdr m = { .msg_iov = &all, .msg_iovlen = 1 };

	if (descriptor >= 0) {
		m.msg_control = &control;
		m.msg_controllen = sizeof control;
		control.header =
			(struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int)) };
		memcpy(CMSG_DATA(&control.header), &descriptor, sizeof descriptor);
	}
	return sendmsg(conn, &m, MSG_NOSIGNAL | flags) == (ssize_t)length;
}

bool hf_receive(int conn, void *bytes, size_t length, int *descriptor) {
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec all = { bytes, length };
	struct msghdr m = { .msg_iov = &all, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
	ssize_t n;

	*descriptor = -1;
	do {
		n = recvmsg(conn, &m, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n >= 0 && m.msg_controllen >= sizeof(struct cmsghdr) && control.header.cmsg_type == SCM_RIGHTS) {
		memcpy(descriptor, CMSG_DATA(&control.header), sizeof *descriptor);
	}
	if (n != (ssize_t)length && *descriptor >= 0) {
		close(*descriptor);
	}
	return n == (ssize_t)length;
}

/* Serves a user's request, or sees that it has gone. false: it is to be forgotten. A process that is paused serves no
 * user until it goes on. */
static bool serve(struct user *u) {
	int descriptor = -1;
	struct ticket t;
	ssize_t n = recv(u->conn, &t, sizeof t, MSG_DONTWAIT);
	CUresult e = CUDA_ERROR_INVALID_VALUE;
	bool sent;

	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		return true;
	}
	if (n != (ssize_t)sizeof t || u->uses.magic[0] != 0) {
		return false;
	}
	hf_gate_enter(HF_cuIpcOpenMemHandle_v2);
	pthread_mutex_lock(&users.lock);
	if (memcmp(t.magic, magic, sizeof magic) == 0 && t.pid == (uint32_t)getpid() && t.key == users.key) {
		e = hf_arena_export(&(struct hf_mapping){ .at = t.at, .bytes = t.bytes }, t.born, &descriptor);
	}
	if (e == CUDA_SUCCESS) {
		u->uses = t;
	}
	pthread_mutex_unlock(&users.lock);
	hf_gate_leave();
	sent = hf_send(u->conn, &e, sizeof e, descriptor, MSG_DONTWAIT);
	if (descriptor >= 0) {
		close(descriptor);
	}
	return sent && e == CUDA_SUCCESS;
}

static void welcome(void) {
	struct timespec nap = { .tv_nsec = 100000000 };
	struct ucred who;
	int conn = accept4(users.listener, NULL, NULL, SOCK_CLOEXEC);

	if (conn < 0) {
		nanosleep(&nap, NULL); /* no descriptor is free, say */
		return;
	}
	pthread_mutex_lock(&users.lock);
	if (peer_of(conn, &who) && users.count < USERS) {
		users.list[users.count++] = (struct user){ .conn = conn };
		conn = -1;
	}
	pthread_mutex_unlock(&users.lock);
	if (conn >= 0) {
		close(conn);
	}
}

static void *listens(void *arg) {
	static struct pollfd wait[USERS + 1]; /* of this thread alone */
	size_t i, n;

	for (;;) {
		n = users.count; /* this thread alone changes the list */
		wait[0] = (struct pollfd){ .fd = users.listener, .events = POLLIN };
		for (i = 0; i < n; i++) {
			wait[i + 1] = (struct pollfd){ .fd = users.list[i].conn, .events = POLLIN };
		}
		if (poll(wait, n + 1, -1) < 0) {
			continue;
		}
		for (i = n; i-- > 0;) {
			if (wait[i + 1].revents != 0 && !serve(&users.list[i])) {
				pthread_mutex_lock(&users.lock);
				close(users.list[i].conn);
				users.list[i] = users.list[--users.count];
				pthread_mutex_unlock(&users.lock);
			}
		}
		if (wait[0].revents != 0) {
			welcome();
		}
	}
	return arg;
}

static void stop_listening(void) {
	if (users.listener >= 0) {
		close(users.listener);
	}
	users.listener = -1;
}

/* Listens, from the first handle on. users.lock is held. */
static bool start(void) {
	struct sockaddr_un name;
	socklen_t length;
	uint32_t key = 0;
	sigset_t all, old;
	pthread_t thread;
	int e;

	if (users.key != 0) {
		return true;
	}
	while (key == 0) {
		if (getrandom(&key, sizeof key, 0) != (ssize_t)sizeof key) {
			return false;
		}
	}
	length = name_of((uint32_t)getpid(), key, &name);
	users.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (users.listener < 0 || bind(users.listener, (struct sockaddr *)&name, length) != 0 ||
		listen(users.listener, 128) != 0) {
		hf_say("no memory is shared: no socket %s: %s", name.sun_path + 1, strerror(errno));
		stop_listening();
		return false;
	}
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	e = pthread_create(&thread, NULL, listens, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (e != 0) {
		hf_say("no memory is shared: no thread: %s", strerror(e));
		stop_listening();
		return false;
	}
	pthread_detach(thread);
	users.key = key;
	return true;
}

CUresult hf_share_handle(CUipcMemHandle *handle, const struct hf_block *block) {
	struct ticket t = { .pid = (uint32_t)getpid(), .length = block->bytes };
	struct hf_mapping m;
	bool listens_now;

	if (!hf_arena_mapping(block->at, &m, &t.born)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_lock(&users.lock);
	listens_now = start();
	t.key = users.key;
	pthread_mutex_unlock(&users.lock);
	if (!listens_now) {
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	memcpy(t.magic, magic, sizeof magic);
	t.at = m.at;
	t.bytes = m.bytes;
	t.offset = (uint32_t)(block->at - m.at); /* blocks that share a mapping lie in one slab */
	if (REAL(cuDeviceGetUuid) != NULL) {
		(void)REAL(cuDeviceGetUuid)(&t.device, m.device);
	}
	memcpy(handle, &t, sizeof t);
	return CUDA_SUCCESS;
}

bool hf_share_held(char why[HF_WHY]) {
	struct ucred who;
	bool held = false;
	char byte;
	size_t i;

	pthread_mutex_lock(&users.lock);
	for (i = 0; i < users.count && !held; i++) {
		/* One that has closed it may not have been noticed yet. */
		held = users.list[i].uses.magic[0] != 0 && recv(users.list[i].conn, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0 &&
			peer_of(users.list[i].conn, &who);
		if (held) {
			snprintf(why, HF_WHY, "process %d has opened its memory at %#llx by cuIpcOpenMemHandle", (int)who.pid,
				(unsigned long long)(users.list[i].uses.at + users.list[i].uses.offset));
		}
	}
	pthread_mutex_unlock(&users.lock);
	return held;
}

/* Asks the process that has the memory for a descriptor. The connection is *conn afterwards. */
static CUresult ask(const struct ticket *t, int *conn, int *descriptor) {
	struct sockaddr_un name;
	socklen_t length = name_of(t->pid, t->key, &name);
	CUresult e = CUDA_ERROR_INVALID_VALUE;
	struct ucred who;

	*descriptor = -1;
	*conn = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (*conn < 0 || connect(*conn, (struct sockaddr *)&name, length) != 0 || !peer_of(*conn, &who) ||
		(uint32_t)who.pid != t->pid || !hf_send(*conn, t, sizeof *t, -1, 0) ||
		!hf_receive(*conn, &e, sizeof e, descriptor)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	return e == CUDA_SUCCESS && *descriptor < 0 ? CUDA_ERROR_INVALID_VALUE : e;
}

/* The devices that are to reach the memory: that of the context, and its own where this process sees it. */
static size_t reach(const struct ticket *t, CUmemAccessDesc access[2]) {
	int count = 0, i;
	CUdevice here;
	CUuuid uuid;
	size_t n = 0;

	if (REAL(cuCtxGetDevice)(&here) != CUDA_SUCCESS) {
		return 0;
	}
	access[n++] = (CUmemAccessDesc){ { CU_MEM_LOCATION_TYPE_DEVICE, here }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	if (REAL(cuDeviceGetUuid) != NULL && REAL(cuDeviceGetCount)(&count) == CUDA_SUCCESS) {
		for (i = 0; i < count; i++) {
			if (i != here && REAL(cuDeviceGetUuid)(&uuid, i) == CUDA_SUCCESS &&
				memcmp(&uuid, &t->device, sizeof uuid) == 0) {
				access[n++] =
					(CUmemAccessDesc){ { CU_MEM_LOCATION_TYPE_DEVICE, i }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
				break;
			}
		}
	}
	return n;
}

CUresult hf_share_map(int descriptor, size_t bytes, const CUmemAccessDesc *access, size_t count, CUdeviceptr *at) {
	CUmemGenericAllocationHandle handle;
	void *as = NULL;
	CUresult e;

	memcpy(&as, &descriptor, sizeof descriptor);
	if ((e = REAL(cuMemImportFromShareableHandle)(&handle, as, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) !=
		CUDA_SUCCESS) {
		return e;
	}
	if ((e = REAL(cuMemAddressReserve)(at, bytes, 0, 0, 0)) == CUDA_SUCCESS) {
		if ((e = REAL(cuMemMap)(*at, bytes, 0, handle, 0)) == CUDA_SUCCESS &&
			(e = REAL(cuMemSetAccess)(*at, bytes, access, count)) != CUDA_SUCCESS) {
			REAL(cuMemUnmap)(*at, bytes);
		}
		if (e != CUDA_SUCCESS) {
			REAL(cuMemAddressFree)(*at, bytes);
			*at = 0;
		}
	}
	REAL(cuMemRelease)(handle);
	return e;
}

CUresult hf_share_unmap(CUdeviceptr at, size_t bytes) {
	CUresult e = REAL(cuMemUnmap)(at, bytes);

	return e != CUDA_SUCCESS ? e : REAL(cuMemAddressFree)(at, bytes);
}

static CUresult map(const struct ticket *t, int descriptor, CUdeviceptr *base) {
	CUmemAccessDesc access[2];
	size_t count = reach(t, access);

	return count == 0 ? CUDA_ERROR_INVALID_CONTEXT : hf_share_map(descriptor, t->bytes, access, count, base);
}

static CUresult unmap(const struct entry *o) { return hf_share_unmap(o->base, o->ticket.bytes); }

/* The memory that was opened by a ticket, or NULL. opens.lock is held. */
static struct entry *entry_of(const struct ticket *t) {
	size_t i;

	for (i = 0; i < opens.count; i++) {
		if (memcmp(&opens.list[i].ticket, t, sizeof *t) == 0) {
			return &opens.list[i];
		}
	}
	return NULL;
}

/* Counts one more opening of a ticket; false: it is not open. */
static bool again(const struct ticket *t, struct hf_block *block) {
	struct entry *o;

	pthread_mutex_lock(&opens.lock);
	if ((o = entry_of(t)) != NULL) {
		o->count++;
		block->at = o->base + t->offset;
	}
	pthread_mutex_unlock(&opens.lock);
	return o != NULL;
}

static CUresult keep(const struct entry *new) {
	struct entry *more;
	size_t room;
	CUresult e = CUDA_SUCCESS;

	pthread_mutex_lock(&opens.lock);
	if (opens.count == opens.room) {
		room = opens.room == 0 ? 16 : opens.room * 2;
		if ((more = realloc(opens.list, room * sizeof *more)) == NULL) {
			e = CUDA_ERROR_OUT_OF_MEMORY;
		} else {
			opens.list = more;
			opens.room = room;
		}
	}
	if (e == CUDA_SUCCESS) {
		opens.list[opens.count++] = *new;
	}
	pthread_mutex_unlock(&opens.lock);
	return e;
}

CUresult hf_share_open(const CUipcMemHandle *handle, struct hf_block *block) {
	struct entry o = { .count = 1, .conn = -1 };
	int descriptor = -1;
	CUresult e;

	if (!ticket_of(handle, &o.ticket) || o.ticket.offset > o.ticket.bytes ||
		o.ticket.length > o.ticket.bytes - o.ticket.offset) {
		e = CUDA_ERROR_INVALID_VALUE;
	} else {
		e = o.ticket.pid == (uint32_t)getpid() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS; /* as the driver says */
	}
	block->bytes = o.ticket.length;
	if (e == CUDA_SUCCESS && !again(&o.ticket, block) && (e = ask(&o.ticket, &o.conn, &descriptor)) == CUDA_SUCCESS) {
		hf_gate_enter(HF_cuIpcOpenMemHandle_v2);
		if ((e = map(&o.ticket, descriptor, &o.base)) == CUDA_SUCCESS && (e = keep(&o)) != CUDA_SUCCESS) {
			(void)unmap(&o);
		}
		block->at = o.base + o.ticket.offset;
	} else {
		hf_gate_enter(HF_cuIpcOpenMemHandle_v2);
	}
	if (descriptor >= 0) {
		close(descriptor);
	}
	if (e != CUDA_SUCCESS && o.conn >= 0) {
		close(o.conn);
	}
	return e;
}

CUresult hf_share_close(CUdeviceptr at, bool *last) {
	CUresult e = CUDA_ERROR_INVALID_VALUE;
	struct entry *o;
	size_t i;

	pthread_mutex_lock(&opens.lock);
	for (i = 0; i < opens.count; i++) {
		o = &opens.list[i];
		if (o->base + o->ticket.offset != at) {
			continue;
		}
		e = CUDA_SUCCESS;
		if ((*last = o->count == 1) && (e = unmap(o)) == CUDA_SUCCESS) {
			close(o->conn);
			*o = opens.list[--opens.count];
		} else if (!*last) {
			o->count--;
		}
		break;
	}
	pthread_mutex_unlock(&opens.lock);
	return e;
}

/* A child has neither the memory nor the thread, and must not keep its parent's connections. */
void hf_share_child(void) {
	size_t i;

	for (i = 0; i < users.count; i++) {
		close(users.list[i].conn);
	}
	stop_listening();
	for (i = 0; i < opens.count; i++) {
		close(opens.list[i].conn);
	}
	users.key = 0;
	users.count = opens.count = 0;
	pthread_mutex_init(&users.lock, NULL);
	pthread_mutex_init(&opens.lock, NULL);
}
