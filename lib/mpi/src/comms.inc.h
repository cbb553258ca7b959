/* comms.inc.h - the beginning and the end of MPI, and the communicators in between. */

/* members finds the world ranks of a group; all of the world in order share one list. */
static int *members(MPI_Group group, int size) {
	MPI_Group world;
	int *ranks = hfm_need(malloc((size_t)size * sizeof *ranks)), *out = hfm_need(malloc((size_t)size * sizeof *out));
	for (int i = 0; i < size; i++) {
		ranks[i] = i;
	}
	REAL(Comm_group)(MPI_COMM_WORLD, &world);
	REAL(Group_translate_ranks)(group, size, ranks, world, out);
	REAL(Group_free)(&world);
	bool same = hfm_first_comm != NULL && size == hfm_size && memcmp(out, ranks, (size_t)size * sizeof *out) == 0;
	free(ranks);
	if (same) {
		free(out);
		return hfm_first_comm->world;
	}
	return out;
}

static uint64_t sum_of(const int *world, int size) {
	uint64_t sum = 0xcbf29ce484222325u;
	for (int i = 0; i < size; i++) {
		sum = (sum ^ (uint64_t)(unsigned)world[i]) * 0x100000001b3u;
	}
	return sum;
}

/* look_at finds the members of a communicator; sum is a hash of all members, the same on all. It is false where some
 * are not of this world. */
static bool look_at(struct hfm_comm *c, MPI_Comm comm, uint64_t *sum) {
	MPI_Group group;
	int inter = 0, local;
	REAL(Comm_test_inter)(comm, &inter);
	REAL(Comm_rank)(comm, &c->rank);
	REAL(Comm_size)(comm, &local);
	REAL(Comm_group)(comm, &group);
	c->world = members(group, local);
	c->size = c->all = local;
	c->leader = c->world[0];
	*sum = sum_of(c->world, local);
	REAL(Group_free)(&group);
	if (inter) { /* messages go to the other group and come from it */
		int *own = c->world;
		REAL(Comm_remote_size)(comm, &c->size);
		REAL(Comm_remote_group)(comm, &group);
		c->world = members(group, c->size);
		REAL(Group_free)(&group);
		c->all += c->size;
		c->leader = own[0] < c->world[0] ? own[0] : c->world[0];
		*sum ^= sum_of(c->world, c->size);
		free(own != hfm_first_comm->world ? own : NULL);
	}
	for (int i = 0; i < c->size; i++) {
		if (c->world[i] < 0) {
			free(c->world != hfm_first_comm->world ? c->world : NULL);
			return false;
		}
	}
	return true;
}

/* copy_members gives a duplicate its members. */
static void copy_members(struct hfm_comm *to, const struct hfm_comm *from) {
	to->rank = from->rank;
	to->size = from->size;
	to->all = from->all;
	to->leader = from->leader;
	to->world = from->world;
	if (from->world != hfm_first_comm->world) {
		to->world = hfm_need(malloc((size_t)from->size * sizeof *from->world));
		memcpy(to->world, from->world, (size_t)from->size * sizeof *from->world);
	}
}

/* group_name names a communicator that only its members made: by the tag, the number that they have made so, and the
 * members. One that lived at a checkpoint has the number that it had. */
static void group_name(
	char *name, size_t room, struct hfm_comm *parent, int tag, const struct hfm_comm *c, uint64_t sum) {
	char begin[HFM_COMM_BYTES + 40], end[80];
	snprintf(name, room, "%d-%d-%016llx", tag, c->all, (unsigned long long)sum);
	struct hfm_group *g = parent->groups;
	while (g != NULL && strcmp(g->name, name) != 0) {
		g = g->next;
	}
	if (g == NULL) {
		g = hfm_need(calloc(1, sizeof *g));
		g->name = hfm_need(strdup(name));
		g->next = parent->groups;
		parent->groups = g;
	}
	snprintf(begin, sizeof begin, "%s.g%d.", parent->name, tag);
	snprintf(end, sizeof end, "[%d,+%d,%016llx]", c->leader, c->all - 1, (unsigned long long)sum);
	const uint64_t claimed = hfm_restarted ? hfm_claim_group(begin, end) : 0;
	g->children = claimed > g->children ? claimed : g->children + 1;
	snprintf(name, room, "%s%llu%s", begin, (unsigned long long)g->children, end);
}

