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

/* adopt lists a communicator that was made on one that is listed. Its name is the same on all members: the parent's, and
 * how many were made on it before; of one that only its members made, the tag and the members instead. */
static void adopt(struct hfm_comm *parent, MPI_Comm comm, uint64_t number, const int *tag) {
	int rank, size, inter = 1;
	if (comm == MPI_COMM_NULL || REAL(Comm_test_inter)(comm, &inter) != MPI_SUCCESS || inter) {
		return;
	}
	REAL(Comm_rank)(comm, &rank);
	REAL(Comm_size)(comm, &size);
	int *world = members(comm, size);
	size_t room = strlen(parent->name) + 64;
	char *name = malloc(room);
	if (tag == NULL) {
		snprintf(name, room, "%s.%llu", parent->name, (unsigned long long)number);
	} else {
		uint64_t sum = 0;
		for (int i = 0; i < size; i++) {
			sum = (sum ^ (uint64_t)(unsigned)world[i]) * 0x100000001b3u;
		}
		snprintf(name, room, "%s.group-%d-%016llx", parent->name, *tag, (unsigned long long)sum);
	}
	hfm_new_comm(name, WORD(comm), rank, size, world);
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
	hfm_sent = calloc((size_t)size, sizeof *hfm_sent);
	hfm_received = calloc((size_t)size, sizeof *hfm_received);
	REAL(Comm_dup)(MPI_COMM_SELF, &loop);
	REAL(Comm_set_errhandler)(loop, MPI_ERRORS_RETURN);
	hfm_new_comm("world", WORD(MPI_COMM_WORLD), rank, size, members(MPI_COMM_WORLD, size));
	hfm_new_comm("self", WORD(MPI_COMM_SELF), 0, 1, members(MPI_COMM_SELF, 1));
	hfm_cut_setup();
	hfm_drain = drain_some;
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

/* made ends a call that makes a communicator on another. */
static int made(MPI_Comm parent, MPI_Comm *newcomm, int rc) {
	struct hfm_comm *c = comm_of(parent);
	if (rc == MPI_SUCCESS && c != NULL) {
		c->children++;
		count(&c->entered, 1);
		adopt(c, *newcomm, c->children, NULL);
	}
	hfm_leave();
	return rc;
}

#define MAKE(name, params, args, parent)               \
	static int hfm_##name params {                     \
		if (!hfm_enter(HFM_##name)) {                  \
			return REAL(name) args;                    \
		}                                              \
		return made(parent, newcomm, REAL(name) args); \
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
	int rc = REAL(Comm_create_group)(comm, group, tag, newcomm);
	struct hfm_comm *c = comm_of(comm);
	if (rc == MPI_SUCCESS && c != NULL) {
		adopt(c, *newcomm, 0, &tag);
	}
	hfm_leave();
	return rc;
}

/* Intercommunicators, and what is made of them, are not listed: their messages are not drained. */
static int hfm_Intercomm_create(
	MPI_Comm local, int local_leader, MPI_Comm bridge, int remote_leader, int tag, MPI_Comm *newcomm) {
	hfm_refuse("intercommunicators", "MPI_Intercomm_create");
	hfm_depth++;
	int rc = REAL(Intercomm_create)(local, local_leader, bridge, remote_leader, tag, newcomm);
	hfm_depth--;
	return rc;
}

static int hfm_Intercomm_merge(MPI_Comm intercomm, int high, MPI_Comm *newcomm) {
	hfm_depth++;
	int rc = REAL(Intercomm_merge)(intercomm, high, newcomm);
	hfm_depth--;
	return rc;
}

static int idup(MPI_Comm comm, MPI_Comm *newcomm, MPI_Request *request, int rc) {
	struct hfm_comm *c = comm_of(comm);
	if (rc == MPI_SUCCESS && c != NULL) {
		c->children++;
		count(&c->entered, 1);
		struct hfm_request *r = track(HFM_IDUP, c, *request);
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
