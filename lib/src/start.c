/* start.c - finds the node daemon, or starts it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../common/launch.h"
#include "../common/tool.h"
#include "client.h"

extern char **environ;

static uint64_t fnv1a(const char *s) {
	uint64_t h = 0xcbf29ce484222325;

	for (; *s != 0; s++) {
		h = (h ^ (unsigned char)*s) * 0x100000001b3;
	}
	return h;
}

/* Is true for a process that no launcher has started. */
static bool alone(void) {
	static const char *const launchers[] = { "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_STEP_ID" };
	size_t i;

	for (i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
		if (getenv(launchers[i]) != NULL) {
			return false;
		}
	}
	return true;
}

static bool is_off(const char *dir) { return dir != NULL && strcmp(dir, "off") == 0; }

static bool is_relative(const char *path) { return path != NULL && *path != '/' && !is_off(path); }

/* Sums up this process's settings for its daemon. If a launcher has started it, ranks may differ in all but
 * directories. */
static uint64_t settings(void) {
	static const char *const paths[] = { "HOLDFAST_LOCAL", "HOLDFAST_GLOBAL", "HOLDFAST_CONFIG" };
	const bool all = alone(), file = hf_environ(paths[2]) == NULL && access("holdfast.yaml", F_OK) == 0;
	char cwd[PATH_MAX], **v;
	bool here = all || (file && (hf_environ(paths[0]) == NULL || hf_environ(paths[1]) == NULL));
	uint64_t sum = 0;
	size_t i;

	for (v = environ; all && *v != NULL; v++) {
		if (strncmp(*v, "HOLDFAST_", 9) == 0) {
			sum += fnv1a(*v);
		}
	}
	for (i = 0; i < sizeof paths / sizeof paths[0]; i++) {
		const char *path = hf_environ(paths[i]);
		here = here || is_relative(path);
		if (path != NULL) {
			sum = sum * 31 + fnv1a(path);
		}
	}
	if (here && getcwd(cwd, sizeof cwd) != NULL) {
		sum += fnv1a(cwd);
	}
	return sum;
}

bool hf_switched_off(void) {
	const char *local = hf_environ("HOLDFAST_LOCAL"), *global = hf_environ("HOLDFAST_GLOBAL");

	if (is_off(local) && is_off(global)) {
		return true;
	}
	/* A file may name a directory for the one that is not set. The daemon reads it. */
	return ((is_off(local) && global == NULL) || (is_off(global) && local == NULL)) &&
		hf_environ("HOLDFAST_CONFIG") == NULL && access("holdfast.yaml", F_OK) != 0;
}

const char *hf_off_by(void) {
	const bool local = is_off(hf_environ("HOLDFAST_LOCAL")), global = is_off(hf_environ("HOLDFAST_GLOBAL"));
	const char *file = hf_environ("HOLDFAST_CONFIG");

	if (local) {
		return global ? "HOLDFAST_LOCAL=off, HOLDFAST_GLOBAL=off" : "HOLDFAST_LOCAL=off";
	}
	if (global) {
		return "HOLDFAST_GLOBAL=off";
	}
	return file != NULL ? file : "holdfast.yaml";
}

/* Writes the key of the job, of at most 64 bytes: docs/internals/NODE.md. */
static void job_key(char key[65]) {
	const char *named = hf_environ("HOLDFAST_NODE_KEY");
	char launched[128];
	size_t i;

	hf_launch_name(launched, sizeof launched);
	/* One shell, or one step, starts many programs, and a daemon may outlive the program before: it must not serve one
     * that has other directories. */
	if (named != NULL) {
		snprintf(key, 65, "%s", named);
	} else {
		snprintf(key, 65, "%.47s.%016llx", launched, (unsigned long long)(settings() + fnv1a(launched)));
	}
	for (i = 0; key[i] != 0; i++) {
		char k = key[i];
		if (!((k >= 'a' && k <= 'z') || (k >= 'A' && k <= 'Z') || (k >= '0' && k <= '9') || k == '.' || k == '_' ||
				k == '-')) {
			key[i] = '_';
		}
	}
}