/* list lists a communicator that has its handle. */
static void list(struct hfm_comm *c, MPI_Comm comm) {
	const char *lost = hfm_list_comm(c, WORD(comm));
	if (lost != NULL) { /* to go on would lose them */
		fprintf(stderr, "libholdfast-mpi: rank %d: %s\n", hfm_rank, lost);
		REAL(Abort)(MPI_COMM_WORLD, 1);
	}
	const char *why = hfm_may_post && hfm_kept != NULL ? post() : NULL;
	if (why != NULL) {
		fprintf(stderr, "libholdfast-mpi: rank %d: %s\n", hfm_rank, why);
		REAL(Abort)(MPI_COMM_WORLD, 1);
	}
}

/* adopt lists a communicator that was made on one that is listed. Its name is the same on all members: the parent's,
 * how many were made on it before, and the leader, as there may be several. */
static void adopt(struct hfm_comm *parent, MPI_Comm comm, enum hfm_call how, uint64_t number, const int *tag) {
	struct hfm_comm like = { 0 };
	uint64_t sum;
	const bool same = how == HFM_Comm_dup || how == HFM_Comm_dup_with_info;
	if (same) {
		copy_members(&like, parent);
	} else if (comm == MPI_COMM_NULL || !look_at(&like, comm, &sum)) {
		return;
	}
	size_t room = strlen(parent->name) + 140;
	like.name = hfm_need(malloc(room));
	if (tag != NULL) {
		group_name(like.name, room, parent, *tag, &like, sum);
	} else if (same) {
		snprintf(like.name, room, "%s.%llu", parent->name, (unsigned long long)number);
	} else {
		snprintf(like.name, room, "%s.%llu[%d]", parent->name, (unsigned long long)number, like.leader);
	}
	list(hfm_new_comm(&like, parent, how), comm);
	free(like.name);
}

/* idup_ends lists the communicator of MPI_Comm_idup. */
static void idup_ends(struct hfm_request *r, int rc) {
	if (rc == MPI_SUCCESS) {
		list(r->child, r->out != 0 ? HANDLE(MPI_Comm, r->out) : *(MPI_Comm *)r->newcomm);
	} else {
		hfm_drop_comm(r->child);
	}
	r->child = NULL;
}

static uint64_t shared_handle(MPI_Request two[2]) {
	const uint64_t handle = WORD(two[0]) == WORD(two[1]) ? WORD(two[0]) : 0;
	REAL(Waitall)(2, two, MPI_STATUSES_IGNORE);
	return handle;
}

static void learn_shared_handles(void) {
	MPI_Request sends[2], barriers[2];
	for (int i = 0; i < 2; i++) {
		REAL(Isend)(NULL, 0, MPI_PACKED, MPI_PROC_NULL, 0, loop, &sends[i]);
		REAL(Ibarrier)(loop, &barriers[i]);
	}
	shared_handles[0] = shared_handle(sends);
	shared_handles[1] = shared_handle(barriers);
}

/* no_copy keeps the layer's attribute from duplicates. */
static int no_copy(MPI_Comm comm, int key, void *state, void *value, void *copy, int *flag) {
	(void)comm, (void)key, (void)state, (void)value, (void)copy;
	*flag = 0;
	return MPI_SUCCESS;
}

/* ends is called by MPI_Finalize, which first deletes the attributes of MPI_COMM_SELF, the newest first. The layer's is
 * the oldest: call-backs of the program's may still receive messages. */
