/* The process that serves this program, and the sockets to it: one for what it sends by itself, and lanes, of which
   each call takes one for its request and its reply. A program's threads so wait for each other no more than they
   would without. */
#define _GNU_SOURCE
#include "../../src/tool.h"
#include "hfcl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct {
	pthread_mutex_t lock;
	enum { UNUSED, CONNECTED, FAILED } state;
	pid_t owner; /* a child of fork has no server */
	int control;
	struct lane *idle;
	unsigned lanes;       /* that there are */
	unsigned files;       /* that the server may have of each kind: lanes, areas */
	pthread_cond_t freed; /* a lane is */
	_Atomic bool lost;
} channel = { .lock = PTHREAD_MUTEX_INITIALIZER, .freed = PTHREAD_COND_INITIALIZER };

/* forget is called in a child of fork: the server ends when the program does, also where the child lives on. */
static void forget(void) {
	hfcl_lose();
	close(channel.control);
}

int hfcl_own(int fd) {
	if (fd < 0 || fd > 2) {
		return fd;
	}
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	close(fd);
	return own;
}

/* pair makes a connection of two sockets. */
static bool pair(int ends[2]) {
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
		return false;
	}
	for (int i = 0; i < 2; i++) {
		ends[i] = hfcl_own(ends[i]);
	}
	if (ends[0] >= 0 && ends[1] >= 0) {
		return true;
	}
	int why = errno;
	close(ends[0]);
	close(ends[1]);
	errno = why;
	return false;
}

static void say(const char *what, const char *why) {
	fprintf(stderr, "libholdfast-opencl: %s%s%s\n", what, why[0] != 0 ? ": " : "", why);
}

/* start runs `holdfast opencl`, whose descriptor 3 is the other end of the socket it gives; -1 when it cannot. The
   process that is started leaves another one behind and ends, so that the program has no child it does not know. */
static int start(void) {
	int ends[2];
	if (!pair(ends)) {
		say("no socket to its server", strerror(errno));
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
		say("cannot start its server: give the path of the holdfast command in HOLDFAST_BIN, or put it in PATH",
			strerror(rc));
		close(ends[0]);
		return -1;
	}
	while (waitpid(pid, &rc, 0) < 0 && errno == EINTR) {
	}
	return ends[0];
}

bool hfcl_pass(int control, char what, int fd) {
	struct iovec part = { &what, 1 };
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} space;
	memset(&space, 0, sizeof space);
	struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1 };
	if (fd >= 0) {
		m.msg_control = space.room;
		m.msg_controllen = sizeof space.room;
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	ssize_t sent;
	int before = hfcl_no_cancel();
	do {
		sent = sendmsg(control, &m, MSG_NOSIGNAL);
	} while (sent < 0 && errno == EINTR);
	hfcl_cancel_again(before);
	return sent == 1;
}

bool hfcl_pass_area(int fd) { return !hfcl_lost() && hfcl_pass(channel.control, 'M', fd); }

