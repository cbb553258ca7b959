/* random.c - a program of which side_by_side.c runs some in a job: messages, communicators, collectives, files and
 * windows that follow from the seed alone. Every rank works out the list of all, does its part, and checks what it
 * gets. Points lie anywhere between; all ranks kill themselves behind a final checkpoint. Started again the program
 * goes on from there. At the end each rank says whether it has got all messages, each once and in order. With PROTECT
 * in the environment the requests of the receives, sends and files are protected, and the receives have derived types:
 * the restarted program does not post them again. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "holdfast_mpi.h"

enum { COMMS = 5, TAGS = 4, MOST = 4000, LARGE = 20000, RANKS = 8, SPREAD = 6, SHAPES = 6, STEPS = 100 };
enum { NEW, POST, SEND, RECEIVE, WAIT_SEND, COLLECTIVE, FREE, EXCHANGE };
enum { START = EXCHANGE + 1, END, FENCE, END_FENCE, WRITE_ROW, WAIT_ROW, READ_ROW, CHECK_ROW };
enum { PLAIN, ISEND, ISSEND, BSEND, PERSISTENT, SSEND_INIT, SEND_KINDS };
enum { RECV, IRECV, PROBE, MPROBE, RECV_INIT, POLL, WAITANY, SOME, RECV_KINDS };

struct message {
	int from, to, comm, tag, count, type, send_kind, recv_kind;
	int send_step, post_step, recv_step, shape, in_slot, out_slot;
	double *out, *in;
	MPI_Request sent, posted;
};

struct operation {
	int what, k;
};

static struct message m[MOST];
static struct operation ops[4 * MOST];
static int messages, operations, until[STEPS], rank, size, restored, protect, late, large = LARGE, slots, how_third;
static MPI_Comm comms[COMMS];
static int born[COMMS] = { 0, 0, 0, 0, 0 }, gone[COMMS];
static MPI_Datatype pair, gaps, shapes[SHAPES];
static double *pool; /* of the slots that protected requests have their buffers in */
static uint64_t seed, state, sum;
static int number; /* among those side by side */
static int32_t pc, last[RANKS * COMMS * TAGS];
static int within; /* a call of MPI, where no point can be */
static int32_t had[MOST]; /* the receive of a message has ended with that of another */

static uint64_t next(void) {
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state * 0x2545f4914f6cdd1du >> 20;
}

static int below(int n) { return (int)(next() % (uint64_t)n); }

static _Noreturn void fail(const char *what, int k) {
	printf("rank %d: operation %d of seed %llu, message %d: %s (%s)\n", rank, pc, (unsigned long long)seed, k, what,
		hf_error());
	fflush(stdout);
	_exit(1); /* after MPI_Abort MPICH's launcher may end before it has passed this on */
}

/* Ranks of the world in a communicator: those of the third and of what is made of it have the same parity. */
static int in_comm(int comm, int world) {
	return comm == 2 || comm == 3 ? (size - 1 - world) / 2 : world;
}

/* name returns one that no program beside this one has. */
static const char *name(const char *what, int k) {
	static char text[48];
	snprintf(text, sizeof text, "%d %s %d", number, what, k);
	return text;
}

static void keep(const char *what, void *at, size_t count, hf_type type) {
	if (hf_protect(name(what, 0), at, count, type) != HF_OK) {
		fail("hf_protect", 0);
	}
}

static int is_wild(int comm, int tag) { return comm == 4 || tag == 3; }