/* Makes the started process hold none of this one's files but standard error. Those above the limit, which
 * only tools such as valgrind have, cannot be closed in this way. */
static int keep_stderr(posix_spawn_file_actions_t *files) {
	const long most = sysconf(_SC_OPEN_MAX);
	DIR *open_files = opendir("/proc/self/fd");
	struct dirent *e;
	int err = 0;

	if (open_files == NULL) {
		return errno;
	}
	while (err == 0 && (e = readdir(open_files)) != NULL) {
		int fd = atoi(e->d_name);
		if (fd > 2 && (most < 0 || fd < most) && fd != dirfd(open_files)) {
			err = posix_spawn_file_actions_addclose(files, fd);
		}
	}
	closedir(open_files);
	if (err == 0) {
		err = posix_spawn_file_actions_addopen(files, 0, "/dev/null", 0 /* O_RDONLY */, 0);
	}
	if (err == 0) {
		err = posix_spawn_file_actions_adddup2(files, 0, 1);
	}
	return err;
}

/* The addresses that a daemon reserves when it starts, and some more. */
#define LEAST_ADDRESS_SPACE ((rlim_t)1536 << 20)

/* Starts the daemon and waits until clients can connect. It is a child of the process that is waited
 * for here, so that the program hears nothing of its end. */
static int start_daemon(const char *key, const struct hf_settings *settings) {
	char beside[PATH_MAX], self[24], **vars = NULL;
	const char *program = settings != NULL ? settings->program : hf_tool(beside);
	const char *args[] = { NULL, "node", "--background", "--key", key, "--starter", self, "--chdir",
		settings != NULL ? settings->dir : NULL, NULL };
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	struct rlimit space;
	sigset_t none, all;
	pid_t child;
	int err, status;

	if (getrlimit(RLIMIT_AS, &space) == 0 &&
		space.rlim_cur < LEAST_ADDRESS_SPACE) { /* it would end with a stack trace */
		return hf_fail(HF_E_DAEMON,
			"start the node daemon: the limit on address space (ulimit -v) is %llu MiB, and it needs %llu: "
			"raise the limit, or start holdfast node where there is none, with the same HOLDFAST_NODE_KEY "
			"as the program",
			(unsigned long long)space.rlim_cur >> 20, (unsigned long long)LEAST_ADDRESS_SPACE >> 20);
	}
	args[0] = program;
	if (settings == NULL) {
		args[7] = NULL;
	}
	snprintf(self, sizeof self, "%ld", (long)getpid());
	if ((err = posix_spawn_file_actions_init(&files)) != 0) {
		return hf_fail(HF_E_DAEMON, "start the node daemon: %s", strerror(err));
	}
	if ((err = posix_spawnattr_init(&attr)) != 0) {
		posix_spawn_file_actions_destroy(&files);
		return hf_fail(HF_E_DAEMON, "start the node daemon: %s", strerror(err));
	}
	sigemptyset(&none);
	sigfillset(&all);
	err = keep_stderr(&files);
	if (err == 0 && settings == NULL && (vars = hf_tool_environ()) == NULL) {
		err = ENOMEM;
	}
	if (err == 0) {
		err = posix_spawnattr_setsigmask(&attr, &none);
	}
	if (err == 0) {
		err = posix_spawnattr_setsigdefault(&attr, &all);
	}
	if (err == 0) {
		err = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
	}
	if (err == 0) {
		err = posix_spawnp(&child, program, &files, &attr, (char *const *)(uintptr_t)args,
			settings != NULL ? settings->environ : vars);
	}
	free(vars);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&files);
	if (err != 0) {
		return hf_fail(HF_E_DAEMON,
			"start the node daemon: run %s: %s; set HOLDFAST_BIN to the path of holdfast, "
			"or put it into PATH",
			program, strerror(err));
	}
	while (waitpid(child, &status, 0) < 0) {
		if (errno == ECHILD) { /* the program ignores SIGCHLD, or has waited for it; connecting shows */
			return HF_OK;
		}
		if (errno != EINTR) {
			return hf_fail(HF_E_DAEMON, "start the node daemon: wait for %s: %s", program, strerror(errno));
		}
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
		return HF_OK;
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == HFP_EXIT_OFF) {
		return HF_OFF;
	}
	if (WIFEXITED(status)) {
		return hf_fail(HF_E_DAEMON,
			"start the node daemon: %s node ended with exit code %d; standard error has the reason, a limit "
			"on address space (ulimit -v) may be one",
			program, WEXITSTATUS(status));
	}
	return hf_fail(HF_E_DAEMON,
		"start the node daemon: %s node was ended by signal %d; a limit on memory or address space (ulimit "
		"-v) may be the reason: raise it",
		program, WTERMSIG(status));
}

