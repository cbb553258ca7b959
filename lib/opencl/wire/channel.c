/* The sockets to the process that serves this program: the control connection, for messages that it sends by itself,
 * and connections for requests. Each call takes one for its request and its reply: threads of the program do not wait
 * for each other. */
#define _GNU_SOURCE
#include "../../common/shm.h"
#include "wire.h"

#include <errno.h>
#include <limits.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static struct {
	pthread_mutex_t lock;
	bool open;
	pid_t owner; /* a child of fork has no server */
	int control;
	struct connection *idle;
	unsigned connections; /* that there are */
	unsigned files;       /* that the server may have of each kind: connections, areas */
	pthread_cond_t freed; /* a connection is */
	_Atomic bool lost;
} channel = { .lock = PTHREAD_MUTEX_INITIALIZER, .freed = PTHREAD_COND_INITIALIZER };

/* forget is called in a child of fork: the server ends when the program does, even if the child lives on. */
static void forget(void) {
	hfcl_lose();
	close(channel.control);
}

/* pair makes a connection of two sockets. */
bool hfcl_pair(int ends[2]) {
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
		return false;
	}
	for (int i = 0; i < 2; i++) {
		ends[i] = hf_own_fd(ends[i]);
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

/* hfcl_pass sends a byte with a descriptor, -1: without. */
bool hfcl_pass(int control, char what, int fd) {
	int before = hfcl_no_cancel();
	bool ok = hf_pass_fd(control, what, fd);
	hfcl_cancel_again(before);
	return ok;
}

bool hfcl_pass_area(int fd) { return !hfcl_lost() && hfcl_pass(channel.control, 'M', fd); }

/* open_connection makes a connection and hands its other end over. */
static struct connection *open_connection(int control) {
	int ends[2];
	struct connection *l = malloc(sizeof *l);
	if (l == NULL || !hfcl_pair(ends)) {
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

/* share_of_files is how many files of each kind the server may have, so that it stays within the limit that it has of
   this program: it takes the hard one. A file that it cannot take would end it. */
static unsigned share_of_files(void) {
	const rlim_t own = 24, kinds = 3; /* the third: messages of both directions */
	struct rlimit l;
	if (getrlimit(RLIMIT_NOFILE, &l) != 0 || l.rlim_max / kinds > INT_MAX) {
		return INT_MAX;
	}
	return l.rlim_max < own ? 0 : (unsigned)((l.rlim_max - own) / kinds);
}

unsigned hfcl_max_areas(void) { return channel.files; }

bool hfcl_open_channel(int control) {
	channel.control = control;
	channel.files = share_of_files();
	pthread_atfork(NULL, NULL, forget);
	struct connection *l = open_connection(control);
	if (l == NULL) {
		return false;
	}
	pthread_mutex_lock(&channel.lock);
	channel.idle = l;
	channel.connections = 1;
	channel.owner = getpid();
	channel.open = true;
	pthread_mutex_unlock(&channel.lock);
	return true;
}

void hfcl_close_channel(void) {
	pthread_mutex_lock(&channel.lock);
	channel.open = false;
	pthread_mutex_unlock(&channel.lock);
}

/* hfcl_lost: the server is gone; so is everything. */
bool hfcl_lost(void) { return atomic_load_explicit(&channel.lost, memory_order_relaxed); }

void hfcl_lose(void) { atomic_store(&channel.lost, true); }

/* wait_for_connection waits until a connection may be free, a second at most; the lock is held. */
static void wait_for_connection(void) {
	struct timespec end;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec++;
	pthread_cond_timedwait(&channel.freed, &channel.lock, &end);
}

struct connection *hfcl_take_connection(void) {
	if (hfcl_lost()) { /* also in a child of fork, whose lock may be taken for ever */
		return NULL;
	}
	int before = hfcl_no_cancel();
	pthread_mutex_lock(&channel.lock);
	struct connection *l = NULL;
	while (channel.open && !atomic_load(&channel.lost) && channel.owner == getpid()) {
		l = channel.idle;
		if (l != NULL) {
			channel.idle = l->next;
			break;
		}
		bool more = channel.connections < channel.files && channel.connections < HFCL_MAX_CONNECTIONS;
		if (more && (l = open_connection(channel.control)) != NULL) {
			channel.connections++;
			break;
		}
		wait_for_connection(); /* this process or its server has no more files */
	}
	pthread_mutex_unlock(&channel.lock);
	hfcl_cancel_again(before);
	return l;
}

bool hfcl_few_connections(void) {
	pthread_mutex_lock(&channel.lock);
	bool few = 2 * channel.connections >= (channel.files < HFCL_MAX_CONNECTIONS ? channel.files : HFCL_MAX_CONNECTIONS);
	pthread_mutex_unlock(&channel.lock);
	return few;
}

/* hfcl_give_connection puts a connection back. A broken one ends them all: a server that does not answer one thread's
 * call is gone, or is a wrong one. */
void hfcl_give_connection(struct connection *l, bool broken) {
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
