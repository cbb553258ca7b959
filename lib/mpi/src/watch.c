/* watch.c - a rank that holdfast run --watch looks at: the node daemon gives it the page in which it counts, and it
 * answers with the reasons for which a checkpoint would be refused. The program needs no libholdfast, and nothing here
 * ends it: without the daemon it writes to memory of its own. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../../common/launch.h"
#include "../../common/shm.h"
#include "../../src/protocol.h"
#include "layer.h"

/* A start waits no longer for its daemon. */
enum { PATIENCE_MS = 5000, TRIES = 50 };

struct hfm_watching *hfm_watching;

/* dial tries again while more ranks connect than the daemon has taken. */
static int dial(const char *key) {
	const struct timespec pause = { .tv_nsec = PATIENCE_MS / TRIES * 1000000L };
	pid_t daemon;
	int sock = hf_dial(key, SOCK_NONBLOCK, &daemon);
	for (int i = 0; sock < 0 && errno == EAGAIN && i < TRIES; i++) {
		nanosleep(&pause, NULL);
		sock = hf_dial(key, SOCK_NONBLOCK, &daemon);
	}
	return hf_own_fd(sock);
}

static char *add_text(char *at, const char *text, size_t most) {
	const uint32_t n = (uint32_t)strnlen(text, most);
	memcpy(at, &n, sizeof n);
	memcpy(at + sizeof n, text, n);
	return at + sizeof n + n;
}

static bool say_hello(int sock, const char *to) {
	static struct hfp_hello hello;
	char *at = add_text(hello.text, program_invocation_short_name, HFP_NAME_BYTES);
	at = add_text(at, to, HFP_VALUE_BYTES);
	at = add_text(at, "", HFP_NAME_BYTES);
	const size_t bytes = (size_t)(at - (char *)&hello);
	hello.h = (struct hfp_header){ HFP_MAGIC, HFP_VERSION, HFP_HELLO, (uint32_t)bytes, 0 };
	hello.rank = hfm_rank;
	hello.size = hfm_size;
	hello.flags = HFP_HELLO_MESSAGES | HFP_HELLO_WATCHED;
	return send(sock, &hello, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

/* get_page waits for MESSAGES, and maps its descriptor; NULL: it did not come. */
static void *get_page(int sock, size_t bytes) {
	struct pollfd some = { .fd = sock, .events = POLLIN };
	struct hfp_number m;
	int fds[HF_MOST_FDS], n = 0, rc;
	bool cut = false;
	void *page = NULL;
	do {
		rc = poll(&some, 1, PATIENCE_MS);
	} while (rc < 0 && errno == EINTR);
	if (rc != 1) {
		return NULL;
	}
	const ssize_t got = hf_receive(sock, &m, sizeof m, fds, &n, &cut);
	if (got == (ssize_t)sizeof m && !cut && n == 1 && m.h.magic == HFP_MAGIC && m.h.version == HFP_VERSION &&
		m.h.type == HFP_MESSAGES && m.value == bytes && hf_fd_holds(fds[0], bytes)) {
		page = hf_map(fds[0], bytes, PROT_READ | PROT_WRITE, MAP_SHARED);
	}
	while (n > 0) {
		close(fds[--n]);
	}
	return page;
}

void hfm_watch(void) {
	const char *to = hf_environ("HOLDFAST_WATCH"), *key = hf_environ("HOLDFAST_NODE_KEY");
	const size_t page = hfm_page_bytes((size_t)hfm_size), bytes = page + sizeof *hfm_watching;
	if (to == NULL || key == NULL || hfm_watching != NULL) {
		return;
	}
	const int sock = dial(key);
	if (sock < 0) {
		return;
	}
	char *at = say_hello(sock, to) ? get_page(sock, bytes) : NULL;
	if (at == NULL || hf_message_layer()->share(at, page) != NULL) {
		if (at != NULL) {
			munmap(at, bytes);
		}
		close(sock);
		return;
	}
	/* The socket stays open: its end is the program's for the daemon. */
	hfm_watching = (struct hfm_watching *)(void *)(at + page);
}

void hfm_watch_ends(uint64_t how) {
	if (hfm_watching != NULL) {
		hfm_watching->ended = how;
	}
}

/* note counts a text in one half of the obstacles: in its own place, or in the first that is free. */
static void note(struct hfm_met *half, const char *text) {
	for (int i = 0; i < HFM_MOST_MET / 2; i++) {
		if (half[i].count == 0) {
			snprintf(half[i].text, sizeof half[i].text, "%s", text);
		}
		if (half[i].count == 0 || strncmp(half[i].text, text, sizeof half[i].text - 1) == 0) {
			__atomic_store_n(&half[i].count, half[i].count + 1, __ATOMIC_RELEASE);
			return;
		}
	}
}

static const char *prefix(const char *call) { return strncmp(call, "MPI_", 4) == 0 ? "" : "MPI_"; }

void hfm_note_refused(const char *what, const char *call) {
	char text[HFM_MET_BYTES];
	if (hfm_watching != NULL) {
		snprintf(text, sizeof text, "%s%s: %s", prefix(call), call, what);
		hfm_lock();
		note(hfm_watching->met, text);
		hfm_unlock();
	}
}

/* Of several questions one answer is enough. */
static uint64_t question;

void hfm_answer_begins(void) {
	question = __atomic_load_n(&hfm_watching->asked, __ATOMIC_ACQUIRE);
	memset(hfm_watching->met + HFM_MOST_MET / 2, 0, HFM_MOST_MET / 2 * sizeof hfm_watching->met[0]);
}

void hfm_answer_note(const char *call, const char *comm, const char *why) {
	char text[HFM_MET_BYTES];
	snprintf(text, sizeof text, "%s%s%s%s: %s", prefix(call), call, *comm != 0 ? " on " : "", comm, why);
	note(hfm_watching->met + HFM_MOST_MET / 2, text);
}

void hfm_answer_ends(uint64_t receives) {
	hfm_watching->receives = receives;
	__atomic_store_n(&hfm_watching->answered, question, __ATOMIC_RELEASE);
}
