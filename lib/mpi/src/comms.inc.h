/* comms.inc.h - the beginning and the end of MPI, and the communicators in between. */

/* members finds the world ranks of a communicator; all of the world in order share one list. */
static int *members(MPI_Comm comm, int size) {
	MPI_Group world, group;
	int *ranks = malloc((size_t)size * sizeof *ranks), *out = malloc((size_t)size * sizeof *out);
	for (int i = 0; i < size; i++) {
		ranks[i] = i;
	}
	REAL(Comm_group)(MPI_COMM_WORLD, &world);
	REAL(Comm_group)(comm, &group);
	REAL(Group_translate_ranks)(group, size, ranks, world, out);
	REAL(Group_free)(&group);
	REAL(Group_free)(&world);
	bool same = hfm_first_comm != NULL && size == hfm_size && memcmp(out, ranks, (size_t)size * sizeof *out) == 0;
	free(ranks);
	if (same) {
		free(out);
		return hfm_first_comm->world;
	}
	return out;
}

/* group_name names a communicator that only its members made on another: by the tag, how many they have made so, and
 * who they are. */
static void group_name(char *name, size_t room, struct hfm_comm *parent, int tag, const int *world, int size) {
	uint64_t sum = 0xcbf29ce484222325u;
	for (int i = 0; i < size; i++) {
		sum = (sum ^ (uint64_t)(unsigned)world[i]) * 0x100000001b3u;
	}
	snprintf(name, room, "%d-%016llx", tag, (unsigned long long)sum);
	struct hfm_group *g = parent->groups;
	while (g != NULL && strcmp(g->name, name) != 0) {
		g = g->next;
	}
	if (g == NULL) {
		g = calloc(1, sizeof *g);
		g->name = strdup(name);
		g->next = parent->groups;
		parent->groups = g;
	}
	snprintf(name, room, "%s.g%d.%llu[%d,+%d,%016llx]", parent->name, tag, (unsigned long long)++g->children, world[0],
		size - 1, (unsigned long long)sum);
}

/* adopt lists a communicator that was made on one that is listed. Its name is the same on all members: the parent's,
 * how many were made on it before, and the leader, as there may be several. */
static void adopt(struct hfm_comm *parent, MPI_Comm comm, enum hfm_call how, uint64_t number, const int *tag) {
	int rank, size, inter = 1;
	if (comm == MPI_COMM_NULL || REAL(Comm_test_inter)(comm, &inter) != MPI_SUCCESS || inter) {
		return;
	}
	REAL(Comm_rank)(comm, &rank);
	REAL(Comm_size)(comm, &size);
	int *world = members(comm, size);
	size_t room = strlen(parent->name) + 100;
	char *name = malloc(room);
	if (tag != NULL) {
		group_name(name, room, parent, *tag, world, size);
	} else if (how == HFM_Comm_dup || how == HFM_Comm_dup_with_info || how == HFM_Comm_idup ||
		how == HFM_Comm_idup_with_info) {
		snprintf(name, room, "%s.%llu", parent->name, (unsigned long long)number);
	} else {
		snprintf(name, room, "%s.%llu[%d]", parent->name, (unsigned long long)number, world[0]);
	}
	const char *lost;
	hfm_new_comm(name, parent, how, WORD(comm), rank, size, world, &lost);
	if (lost != NULL) { /* to go on would lose them */
		fprintf(stderr, "libholdfast-mpi: rank %d: %s\n", hfm_rank, lost);
		REAL(Abort)(MPI_COMM_WORLD, 1);
	}
	free(name);
}

static void begun(void) {
	int rank, size, thread = 0;
	hfm_depth = 1;
	REAL(Comm_rank)(MPI_COMM_WORLD, &rank);
	REAL(Comm_size)(MPI_COMM_WORLD, &size);
	REAL(Query_thread)(&thread);
	hfm_rank = rank;
	hfm_size = size;
	hfm_threads = thread == MPI_THREAD_MULTIPLE;
	hfm_new_page();
	REAL(Comm_dup)(MPI_COMM_SELF, &loop);
	REAL(Comm_set_errhandler)(loop, MPI_ERRORS_RETURN);
	const char *lost; /* nothing is restored yet */
	hfm_new_comm("world", NULL, HFM_Init, WORD(MPI_COMM_WORLD), rank, size, members(MPI_COMM_WORLD, size), &lost);
	hfm_new_comm("self", NULL, HFM_Init, WORD(MPI_COMM_SELF), 0, 1, members(MPI_COMM_SELF, 1), &lost);
	hfm_cut_setup();
	hfm_drain = drain_some;
	hfm_turn = turn;
	hfm_save = save;
	hfm_on = true;
	hfm_depth = 0;
}

static int hfm_Init(int *argc, char ***argv) {
	hfm_depth++;
	int rc = REAL(Init)(argc, argv);
	if (--hfm_depth == 0 && rc == MPI_SUCCESS) {
		begun();
	}
	return rc;
}

static int hfm_Init_thread(int *argc, char ***argv, int required, int *provided) {
	hfm_depth++;
	int rc = REAL(Init_thread)(argc, argv, required, provided);
	if (--hfm_depth == 0 && rc == MPI_SUCCESS) {
		begun();
	}
	return rc;
}