static void plan(int steps) {
	int recv_at[RANKS][COMMS][TAGS], post_at[RANKS][COMMS][TAGS];
	memset(recv_at, 0, sizeof recv_at);
	memset(post_at, 0, sizeof post_at);
	state = seed * 0x9e3779b97f4a7c15u + 1;
	for (int c = 0; c < COMMS; c++) {
		gone[c] = steps + 1;
	}
	born[3] = steps / 4;
	gone[3] = steps / 2;
	born[4] = steps / 2;
	for (int s = 0; s < steps; s++) {
		for (int n = 1 + below(2 * size); n > 0 && messages < MOST; n--) {
			struct message *x = &m[messages];
			x->from = below(size);
			x->to = below(size);
			x->comm = below(COMMS);
			x->tag = below(TAGS);
			x->type = below(3);
			x->count = 2 * (1 + (below(8) == 0 ? below(large / 2) : below(20)));
			x->send_kind = below(SEND_KINDS);
			x->recv_kind = below(RECV_KINDS);
			x->shape = protect ? below(SHAPES) : 0;
			x->send_step = s;
			x->recv_step = s + below(4);
			x->post_step = x->recv_step - below(4);
			if (s < born[x->comm] || x->recv_step >= gone[x->comm] || x->recv_step >= steps ||
				((x->comm == 2 || x->comm == 3) && x->from % 2 != x->to % 2)) {
				continue;
			}
			const int tag = x->comm == 4 ? 0 : x->tag;
			int *recv = &recv_at[x->to][x->comm][tag], *post = &post_at[x->to][x->comm][tag];
			x->recv_step = x->recv_step > *recv ? x->recv_step : *recv;
			if (x->recv_step >= gone[x->comm]) {
				continue;
			}
			const int early = x->recv_kind != RECV && x->recv_kind != PROBE && x->recv_kind != MPROBE;
			x->post_step = early ? x->post_step : x->recv_step;
			x->post_step = x->post_step > *post ? x->post_step : *post;
			x->post_step = x->post_step < born[x->comm] ? born[x->comm] : x->post_step;
			if (x->post_step > x->recv_step) {
				x->post_step = x->recv_step;
			}
			*recv = x->recv_step;
			*post = x->post_step < x->recv_step ? x->post_step : x->recv_step + 1; /* receives get messages in order */
			if (x->send_kind == PLAIN && (x->count > 60 || x->from == x->to)) { /* it need not wait for its receiver */
				x->send_kind = ISEND;
			}
			if (x->send_kind == BSEND && x->count > 60) {
				x->send_kind = ISSEND;
			}
			x->sent = x->posted = MPI_REQUEST_NULL;
			messages++;
		}
	}
}

/* point is one at which a checkpoint that was asked for may be taken, unless an epoch of a window is open. */
static void point(int in_epoch) {
	const int code = within ? HF_OK : hf_point();
	if (code == HF_STOP && in_epoch) {
		fail("a checkpoint in an epoch", 0);
	}
	if (code == HF_STOP) {
		raise(SIGKILL);
	}
	if (code < 0) {
		fail("hf_point", 0);
	}
}

static void add(int what, int k) { ops[operations++] = (struct operation){ what, k }; }

#include "random_beside.h"

/* What this rank does, in order. */
static void list(int steps) {
	for (int s = 0; s <= steps; s++) {
		for (int c = 3; c < COMMS; c++) {
			if (born[c] == s) {
				add(NEW, c);
			}
		}
		for (int k = 0; k < messages; k++) {
			if (m[k].to == rank && m[k].post_step == s && m[k].post_step < m[k].recv_step) {
				add(POST, k);
			}
		}
		list_starts(s);
		for (int k = 0; k < messages; k++) {
			if (m[k].from == rank && m[k].send_step == s) {
				add(SEND, k);
			}
		}
		for (int k = 0; k < messages; k++) {
			if (m[k].to == rank && m[k].recv_step == s) {
				add(RECEIVE, k);
			}
		}
		for (int k = 0; k < messages; k++) {
			/* A receive with a wildcard may get another message before this one. */
			const int all = gone[m[k].comm] < steps ? gone[m[k].comm] : steps;
			if (m[k].from == rank && (is_wild(m[k].comm, m[k].tag) ? all : m[k].recv_step + 1) == s) {
				add(WAIT_SEND, k);
			}
		}
		if (s % 3 == 2) {
			add(COLLECTIVE, s);
		}
		if (s % 7 == 3) {
			add(EXCHANGE, s);
		}
		list_ends(s, steps);
		for (int c = 3; c < COMMS; c++) {
			if (gone[c] == s) {
				add(FREE, c);
			}
		}
		until[s] = operations;
	}
}

static int is_persistent(const struct message *x) { return x->send_kind == PERSISTENT || x->send_kind == SSEND_INIT; }

