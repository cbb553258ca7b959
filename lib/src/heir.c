/* heir.c - goes on with another node daemon when the one before has died.
 *
 * The kernel notes the death of a daemon in the flags page, which each point reads (docs/internals/NODE.md). Ranks
 * notice it at different points. A rank that notices it finds or starts the next daemon, reports the number of its
 * points, and computes on until all ranks have done so. That daemon then asks for a checkpoint as usual. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client.h"

/* Seconds between the starts of two daemons: doubled each time, until one has served a point. */
enum { LAST_PAUSE = 64 };

static int64_t seconds(void) {
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

/* A link of a process, such as that to its program; NULL if it cannot be read. */
static char *link_of(pid_t pid, const char *name) {
	char path[64], to[PATH_MAX];
	ssize_t n;

	snprintf(path, sizeof path, "/proc/%ld/%s", (long)pid, name);
	n = readlink(path, to, sizeof to - 1);
	if (n <= 0) {
		return NULL;
	}
	to[n] = 0;
	return strdup(to);
}

/* The environment of a process, whose strings lie in *text; NULL if it cannot be read. */
static char **environ_of(pid_t pid, char **text) {
	char path[64], *more, **vars;
	size_t bytes = 0, room = 0, n = 0, i;
	ssize_t some = 0;
	int fd;

	snprintf(path, sizeof path, "/proc/%ld/environ", (long)pid);
	*text = NULL;
	if ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0) {
		return NULL;
	}
	do {
		if (bytes + 2 > room) {
			room = 2 * room + 16384;
			if ((more = realloc(*text, room)) == NULL) {
				some = -1;
			} else {
				*text = more;
			}
		}
		if (some >= 0) {
			some = read(fd, *text + bytes, room - bytes - 1);
		}
		bytes += some > 0 ? (size_t)some : 0;
	} while (some > 0 || (some < 0 && errno == EINTR));
	close(fd);
	if (some < 0) {
		return NULL;
	}
	(*text)[bytes] = 0;
	for (i = 0; i < bytes; i++) {
		n += (*text)[i] == 0;
	}
	if ((vars = calloc(n + 2, sizeof *vars)) == NULL) {
		return NULL;
	}
	for (i = n = 0; i < bytes; i += strlen(*text + i) + 1) {
		vars[n++] = *text + i;
	}
	return vars;
}

/* The next daemon must write to the directories of the first, even if that had another environment than this
 * program. */
void hf_note_daemon(struct hf_client *c) {
	struct hf_heir *h = c->here > 0 ? calloc(1, sizeof *h) : NULL; /* 0: the daemon is of an older release */

	c->link = HF_SERVED;
	c->unsure = c->unsaid = false;
	c->heir = h;
	if (h == NULL) {
		return;
	}
	c->pause = 0;
	h->settings.program = link_of(c->daemon, "exe");
	h->settings.dir = link_of(c->daemon, "cwd");
	h->settings.environ = environ_of(c->daemon, &h->settings.text);
	if (h->settings.program == NULL || h->settings.dir == NULL || h->settings.environ == NULL) {
		hf_free_heir(c);
	}
}

