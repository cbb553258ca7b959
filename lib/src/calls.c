/* calls.c - the calls of holdfast.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/membarrier.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "client.h"

API int hf_start(void) {
	if (hf_the.stage == HF_FINAL) {
		return hf_fail(HF_E_ORDER, "hf_start: hf_finalize was called; a program connects once");
	}
	if (hf_the.stage == HF_NEW) {
		int code = hf_switched_off() ? HF_OFF : hf_connect(&hf_the, NULL);
		if (code < 0) {
			return code;
		}
		hf_the.off = code == HF_OFF;
		hf_the.pid = getpid();
		hf_the.stage = HF_CONNECTED;
	}
	return HF_OK;
}

/* Adds a text with its length; of one that is NULL or too long, nothing. */
static char *add_text(char *to, const char *text, size_t most) {
	size_t n = text != NULL ? strnlen(text, most + 1) : 0;
	uint32_t length;

	if (n > most) {
		n = 0;
	}
	length = (uint32_t)n;
	memcpy(to, &length, sizeof length);
	if (n > 0) {
		memcpy(to + sizeof length, text, n);
	}
	return to + sizeof length + n;
}

API int hf_elastic(void) {
	int code = hf_in_turn("hf_elastic", HF_NEW, HF_CONNECTED, "call it before hf_init, on all ranks");

	hf_the.elastic = hf_the.elastic || code == HF_OK;
	return code;
}

/* Identifies this process. The daemon may have been about to end, its last rank gone, when this one came: it has read
 * nothing, and the next one is asked. */
static int greet(struct hf_client *c) {
	uint64_t here = 0;
	int code, tries;

	for (tries = 0;; tries++) {
		code = hf_call(c, &c->hello, HFP_HELLO, c->hello_bytes, &here);
		c->first = code == 1;
		c->here = (uint32_t)here;
		if (code != HF_E_DAEMON || c->heard || tries == 3) {
			return code;
		}
		c->stage = HF_NEW;
		if ((code = hf_start()) != HF_OK) {
			return code;
		}
	}
}

/* A program that gets an error ends with MPI_Abort, which may overtake earlier output: the launcher ends and nothing is
 * read. Waits briefly until the launcher has read it; a rank whose line another one writes waits for that one, of which
 * it cannot see it. */
static void await_reader(bool of_other) {
	int i, unread = 0;

	for (i = 0; i < 100; i++) {
		if (!(of_other && i < 20) && (ioctl(STDERR_FILENO, FIONREAD, &unread) != 0 || unread == 0)) {
			break;
		}
		(void)nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	}
}

/* hf_init of a program without checkpoints. All ranks have to be without: daemons gather a byte of each rank
 * first, which is 0 then. A signal that asks for a checkpoint does not end the program. */
static int begin_without(struct hf_client *c, const hf_config *d) {
	const char mine = HFP_MEETS_OFF;
	char *all;
	int i, first = c->rank, code = HF_OK;

	if (d->allgather != NULL) {
		if ((all = calloc((size_t)c->size, 1)) == NULL) {
			return hf_fail(HF_E_MEMORY, "hf_init: no memory");
		}
		if ((code = d->allgather(all, &mine, 1, d->arg)) != 0) {
			code = hf_fail(
				HF_E_FAILED, "hf_init: the function for gathering bytes from all ranks failed with code %d", code);
		}
		for (i = 0; i < c->size && code == HF_OK; i++) {
			if (all[i] != mine) {
				code = hf_fail(HF_E_FAILED,
					"hf_init: rank %d runs without checkpoints (%s), and rank %d with them; "
					"give all ranks the same settings (mpirun -x for the variables)",
					c->rank, hf_off_by(), i);
			}
		}
		for (i = c->rank; i >= 0 && code != HF_OK; i--) {
			if (all[i] == mine) {
				first = i;
			}
		}
		free(all);
	}
	if (code != HF_OK) {
		c->stage = HF_FINAL;
		if (first == c->rank) {
			fprintf(stderr, "holdfast: %s\n", hf_error());
		}
		await_reader(first != c->rank);
		return code;
	}
	if (c->rank == 0) {
		fprintf(stderr, "holdfast: running without checkpoints: %s\n", hf_off_by());
	}
	c->stage = HF_READY;
	c->stop = 0;
	c->checkpoint = UINT64_C(1) << (SIGUSR1 - 1);
	hf_take_signals(c);
	return HF_OK;
}