/* Which slot each protected request has while it is under way. */
static void give_slots(void) {
	static unsigned char used[2 * MOST];
	for (int i = 0; i < operations; i++) {
		struct message *x = &m[ops[i].k];
		int *slot = ops[i].what == POST || ops[i].what == RECEIVE ? &x->in_slot : &x->out_slot, free_one = 0;
		if (ops[i].what == POST || (ops[i].what == SEND && is_persistent(x))) {
			while (used[free_one]) {
				free_one++;
			}
			used[*slot = free_one] = 1;
			slots = slots > free_one ? slots : free_one + 1;
		} else if ((ops[i].what == RECEIVE && x->post_step < x->recv_step) ||
			(ops[i].what == WAIT_SEND && is_persistent(x))) {
			used[*slot] = 0;
		}
	}
	pool = calloc((size_t)slots * SPREAD * (size_t)large + 1, sizeof *pool);
	keep("pool", pool, (size_t)slots * SPREAD * (size_t)large, HF_DOUBLE);
}

static double *slot_at(int slot) { return pool + (size_t)slot * SPREAD * (size_t)large; }

static void name_request(const struct message *x, int posted) {
	const int k = (int)(x - m);
	if (protect &&
		hf_protect_request(name(posted ? "posted" : "sent", k), (MPI_Request *)(posted ? &x->posted : &x->sent)) !=
			HF_OK) {
		fail("hf_protect_request", k);
	}
}

static void forget_request(const struct message *x, int posted) {
	if (protect && hf_unprotect(name(posted ? "posted" : "sent", (int)(x - m))) != HF_OK) {
		fail("hf_unprotect", (int)(x - m));
	}
}

/* make_shapes makes the types of protected receives; spread says where in memory the elements of each lie. */
static void make_shapes(void) {
	const int ones[] = { 1, 1 }, lengths[] = { 1, 2 }, starts[] = { 1, 3 };
	const int sizes[] = { 4, 6 }, subsizes[] = { 2, 3 }, from[] = { 1, 2 };
	const MPI_Aint blocks[] = { 8, 24 }, fields[] = { 0, 16 };
	MPI_Datatype two, parts[] = { MPI_DOUBLE, pair }, some;
	shapes[0] = MPI_DOUBLE;
	shapes[1] = gaps;
	MPI_Type_indexed(2, lengths, starts, MPI_DOUBLE, &two);
	MPI_Type_create_resized(two, 0, 6 * sizeof(double), &shapes[2]);
	MPI_Type_create_struct(2, ones, fields, parts, &shapes[3]);
	MPI_Type_create_subarray(2, sizes, subsizes, from, MPI_ORDER_C, MPI_DOUBLE, &shapes[4]);
	MPI_Type_create_hindexed_block(2, 1, blocks, MPI_INT64_T, &some);
	MPI_Type_dup(some, &two);
	MPI_Type_create_hvector(2, 1, 32, two, &some);
	MPI_Type_create_resized(some, 0, 8 * sizeof(double), &shapes[5]);
	for (int i = 1; i < SHAPES; i++) {
		MPI_Type_commit(&shapes[i]);
	}
}

static int spread(int shape, int i) {
	static const int of_two[] = { 1, 3, 4 }, of_struct[] = { 0, 2, 3 }, of_part[] = { 8, 9, 10, 14, 15, 16 },
					 of_vector[] = { 1, 3, 5, 7 };
	switch (shape) {
	case 1:
		return 2 * i;
	case 2:
		return i / 3 * 6 + of_two[i % 3];
	case 3:
		return i / 3 * 4 + of_struct[i % 3];
	case 4:
		return i / 6 * 24 + of_part[i % 6];
	case 5:
		return i / 4 * 8 + of_vector[i % 4];
	default:
		return i;
	}
}

/* Doubles of one element of a shape. */
static int items_of(int shape) { return (int[]){ 1, 2, 3, 3, 6, 4 }[shape]; }

