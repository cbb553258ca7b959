/* random_beside.h - what random.c does beside messages: files and windows. Each record and each cell has one writer,
 * and only one operation at a time, so that its value follows from the seed; counters are only added to. What reads and
 * gets bring lies in protected memory: the operations that are under way at a point are complete after a restart. */

enum { WRITE, READ, PUT, GET, ADD, LOCKED, TASK_KINDS };
enum { OF_ALL, OF_FENCES, OF_LOCKS, WINDOWS };
enum { TASKS = 1000, CELLS = 4096, COUNTERS = 8, BLOCK = 16 };

struct task {
	int kind, rank, target, start_step, end_step, count, how, of;
	int first, at; /* where it lies in the file or the window, and in what has come */
	double *out;
	MPI_Request request;
};

static struct task t[TASKS];
static int tasks, come;
static MPI_File own, common; /* the first is for requests of each rank, the second for collectives */
static MPI_Win windows[WINDOWS];
static double *cells[WINDOWS], *gained, *row, *block;
static MPI_Request rows;

static double task_value(int k, int i) { return -1.0 - k * 1000 - i % 997; }

/* task_before finds a task of a kind and a rank that is over before a step, or -1. */
static int task_before(int kind, int of_rank, int step) {
	const int from = below(tasks + 1);
	for (int i = 0; i < tasks; i++) {
		const int k = (from + i) % tasks;
		if (t[k].kind == kind && t[k].rank == of_rank && t[k].end_step < step) {
			return k;
		}
	}
	return -1;
}

static void plan_beside(int steps) {
	int in_file = 0, in_window = COUNTERS, got[RANKS] = { 0 };
	for (int s = 0; s < steps; s++) {
		for (int n = below(2 * size); n > 0 && tasks < TASKS; n--) {
			struct task *x = &t[tasks];
			x->kind = below(TASK_KINDS);
			x->rank = below(size);
			x->target = below(size);
			x->start_step = s;
			x->end_step = s + below(4);
			x->how = below(3);
			x->count = 1 + (below(8) == 0 ? below(200) : below(8));
			if (x->kind == LOCKED || x->end_step >= steps) {
				x->end_step = s;
			}
			if (x->kind == READ || x->kind == GET) {
				x->of = task_before(x->kind == READ ? WRITE : PUT, x->rank, s);
				if (x->of < 0) {
					continue;
				}
				x->target = t[x->of].target;
				x->count = t[x->of].count;
				x->first = t[x->of].first;
				x->at = got[x->rank];
				got[x->rank] += x->count;
			} else if (x->kind == WRITE) {
				x->first = in_file;
				in_file += x->count;
			} else if (x->kind == ADD) {
				x->first = below(COUNTERS);
				x->count = 1;
			} else if (in_window + x->count > CELLS) {
				continue;
			} else {
				x->first = in_window;
				in_window += x->count;
			}
			x->request = MPI_REQUEST_NULL;
			tasks++;
		}
	}
	come = got[rank] + 1;
}

/* Open MPI has windows of memory that it has not allocated only if ranks may read the memory of others. */
static void make_window(int allocate, double **at, MPI_Win *w) {
	const MPI_Aint bytes = CELLS * sizeof **at;
	if (!allocate) {
		MPI_Alloc_mem(bytes, MPI_INFO_NULL, at);
		MPI_Comm_set_errhandler(comms[1], MPI_ERRORS_RETURN);
		allocate = MPI_Win_create(*at, bytes, sizeof **at, MPI_INFO_NULL, comms[1], w) != MPI_SUCCESS;
		MPI_Comm_set_errhandler(comms[1], MPI_ERRORS_ARE_FATAL);
	}
	if (allocate) {
		MPI_Win_allocate(bytes, sizeof **at, MPI_INFO_NULL, comms[1], at, w);
	}
}