/* open_lane makes a connection and hands its other end over. */
static struct lane *open_lane(int control) {
	int ends[2];
	struct lane *l = malloc(sizeof *l);
	if (l == NULL || !pair(ends)) {
		free(l);
		return NULL;
	}
	bool passed = hfcl_pass(control, 'L', ends[1]);
	close(ends[1]);
	if (!passed) {
		close(ends[0]);
		free(l);
		return NULL;
	}
	l->fd = ends[0];
	l->next = NULL;
	return l;
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

/* say_ended says that the server is no more, before it has served anything. */
static void say_ended(void) {
	char why[200];
	limits(why, sizeof why);
	say("its server has ended", why);
}

/* greet says who this is, on the first lane. */
static bool greet(void) {
	struct call c;
	hfcl_begin(&c, HFCL_HELLO);
	hfcl_put32(&c, HFCL_VERSION);
	hfcl_put32(&c, (uint32_t)getpid());
	const char *name = program_invocation_short_name;
	hfcl_put_bytes(&c, name, strlen(name));
	bool ok = hfcl_run(&c, NULL, NULL) == CL_SUCCESS;
	if (!ok && c.failed) {
		say_ended();
	} else if (!ok) {
		char *why = hfcl_get_text(&c);
		say("its server did not begin", why == NULL ? "" : why);
		free(why);
	}
	hfcl_end(&c);
	return ok;
}

/* share_of_files is how many files of each kind the server may have, so that it stays within the limit that it has of
   this program: it takes the hard one. A file that it cannot take would end it. */
static unsigned share_of_files(void) {
	const rlim_t own = 24, kinds = 3; /* the third: what comes and goes */
	struct rlimit l;
	if (getrlimit(RLIMIT_NOFILE, &l) != 0 || l.rlim_max / kinds > INT_MAX) {
		return INT_MAX;
	}
	return l.rlim_max < own ? 0 : (unsigned)((l.rlim_max - own) / kinds);
}

unsigned hfcl_max_areas(void) { return channel.files; }

/* begin starts the server and connects to it. */
static bool begin(void) {
	channel.control = start();
	if (channel.control < 0) {
		return false;
	}
	channel.files = share_of_files();
	pthread_atfork(NULL, NULL, forget);
	if (hfcl_ring_open(channel.control) && (channel.idle = open_lane(channel.control)) != NULL &&
		hfcl_listen(channel.control)) {
		channel.lanes = 1;
		return true;
	}
	if (errno == EPIPE || errno == ECONNRESET) {
		say_ended();
	} else {
		say("no memory, files or threads for what it shares with its server", strerror(errno));
	}
	return false;
}

bool hfcl_connect(void) {
	int before = hfcl_no_cancel();
	pthread_mutex_lock(&channel.lock);
	if (channel.state == UNUSED) {
		channel.state = FAILED;
		channel.owner = getpid();
		if (begin()) {
			channel.state = CONNECTED;
			pthread_mutex_unlock(&channel.lock);
			bool ok = greet();
			pthread_mutex_lock(&channel.lock);
			if (!ok) {
				channel.state = FAILED;
			}
		}
	}
	bool ok = channel.state == CONNECTED && channel.owner == getpid();
	pthread_mutex_unlock(&channel.lock);
	hfcl_cancel_again(before);
	return ok;
}

/* hfcl_lost: the server is gone; so is everything. */
bool hfcl_lost(void) { return atomic_load_explicit(&channel.lost, memory_order_relaxed); }

void hfcl_lose(void) { atomic_store(&channel.lost, true); }

/* wait_for_lane waits until some lane may be free, a second at most; the lock is held. */
static void wait_for_lane(void) {
	struct timespec end;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec++;
	pthread_cond_timedwait(&channel.freed, &channel.lock, &end);
}

struct lane *hfcl_take_lane(void) {
	if (hfcl_lost()) { /* also in a child of fork, whose lock may be taken for ever */
		return NULL;
	}
	int before = hfcl_no_cancel();
	pthread_mutex_lock(&channel.lock);
	struct lane *l = NULL;
	while (channel.state == CONNECTED && !atomic_load(&channel.lost) && channel.owner == getpid()) {
		l = channel.idle;
		if (l != NULL) {
			channel.idle = l->next;
			break;
		}
		bool more = channel.lanes < channel.files && channel.lanes < HFCL_MAX_LANES;
		if (more && (l = open_lane(channel.control)) != NULL) {
			channel.lanes++;
			break;
		}
		wait_for_lane(); /* this process or its server has no more files */
	}
	pthread_mutex_unlock(&channel.lock);
	hfcl_cancel_again(before);
	return l;
}

bool hfcl_few_lanes(void) {
	pthread_mutex_lock(&channel.lock);
	bool few = 2 * channel.lanes >= (channel.files < HFCL_MAX_LANES ? channel.files : HFCL_MAX_LANES);
	pthread_mutex_unlock(&channel.lock);
	return few;
}

/* hfcl_give_lane puts a lane back. A broken one ends the connection: a server that does not answer one
   thread's call is gone, or is not what it says. */
void hfcl_give_lane(struct lane *l, bool broken) {
	if (broken) {
		atomic_store(&channel.lost, true);
		shutdown(channel.control, SHUT_RDWR);
		close(l->fd);
		free(l);
		return;
	}
	pthread_mutex_lock(&channel.lock);
	l->next = channel.idle;
	channel.idle = l;
	pthread_cond_signal(&channel.freed);
	pthread_mutex_unlock(&channel.lock);
}

struct rows hfcl_linear(void *at, size_t n) { return (struct rows){ at, n, 1, 1, n, n }; }

size_t hfcl_rows_size(const struct rows *r) { return r->row * r->rows * r->slices; }

/* Parts of one call of the kernel. */
enum { PARTS = 64 };

/* next_parts fills in rows from number *k on, and moves it. */
static int next_parts(const struct rows *r, size_t *k, struct iovec *parts) {
	if (r->slices * r->rows == 0 || r->row == 0) {
		return 0;
	}
	bool whole = r->row_pitch == r->row && (r->slices == 1 || r->slice_pitch == r->row * r->rows);
	if (whole || r->rows * r->slices == 1) {
		if (*k > 0) {
			return 0;
		}
		*k = r->rows * r->slices;
		parts[0] = (struct iovec){ r->at, hfcl_rows_size(r) };
		return 1;
	}
	int n = 0;
	for (; n < PARTS && *k < r->rows * r->slices; n++, (*k)++) {
		parts[n] = (struct iovec){ r->at + *k / r->rows * r->slice_pitch + *k % r->rows * r->row_pitch, r->row };
	}
	return n;
}

/* move_parts sends or receives all bytes of the parts. */
static bool move_parts(int fd, struct iovec *parts, int n, bool out) {
	while (n > 0) {
		struct msghdr m = { .msg_iov = parts, .msg_iovlen = (size_t)n };
		int before = hfcl_no_cancel();
		ssize_t moved = out ? sendmsg(fd, &m, MSG_NOSIGNAL) : recvmsg(fd, &m, MSG_WAITALL);
		hfcl_cancel_again(before);
		if (moved < 0 && errno == EINTR) {
			continue;
		}
		if (moved <= 0) {
			return false;
		}
		size_t left = (size_t)moved;
		while (n > 0 && left >= parts->iov_len) {
			left -= parts->iov_len;
			parts++;
			n--;
		}
		if (n > 0) {
			parts->iov_base = (char *)parts->iov_base + left;
			parts->iov_len -= left;
		}
	}
	return true;
}

bool hfcl_send(int fd, const void *head, size_t n, const void *body, size_t m, const struct rows *bulk) {
	struct iovec parts[PARTS] = { { (void *)(uintptr_t)head, n }, { (void *)(uintptr_t)body, m } };
	if (!move_parts(fd, parts, m > 0 ? 2 : 1, true)) {
		return false;
	}
	size_t k = 0;
	int count;
	while (bulk != NULL && (count = next_parts(bulk, &k, parts)) > 0) {
		if (!move_parts(fd, parts, count, true)) {
			return false;
		}
	}
	return true;
}

bool hfcl_receive(int fd, void *to, size_t n) {
	struct iovec part = { to, n };
	return n == 0 || move_parts(fd, &part, 1, false);
}

bool hfcl_receive_rows(int fd, const struct rows *r) {
	struct iovec parts[PARTS];
	size_t k = 0;
	int count;
	while ((count = next_parts(r, &k, parts)) > 0) {
		if (!move_parts(fd, parts, count, false)) {
			return false;
		}
	}
	return true;
}
