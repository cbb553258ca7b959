/* hold.c - a move from device to device. A process of its own, the holder, holds the program's memory while the program
 * changes devices, and copies it from where it is to where the program has come: holder.c. The bytes are there at each
 * moment until the program goes on. This is the program's side. Only the door's thread calls it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "holder.h"
#include "library.h"

enum { STACK = 64 << 10, PATIENCE = 120 /* seconds that the holder may be silent */ };

/* The memory of a context on a new device of the program. */
static const size_t context_bytes = (size_t)640 << 20;

static struct {
	int conn;    /* -1: there is no holder */
	int process; /* a descriptor of it, or -1 */
	CUcheckpointGpuPair pairs[HF_HOLD_DEVICES];
	unsigned count;
} hold = { .conn = -1, .process = -1 };

bool hf_hold_is(void) { return hold.conn >= 0; }

/* The arguments of the new process. It shares the program's memory until it has become the holder. */
struct birth {
	int conn, process;
	char *stack; /* the end of one */
	rlim_t descriptors;
	char **args, **variables;
};

/* The holder. */
static int become(void *arg) {
	const struct birth *b = arg;
	rlim_t i;

	if (dup2(b->conn, HF_HOLD_CONN) != HF_HOLD_CONN) {
		_exit(127);
	}
	/* Descriptors that others wait to see closed must not stay open here. */
	if (syscall(SYS_close_range, HF_HOLD_CONN + 1, ~0u, 0) != 0) {
		for (i = HF_HOLD_CONN + 1; i < b->descriptors; i++) {
			close((int)i);
		}
	}
	execve(b->args[0], b->args, b->variables);
	_exit(127);
}

/* Its parent, which ends at once, so that the program has no child: it gets no signal, and no wait of it finds one. */
static int bear(void *arg) {
	struct birth *b = arg;

	_exit(clone(become, b->stack, CLONE_VM | CLONE_VFORK | CLONE_PIDFD, b, &b->process) < 0);
}

/* Variables by which a program or a tool looks at its calls are not for the holder, which sees all devices. */
static bool kept(const char *variable) {
	static const char *const not [] = { "LD_PRELOAD=", "LD_AUDIT=", "CUDA_", "HOLDFAST_CUDA_" };
	size_t i;

	for (i = 0; i < sizeof not / sizeof *not ; i++) {
		if (strncmp(variable, not [i], strlen(not [i])) == 0) {
			return false;
		}
	}
	return true;
}

/* The program's variables as they were when the library was bound, and the driver's path. */
static char **variables_of(char *driver) {
	size_t i, n = 0;
	char **list;

	for (i = 0; hf_settings.variables != NULL && hf_settings.variables[i] != NULL; i++) {
	}
	if ((list = calloc(i + 2, sizeof *list)) == NULL) {
		return NULL;
	}
	for (i = 0; hf_settings.variables != NULL && hf_settings.variables[i] != NULL; i++) {
		if (kept(hf_settings.variables[i])) {
			list[n++] = hf_settings.variables[i];
		}
	}
	list[n] = driver;
	return list;
}