/* After fork, in the child: its points are not those of the rank, and calls say so. */
static void forget_rank(void) {
	if (hf_the.flags != &hf_idle) {
		hf_the.flags = &hf_armed;
	}
	hf_the.points = &hf_unseen;
}

int hf_connect(struct hf_client *c, const struct hf_settings *settings) {
	static bool once;
	int sock, code, tries;

	if (!once && pthread_atfork(NULL, NULL, forget_rank) == 0) {
		once = true;
	}
	if (settings == NULL) {
		job_key(c->key);
	}
	c->dialled = false;
	for (tries = 0;; tries++) {
		sock = hf_dial(c->key, 0, &c->daemon);
		if (sock >= 0) {
			break;
		}
		if (errno == EPERM) {
			return hf_fail(HF_E_DAEMON,
				"the socket holdfast-node-%lu-%s belongs to another user; set HOLDFAST_NODE_KEY to another "
				"name on all ranks",
				(unsigned long)geteuid(), c->key);
		}
		if (errno != ECONNREFUSED && errno != EAGAIN) {
			return hf_fail(HF_E_DAEMON, "connect to the node daemon: %s", strerror(errno));
		}
		if (tries == 3) { /* those that were started have ended at once */
			return hf_fail(
				HF_E_DAEMON, "the node daemon cannot be reached, although it was started: %s", strerror(errno));
		}
		if ((code = start_daemon(c->key, settings)) != HF_OK) {
			return code;
		}
	}
	atomic_store(&c->sock, sock);
	c->dialled = true;
	c->pid = getpid();
	return HF_OK;
}

/* Reads a number of the environment; -1 if it has none. */
static int number_of(const char *name) {
	const char *s = getenv(name);
	char *end;
	long v;

	if (s == NULL || *s == 0) {
		return -1;
	}
	errno = 0;
	v = strtol(s, &end, 10);
	return errno != 0 || *end != 0 || v < 0 || v > INT_MAX ? -1 : (int)v;
}

/* A rank and the number of ranks, by launcher. Slurm's, which is the last, has no rank for the batch script. */
static const char *const ranks[][2] = { { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE" }, { "PMI_RANK", "PMI_SIZE" },
	{ "SLURM_PROCID", "SLURM_STEP_NUM_TASKS" } };
enum { SLURM = sizeof ranks / sizeof ranks[0] - 1 };

int hf_launched(const char **by) {
	size_t i;

	for (i = 0; i <= SLURM; i++) {
		*by = ranks[i][1];
		if ((i < SLURM || getenv(ranks[i][0]) != NULL) && number_of(*by) > 0) {
			return number_of(*by);
		}
	}
	return 0;
}

int hf_rank_of_environment(int *rank, int *size) {
	size_t i;

	for (i = 0; i <= SLURM; i++) {
		*rank = number_of(ranks[i][0]);
		*size = number_of(ranks[i][1]);
		if (*rank >= 0 && *size >= 1) {
			return HF_OK;
		}
	}
	if (getenv("PMIX_RANK") != NULL) {
		return hf_fail(HF_E_ARG,
			"the launcher's environment has a rank but no size; call hf_init_mpi, or give both in "
			"hf_config");
	}
	*rank = 0;
	*size = 1;
	return HF_OK;
}