/* Has the first rank of the node report the findings of all, and returns the code with the same text. */
static int say(const struct hf_client *c, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

static int say(const struct hf_client *c, int code, const char *format, ...) {
	char text[2048];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	if (c->first) {
		fprintf(stderr, "holdfast: rank %d, point %llu: %s\n", c->rank, (unsigned long long)c->count, text);
	}
	return hf_fail(code, "%s", text);
}

/* The daemons of other nodes have lost the ranks of this one, and kill theirs. A daemon that is started here does the
 * same with these, which may hang in MPI. */
static int give_up(struct hf_client *c) {
	struct hf_heir *h = c->heir;

	snprintf(h->over, sizeof h->over,
		"the node daemon, process %ld, has died, and the job has ranks on other nodes, whose daemons end it: "
		"start it again, it continues from the newest committed epoch ('holdfast run' does so by itself)",
		(long)c->daemon);
	(void)say(c, HF_E_LOST, "%s", h->over);
	if (hf_connect(c, &h->settings) == HF_OK) {
		c->hello.flags |= HFP_HELLO_GOES_ON;
		(void)hf_greet(c, &c->hello, c->hello_bytes);
	}
	return hf_fail(HF_E_LOST, "%s", h->over);
}

/* Finds the next daemon, or starts it, and says which rank this is. */
static int succeed(struct hf_client *c) {
	struct hf_heir *h = c->heir;
	const long died = c->daemon;
	char why[1024];
	int code, tries;

	c->pause = c->pause == 0 ? 1 : c->pause < LAST_PAUSE ? 2 * c->pause : LAST_PAUSE;
	h->next = seconds() + c->pause;
	if (c->here != (uint32_t)c->size) {
		return give_up(c);
	}
	c->hello.flags &= ~(HFP_HELLO_GATHERS | HFP_HELLO_FRESH);
	c->hello.flags |= HFP_HELLO_GOES_ON | HFP_HELLO_ALL_HERE;
	for (tries = 0; tries < 100; tries++) {
		code = hf_connect(c, &h->settings);
		c->heard = false;
		if (code == HF_OK) {
			code = hf_greet(c, &c->hello, c->hello_bytes);
		}
		if (code != HF_E_DAEMON || c->heard || c->heir == NULL || !c->dialled) {
			break;
		}
		/* A process that dies leaves its memory before it closes its socket. */
		(void)nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	}
	if (c->heir == NULL) {
		return HF_E_DAEMON;
	}
	if (code == HF_OK) {
		c->link = HF_JOINING;
		return say(c, HF_E_DAEMON,
			"the node daemon, process %ld, has died; process %ld takes its place, and a checkpoint once all "
			"ranks have come to a point. The program goes on",
			died, (long)c->daemon);
	}
	snprintf(why, sizeof why, "%s", hf_error());
	c->daemon = (pid_t)died;
	return say(c, HF_E_DAEMON,
		"the node daemon, process %ld, has died, and no other can take its place: %s. The program goes on "
		"WITHOUT CHECKPOINTS; the next try is in %lld s",
		died, why, (long long)(h->next - seconds()));
}

/* Whether all ranks have come to the next daemon; then it gets this one's protected things. */
static int join(struct hf_client *c, bool wait) {
	bool over = false;
	int s, code = hf_answered(c, wait, &over);

	if (code < 0) {
		hf_hang_up(c);
		return HF_E_DAEMON;
	}
	if (!over) {
		return HF_OK;
	}
	c->link = HF_SERVED;
	c->flags = c->page;
	code = hf_tell_all(c);
	if (code == HF_OK && c->link != HF_SERVED) {
		code = hf_fail(HF_E_DAEMON, "the node daemon has died");
	}
	for (s = 1; s <= 64 && code == HF_OK; s++) {
		if ((atomic_load(&c->unsent) >> (s - 1) & 1) != 0 && hf_send_signal(c, s) == 0) {
			atomic_fetch_and(&c->unsent, ~(UINT64_C(1) << (s - 1)));
		}
	}
	return code;
}

/* Whether the daemon that serves this rank has died, as far as the kernel has noted it. */
static bool has_died(const struct hf_client *c) {
	return c->page == NULL || (atomic_load(c->page) ^ c->calm) >> 32 != 0;
}

int hf_reach(struct hf_client *c, bool wait) {
	int code = HF_OK, tries;

	if (c->heir == NULL || c->stage != HF_RESTORED_STAGE) {
		return HF_OK; /* the next request finds out */
	}
	if (c->pid != getpid()) {
		return hf_fail(HF_E_ORDER, "%s", HF_IS_CHILD);
	}
	if (c->link == HF_SERVED && has_died(c)) {
		hf_hang_up(c);
	}
	for (tries = 0; c->heir != NULL && c->link != HF_SERVED && tries < 4; tries++) {
		if (c->heir->over[0] != 0) {
			return hf_fail(HF_E_LOST, "%s", c->heir->over);
		}
		code = HF_OK;
		if (c->link == HF_ALONE && !wait && c->heir->next > seconds()) {
			if (c->unsaid) {
				code = say(c, HF_E_DAEMON,
					"the node daemon, process %ld, has died soon after its start; the next one "
					"is started in %lld s",
					(long)c->daemon, (long long)(c->heir->next - seconds()));
			}
			break;
		}
		if (c->link == HF_ALONE) {
			code = succeed(c);
		}
		if (c->link == HF_ALONE) {
			break;
		}
		if (join(c, wait) < 0) {
			code = HF_E_DAEMON;
		} else if (wait) {
			code = HF_OK;
		}
		if (!wait) {
			break;
		}
	}
	if (code == HF_E_DAEMON && !wait && !c->unsaid) {
		return HF_OK;
	}
	c->unsaid = c->unsaid && wait;
	return code;
}

bool hf_unsure(const struct hf_client *c) { return c->heir != NULL && (c->unsure || has_died(c)); }

int hf_alone(struct hf_client *c) {
	return say(c, HF_E_DAEMON,
		"the node daemon, process %ld, has ended, and no other can take its place. The program "
		"goes on WITHOUT CHECKPOINTS: %s",
		(long)c->daemon, hf_error());
}

int hf_refuse(struct hf_client *c, const char *call) {
	if (c->stage == HF_RESTORED_STAGE) {
		return hf_fail(HF_E_DAEMON,
			"%s: the node daemon has died, and the ranks have not all stopped at a point "
			"since; call it again after a checkpoint of hf_point",
			call);
	}
	if (c->link == HF_SERVED) {
		hf_hang_up(c);
	}
	if (c->unsaid) {
		c->unsaid = false;
		return say(c, HF_E_DAEMON,
			"%s: the node daemon, process %ld, has died: there are NO MORE CHECKPOINTS in this "
			"run; start the program again",
			call, (long)c->daemon);
	}
	return hf_fail(HF_E_DAEMON,
		"%s: the node daemon has died: there are no more checkpoints in this run; start the "
		"program again",
		call);
}