API int hf_init(const hf_config *config) {
	struct hf_client *c = &hf_the;
	struct hfp_hello *hello = &c->hello;
	hf_config d = HF_CONFIG_INIT;
	const char *program, *by;
	char *at;
	int code, launched;

	if (config != NULL) {
		if (config->size_of < sizeof d.size_of || config->size_of > sizeof d) {
			return hf_fail(HF_E_ARG,
				"hf_init: size_of is %zu; begin with HF_CONFIG_INIT, and link the "
				"library of the header's release",
				config->size_of);
		}
		memcpy(&d, config, config->size_of);
	}
	if ((code = hf_in_turn("hf_init", HF_NEW, HF_CONNECTED, "it was called before; a program connects once")) !=
		HF_OK) {
		return code;
	}
	if (c->stage == HF_CONNECTED && c->pid != getpid()) {
		return hf_fail_plain(HF_E_ORDER, HF_IS_CHILD); /* the connection is its parent's */
	}
	if ((d.rank < 0) != (d.size < 0) || (d.rank >= 0 && d.rank >= d.size)) {
		return hf_fail(HF_E_ARG, "hf_init: rank %d of %d is none; give both, or neither", d.rank, d.size);
	}
	if (d.size > HFP_MOST_RANKS) {
		return hf_fail(HF_E_ARG, "hf_init: %d ranks are more than the %d that a job can have", d.size, HFP_MOST_RANKS);
	}
	if (d.rank < 0 && (code = hf_rank_of_environment(&d.rank, &d.size)) != HF_OK) {
		return code;
	}
	if ((code = hf_start()) != HF_OK) {
		return code;
	}
	c->count = 0;
	c->restarting = false;
	c->rank = d.rank;
	c->size = d.size;
	c->allgather = d.allgather;
	c->arg = d.arg;
	if (c->off) {
		return begin_without(c, &d);
	}
	if (d.world == 1 && (launched = hf_launched(&by)) > 1) {
		return hf_fail(HF_E_ARG,
			"hf_init: launcher and MPI library do not match: %s=%d, but every rank is alone in its MPI; start the "
			"program with that MPI's own mpirun, or with srun --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH)",
			by, launched);
	}
	program = d.program != NULL ? d.program : program_invocation_short_name;
	memset(hello, 0, sizeof *hello);
	hello->rank = d.rank;
	hello->size = d.size;
	at = add_text(hello->text, program, HFP_NAME_BYTES);
	at = add_text(at, getenv("HOLDFAST_SUPERVISOR"), HFP_VALUE_BYTES);
	at = add_text(at, getenv("SLURM_STEP_ID"), HFP_NAME_BYTES);
	if (getenv("HOLDFAST_FRESH") != NULL && strcmp(getenv("HOLDFAST_FRESH"), "1") == 0) {
		hello->flags |= HFP_HELLO_FRESH;
	}
	hello->flags |= HFP_HELLO_SHADOWS;
	if (c->elastic) {
		hello->flags |= HFP_HELLO_ELASTIC;
	}
	if (d.allgather != NULL) {
		hello->flags |= HFP_HELLO_GATHERS;
	}
	if ((code = hf_find_layer(c, d.allgather != NULL)) != HF_OK) {
		return code;
	}
	if (c->layer != NULL) {
		hello->flags |= HFP_HELLO_MESSAGES;
	}
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0) {
		hello->flags |= HFP_HELLO_MEMBARRIER;
	}
	c->hello_bytes = (size_t)(at - (char *)hello);
	code = greet(c);
	if (code >= 0 && c->page == NULL) {
		code = hf_fail(
			HF_E_PROTOCOL, "hf_init: the node daemon sent no pages; use holdfast and libholdfast of one release");
	}
	c->allgather = NULL; /* only the caller may have its memory */
	if (code < 0) {
		await_reader(false); /* the daemon has written the reason, perhaps to this one's standard error */
		hf_hang_up(c);
		c->flags = &hf_armed;
		c->stage = HF_FINAL;
		return code;
	}
	c->stage = HF_READY;
	hf_note_daemon(c);
	hf_take_signals(c);
	return HF_OK;
}