static int ends(MPI_Comm comm, int key, void *value, void *state) {
	(void)comm, (void)key, (void)value, (void)state;
	hfm_within = HFM_HERE;
	for (struct hfm_comm *c = hfm_first_comm; c != NULL; c = c->next) {
		drop_mail(c);
	}
	reap(true);
	hfm_watch_ends(1);
	hfm_on = false;
	hfm_set_state();
	REAL(Cancel)(&never);
	REAL(Wait)(&never, MPI_STATUS_IGNORE);
	REAL(Comm_free)(&loop);
	REAL(Comm_free)(&hidden);
	REAL(Comm_free)(&aside);
	return MPI_SUCCESS;
}

static void begun(void) {
	int thread = 0, key = 0;
	uint64_t sum;
	struct hfm_comm world = { .name = "world" }, self = { .name = "self" };
	hfm_within = HFM_HERE;
	REAL(Comm_rank)(MPI_COMM_WORLD, &hfm_rank);
	REAL(Comm_size)(MPI_COMM_WORLD, &hfm_size);
	REAL(Query_thread)(&thread);
	hfm_threads = thread == MPI_THREAD_MULTIPLE;
	hfm_new_page();
	hfm_first_thread();
	REAL(Comm_create_keyval)(no_copy, ends, &key, NULL);
	REAL(Comm_set_attr)(MPI_COMM_SELF, key, NULL);
	REAL(Comm_dup)(MPI_COMM_SELF, &loop);
	REAL(Comm_set_errhandler)(loop, MPI_ERRORS_RETURN);
	REAL(Irecv)(NULL, 0, MPI_PACKED, 0, 2, loop, &never);
	learn_shared_handles();
	REAL(Comm_dup)(MPI_COMM_WORLD, &hidden);
	REAL(Comm_set_errhandler)(hidden, MPI_ERRORS_RETURN);
	REAL(Comm_dup)(hidden, &aside);
	look_at(&world, MPI_COMM_WORLD, &sum);
	list(hfm_new_comm(&world, NULL, HFM_Init), MPI_COMM_WORLD);
	look_at(&self, MPI_COMM_SELF, &sum);
	list(hfm_new_comm(&self, NULL, HFM_Init), MPI_COMM_SELF);
	hfm_cut_setup();
	hfm_drain = drain_some;
	hfm_turn = turn;
	hfm_cutting = cutting;
	hfm_save = save;
	hfm_sync = sync_all;
	hfm_post = post;
	hfm_on = true;
	if (hfm_cut_every == 0) {
		MPI_Comm parent = MPI_COMM_NULL; /* processes of MPI_Comm_spawn are another world */
		REAL(Comm_get_parent)(&parent);
		if (parent == MPI_COMM_NULL) {
			hfm_watch();
		}
		hfm_cut_every = hfm_watching != NULL;
		hfm_drain = hfm_watching != NULL ? answer : drain_some;
	}
	hfm_set_state();
	hfm_within = NULL;
}

static int hfm_Init(int *argc, char ***argv) {
	const char *outer = hfm_inside_of();
	int rc = REAL(Init)(argc, argv);
	hfm_within = outer;
	if (outer == NULL && rc == MPI_SUCCESS) {
		begun();
	}
	return rc;
}

static int hfm_Init_thread(int *argc, char ***argv, int required, int *provided) {
	const char *outer = hfm_inside_of();
	int rc = REAL(Init_thread)(argc, argv, required, provided);
	hfm_within = outer;
	if (outer == NULL && rc == MPI_SUCCESS) {
		begun();
	}
	return rc;
}

static int hfm_Finalize(void) {
	/* The call-backs of the program's attributes come first, as calls of their own; then ends turns the layer off. */
	int rc = REAL(Finalize)();
	hfm_within = NULL;
	return rc;
}

