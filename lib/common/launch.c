/* launch.c - the launcher of this process, and the node daemon of its job. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "launch.h"

const char *hf_environ(const char *name) {
	const char *v = getenv(name);

	return v != NULL && *v != 0 ? v : NULL;
}

void hf_launch_name(char *to, size_t room) {
	const char *space = hf_environ("PMIX_NAMESPACE"), *step = hf_environ("SLURM_STEP_ID");
	const char *job = hf_environ("SLURM_JOB_ID");
	struct stat pids = { 0 }; /* the PID namespace: another one has a parent of that number, too */

	if (space != NULL) {
		snprintf(to, room, "%s", space);
	} else if (step != NULL) {
		snprintf(to, room, "slurm.%s.%s", job != NULL ? job : "", step);
	} else {
		(void)stat("/proc/self/ns/pid", &pids);
		snprintf(to, room, "parent.%lu.%ld", (unsigned long)pids.st_ino, (long)getppid());
	}
}

int hf_dial(const char *key, int flags, pid_t *daemon) {
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct ucred who;
	socklen_t len = sizeof who, bytes;
	int sock, n;

	n = snprintf(addr.sun_path + 1, sizeof addr.sun_path - 1, "holdfast-node-%lu-%.64s", (unsigned long)geteuid(), key);
	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);
	if (sock < 0) {
		return -1;
	}
	bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
	while (connect(sock, (struct sockaddr *)&addr, bytes) != 0) {
		if (errno != EINTR) {
			int e = errno;
			close(sock);
			errno = e;
			return -1;
		}
	}
	/* Any user may have taken the name. */
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &len) != 0 || who.uid != geteuid()) {
		close(sock);
		errno = EPERM;
		return -1;
	}
	*daemon = who.pid;
	return sock;
}