API int hf_restore(void) {
	struct hfp_header m;
	int code = hf_in_turn("hf_restore", HF_READY, HF_READY, "call it once, after hf_init and before the first point");

	if (code != HF_OK) {
		return code;
	}
	if ((code = hf_follow_ledger(&hf_the, "hf_restore")) != HF_OK) {
		return code;
	}
	code = hf_call(&hf_the, &m, HFP_RESTORE, sizeof m, NULL);
	if (code < 0) {
		return hf_explain_ledger(code);
	}
	hf_the.stage = HF_RESTORED_STAGE;
	hf_the.flags = hf_the.off ? &hf_idle : hf_the.page; /* points before this one were refused */
	if (code == HF_RESTORED && hf_refill_arrays() != HF_OK) {
		return HF_E_FAILED;
	}
	return hf_post_again(&hf_the) == HF_OK ? code : HF_E_FAILED;
}

/* The meaning of a point's answer. The daemon may have died when it had told some ranks to stop. */
static int stopped(int code) {
	if (code == HF_E_DAEMON && (hf_the.last & HFP_POINT_STOPPED) != 0) {
		code = HFP_CODE_STOP;
	}
	if (code == HFP_CODE_STOP) {
		atomic_store(&hf_the.stopped, true);
	}
	return code;
}

static int may_point(const char *call) {
	return hf_in_turn(call, HF_RESTORED_STAGE, HF_RESTORED_STAGE, "call it between hf_restore and hf_finalize");
}

/* Counts a point where the daemon can see it. */
static void count_point(struct hf_client *c) {
	atomic_store_explicit(c->points, ++c->count, memory_order_relaxed);
	if (c->fence) {
		atomic_thread_fence(memory_order_seq_cst);
	} else {
		atomic_signal_fence(memory_order_seq_cst); /* the daemon's membarrier does the rest */
	}
}

static __attribute__((noinline)) int closer_look(struct hf_client *c) {
	struct hfp_number m = { .value = c->count };
	uint64_t value = 0;
	int code = may_point("hf_point");

	if (code == HF_E_ORDER && c->stage == HF_READY) {
		atomic_store_explicit(c->points, --c->count, memory_order_relaxed); /* it was none */
	}
	if (code == HF_OK) {
		code = hf_reach(c, false);
	}
	if (code == HF_OK && c->heir != NULL && c->link != HF_SERVED) {
		return HF_OK; /* until all ranks have come to the new daemon, or one can be started */
	}
	if (code == HF_OK) {
		code = hf_refresh(c);
	}
	if (code != HF_OK) {
		return code;
	}
	code = stopped(hf_call(c, &m, HFP_POINT, sizeof m, &value));
	if (code >= 0 && value == HFP_VALUE_CUT) {
		c->unsure = false;
	}
	if (code == HF_E_DAEMON) {
		code = c->heir != NULL ? hf_reach(c, false) : hf_alone(c);
	}
	return code;
}

API int hf_point(void) {
	struct hf_client *c = &hf_the;

	count_point(c);
	if (__builtin_expect(atomic_load_explicit(c->flags, memory_order_relaxed) == c->calm, 1)) {
		return HF_OK;
	}
	return closer_look(c);
}

static int checkpoint_here(void) {
	struct hf_client *c = &hf_the;
	struct hfp_word m = { .value = 0 };
	uint64_t entered;
	int code = may_point("hf_checkpoint");

	if (code == HF_OK && hf_unsure(c) && c->pid == getpid()) {
		count_point(c);
		code = closer_look(c);
		count_point(c); /* all ranks count the same here, whether their daemon lives or not */
		return code != HF_OK || !c->unsure ? code : hf_refuse(c, "hf_checkpoint");
	}
	if (code == HF_OK) {
		code = hf_refresh(c);
	}
	if (code != HF_OK) {
		return code;
	}
	count_point(c);
	entered = c->count;
	while ((code = hf_call(c, &m, HFP_CHECKPOINT, sizeof m, NULL)) == HFP_CODE_AGAIN) {
		count_point(c);
		m.value = 1;
	}
	/* Ranks may have counted one more or not; from here on they are equal again. */
	c->count = entered;
	count_point(c);
	return stopped(code);
}

API int hf_checkpoint(const char *name, int64_t version) {
	return name == NULL ? checkpoint_here() : hf_save(name, version, NULL, 0, true);
}