/* The third communicator, and what is made of it in one of many ways, of the same ranks in the same order. */
static void make_third(MPI_Comm *c) {
	MPI_Group all;
	MPI_Request r;
	MPI_Comm half, between;
	int at, n;
	MPI_Comm_rank(comms[2], &at);
	MPI_Comm_size(comms[2], &n);
	if (how_third == 4 && n > 1) {
		MPI_Comm_split(comms[2], at < n / 2, at, &half);
		MPI_Intercomm_create(half, 0, comms[2], at < n / 2 ? n / 2 : 0, 6, &between);
		MPI_Intercomm_merge(between, at >= n / 2, c);
		MPI_Comm_free(&half);
		MPI_Comm_free(&between);
	} else if (how_third == 3) {
		MPI_Comm_split_type(comms[2], MPI_COMM_TYPE_SHARED, at, MPI_INFO_NULL, c);
	} else if (how_third == 0 || how_third == 4) {
		MPI_Comm_dup(comms[2], c);
	} else if (how_third == 1) {
		MPI_Comm_idup(comms[2], c, &r);
		MPI_Wait(&r, MPI_STATUS_IGNORE);
	} else {
		MPI_Comm_group(comms[2], &all);
		MPI_Comm_create_group(comms[2], all, 5, c);
		MPI_Group_free(&all);
	}
}

/* A first start makes and frees others before, and both free what the last one is made on. */
static void make_comm(int c) {
	MPI_Comm other;
	if (c == 3 && restored == 0) {
		make_third(&other);
		MPI_Comm_free(&other);
	}
	if (c == 3) {
		make_third(&comms[3]);
		return;
	}
	for (int i = restored; i < 2; i++) {
		MPI_Comm_dup(comms[1], &other);
		if (i == 1) {
			MPI_Comm_split(other, 7, rank, &comms[4]);
		}
		MPI_Comm_free(&other);
	}
}

static MPI_Datatype type_of(const struct message *x) { return x->type == 0 ? MPI_DOUBLE : x->type == 1 ? pair : gaps; }

static int items(const struct message *x) { return x->type == 0 ? x->count : x->count / 2; }

/* Doubles between the elements of a message in memory. */
static int stride(const struct message *x) { return x->type == 2 ? 2 : 1; }

static double value(int k, int i) { return i == 0 ? k : (double)(k * 1000 + i % 997); }

static void send(struct message *x) {
	const int k = (int)(x - m), to = in_comm(x->comm, x->to), n = items(x);
	const MPI_Datatype type = type_of(x);
	const MPI_Comm comm = comms[x->comm];
	x->out = protect && is_persistent(x) ? slot_at(x->out_slot)
													: calloc((size_t)(stride(x) * x->count), sizeof(double));
	for (int i = 0; i < x->count; i++) {
		x->out[stride(x) * i] = value(k, i);
	}
	switch (x->send_kind) {
	case PLAIN:
		MPI_Send(x->out, n, type, to, x->tag, comm);
		break;
	case BSEND:
		MPI_Bsend(x->out, n, type, to, x->tag, comm);
		break;
	case ISEND:
		MPI_Isend(x->out, n, type, to, x->tag, comm, &x->sent);
		break;
	case ISSEND:
		MPI_Issend(x->out, n, type, to, x->tag, comm, &x->sent);
		break;
	default:
		(x->send_kind == SSEND_INIT ? MPI_Ssend_init : MPI_Send_init)(x->out, n, type, to, x->tag, comm, &x->sent);
		MPI_Start(&x->sent);
	}
	name_request(x, 0);
}

static int source_of(const struct message *x) {
	return is_wild(x->comm, x->tag) ? MPI_ANY_SOURCE : in_comm(x->comm, x->from);
}

static int tag_of(const struct message *x) { return x->comm == 4 ? MPI_ANY_TAG : x->tag; }

static void post(struct message *x) {
	const size_t room = (size_t)(protect ? SPREAD : 2) * (size_t)large * sizeof(double);
	const int each = items_of(x->shape), n = (large + each - 1) / each;
	x->in = protect ? slot_at(x->in_slot) : malloc(room);
	memset(x->in, 0xff, room);
	name_request(x, 1);
	if (x->recv_kind == RECV_INIT) {
		MPI_Recv_init(x->in, n, shapes[x->shape], source_of(x), tag_of(x), comms[x->comm], &x->posted);
		MPI_Start(&x->posted);
	} else {
		MPI_Irecv(x->in, n, shapes[x->shape], source_of(x), tag_of(x), comms[x->comm], &x->posted);
	}
}

