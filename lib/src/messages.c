/* messages.c - the daemon's requests to libholdfast-mpi, if the program has it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "../common/messages.h"
#include "../common/shm.h"
#include "client.h"

/* A layer that some calls of MPI pass by would count wrong, so one that is there must see them. */
static int unseen(const char *what) {
	return hf_fail(HF_E_FAILED,
		"hf_init: libholdfast-mpi is loaded, but %s: link it before the MPI library, or preload it; it cannot stand "
		"before an MPI that is linked statically, loaded with RTLD_DEEPBIND, or called by way of dlsym, as Julia does: "
		"such a program runs without it (holdfast run --messages=false), and has no messages in flight at points",
		what);
}

/* The layer counts messages by ranks of MPI_COMM_WORLD: those of hf_init must be the same. A process that is alone in
 * its MPI has no messages of others. */
static int same_rank(const struct hf_client *c) {
	int rank, size;

	c->layer->place(&rank, &size);
	if (size == 1 || (rank == c->rank && size == c->size)) {
		return HF_OK;
	}
	return hf_fail(HF_E_ARG,
		"hf_init: rank %d of %d is rank %d of %d in MPI_COMM_WORLD: give hf_init all ranks in that order, or leave "
		"libholdfast-mpi out (holdfast run --messages=false)",
		c->rank, c->size, rank, size);
}

int hf_find_layer(struct hf_client *c, bool mpi) {
	const struct hf_message_layer *(*find)(void) = NULL;
	void *at = dlsym(RTLD_DEFAULT, "hf_message_layer");

	memcpy(&find, &at, sizeof find);
	c->layer = at != NULL ? find() : NULL;
	if (c->layer != NULL && c->layer->version != HFM_PAGE_VERSION) {
		return hf_fail(HF_E_PROTOCOL, "hf_init: libholdfast-mpi and libholdfast are of different releases");
	}
	if (c->layer != NULL && c->layer->seen() == UINT64_MAX) {
		const bool passed_by = mpi || c->layer->passed_by();
		c->layer = NULL;
		return passed_by ? unseen("has not seen MPI_Init") : HF_OK;
	}
	return c->layer != NULL ? same_rank(c) : HF_OK;
}

/* The program gathers for the daemon by a collective, which the layer must see. */
int hf_gather(struct hf_client *c, void *all, const void *mine, size_t bytes) {
	const uint64_t before = c->layer != NULL ? c->layer->seen() : 0;
	const int code = c->allgather(all, mine, bytes, c->arg);

	if (code == 0 && c->layer != NULL && c->layer->seen() == before) {
		return unseen("does not see the program's calls");
	}
	return code;
}

/* The page stays mapped when its daemon dies: the layer goes on writing to it. */
int hf_messages(struct hf_client *c, int fd, uint64_t bytes) {
	void *page = hf_map(fd, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED);
	const char *why = page == NULL ? strerror(errno) : c->layer->share(page, (size_t)bytes);

	return why == NULL ? HF_OK : hf_fail(HF_E_MEMORY, "share the counts of messages with the node daemon: %s", why);
}

API int hf_protect_handle(const char *name, void *request, int fortran) {
	static const struct hf_memory memory = { hf_array_of, hf_base_in };
	struct hf_client *c = &hf_the;
	const struct hf_array *a;
	const size_t n = name != NULL ? strnlen(name, HFP_NAME_BYTES + 1) : 0;
	const char *why;
	int code;

	if (n == 0 || n > HFP_NAME_BYTES || request == NULL) {
		return hf_fail(HF_E_ARG, "hf_protect_request: a name has 1 to %d bytes, and the request is that of a variable",
			HFP_NAME_BYTES);
	}
	code = hf_in_turn("hf_protect_request", HF_READY, HF_RESTORED_STAGE, "call it between hf_init and hf_finalize");
	if (code != HF_OK || c->off) {
		return code;
	}
	a = hf_array_named(c, name);
	if (a != NULL && !a->dropped) {
		return hf_fail(HF_E_ARG, "hf_protect_request \"%s\": an array has this name; use another", name);
	}
	if (c->layer == NULL) {
		return hf_fail(HF_E_FAILED,
			"hf_protect_request \"%s\": only libholdfast-mpi can make requests again, and the program has none; link "
			"it before the MPI library, or preload it",
			name);
	}
	why = c->layer->protect(name, request, fortran, &memory);
	return why == NULL ? HF_OK : hf_fail(HF_E_FAILED, "hf_protect_request \"%s\": %s", name, why);
}

bool hf_forget_request(const struct hf_client *c, const char *name) {
	return c->layer != NULL && c->layer->unprotect(name);
}

int hf_post_again(const struct hf_client *c) {
	const char *why = c->layer != NULL ? c->layer->post() : NULL;

	return why == NULL ? HF_OK : hf_fail(HF_E_FAILED, "hf_restore: %s", why);
}

/* Returns the failure; NULL: none. The record that is taken is the one that was saved last. */
const char *hf_mail(struct hf_client *c, uint32_t what, int fd, uint64_t *bytes) {
	static const void *record;
	static size_t saved;
	const char *why = NULL;
	size_t n = (size_t)*bytes;
	void *at = NULL;

	if (what == HFP_MAIL_CUT) {
		return c->layer->cut();
	}
	if (what == HFP_MAIL_SYNC) {
		return c->layer->sync(*bytes != 0);
	}
	if (what == HFP_MAIL_SAVE) {
		why = c->layer->save(&record, &saved);
		*bytes = why == NULL ? saved : 0;
		return why;
	}
	at = hf_map(fd, n, PROT_READ | PROT_WRITE, MAP_SHARED);
	if (at == NULL) {
		return strerror(errno);
	}
	if (what == HFP_MAIL_LOAD) {
		why = c->layer->load(at, n);
	} else if (n == saved) {
		memcpy(at, record, n);
	} else {
		why = "the record is not the one that was saved";
	}
	munmap(at, n);
	return why;
}

/* A rank that waits for the others receives whatever comes, so that no sender is blocked on it. */
void hf_drain_until(struct hf_client *c) {
	struct pollfd some = { .fd = c->sock, .events = POLLIN };
	struct timespec pause = { .tv_nsec = 20000 };

	for (;;) {
		c->layer->turn();
		if (ppoll(&some, 1, &pause, NULL) != 0) { /* a signal's handler may have something to say to the daemon */
			return;
		}
		if (pause.tv_nsec < 500000) {
			pause.tv_nsec *= 2;
		}
	}
}
