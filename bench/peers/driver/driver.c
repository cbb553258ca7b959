/* One rank of a program that takes checkpoints with another library, compiled by
 * holdfast bench peers against the user's installation with -DUSE_VELOC, -DUSE_SCR
 * or -DUSE_FTI.
 *
 * usage: driver write|restart DIR BYTES RUNS CONFIG
 *
 * write times raw write+fsync and read of BYTES a rank, and checkpoints of them;
 * restart, a new start, times getting them back and compares every byte. Rank 0
 * prints lines "name, tab, seconds" of the slowest rank, one for each run. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(USE_VELOC)
#include <veloc.h>
#elif defined(USE_SCR)
#include <scr.h>
#elif defined(USE_FTI)
#include <fti.h>
#endif

static MPI_Comm world;
static int rank;
static char *mem, *back;
static long bytes;
static const char *dir;

static void die(const char *what) {
	fprintf(stderr, "rank %d: %s failed\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static void fill(char *to, int version) {
	unsigned long long z = 88172645463325252ULL + 1000003ULL * (unsigned long long)rank + (unsigned long long)version;
	for (long i = 0; i + 8 <= bytes; i += 8) {
		z ^= z << 13; z ^= z >> 7; z ^= z << 17;
		memcpy(to + i, &z, 8);
	}
}

static void put(const char *name, int sync) {
	int f = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0644);
	if (f < 0) die("open for writing");
	for (long at = 0; at < bytes;) {
		ssize_t n = write(f, mem + at, (size_t)(bytes - at));
		if (n <= 0) die("write");
		at += n;
	}
	if (sync && fsync(f)) die("fsync");
	if (close(f)) die("close");
}

static void get(const char *name, char *to) {
	int f = open(name, O_RDONLY);
	if (f < 0) die("open for reading");
	for (long at = 0; at < bytes;) {
		ssize_t n = read(f, to + at, (size_t)(bytes - at));
		if (n <= 0) die("read");
		at += n;
	}
	close(f);
}

static double start(void) { MPI_Barrier(world); return MPI_Wtime(); }

static double slowest(double since) {
	double mine = MPI_Wtime() - since, all = 0;
	MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, world);
	return all;
}

static void list(const char *name, const double *v, int n) {
	if (rank) return;
	printf("\n"); /* a library may have left its line open */
	for (int i = 0; i < n; i++) printf("%s\t%.9f\n", name, v[i]);
}

/* The libraries: begin, take (waits gets the time that the program waits, and take
 * returns when the checkpoint is as durable as it gets), recover, end. */
#if defined(USE_VELOC)
static void begin(const char *config) {
	if (VELOC_Init(world, config) != VELOC_SUCCESS) die("VELOC_Init");
	if (VELOC_Mem_protect(0, mem, (size_t)bytes, 1) != VELOC_SUCCESS) die("VELOC_Mem_protect");
}
static void take(int version, double since, double *waits) {
	if (VELOC_Checkpoint("bench", version) != VELOC_SUCCESS) die("VELOC_Checkpoint");
	*waits = slowest(since);
	if (VELOC_Checkpoint_wait() != VELOC_SUCCESS) die("VELOC_Checkpoint_wait");
}
static void recover(void) {
	int v = VELOC_Restart_test("bench", 0);
	if (v < 0 || VELOC_Restart("bench", v) != VELOC_SUCCESS) die("VELOC_Restart");
}
static void end(void) { VELOC_Finalize(0); }
#elif defined(USE_SCR)
static const char *prefix; /* names of files are absolute, and below it */
static void begin(const char *config) { prefix = config; if (SCR_Init() != SCR_SUCCESS) die("SCR_Init"); }
static void take(int version, double since, double *waits) {
	char name[64], file[4096], path[SCR_MAX_FILENAME];
	snprintf(name, sizeof name, "bench.%d", version);
	snprintf(file, sizeof file, "%s/%s/rank_%d.ckpt", prefix, name, rank);
	if (SCR_Start_output(name, SCR_FLAG_CHECKPOINT) != SCR_SUCCESS) die("SCR_Start_output");
	if (SCR_Route_file(file, path) != SCR_SUCCESS) die("SCR_Route_file");
	put(path, 0);
	if (SCR_Complete_output(1) != SCR_SUCCESS) die("SCR_Complete_output");
	*waits = slowest(since);
}
static void recover(void) {
	int have = 0;
	char name[SCR_MAX_FILENAME], file[SCR_MAX_FILENAME + 4096], path[SCR_MAX_FILENAME];
	if (SCR_Have_restart(&have, name) != SCR_SUCCESS || !have) die("SCR_Have_restart");
	if (SCR_Start_restart(name) != SCR_SUCCESS) die("SCR_Start_restart");
	snprintf(file, sizeof file, "%s/%s/rank_%d.ckpt", prefix, name, rank);
	if (SCR_Route_file(file, path) != SCR_SUCCESS) die("SCR_Route_file");
	get(path, mem);
	if (SCR_Complete_restart(1) != SCR_SUCCESS) die("SCR_Complete_restart");
}
static void end(void) { SCR_Finalize(); }
#elif defined(USE_FTI)
static void begin(const char *config) {
	if (FTI_Init(config, MPI_COMM_WORLD) != FTI_SCES) die("FTI_Init");
	world = FTI_COMM_WORLD;
	if (FTI_Protect(0, mem, bytes, FTI_CHAR) != FTI_SCES) die("FTI_Protect");
}
static void take(int version, double since, double *waits) {
	if (FTI_Checkpoint(version, 1) != FTI_DONE) die("FTI_Checkpoint");
	*waits = slowest(since);
}
static void recover(void) { if (!FTI_Status() || FTI_Recover() != FTI_SCES) die("FTI_Recover"); }
static void end(void) { FTI_Finalize(); }
#endif

int main(int argc, char **argv) {
	enum { MOST = 100 };
	double raw[MOST], rawread[MOST], waits[MOST], durable[MOST];
	char name[4096];
	if (argc != 6) return 2;
	MPI_Init(&argc, &argv);
	world = MPI_COMM_WORLD;
	MPI_Comm_rank(world, &rank);
	dir = argv[2];
	bytes = atol(argv[3]);
	int runs = atoi(argv[4]);
	if (runs < 1 || runs > MOST) return 2;
	mem = malloc((size_t)bytes);
	back = malloc((size_t)bytes);
	if (!mem || !back) die("malloc");
	memset(mem, 1, (size_t)bytes);
	fill(back, runs); /* the contents of the newest checkpoint, version runs */
	begin(argv[5]);
	if (!strcmp(argv[1], "restart")) {
		double since = start();
		recover();
		double took = slowest(since);
		int same = !memcmp(mem, back, (size_t)(bytes & ~7L)), all = 0;
		MPI_Allreduce(&same, &all, 1, MPI_INT, MPI_MIN, world);
		list("restart", &took, all);
		end();
		MPI_Finalize();
		return 0;
	}
	snprintf(name, sizeof name, "%s/raw-%d", dir, rank);
	for (int i = 0; i < runs; i++) {
		fill(mem, i + 1);
		double since = start();
		put(name, 1);
		raw[i] = slowest(since);
		get(name, back); /* fills the page cache */
		since = start();
		get(name, back);
		rawread[i] = slowest(since);
		since = start();
		take(i + 1, since, &waits[i]);
		durable[i] = slowest(since);
	}
	unlink(name);
	list("raw", raw, runs);
	list("rawread", rawread, runs);
	list("waits", waits, runs);
	list("durable", durable, runs);
	fflush(stdout);
	end();
	MPI_Finalize();
	return 0;
}