/* check finds out which message has come, and whether it is right and in order. */
static void check(const struct message *x, const double *in, int shape, const MPI_Status *st) {
	int n, k = (int)in[spread(shape, 0)];
	MPI_Get_elements(st, shapes[shape], &n);
	if (k < 0 || k >= messages || m[k].to != rank || m[k].comm != x->comm) {
		fail("a message that is none of this receive", (int)(x - m));
	}
	const struct message *y = &m[k];
	if (!is_wild(x->comm, x->tag) && k != (int)(x - m)) {
		fail("another message", k);
	}
	if (n != y->count || st->MPI_SOURCE != in_comm(y->comm, y->from) || st->MPI_TAG != y->tag) {
		fail("source, tag or count", k);
	}
	for (int i = 0; i < n; i++) {
		if (in[spread(shape, i)] != value(k, i)) {
			fail("contents", k);
		}
	}
	int32_t *before = &last[(y->from * COMMS + y->comm) * TAGS + y->tag];
	if (*before > k) {
		fail("overtaken", k);
	}
	*before = k + 1;
	sum += (uint64_t)(k + 1) * 0x9e3779b97f4a7c15u >> 7;
}

/* end_early ends the receive of a message, which has come while the rank waited for another. */
static void end_early(struct message *x, const MPI_Status *st) {
	check(x, x->in, x->shape, st);
	if (x->posted != MPI_REQUEST_NULL) {
		MPI_Request_free(&x->posted);
	}
	free(x->in);
	x->in = NULL;
	had[x - m] = 1;
}

/* receive_some waits for a message with others, each the next one of its communicator and tag, and with sends. Where
 * requests are protected it waits for the one alone. */
static void receive_some(struct message *x, MPI_Status *st) {
	enum { WIDE = 8 };
	struct message *of[WIDE] = { x };
	MPI_Request r[WIDE] = { x->posted };
	MPI_Status all[WIDE];
	int n = 1, which[WIDE], is_send[WIDE] = { 0 }, out = 0, sends = 0, over = 0, next_of[COMMS * TAGS] = { 0 };
	next_of[x->comm * TAGS + (x->comm == 4 ? 0 : x->tag)] = 1;
	for (int k = 0; k < messages && n < WIDE && !protect; k++) {
		struct message *y = &m[k];
		int *seen = &next_of[y->comm * TAGS + (y->comm == 4 ? 0 : y->tag)];
		if (y->to == rank && y->posted != MPI_REQUEST_NULL && !*seen) {
			*seen = 1;
			of[n] = y;
			r[n++] = y->posted;
		} else if (y->from == rank && y->sent != MPI_REQUEST_NULL && sends++ < 2) {
			of[n] = y;
			is_send[n] = 1;
			r[n++] = y->sent;
		}
	}
	while (!over) {
		(x - m) % 2 == 0 ? MPI_Waitsome(n, r, &out, which, all) : MPI_Testsome(n, r, &out, which, all);
		for (int i = 0; i < out; i++) {
			struct message *y = of[which[i]];
			if (is_send[which[i]]) {
				y->sent = r[which[i]];
				continue;
			}
			y->posted = r[which[i]];
			r[which[i]] = MPI_REQUEST_NULL; /* it is freed below */
			if (y != x) {
				end_early(y, &all[i]);
			} else {
				over = 1;
				*st = all[i];
			}
		}
	}
}