static int hfm_Finalize(void) {
	if (hfm_on && hfm_depth == 0) {
		hfm_depth = 1;
		reap(true);
		hfm_on = false;
		REAL(Comm_free)(&loop);
		hfm_depth = 0;
	}
	hfm_depth++;
	int rc = REAL(Finalize)();
	hfm_depth--;
	return rc;
}

/* number is which child of its parent a communicator is. After a restart the program makes those again that lived at
 * the checkpoint, in their order, and not those that were freed: a rank that had one says which it was. */
static uint64_t number(struct hfm_comm *c) {
	uint64_t claimed = hfm_restarted ? hfm_claim(c->name) : 0;
	unsigned char mine[8], *all;
	if (!hfm_restarted) {
		return ++c->children;
	}
	memcpy(mine, &claimed, sizeof mine);
	all = malloc((size_t)c->size * sizeof mine);
	if (all == NULL ||
		REAL(Allgather)(mine, 8, MPI_PACKED, all, 8, MPI_PACKED, HANDLE(MPI_Comm, c->handle)) != MPI_SUCCESS) {
		claimed = 0;
	}
	for (int i = 0; i < c->size && all != NULL; i++) {
		uint64_t theirs;
		memcpy(&theirs, all + 8 * i, sizeof theirs);
		claimed = claimed == 0 || (theirs > 0 && theirs < claimed) ? theirs : claimed;
	}
	free(all);
	return claimed > 0 ? claimed : ++c->children;
}

/* made ends a call that makes a communicator on another: it has begun as a collective of that. */
static int made(struct hfm_comm *c, enum hfm_call how, MPI_Comm *newcomm, int rc) {
	if (rc == MPI_SUCCESS && c != NULL) {
		hfm_forget_slots(c->name); /* all its ranks have freed them */
		adopt(c, *newcomm, how, number(c), NULL);
	}
	hfm_end_collective(c, rc);
	return rc;
}

#define MAKE(name, params, args, parent)                                     \
	static int hfm_##name params {                                           \
		if (!hfm_enter(HFM_##name)) {                                        \
			return REAL(name) args;                                          \
		}                                                                    \
		struct hfm_comm *c = hfm_begin_collective(HFM_##name, WORD(parent)); \
		return made(c, HFM_##name, newcomm, REAL(name) args);                \
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
#undef MAKE

/* Only the members of the group call this one. */
static int hfm_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *newcomm) {
	if (!hfm_enter(HFM_Comm_create_group)) {
		return REAL(Comm_create_group)(comm, group, tag, newcomm);
	}
	struct hfm_comm *c = comm_of(comm);
	int n = 0, all[HFM_MOST_WAITS], in[HFM_MOST_WAITS];
	hfm_blocks(HFM_Comm_create_group, c, HFM_CALL_ALL);
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
				hfm_waits(c, in[i], tag, 0);
			}
		}
	}
	hfm_wait_begins();
	int rc = REAL(Comm_create_group)(comm, group, tag, newcomm);
	if (rc == MPI_SUCCESS && c != NULL) {
		adopt(c, *newcomm, HFM_Comm_create_group, 0, &tag);
	}
	hfm_leave();
	return rc;
}

static int idup(MPI_Comm comm, MPI_Comm *newcomm, MPI_Request *request, int rc) {
	struct hfm_comm *c = comm_of(comm);
	if (rc == MPI_SUCCESS && c != NULL) {
		c->children++;
		count(hfm_entered(c), 1);
		struct hfm_request *r = track(HFM_IDUP, HFM_Comm_idup, c, *request);
		r->newcomm = newcomm;
		r->count = (long)c->children;
		r->active = true;
	}
	hfm_leave();
	return rc;
}

static int hfm_Comm_idup(MPI_Comm comm, MPI_Comm *newcomm, MPI_Request *request) {
	if (!hfm_enter(HFM_Comm_idup)) {
		return REAL(Comm_idup)(comm, newcomm, request);
	}
	return idup(comm, newcomm, request, REAL(Comm_idup)(comm, newcomm, request));
}

static int hfm_Comm_idup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm *newcomm, MPI_Request *request) {
	if (!hfm_enter(HFM_Comm_idup_with_info)) {
		return REAL(Comm_idup_with_info)(comm, info, newcomm, request);
	}
	return idup(comm, newcomm, request, REAL(Comm_idup_with_info)(comm, info, newcomm, request));
}

/* end_comm frees a communicator by either of two calls. Attributes' call-backs do it within a call as well. */
static int end_comm(enum hfm_call call, MPI_Comm *comm) {
	struct hfm_comm *c = hfm_on && *comm != MPI_COMM_WORLD ? comm_of(*comm) : NULL;
	hfm_depth++;
	int rc = call == HFM_Comm_free ? REAL(Comm_free)(comm) : REAL(Comm_disconnect)(comm);
	hfm_depth--;
	if (rc == MPI_SUCCESS && c != NULL) {
		hfm_free_comm(c);
	}
	return rc;
}

static int hfm_Comm_free(MPI_Comm *comm) { return end_comm(HFM_Comm_free, comm); }

static int hfm_Comm_disconnect(MPI_Comm *comm) { return end_comm(HFM_Comm_disconnect, comm); }