API int hf_before(hf_before_fn *fn, void *arg) {
	int code = hf_in_turn("hf_before", HF_READY, HF_RESTORED_STAGE, "call it between hf_init and hf_finalize");

	if (code != HF_OK) {
		return code;
	}
	hf_the.before = fn;
	hf_the.before_arg = arg;
	return HF_OK;
}

API int hf_request(int stop) {
	struct hf_client *c = &hf_the;
	uint64_t set = stop != 0 ? c->stop : c->checkpoint;
	int s;

	if (c->stage != HF_NEW && c->pid != getpid()) {
		return hf_fail_plain(HF_E_ORDER, HF_IS_CHILD);
	}
	if (c->off && c->stage >= HF_READY && c->stage != HF_FINAL) {
		return stop == 0
			? HF_OK
			: hf_fail_plain(HF_E_FAILED, "hf_request: the program runs without checkpoints: nothing will stop it");
	}
	for (s = 1; s <= 64; s++) {
		if ((set >> (s - 1) & 1) != 0 && s != SIGTERM) {
			return hf_send_signal(c, s) == 0
				? HF_OK
				: hf_fail_plain(HF_E_DAEMON, "hf_request: the node daemon has ended, or has many requests to read");
		}
	}
	if (c->stage < HF_READY || c->stage == HF_FINAL) {
		return hf_fail_plain(HF_E_ORDER, "hf_request: call it between hf_init and hf_finalize");
	}
	return hf_fail_plain(
		HF_E_ORDER, "hf_request: no signal asks for such a checkpoint; see signals.checkpoint and signals.stop");
}

static int wait_for(const char *call, const char *level, uint32_t flags) {
	struct hfp_text m = { .flags = flags };
	size_t n = level != NULL ? strnlen(level, HFP_NAME_BYTES + 1) : 0;
	int code = hf_in_turn(call, HF_READY, HF_RESTORED_STAGE, "call it between hf_init and hf_finalize");

	if (n > HFP_NAME_BYTES || (level != NULL && n == 0)) {
		return hf_fail(HF_E_ARG, "%s: name a level: local, partner, parity or global", call);
	}
	if (code != HF_OK) {
		return code;
	}
	m.n = (uint32_t)n;
	if (n > 0) {
		memcpy(m.text, level, n);
	}
	code = hf_call(&hf_the, &m, HFP_WAIT, offsetof(struct hfp_text, text) + n, NULL);
	if (code == HF_OK && flags == 0) {
		hf_await_shadow(&hf_the, false); /* it has arrived; its memory is the program's again */
	}
	return code;
}

API int hf_wait(const char *level) { return wait_for("hf_wait", level, 0); }

API int hf_test(const char *level) { return wait_for("hf_test", level, HFP_WAIT_LOOK); }

API int hf_rank(void) { return hf_the.stage == HF_NEW || hf_the.stage == HF_CONNECTED ? -1 : hf_the.rank; }

API int hf_size(void) { return hf_the.stage == HF_NEW || hf_the.stage == HF_CONNECTED ? -1 : hf_the.size; }

API int hf_stop_asked(void) { return atomic_load(&hf_the.stopped); }

API int hf_finalize(void) {
	struct hf_client *c = &hf_the;
	struct hfp_header m;
	int tries = 0;
	int code = hf_in_turn("hf_finalize", HF_READY, HF_RESTORED_STAGE, "hf_init has not been called, or has failed");

	if (code != HF_OK) {
		return code;
	}
	do { /* again where the daemon dies before all ranks have called this */
		code = hf_reach(c, true);
		if (code == HF_OK) {
			code = hf_refresh(c); /* another rank may still have a checkpoint taken */
		}
		if (code == HF_OK) {
			code = hf_call(c, &m, HFP_FINALIZE, sizeof m, NULL);
		}
	} while (code == HF_E_DAEMON && c->heir != NULL && (c->last & HFP_POINT_ENDED) == 0 && tries++ < 3);
	if (c->pid != getpid()) {
		return code;
	}
	(void)hf_forget_request(c, NULL);
	hf_give_signals_back(c);
	hf_free_heir(c);
	hf_hang_up(c);
	c->flags = &hf_armed;
	hf_free_arrays(c);
	c->stage = HF_NEW; /* libveloc-client connects again, to a daemon with another key */
	return code;
}