static void receive(struct message *x) {
	if (had[x - m]) {
		return;
	}
	const int source = source_of(x), tag = tag_of(x);
	const MPI_Comm comm = comms[x->comm];
	MPI_Status st;
	MPI_Message message;
	int flag = 0, n = 0;
	const int shape = x->post_step < x->recv_step ? x->shape : 0;
	double *in = x->in, *own = NULL;
	if (x->post_step == x->recv_step) {
		in = own = malloc((size_t)large * 2 * sizeof *in);
	} else if (protect) {
		in = slot_at(x->in_slot);
	}
	if (protect && x->post_step < x->recv_step && x->posted == MPI_REQUEST_NULL) {
		fail("a request that was not made again", (int)(x - m));
	}
	if (x->posted != MPI_REQUEST_NULL && x->recv_kind == SOME) {
		receive_some(x, &st);
		if (x->posted != MPI_REQUEST_NULL) {
			MPI_Request_free(&x->posted);
		}
	} else if (x->posted != MPI_REQUEST_NULL) {
		MPI_Request two[2] = { MPI_REQUEST_NULL, x->posted };
		while (x->recv_kind == POLL && !flag) {
			MPI_Test(&x->posted, &flag, &st);
		}
		if (x->recv_kind == WAITANY) {
			MPI_Waitany(2, two, &n, &st);
			x->posted = two[1];
			if (n != 1) {
				fail("Waitany", (int)(x - m));
			}
		} else if (!flag) {
			MPI_Wait(&x->posted, &st);
		}
		if (x->posted != MPI_REQUEST_NULL) {
			MPI_Request_free(&x->posted);
		}
	} else if (x->recv_kind == PROBE) {
		MPI_Probe(source, tag, comm, &st);
		MPI_Get_count(&st, MPI_DOUBLE, &n);
		MPI_Recv(in, n, MPI_DOUBLE, st.MPI_SOURCE, st.MPI_TAG, comm, &st);
	} else if (x->recv_kind == MPROBE) {
		MPI_Mprobe(source, tag, comm, &message, &st);
		MPI_Mrecv(in, large, MPI_DOUBLE, &message, &st);
	} else if (x->recv_kind == POLL) {
		while (!flag) {
			MPI_Improbe(source, tag, comm, &flag, &message, &st);
		}
		MPI_Mrecv(in, large, MPI_DOUBLE, &message, &st);
	} else {
		MPI_Recv(in, large, MPI_DOUBLE, source, tag, comm, &st);
	}
	check(x, in, shape, &st);
	if (own == NULL) {
		forget_request(x, 1);
	}
	free(own != NULL ? own : protect ? NULL : in);
	x->in = NULL;
}

static void collective(int s) {
	uint64_t mine = sum, all[RANKS], most = 0;
	if (s % 2 == 0) {
		MPI_Allgather(&mine, 8, MPI_BYTE, all, 8, MPI_BYTE, comms[1]);
		most = all[rank];
	} else {
		MPI_Request r;
		MPI_Iallreduce(&mine, &most, 1, MPI_UINT64_T, MPI_MAX, comms[1], &r);
		MPI_Wait(&r, MPI_STATUS_IGNORE);
	}
	if (most < sum) {
		fail("collective", s);
	}
}

/* exchange gives the right neighbour what the left one gives this rank, in the same memory. */
static void exchange(int s) {
	double v[STEPS];
	MPI_Status st;
	int n, left = (rank + size - 1) % size;
	for (int i = 0; i <= s; i++) {
		v[i] = task_value(s, rank + i);
	}
	MPI_Sendrecv_replace(
		v, s + 1, MPI_DOUBLE, (rank + 1) % size, TAGS, s % 2 == 0 ? left : MPI_ANY_SOURCE, TAGS, comms[1], &st);
	MPI_Get_count(&st, MPI_DOUBLE, &n);
	if (n != s + 1 || st.MPI_SOURCE != left || st.MPI_TAG != TAGS) {
		fail("source, tag or count of an exchange", s);
	}
	for (int i = 0; i <= s; i++) {
		if (v[i] != task_value(s, left + i)) {
			fail("an exchange", s);
		}
	}
}

static void run(struct operation *o) {
	struct message *x = &m[o->k];
	switch (o->what) {
	case NEW:
		make_comm(o->k);
		break;
	case FREE:
		MPI_Comm_free(&comms[o->k]);
		break;
	case POST:
		post(x);
		break;
	case SEND:
		send(x);
		break;
	case RECEIVE:
		receive(x);
		break;
	case COLLECTIVE:
		collective(o->k);
		break;
	case EXCHANGE:
		exchange(o->k);
		break;
	case WAIT_SEND:
		MPI_Wait(&x->sent, MPI_STATUS_IGNORE);
		if (x->sent != MPI_REQUEST_NULL) {
			MPI_Request_free(&x->sent);
		}
		forget_request(x, 0);
		if (!protect || !is_persistent(x)) {
			free(x->out);
		}
		x->out = NULL;
		break;
	default:
		run_beside(o);
	}
}

static int deleted(MPI_Datatype type, int key, void *operation, void *state) {
	(void)type, (void)key, (void)state;
	within = 1;
	run(operation);
	within = 0;
	return MPI_SUCCESS;
}