/* agree takes the least that any member of a communicator claims and is not 0. */
static uint64_t agree(const struct hfm_comm *c, uint64_t claimed) {
	const int rounds = c->size < c->all ? 2 : 1; /* an intercommunicator only has the others' claims */
	uint64_t *all = hfm_need(malloc((size_t)c->size * sizeof *all));
	for (int k = 0; k < rounds; k++) {
		const uint64_t mine = claimed;
		if (REAL(Allgather)(&mine, 8, MPI_PACKED, all, 8, MPI_PACKED, HANDLE(MPI_Comm, c->handle)) != MPI_SUCCESS) {
			claimed = 0;
			break;
		}
		for (int i = 0; i < c->size; i++) {
			claimed = claimed == 0 || (all[i] > 0 && all[i] < claimed) ? all[i] : claimed;
		}
	}
	free(all);
	return claimed;
}

/* number is which child of its parent a communicator is. After a restart the program makes those again that lived at
 * the checkpoint, or that such were made on, in their order, and not others that were freed: a rank that had one says
 * which it was, and how many there were. */
static uint64_t number(struct hfm_comm *c) {
	uint64_t claimed = 0;
	if (hfm_restarted) {
		claimed = agree(c, hfm_claim(c->name));
		c->children = ~agree(c, ~c->children); /* the most that any had */
	}
	return claimed > 0 ? claimed : ++c->children;
}

/* made ends a call that makes a communicator on another: it has begun as a collective of that. */
static int made(struct hfm_comm *c, enum hfm_call how, MPI_Comm *newcomm, int rc) {
	if (rc == MPI_SUCCESS && c != NULL) {
		hfm_lock();
		hfm_forget_slots(c->name); /* all its ranks have freed them */
		hfm_unlock();
		adopt(c, *newcomm, how, number(c), NULL);
	}
	hfm_end_collective(c, rc);
	return rc;
}

