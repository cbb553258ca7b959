/* door.c - the socket that holdfast pause, resume and migrate speak to: docs/PROTOCOL.md. It has an abstract name, so
 * nothing is left of it when the process dies. The thread behind it takes no signals. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "holder.h"
#include "library.h"

enum { VERSION = 5, DEVICES = 64 };

/* How long a tool may be silent that has the program stand still. */
enum { PATIENCE = 600 };

static struct {
	_Atomic bool open;
	int listener, peer;      /* -1: none */
	ino_t is;                /* what peer is: the program may close it, and get its number for a file of its own */
	struct sockaddr_un name; /* of the listener, which the program may close */
	socklen_t length;
	char line[8192];
	size_t have;
	CUuuid devices[DEVICES]; /* as the driver named them before it was stopped */
	bool used[DEVICES];
	int count;
	bool heard; /* the last line that was sent has arrived */
} door = { .listener = -1, .peer = -1 };

/* The tool's connection, or -1: the program has closed it. */
static int peer(void) {
	struct stat now;

	return fstat(door.peer, &now) == 0 && now.st_ino == door.is && S_ISSOCK(now.st_mode) ? door.peer : -1;
}

static bool say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static bool say(const char *format, ...) {
	char line[HF_WHY + DEVICES * 80 + 200];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line, sizeof line - 1, format, args);
	va_end(args);
	if (n < 0 || (size_t)n >= sizeof line - 1) {
		return door.heard = false;
	}
	line[n++] = '\n';
	return door.heard = send(peer(), line, (size_t)n, MSG_NOSIGNAL) == n;
}

static bool progress(size_t moved, size_t total) { return say("moved %zu %zu", moved, total); }

/* Going back goes on, whoever listens. */
static bool tell(size_t moved, size_t total) {
	(void)progress(moved, total);
	return true;
}

/* The next line, or NULL when the peer is gone or silent for too long. */
static char *next_line(char *out, size_t room) {
	char *end;
	ssize_t n;
	size_t length;

	while ((end = memchr(door.line, '\n', door.have)) == NULL) {
		if (door.have == sizeof door.line) {
			return NULL;
		}
		n = recv(peer(), door.line + door.have, sizeof door.line - door.have, 0);
		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n <= 0) {
			return NULL;
		}
		door.have += (size_t)n;
	}
	length = (size_t)(end - door.line);
	if (length >= room) {
		return NULL;
	}
	memcpy(out, door.line, length);
	out[length] = 0;
	door.have -= length + 1;
	memmove(door.line, end + 1, door.have);
	return out;
}

static char *write_uuid(char *at, const CUuuid *uuid) {
	int i;

	for (i = 0; i < 16; i++) {
		at += sprintf(at, "%02x", uuid->bytes[i]);
	}
	return at;
}

static void state(void) {
	static const char *const names[] = { "running", "quiet", "saved", "paused" };
	char devices[DEVICES * 34 + 1] = "-", *at = devices;
	size_t arena = 0, other = 0;
	int i, count = 0;

	if (hf_pause_phase() != HF_STOPPED) {
		if (REAL(cuDeviceGetCount)(&count) != CUDA_SUCCESS || REAL(cuDeviceGetUuid) == NULL) {
			count = 0;
		}
		count = count > DEVICES ? DEVICES : count;
		for (i = 0; i < count && REAL(cuDeviceGetUuid)(&door.devices[i], i) == CUDA_SUCCESS; i++) {
			door.used[i] = hf_context_of(i) != NULL;
		}
		door.count = i;
	}
	for (i = 0; i < door.count; i++) {
		if (i > 0) {
			*at++ = ',';
		}
		at = write_uuid(at, &door.devices[i]);
		if (door.used[i]) {
			*at++ = '+';
			*at = 0;
		}
	}
	hf_pause_bytes(&arena, &other);
	say("state %s %zu %zu %s %.3f", names[hf_pause_phase()], arena, other, devices, hf_pause_seconds());
}

/* Reads OLD=NEW,OLD=NEW of 32 hexadecimal digits each. */
static bool read_uuid(const char **text, CUuuid *uuid) {
	unsigned byte;
	int i;

	for (i = 0; i < 16; i++, *text += 2) {
		if (sscanf(*text, "%2x", &byte) != 1 || (*text)[1] == 0) {
			return false;
		}
		uuid->bytes[i] = (unsigned char)byte;
	}
	return true;
}