/* Starts the holder: the loader of this process runs the library as a program. */
static bool start(char why[HF_WHY]) {
	char driver[4200], loader[] = "/lib64/ld-linux-x86-64.so.2";
	char *args[] = { loader, hf_settings.library, NULL };
	struct birth b = { .args = args, .descriptors = 1024, .process = -1 };
	struct timeval limit = { .tv_sec = PATIENCE };
	int pair[2] = { -1, -1 }, failed = 1;
	struct rlimit most;
	char *stack;
	pid_t pid;
	Dl_info info;

	if (hf_settings.library == NULL || hf_settings.driver == NULL ||
		(size_t)snprintf(driver, sizeof driver, "HOLDFAST_CUDA_DRIVER=%s", hf_settings.driver) >= sizeof driver) {
		snprintf(why, HF_WHY, "the library or the driver has no path");
		return false;
	}
	if (getauxval(AT_BASE) != 0 && dladdr((const void *)getauxval(AT_BASE), &info) != 0 && *info.dli_fname == '/') {
		args[0] = (char *)(uintptr_t)info.dli_fname;
	}
	if (getrlimit(RLIMIT_NOFILE, &most) == 0) {
		b.descriptors = most.rlim_cur;
	}
	b.variables = variables_of(driver);
	stack = malloc(2 * STACK);
	hf_ledger_lock(); /* as a fork does, whose child is to close the connection, too */
	if (b.variables != NULL && stack != NULL && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) {
		b.conn = pair[1];
		b.stack = stack + STACK;
		/* Without a signal at its end it is found by a wait for such processes alone. */
		pid = clone(bear, stack + 2 * STACK, CLONE_VM | CLONE_VFORK | CLONE_FILES, &b);
		while (pid > 0 && waitpid(pid, &failed, (int)__WCLONE) < 0 && errno == EINTR) {
		}
	}
	if (failed == 0) {
		hold.conn = pair[0];
		hold.process = b.process;
	}
	if (pair[1] >= 0) {
		close(pair[1]);
	}
	hf_ledger_unlock();
	if (failed == 0) {
		setsockopt(hold.conn, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
		setsockopt(hold.conn, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	} else {
		snprintf(why, HF_WHY, "no process could be started");
		close(pair[0]);
	}
	free(stack);
	free(b.variables);
	return failed == 0;
}

/* Gives up the held memory; a copy under way need not end. The driver has freed all of it when this
 * returns, unless the kernel has no descriptors of processes. */
void hf_hold_end(void) {
	struct pollfd ended = { .fd = hold.process, .events = POLLIN };

	if (hold.conn < 0) {
		return;
	}
	hf_close(&hold.conn);
	if (hold.process >= 0) {
		(void)syscall(SYS_pidfd_send_signal, hold.process, SIGKILL, NULL, 0);
		while (poll(&ended, 1, PATIENCE * 1000) < 0 && errno == EINTR) {
		}
		close(hold.process);
		hold.process = -1;
	}
}

/* A child of the program must not keep the holder from seeing the program's end. */
void hf_hold_child(void) {
	if (hold.conn >= 0) {
		close(hold.conn);
	}
	hold.conn = hold.process = -1;
}

static bool ask(struct hf_hold_wish wish, int descriptor, uint64_t *number, char why[HF_WHY]) {
	struct hf_hold_reply reply;
	int none;

	if (hold.conn < 0 || !hf_send(hold.conn, &wish, sizeof wish, descriptor, 0) ||
		!hf_receive(hold.conn, &reply, sizeof reply, &none)) {
		snprintf(why, HF_WHY, "the process that is to hold its memory has gone, or does not answer");
		return false;
	}
	if (reply.e != CUDA_SUCCESS) {
		reply.why[sizeof reply.why - 1] = 0;
		snprintf(why, HF_WHY, "%s: %s", reply.why, hf_error(reply.e));
		return false;
	}
	if (number != NULL) {
		*number = reply.number;
	}
	return true;
}

bool hf_hold_ready(char why[HF_WHY]) { return ask((struct hf_hold_wish){ .what = HF_HOLD_SETTLE }, -1, NULL, why); }

/* The bytes of the arena's memory on a pair's new device, and at least on its old one, to get back there. */
static void needs(
	const struct hf_mapping *list, size_t count, const CUcheckpointGpuPair *pair, size_t *new, size_t *old) {
	CUuuid uuid;
	size_t i;

	*new = *old = 0;
	for (i = 0; i < count; i++) {
		if (REAL(cuDeviceGetUuid)(&uuid, list[i].device) == CUDA_SUCCESS &&
			memcmp(&uuid, &pair->oldUuid, sizeof uuid) == 0) {
			*new += list[i].bytes;
			*old = list[i].bytes > *old ? list[i].bytes : *old;
		}
	}
}

static bool same(const CUcheckpointGpuPair *pair) {
	return memcmp(&pair->oldUuid, &pair->newUuid, sizeof pair->oldUuid) == 0;
}

/* Whether there is room, and how much is needed and free at each end of each pair. */
static bool room(
	const struct hf_mapping *list, size_t count, size_t other, struct hf_hold_room *rooms, char why[HF_WHY]) {
	uint64_t there, here;
	size_t new, old;
	unsigned i;

	for (i = 0; i < hold.count; i++) {
		const CUcheckpointGpuPair *p = &hold.pairs[i];

		needs(list, count, p, &new, &old);
		if (!ask(
				(struct hf_hold_wish){ .what = HF_HOLD_PAIR, .from = p->oldUuid, .to = p->newUuid }, -1, &there, why) ||
			!ask((struct hf_hold_wish){ .what = HF_HOLD_PAIR, .from = p->oldUuid, .to = p->oldUuid }, -1, &here, why)) {
			return false;
		}
		/* On its own device the memory is copied one mapping after the other. */
		rooms[2 * i] = (struct hf_hold_room){ p->oldUuid, old, here };
		rooms[2 * i + 1] = (struct hf_hold_room){ p->newUuid, same(p) ? 0 : new + other + context_bytes, there };
		if (rooms[2 * i].need > here || rooms[2 * i + 1].need > there) {
			snprintf(why, HF_WHY,
				"a move from device to device needs %zu bytes there and %zu here; %llu and %llu are free",
				rooms[2 * i + 1].need, old, (unsigned long long)there, (unsigned long long)here);
			return false;
		}
	}
	return true;
}

bool hf_hold_begin(const CUcheckpointGpuPair *pairs, unsigned count, struct hf_hold_room *rooms, char why[HF_WHY]) {
	struct hf_mapping *list;
	size_t arena, other, n;
	bool is;

	hf_hold_end();
	hf_pause_bytes(&arena, &other);
	if ((n = hf_arena_list(&list)) == SIZE_MAX || n == 0) {
		snprintf(why, HF_WHY, "it has nothing in the arena");
		free(list);
		return false;
	}
	if ((is = start(why))) {
		memcpy(hold.pairs, pairs, count * sizeof *pairs);
		hold.count = count;
		is = room(list, n, other, rooms, why);
	}
	free(list);
	if (!is) {
		hf_hold_end();
	}
	return is;
}

bool hf_hold_keep(const struct hf_mapping *list, size_t count, char why[HF_WHY]) {
	struct hf_hold_room rooms[2 * HF_HOLD_DEVICES];
	size_t i;

	if (!room(list, count, 0, rooms, why)) { /* it may have grown since it was asked */
		return false;
	}
	for (i = 0; i < count; i++) {
		if (!hf_hold_pass(&list[i], i, NULL, why)) {
			return false;
		}
	}
	return true;
}

/* Passes a mapping on: to be held, or to be filled where the program is now. */
bool hf_hold_pass(const struct hf_mapping *m, size_t index, const CUuuid *to, char why[HF_WHY]) {
	struct hf_hold_wish wish = {
		.what = to == NULL ? HF_HOLD_KEEP : HF_HOLD_FILL, .index = (uint32_t)index, .bytes = m->bytes
	};
	struct hf_mapping found;
	int descriptor = -1;
	uint32_t born;
	bool passed;
	CUresult e = REAL(cuDeviceGetUuid)(&wish.from, m->device);

	if (to != NULL) {
		wish.to = *to;
	}
	if (!hf_arena_mapping(m->at, &found, &born)) {
		e = CUDA_ERROR_INVALID_VALUE;
	}
	if (e != CUDA_SUCCESS || (e = hf_arena_export(&found, born, &descriptor)) != CUDA_SUCCESS) {
		snprintf(why, HF_WHY, "its memory at %#llx has no descriptor: %s", m->at, hf_error(e));
		return false;
	}
	passed = ask(wish, descriptor, NULL, why);
	close(descriptor);
	return passed;
}