static void open_beside(const char *dir, int allocate) {
	char path[4096];
	for (int i = 0; i < WINDOWS; i++) {
		make_window(allocate, &cells[i], &windows[i]);
		memset(cells[i], 0, CELLS * sizeof(double));
	}
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof path, "%s/%s", dir, i == 0 ? "own" : "common");
		if (MPI_File_open(comms[1], path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, i == 0 ? &own : &common) !=
			MPI_SUCCESS) {
			fail("MPI_File_open", i);
		}
	}
	gained = calloc((size_t)come, sizeof *gained);
	row = calloc((size_t)size * BLOCK, sizeof *row);
	block = calloc(BLOCK, sizeof *block);
	rows = MPI_REQUEST_NULL;
}

static void protect_beside(void) {
	keep("cells", cells[OF_ALL], CELLS, HF_DOUBLE);
	keep("fenced", cells[OF_FENCES], CELLS, HF_DOUBLE);
	keep("locked", cells[OF_LOCKS], CELLS, HF_DOUBLE);
	keep("gained", gained, (size_t)come, HF_DOUBLE);
	keep("row", row, (size_t)size * BLOCK, HF_DOUBLE);
}

static int of_file(const struct task *x) { return x->kind == WRITE || x->kind == READ; }

/* name_task protects the request of a task, or that of the row where x is NULL; forget_task ends that. */
static const char *task_name(const struct task *x) { return name("task", x != NULL ? (int)(x - t) : -1); }

static void name_task(struct task *x) {
	if (protect && (x == NULL || of_file(x)) &&
		hf_protect_request(task_name(x), x != NULL ? &x->request : &rows) != HF_OK) {
		fail("hf_protect_request of a task", x != NULL ? (int)(x - t) : -1);
	}
}

static void forget_task(const struct task *x) {
	if (protect && (x == NULL || of_file(x)) && hf_unprotect(task_name(x)) != HF_OK) {
		fail("hf_unprotect of a task", x != NULL ? (int)(x - t) : -1);
	}
}

static void locked(const struct task *x, const MPI_Win w) {
	double back[200 + 1];
	MPI_Win_lock(x->how == 0 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, x->target, 0, w);
	MPI_Put(x->out, x->count, MPI_DOUBLE, x->target, x->first, x->count, MPI_DOUBLE, w);
	if (x->how == 1) {
		point(1);
	}
	if (x->how == 2) {
		MPI_Win_flush(x->target, w);
		MPI_Get(back, x->count, MPI_DOUBLE, x->target, x->first, x->count, MPI_DOUBLE, w);
	}
	MPI_Win_unlock(x->target, w);
	if (x->how == 2 && memcmp(back, x->out, (size_t)x->count * sizeof *back) != 0) {
		fail("a locked window has other contents", (int)(x - t));
	}
}

static void start_task(struct task *x) {
	const int n = x->count, to = x->target, r = x->how == 1;
	const MPI_Offset at = (MPI_Offset)(x->first * sizeof(double));
	const MPI_Win w = windows[OF_ALL];
	x->out = malloc((size_t)n * sizeof *x->out);
	for (int i = 0; i < n; i++) {
		x->out[i] = x->kind == ADD ? 1 + (double)(x - t) : task_value((int)(x - t), i);
	}
	name_task(x);
	switch (x->kind) {
	case WRITE:
		MPI_File_iwrite_at(own, at, x->out, n, MPI_DOUBLE, &x->request);
		break;
	case READ:
		MPI_File_iread_at(own, at, gained + x->at, n, MPI_DOUBLE, &x->request);
		break;
	case PUT:
		r ? MPI_Rput(x->out, n, MPI_DOUBLE, to, x->first, n, MPI_DOUBLE, w, &x->request)
		  : MPI_Put(x->out, n, MPI_DOUBLE, to, x->first, n, MPI_DOUBLE, w);
		break;
	case GET:
		r ? MPI_Rget(gained + x->at, n, MPI_DOUBLE, to, x->first, n, MPI_DOUBLE, w, &x->request)
		  : MPI_Get(gained + x->at, n, MPI_DOUBLE, to, x->first, n, MPI_DOUBLE, w);
		break;
	case ADD:
		r ? MPI_Raccumulate(x->out, n, MPI_DOUBLE, to, x->first, n, MPI_DOUBLE, MPI_SUM, w, &x->request)
		  : MPI_Accumulate(x->out, n, MPI_DOUBLE, to, x->first, n, MPI_DOUBLE, MPI_SUM, w);
		break;
	default:
		locked(x, windows[OF_LOCKS]);
	}
}

