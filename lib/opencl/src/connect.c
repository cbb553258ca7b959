/* The process that serves this program: it is started by the first call that needs it. */
#define _GNU_SOURCE
#include "../../common/tool.h"
#include "hfcl.h"

#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

void *(*hfcl_receiver)(void *);

static void report(const char *what, const char *why) {
	fprintf(stderr, "libholdfast-opencl: %s%s%s\n", what, why[0] != 0 ? ": " : "", why);
}

/* start runs `holdfast opencl`, whose descriptor 3 is the other end of the socket it gives; -1 when it cannot. The
   process that is started leaves another one behind and ends, so that the program has no child it does not know. */
static int start(void) {
	int ends[2];
	if (!hfcl_pair(ends)) {
		report("no socket to its server", strerror(errno));
		return -1;
	}
	char beside[PATH_MAX];
	const char *tool = hf_tool(beside);
	char **vars = hf_tool_environ();
	char *args[] = { (char *)(uintptr_t)tool, (char[]){ "opencl" }, (char[]){ "--background" }, NULL };
	posix_spawn_file_actions_t actions;
	pid_t pid;
	int rc = vars == NULL ? ENOMEM : posix_spawn_file_actions_init(&actions);
	if (rc == 0) {
		rc = posix_spawn_file_actions_adddup2(&actions, ends[1], 3);
		if (rc == 0) {
			rc = posix_spawnp(&pid, tool, &actions, NULL, args, vars);
		}
		posix_spawn_file_actions_destroy(&actions);
	}
	free(vars);
	close(ends[1]);
	if (rc != 0) {
		report("cannot start its server: give the path of the holdfast command in HOLDFAST_BIN, or put it in PATH",
			strerror(rc));
		close(ends[0]);
		return -1;
	}
	while (waitpid(pid, &rc, 0) < 0 && errno == EINTR) {
	}
	return ends[0];
}

/* limits names those limits of the program that leave little to its server, which has them, too. */
static void limits(char *to, size_t room) {
	const struct {
		int resource;
		rlim_t few, unit;
		const char *name;
	} list[] = { { RLIMIT_AS, (rlim_t)16 << 30, 1024, "-v" }, { RLIMIT_DATA, (rlim_t)16 << 30, 1024, "-d" },
		{ RLIMIT_NOFILE, 32, 1, "-n" } };
	to[0] = 0;
	for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
		struct rlimit l;
		size_t n = strlen(to);
		if (getrlimit(list[i].resource, &l) == 0 && l.rlim_cur < list[i].few) {
			snprintf(to + n, room - n, "%sulimit %s %ju", n == 0 ? "it has the limits of this program, " : ", ",
				list[i].name, (uintmax_t)(l.rlim_cur / list[i].unit));
		}
	}
}

/* report_ended reports that the server is no more, before it has served anything. */
static void report_ended(void) {
	char why[200];
	limits(why, sizeof why);
	report("its server has ended", why);
}

/* greet identifies the program, on the first connection. */
static bool greet(void) {
	struct call c;
	hfcl_begin(&c, HFCL_HELLO);
	hfcl_put32(&c, HFCL_VERSION);
	hfcl_put32(&c, (uint32_t)getpid());
	const char *name = program_invocation_short_name;
	hfcl_put_bytes(&c, name, strlen(name));
	bool ok = hfcl_run(&c, NULL, NULL) == CL_SUCCESS;
	if (!ok && c.failed) {
		report_ended();
	} else if (!ok) {
		char *why = hfcl_get_text(&c);
		report("its server did not begin", why == NULL ? "" : why);
		free(why);
	}
	hfcl_end(&c);
	return ok;
}

/* begin starts the server and connects to it. */
static bool begin(void) {
	static int control;
	control = start();
	if (control < 0) {
		return false;
	}
	if (hfcl_ring_open(control) && hfcl_open_channel(control) && hfcl_thread(hfcl_receiver, &control) &&
		hfcl_run_later()) {
		return true;
	}
	if (errno == EPIPE || errno == ECONNRESET) {
		report_ended();
	} else {
		report("no memory, files or threads for what it shares with its server", strerror(errno));
	}
	return false;
}

bool hfcl_connect(void) {
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static bool tried, connected;
	static pid_t owner; /* a child of fork has no server */
	int before = hfcl_no_cancel();
	pthread_mutex_lock(&lock);
	if (!tried) {
		tried = true;
		owner = getpid();
		connected = begin() && greet();
		if (!connected) {
			hfcl_close_channel();
		}
	}
	bool ok = connected && owner == getpid();
	pthread_mutex_unlock(&lock);
	hfcl_cancel_again(before);
	return ok;
}