static int read_pairs(const char *text, CUcheckpointGpuPair *pairs) {
	int n = 0;

	while (*text != 0) {
		if (n == DEVICES || !read_uuid(&text, &pairs[n].oldUuid) || *text++ != '=' ||
			!read_uuid(&text, &pairs[n].newUuid)) {
			return -1;
		}
		n++;
		text += *text == ',';
	}
	return n;
}

static void resume(const char *text) {
	CUcheckpointGpuPair pairs[DEVICES];
	int n = read_pairs(text, pairs);
	char why[HF_WHY];

	if (n < 0) {
		say("error %s is no list of devices", text);
	} else if (hf_pause_resume(pairs, (unsigned)n, tell, why)) {
		say("running");
	} else {
		say("error %s", why);
		if (!door.heard) {
			hf_say("it stays paused: %s", why);
		}
	}
}

/* Starts the process that holds the memory in a move; reports the needed and the free memory at its ends. */
static void holds(const char *text) {
	struct hf_hold_room rooms[2 * HF_HOLD_DEVICES];
	CUcheckpointGpuPair pairs[DEVICES];
	char line[2 * HF_HOLD_DEVICES * 80], *at = line, why[HF_WHY];
	int n = read_pairs(text, pairs), i;

	if (n < 1) {
		say("error %s is no list of devices", text);
	} else if (n > HF_HOLD_DEVICES) {
		say("refused it uses %d devices", n);
	} else if (!hf_hold_begin(pairs, (unsigned)n, rooms, why)) {
		say("refused %s", why);
	} else {
		for (i = 0; i < 2 * n; i++) {
			*at++ = ' ';
			at = write_uuid(at, &rooms[i].device);
			at += sprintf(at, " %zu %zu", rooms[i].need, rooms[i].free);
		}
		say("holds%s", line);
	}
}

static void quiet(const char *ms) {
	size_t arena, other;
	char why[HF_WHY];

	if (hf_pause_refused(why)) {
		say("refused %s", why);
	} else if (!hf_pause_quiet(strtod(ms, NULL) / 1000, why)) {
		say("busy %s", why);
	} else if (hf_pause_refused(why)) { /* since a call that was under way then */
		hf_pause_open();
		say("refused %s", why);
	} else {
		hf_pause_bytes(&arena, &other);
		say("quiet %zu %zu", arena, other);
	}
}

static void answer(bool done, const char *word, const char *why) {
	if (done) {
		say("%s", word);
	} else {
		say("error %s", why);
	}
}

/* One line of a tool. *kept: the program is to stay as it is when the tool leaves. */
static bool obey(const char *line, bool *kept) {
	enum hf_phase phase = hf_pause_phase();
	char why[HF_WHY] = "";

	if (strcmp(line, "state") == 0) {
		state();
	} else if (strcmp(line, "prepare") == 0 && phase == HF_RUNNING) {
		answer(hf_pause_prepare(why), "prepared", why);
	} else if (strncmp(line, "hold ", 5) == 0 && phase == HF_RUNNING) {
		holds(line + 5);
	} else if (strcmp(line, "forget") == 0 && phase == HF_RUNNING) {
		hf_pause_forget();
		say("forgotten");
	} else if (strncmp(line, "quiet ", 6) == 0 && phase == HF_RUNNING) {
		quiet(line + 6);
	} else if (strcmp(line, "save") == 0 && phase == HF_QUIET) {
		answer(hf_pause_save(progress, why), "saved", why);
	} else if (strcmp(line, "stop") == 0 && phase == HF_SAVED) {
		*kept = false;
		answer(hf_pause_stop(why), "stopped", why);
	} else if (strcmp(line, "keep") == 0 && phase == HF_STOPPED) {
		*kept = true; /* nobody waits for an answer: where one is lost, the others would not know of it either */
	} else if (strcmp(line, "open") == 0 && (phase == HF_QUIET || phase == HF_SAVED)) {
		hf_pause_open();
		say("running");
	} else if (strncmp(line, "resume", 6) == 0 && phase == HF_STOPPED) {
		resume(line[6] == ' ' ? line + 7 : "");
	} else {
		say("error %.100s is not to be done now", line);
		return false;
	}
	return true;
}