static void check_values(const double *in, int k, int n, const char *what) {
	for (int i = 0; i < n; i++) {
		if (in[i] != task_value(k, i)) {
			printf("rank %d: value %d of task %d is %g, not %g\n", rank, i, k, in[i], task_value(k, i));
			fail(what, k);
		}
	}
}

static void end_task(struct task *x) {
	MPI_Wait(&x->request, MPI_STATUS_IGNORE);
	forget_task(x);
	if (x->kind == PUT || x->kind == GET || x->kind == ADD) { /* MPICH 4.0 does not wait in flush_local */
		x->how == 2 ? MPI_Win_flush_all(windows[OF_ALL]) : MPI_Win_flush(x->target, windows[OF_ALL]);
	}
	if (x->kind == READ || x->kind == GET) {
		check_values(gained + x->at, x->of, x->count, x->kind == READ ? "a file" : "a get");
	}
	free(x->out);
	x->out = NULL;
}

/* A fence after the other: each rank gets from its right what it has put there by the one before. */
enum { EVERY_FENCE = 5 };
static double fenced[3];
static void fence(int s) {
	const MPI_Win w = windows[OF_FENCES];
	const int right = (rank + 1) % size;
	fenced[0] = task_value(s, rank);
	fenced[1] = 1;
	MPI_Win_fence(MPI_MODE_NOPRECEDE, w);
	MPI_Put(&fenced[0], 1, MPI_DOUBLE, right, COUNTERS + s, 1, MPI_DOUBLE, w);
	MPI_Accumulate(&fenced[1], 1, MPI_DOUBLE, 0, 0, 1, MPI_DOUBLE, MPI_SUM, w);
	if (s >= EVERY_FENCE) {
		MPI_Get(&fenced[2], 1, MPI_DOUBLE, right, COUNTERS + s - EVERY_FENCE, 1, MPI_DOUBLE, w);
	}
}

static void end_fence(int s) {
	MPI_Win_fence(MPI_MODE_NOSUCCEED, windows[OF_FENCES]);
	if (cells[OF_FENCES][COUNTERS + s] != task_value(s, (rank + size - 1) % size) ||
		(s >= EVERY_FENCE && fenced[2] != task_value(s - EVERY_FENCE, rank))) {
		fail("a fence", s);
	}
}

/* Rows of the common file are written every fourth step, every other one by a request. */
static MPI_Offset row_at(int s, int of_rank) {
	return ((MPI_Offset)s * size + of_rank) * BLOCK * (MPI_Offset)sizeof *row;
}

static void write_row(int s) {
	for (int i = 0; i < BLOCK; i++) {
		block[i] = task_value(s, rank + i);
	}
	if (s % 8 == 1) {
		name_task(NULL);
		MPI_File_iwrite_at_all(common, row_at(s, rank), block, BLOCK, MPI_DOUBLE, &rows);
	} else {
		MPI_File_write_at_all(common, row_at(s, rank), block, BLOCK, MPI_DOUBLE, MPI_STATUS_IGNORE);
	}
}

static void wait_row(void) {
	MPI_Wait(&rows, MPI_STATUS_IGNORE);
	forget_task(NULL);
}

/* Without MPI_File_sync, which Open MPI refuses to a rank that has a request for any file. All are on one host. */
static void read_row(int s) {
	MPI_Barrier(comms[1]);
	name_task(NULL);
	MPI_File_iread_at_all(common, row_at(s, 0), row, size * BLOCK, MPI_DOUBLE, &rows);
}

