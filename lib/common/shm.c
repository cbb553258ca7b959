/* shm.c - memory that processes share, and descriptors that pass between them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shm.h"

int hf_own_fd(int fd) {
	if (fd < 0 || fd > 2) {
		return fd;
	}
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	close(fd);
	return own;
}

/* grow gives a file its size. A limit on files (ulimit -f) holds for memory too, and sends a signal that would end the
 * program: it is taken back. */
static int grow(int fd, size_t size) {
	sigset_t limit, before;
	sigemptyset(&limit);
	sigaddset(&limit, SIGXFSZ);
	pthread_sigmask(SIG_BLOCK, &limit, &before);
	int rc = ftruncate(fd, (off_t)size), why = errno;
	if (rc != 0 && why == EFBIG) {
		sigtimedwait(&limit, NULL, &(struct timespec){ 0, 0 });
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = why;
	return rc;
}

int hf_memfd(const char *name, size_t bytes) {
	int fd = hf_own_fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
	if (fd < 0 || (grow(fd, bytes) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)) {
		return fd;
	}
	int why = errno;
	close(fd);
	errno = why;
	return -1;
}

bool hf_fd_holds(int fd, uint64_t bytes) {
	struct stat st;
	return fstat(fd, &st) == 0 && st.st_size >= 0 && (uint64_t)st.st_size >= bytes;
}

void *hf_map(int fd, size_t bytes, int prot, int how) {
	void *at = mmap(NULL, bytes, prot, how, fd, 0);
	return at == MAP_FAILED ? NULL : at;
}

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(HF_MOST_FDS * sizeof(int))];
};

bool hf_pass_fd(int sock, char what, int fd) {
	union control space;
	struct iovec part = { &what, 1 };
	struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1 };
	memset(&space, 0, sizeof space);
	if (fd >= 0) {
		m.msg_control = &space;
		m.msg_controllen = CMSG_SPACE(sizeof fd);
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof fd);
		memcpy(CMSG_DATA(c), &fd, sizeof fd);
	}
	ssize_t sent;
	do {
		sent = sendmsg(sock, &m, MSG_NOSIGNAL);
	} while (sent < 0 && errno == EINTR);
	return sent == 1;
}

ssize_t hf_receive(int sock, void *to, size_t room, int fds[HF_MOST_FDS], int *n, bool *cut) {
	union control space;
	struct iovec part = { to, room };
	struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &space, .msg_controllen = sizeof space };
	ssize_t got;
	do {
		got = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
	} while (got < 0 && errno == EINTR);
	*n = 0;
	*cut = got > 0 && (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
	for (struct cmsghdr *c = got > 0 ? CMSG_FIRSTHDR(&m) : NULL; c != NULL; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
			*n = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
			memcpy(fds, CMSG_DATA(c), (size_t)*n * sizeof(int));
		}
	}
	return got;
}