/* run_within has MPI call for an operation: by the attribute of a type that is freed. */
static void run_within(struct operation *o) {
	MPI_Datatype type;
	int key;
	MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, deleted, &key, NULL);
	MPI_Type_dup(MPI_INT, &type);
	MPI_Type_set_attr(type, key, o);
	MPI_Type_free(&type);
	MPI_Type_free_keyval(&key);
}

/* redo makes again what a restart has to: communicators that lived, and receives that were pending; or it names those,
 * in the order in which they were posted. */
static void redo(void) {
	for (int i = 0; i < pc; i++) {
		int freed = 0, received = ops[i].what == POST && had[ops[i].k], waited = 0, ended = 0;
		for (int j = i; j < pc; j++) {
			freed |= ops[j].what == FREE && ops[j].k == ops[i].k;
			received |= ops[j].what == RECEIVE && ops[j].k == ops[i].k;
			waited |= ops[j].what == WAIT_SEND && ops[j].k == ops[i].k;
			ended |= ends(&ops[j], &ops[i]);
		}
		if (ops[i].what == NEW && !freed) {
			make_comm(ops[i].k);
		} else if (ops[i].what == POST && !received && !protect) {
			post(&m[ops[i].k]);
		} else if (late && ((ops[i].what == POST && !received) || (ops[i].what == SEND && !waited))) {
			name_request(&m[ops[i].k], ops[i].what == POST);
		} else if (late && !ended && (ops[i].what == START || starts_row(&ops[i]))) {
			name_task(ops[i].what == START ? &t[ops[i].k] : NULL);
		}
	}
}

int random_begin(int world, uint64_t of_seed, int steps, const char *dir, int of_number) {
	comms[0] = MPI_Comm_f2c(world);
	seed = of_seed;
	number = of_number;
	MPI_Comm_rank(comms[0], &rank);
	MPI_Comm_size(comms[0], &size);
	MPI_Comm_dup(comms[0], &comms[1]);
	MPI_Comm_split(comms[1], rank % 2, -rank, &comms[2]);
	MPI_Type_contiguous(2, MPI_DOUBLE, &pair);
	MPI_Type_vector(2, 1, 2, MPI_DOUBLE, &gaps);
	MPI_Type_create_resized(gaps, 0, 4 * sizeof(double), &gaps);
	MPI_Type_commit(&pair);
	MPI_Type_commit(&gaps);
	protect = getenv("PROTECT") != NULL;
	late = protect && seed % 3 == 0;
	how_third = (int)(seed / 2 % 5);
	if (protect) {
		large = LARGE / 10;
	}
	make_shapes();
	plan(steps);
	plan_beside(steps);
	list(steps);
	open_beside(dir, seed % 4 < 2);
	return operations;
}

void random_protect(void) {
	keep("sum", &sum, 1, HF_UINT64);
	keep("pc", &pc, 1, HF_INT32);
	keep("last", last, sizeof last / sizeof *last, HF_INT32);
	keep("had", had, MOST, HF_INT32);
	protect_beside();
	if (protect) {
		give_slots();
	}
	for (int i = 0; i < operations && protect && !late; i++) {
		if (ops[i].what == POST || ops[i].what == SEND) {
			name_request(&m[ops[i].k], ops[i].what == POST);
		} else if (ops[i].what == START || starts_row(&ops[i])) {
			name_task(ops[i].what == START ? &t[ops[i].k] : NULL);
		}
	}
}

int random_resume(int was_restored) {
	restored = was_restored;
	MPI_Barrier(comms[1]); /* all have their windows' contents */
	MPI_Win_lock_all(0, windows[OF_ALL]);
	redo();
	return pc;
}

void random_step(int step, void (*before)(void)) {
	for (; pc < until[step]; pc++) {
		before();
		state = seed * 77 + (uint64_t)(rank * 100000 + pc) * 0x9e3779b97f4a7c15u + 1;
		if (below(3) == 0) {
			point(ops[pc].what == END_FENCE);
		}
		(below(8) == 0 ? run_within : run)(&ops[pc]);
	}
}

void random_check(void) {
	uint64_t want = 0;
	check_beside();
	for (int k = 0; k < messages; k++) {
		if (m[k].to == rank) {
			want += (uint64_t)(k + 1) * 0x9e3779b97f4a7c15u >> 7;
		}
	}
	if (sum != want) {
		fail("the sum of all", 0);
	}
}

void random_close(void) { close_beside(); }