/* Serves one tool. If it leaves in the middle of a pause, the program goes on. */
static void serve(bool *kept) {
	struct timeval limit = { .tv_sec = PATIENCE };
	char line[sizeof door.line];

	door.have = 0;
	setsockopt(door.peer, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	setsockopt(door.peer, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	if (say("holdfast-cuda %d", VERSION)) {
		while (next_line(line, sizeof line) != NULL && obey(line, kept)) {
		}
	}
	if (hf_pause_phase() == HF_QUIET || hf_pause_phase() == HF_SAVED) {
		hf_pause_open();
	} else if (hf_pause_phase() == HF_STOPPED && !*kept) {
		resume("");
	}
	if (hf_pause_phase() == HF_RUNNING) {
		hf_pause_forget();
	}
}

/* Only the program's user, and root, may have it paused. */
static bool trusted(int peer) {
	struct ucred who;
	socklen_t length = sizeof who;

	return getsockopt(peer, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0 && (who.uid == geteuid() || who.uid == 0);
}

/* Another file of the program has the listener's descriptor, or none has. In a restored program the listener is a new
 * socket of the same name. */
static bool is_closed(void) {
	struct sockaddr_un now;
	socklen_t length = sizeof now;

	return getsockname(door.listener, (struct sockaddr *)&now, &length) != 0 || length != door.length ||
		memcmp(&now, &door.name, length) != 0;
}

static void *listens(void *arg) {
	struct timespec nap = { .tv_nsec = 100000000 };
	struct stat now;
	bool kept = false;

	for (;;) {
		if (is_closed()) {
			hf_say("it cannot be paused any more: it has closed descriptor %d", door.listener);
			return arg;
		}
		door.peer = accept4(door.listener, NULL, NULL, SOCK_CLOEXEC);
		if (door.peer < 0) {
			nanosleep(&nap, NULL); /* no descriptor is free, say */
			continue;
		}
		door.is = fstat(door.peer, &now) == 0 ? now.st_ino : 0;
		if (trusted(door.peer)) {
			serve(&kept);
		}
		door.peer = peer();
		hf_close(&door.peer);
	}
	return arg;
}

/* Slurm suspends a job by SIGTSTP, and stops its processes two seconds later. Until then the door answers. */
static void stay(void) {
	struct sigaction is;

	if (getenv("SLURM_JOB_ID") != NULL && sigaction(SIGTSTP, NULL, &is) == 0 && is.sa_handler == SIG_DFL) {
		signal(SIGTSTP, SIG_IGN);
	}
}

/* Runs before the driver's own exit handlers, which end it under a pause that has begun. The gate is entered and
 * not left: a program that ends goes on once it is resumed, and no pause begins after that. */
static void ends(void) {
	if (atomic_load(&door.open)) {
		hf_gate_enter(HF_cuCtxDestroy_v2);
	}
}

void hf_door_open(void) {
	struct sockaddr_un *name = &door.name;
	sigset_t all, old;
	struct stat space = { 0 }; /* its PID namespace: other processes have the number in others */
	pthread_t thread;
	int e;

	if (!hf_settings.pause || atomic_exchange(&door.open, true)) {
		return;
	}
	(void)stat("/proc/self/ns/pid", &space); /* without /proc no command finds it */
	name->sun_family = AF_UNIX;
	e = snprintf(name->sun_path + 1, sizeof name->sun_path - 1, "holdfast-cuda-%lu-%d", (unsigned long)space.st_ino,
		(int)getpid());
	door.length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)e);
	if ((door.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) < 0 ||
		bind(door.listener, (struct sockaddr *)name, door.length) != 0 || listen(door.listener, 8) != 0) {
		hf_say("it cannot be paused: no socket %s: %s", name->sun_path + 1, strerror(errno));
		return;
	}
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	e = pthread_create(&thread, NULL, listens, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (e != 0) {
		hf_say("it cannot be paused: no thread: %s", strerror(e));
		return;
	}
	pthread_detach(thread);
	if (atexit(ends) != 0) {
		hf_say("a pause while the program ends may kill it: no memory");
	}
	stay();
}

/* A child has neither the thread nor the memory. */
void hf_door_child(void) {
	if (door.listener >= 0) {
		close(door.listener);
	}
	if (peer() >= 0) {
		close(door.peer);
	}
	door.listener = door.peer = -1;
	atomic_store(&door.open, false);
}