static void check_row(int s) {
	for (int i = 0; i < size * BLOCK; i++) {
		if (row[i] != task_value(s, i / BLOCK + i % BLOCK)) {
			fail("a row of the file", s);
		}
	}
}

/* What lies before the messages of a step, and behind them. */
static void list_starts(int s) {
	for (int k = 0; k < tasks; k++) {
		if (t[k].rank == rank && t[k].start_step == s) {
			add(START, k);
		}
	}
}

static void list_ends(int s, int steps) {
	for (int k = 0; k < tasks; k++) {
		if (t[k].rank == rank && t[k].end_step == s) {
			add(END, k);
		}
	}
	if (s % EVERY_FENCE == EVERY_FENCE - 1) {
		add(FENCE, s);
		add(END_FENCE, s);
	}
	if (s % 4 == 1 && s < steps) {
		add(WRITE_ROW, s);
	}
	if (s % 4 == 2 && s / 4 % 2 == 0) {
		add(WAIT_ROW, s - 1);
	}
	if (s % 4 == 3 && s < steps) {
		add(READ_ROW, s - 2);
	}
	if (s % 4 == 0 && s > 0) {
		add(CHECK_ROW, s - 3);
	}
}

static int starts_row(const struct operation *o) {
	return (o->what == WRITE_ROW && o->k % 8 == 1) || o->what == READ_ROW;
}

/* ends reports whether what o has begun is over behind another operation. */
static int ends(const struct operation *other, const struct operation *o) {
	return other->k == o->k &&
		(other->what == END ? o->what == START
							: (other->what == WAIT_ROW || other->what == CHECK_ROW) && starts_row(o));
}

static void run_beside(const struct operation *o) {
	switch (o->what) {
	case START:
		start_task(&t[o->k]);
		break;
	case END:
		end_task(&t[o->k]);
		break;
	case FENCE:
		fence(o->k);
		break;
	case END_FENCE:
		end_fence(o->k);
		break;
	case WRITE_ROW:
		write_row(o->k);
		break;
	case READ_ROW:
		read_row(o->k);
		break;
	case CHECK_ROW:
		wait_row();
		check_row(o->k);
		break;
	default:
		wait_row();
	}
}

/* check_beside looks at all cells and records when all ranks have done their part. */
static void check_beside(void) {
	double counters[COUNTERS] = { 0 }, *record = malloc(200 * sizeof *record);
	MPI_Win_unlock_all(windows[OF_ALL]);
	MPI_File_sync(own);
	MPI_Barrier(comms[1]);
	MPI_File_sync(own);
	for (int k = 0; k < tasks; k++) {
		const struct task *x = &t[k];
		if (x->kind == WRITE && x->rank == (rank + 1) % size) {
			MPI_File_read_at(own, (MPI_Offset)(x->first * sizeof *record), record, x->count, MPI_DOUBLE,
				MPI_STATUS_IGNORE);
			check_values(record, k, x->count, "a file at the end");
		} else if (x->kind == PUT && x->target == rank) {
			check_values(cells[OF_ALL] + x->first, k, x->count, "a window at the end");
		} else if (x->kind == LOCKED && x->target == rank) {
			MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, windows[OF_LOCKS]);
			check_values(cells[OF_LOCKS] + x->first, k, x->count, "a locked window at the end");
			MPI_Win_unlock(rank, windows[OF_LOCKS]);
		} else if (x->kind == ADD && x->target == rank) {
			counters[x->first] += k + 1;
		}
	}
	free(record);
	if (memcmp(counters, cells[OF_ALL], sizeof counters) != 0) {
		fail("a counter", 0);
	}
}

static void close_beside(void) {
	for (int i = 0; i < WINDOWS; i++) {
		MPI_Win_free(&windows[i]);
	}
	MPI_File_close(&own);
	MPI_File_close(&common);
}