#define MAKE(name, params, args, parent)                                        \
	static int hfm_##name params {                                              \
		if (!hfm_enter(HFM_##name)) {                                           \
			return REAL(name) args;                                             \
		}                                                                       \
		struct hfm_comm *c = hfm_begin_collective(HFM_##name, comm_of(parent)); \
		hfm_step_out();                                                         \
		int rc = REAL(name) args;                                               \
		hfm_step_in();                                                          \
		return made(c, HFM_##name, newcomm, rc);                                \
	}

MAKE(Comm_dup, (MPI_Comm comm, MPI_Comm *newcomm), (comm, newcomm), comm)
MAKE(Comm_dup_with_info, (MPI_Comm comm, MPI_Info info, MPI_Comm *newcomm), (comm, info, newcomm), comm)
MAKE(Comm_split, (MPI_Comm comm, int color, int key, MPI_Comm *newcomm), (comm, color, key, newcomm), comm)
MAKE(Comm_split_type, (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *newcomm),
	(comm, type, key, info, newcomm), comm)
MAKE(Comm_create, (MPI_Comm comm, MPI_Group group, MPI_Comm *newcomm), (comm, group, newcomm), comm)
MAKE(Cart_create, (MPI_Comm comm, int n, const int dims[], const int periods[], int reorder, MPI_Comm *newcomm),
	(comm, n, dims, periods, reorder, newcomm), comm)
MAKE(Cart_sub, (MPI_Comm comm, const int remain[], MPI_Comm *newcomm), (comm, remain, newcomm), comm)
MAKE(Graph_create, (MPI_Comm comm, int n, const int index[], const int edges[], int reorder, MPI_Comm *newcomm),
	(comm, n, index, edges, reorder, newcomm), comm)
MAKE(Dist_graph_create,
	(MPI_Comm comm, int n, const int sources[], const int degrees[], const int destinations[], const int weights[],
		MPI_Info info, int reorder, MPI_Comm *newcomm),
	(comm, n, sources, degrees, destinations, weights, info, reorder, newcomm), comm)
MAKE(Dist_graph_create_adjacent,
	(MPI_Comm comm, int in, const int sources[], const int sourceweights[], int out, const int destinations[],
		const int destweights[], MPI_Info info, int reorder, MPI_Comm *newcomm),
	(comm, in, sources, sourceweights, out, destinations, destweights, info, reorder, newcomm), comm)
MAKE(Intercomm_merge, (MPI_Comm comm, int high, MPI_Comm *newcomm), (comm, high, newcomm), comm)
#undef MAKE

/* create_hidden makes a communicator of a group on the hidden one. The group is made again of that one's: MPICH 4.0
 * crashes with one that was made of another's. */
static int create_hidden(MPI_Group group, int tag, MPI_Comm *newcomm) {
	MPI_Group all, mine;
	int n = 0, rc = REAL(Group_size)(group, &n);
	if (rc != MPI_SUCCESS || n == 0) {
		return rc != MPI_SUCCESS ? rc : REAL(Comm_create_group)(hidden, group, tag, newcomm);
	}
	int *world = members(group, n);
	REAL(Comm_group)(hidden, &all);
	rc = REAL(Group_incl)(all, n, world, &mine);
	REAL(Group_free)(&all);
	if (rc == MPI_SUCCESS) {
		rc = REAL(Comm_create_group)(hidden, mine, tag, newcomm);
		REAL(Group_free)(&mine);
	}
	free(world != hfm_first_comm->world ? world : NULL);
	return rc;
}

/* Only the members of the group call this one. */
static int hfm_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *newcomm) {
	if (!hfm_enter(HFM_Comm_create_group)) {
		return REAL(Comm_create_group)(comm, group, tag, newcomm);
	}
	struct hfm_comm *c = comm_of(comm);
	const bool elsewhere = c != NULL && HFM_MESSAGES_MAKE_COMMS;
	int n = 0, all[HFM_MOST_WAITS], in[HFM_MOST_WAITS];
	const struct hfm_here h = hfm_here();
	hfm_blocks(h, HFM_Comm_create_group, c, HFM_CALL_ALL);
	if (c != NULL && REAL(Group_size)(group, &n) == MPI_SUCCESS) {
		MPI_Group of;
		n = n < HFM_MOST_WAITS ? n : HFM_MOST_WAITS;
		for (int i = 0; i < n; i++) {
			all[i] = i;
		}
		REAL(Comm_group)(comm, &of);
		REAL(Group_translate_ranks)(group, n, all, of, in);
		REAL(Group_free)(&of);
		for (int i = 0; i < n; i++) {
			if (in[i] != c->rank) {
				hfm_waits(h, c, in[i], tag, 0);
			}
		}
	}
	hfm_wait_begins(h);
	hfm_step_out();
	int rc = elsewhere ? create_hidden(group, tag, newcomm) : REAL(Comm_create_group)(comm, group, tag, newcomm);
	hfm_step_in();
	if (rc == MPI_SUCCESS && elsewhere && *newcomm != MPI_COMM_NULL) {
		MPI_Errhandler handler;
		REAL(Comm_get_errhandler)(comm, &handler);
		REAL(Comm_set_errhandler)(*newcomm, handler);
		REAL(Errhandler_free)(&handler);
	}
	if (rc == MPI_SUCCESS && c != NULL) {
		adopt(c, *newcomm, HFM_Comm_create_group, 0, &tag);
	}
	rc = elsewhere ? raise_on(comm, rc) : rc;
	hfm_leave();
	return rc;
}

/* Leaders wait for each other; the other members of a group wait for their leader as in a collective. */
static int hfm_Intercomm_create(
	MPI_Comm local, int leader, MPI_Comm peer_comm, int remote, int tag, MPI_Comm *newcomm) {
	if (!hfm_enter(HFM_Intercomm_create)) {
		return REAL(Intercomm_create)(local, leader, peer_comm, remote, tag, newcomm);
	}
	struct hfm_comm *c = comm_of(local), *p = c != NULL && c->rank == leader ? comm_of(peer_comm) : NULL;
	if (HFM_MESSAGES_MAKE_COMMS && p != NULL && remote >= 0 && remote < p->size) {
		remote = p->world[remote];
		peer_comm = hidden;
	}
	if (c != NULL && c->rank == leader) {
		count(hfm_entered(c), 1);
		blocks_on(HFM_Intercomm_create, peer_comm == hidden ? hfm_first_comm : p, remote, tag, 0);
	} else {
		hfm_begin_collective(HFM_Intercomm_create, c);
	}
	hfm_step_out();
	int rc = REAL(Intercomm_create)(local, leader, peer_comm, remote, tag, newcomm);
	hfm_step_in();
	if (rc == MPI_SUCCESS && c != NULL) {
		adopt(hfm_first_comm, *newcomm, HFM_Intercomm_create, 0, &tag);
	}
	hfm_end_collective(c, rc);
	return rc;
}

/* The handle is there at once, mostly; a binding for Fortran has it in a variable that lives no longer. */
static int idup(MPI_Comm comm, MPI_Comm *newcomm, MPI_Request *request, int rc) {
	struct hfm_comm *c = comm_of(comm);
	if (rc == MPI_SUCCESS && c != NULL) {
		struct hfm_comm like = { 0 };
		const size_t room = strlen(c->name) + 32;
		const uint64_t claimed = hfm_restarted ? hfm_claim(c->name) : 0; /* all members have it */
		like.name = hfm_need(malloc(room));
		snprintf(like.name, room, "%s.%llu", c->name, (unsigned long long)(claimed > 0 ? claimed : ++c->children));
		copy_members(&like, c);
		count(hfm_entered(c), 1);
		struct hfm_request *r = track(HFM_IDUP, HFM_Comm_idup, c, *request);
		r->newcomm = newcomm;
		r->out = *newcomm != MPI_COMM_NULL ? WORD(*newcomm) : 0;
		r->child = hfm_new_comm(&like, c, HFM_Comm_dup);
		r->active = true;
		free(like.name);
	}
	hfm_leave();
	return rc;
}

static int hfm_Comm_idup(MPI_Comm comm, MPI_Comm *newcomm, MPI_Request *request) {
	if (!hfm_enter(HFM_Comm_idup)) {
		return REAL(Comm_idup)(comm, newcomm, request);
	}
	*newcomm = MPI_COMM_NULL;
	return idup(comm, newcomm, request, REAL(Comm_idup)(comm, newcomm, request));
}

static int hfm_Comm_idup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm *newcomm, MPI_Request *request) {
	if (!hfm_enter(HFM_Comm_idup_with_info)) {
		return REAL(Comm_idup_with_info)(comm, info, newcomm, request);
	}
	*newcomm = MPI_COMM_NULL;
	return idup(comm, newcomm, request, REAL(Comm_idup_with_info)(comm, info, newcomm, request));
}

/* end_comm frees a communicator by either of two calls. Until it is forgotten no other thread may drain it. */
static int end_comm(enum hfm_call call, MPI_Comm *comm) {
	if (!hfm_enter(call)) {
		return call == HFM_Comm_free ? REAL(Comm_free)(comm) : REAL(Comm_disconnect)(comm);
	}
	struct hfm_comm *c = *comm != MPI_COMM_WORLD ? comm_of(*comm) : NULL;
	if (c != NULL) {
		drop_mail(c);
	}
	int rc = call == HFM_Comm_free ? REAL(Comm_free)(comm) : REAL(Comm_disconnect)(comm);
	if (rc == MPI_SUCCESS && c != NULL) {
		hfm_free_comm(c);
	}
	hfm_leave();
	return rc;
}

static int hfm_Comm_free(MPI_Comm *comm) { return end_comm(HFM_Comm_free, comm); }

static int hfm_Comm_disconnect(MPI_Comm *comm) { return end_comm(HFM_Comm_disconnect, comm); }
