/* side_by_side.c PROGRAM SEED N STEPS DIRECTORY - runs N of the random programs in a job, with seeds from SEED on: each
 * rank does a step of one after the other. PROGRAM is a library of random.c or random.f90; each gets variables of its
 * own. A rank whose environment has CUT=RANK:N asks for a final checkpoint before the operation that has N thousandths
 * of its operations before it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "holdfast_mpi.h"

enum { MOST = 64 };

static struct program {
	int (*begin)(int world, uint64_t seed, int steps, const char *dir, int number); /* returns its operations */
	void (*protect)(void);
	int (*resume)(int restored); /* returns how many of them are behind it */
	void (*step)(int step, void (*before)(void));
	void (*check)(void), (*close)(void);
} programs[MOST];

static int rank, cut_rank = -1, cut_at, began, at;

static _Noreturn void fail(const char *what, const char *why) {
	printf("rank %d: operation %d of all: %s: %s\n", rank, at, what, why);
	fflush(stdout);
	_exit(1);
}

/* load gives a program variables of its own: the dynamic linker takes a copy of the file for another library. */
static void load(struct program *p, const char *path) {
	static const char *const names[] = { "begin", "protect", "resume", "step", "check", "close" };
	void **functions = (void **)p, *library;
	char text[64];
	struct stat of;
	const int from = open(path, O_RDONLY | O_CLOEXEC), to = memfd_create("random", MFD_CLOEXEC);
	if (from < 0 || to < 0 || fstat(from, &of) != 0 || sendfile(to, from, NULL, (size_t)of.st_size) != of.st_size) {
		fail(path, "it cannot be copied");
	}
	snprintf(text, sizeof text, "/proc/self/fd/%d", to);
	if ((library = dlopen(text, RTLD_NOW | RTLD_LOCAL)) == NULL) {
		fail(path, dlerror());
	}
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(text, sizeof text, "random_%s", names[i]);
		if ((functions[i] = dlsym(library, text)) == NULL) {
			fail(path, dlerror());
		}
	}
	close(from);
	close(to);
}

/* before is called before each operation. A checkpoint that an open epoch has prevented is asked for again. */
static void before(void) {
	const int behind = rank == cut_rank && began <= cut_at ? at - cut_at : -1;
	if (behind >= 0 && behind % 16 == 0 && hf_request(1) != HF_OK) {
		fail("hf_request", hf_error());
	}
	if (behind > 0) {
		usleep(1000); /* the daemon has time to hear of it */
	}
	at++;
}

int main(int argc, char **argv) {
	static char room[1 << 20];
	const uint64_t seed = argc > 5 ? strtoull(argv[2], NULL, 10) : 0;
	const int n = argc > 5 ? atoi(argv[3]) : MOST + 1, steps = argc > 5 ? atoi(argv[4]) : 0;
	int size, operations = 0, bytes;
	long thousandths = 0;
	MPI_Comm world = MPI_COMM_WORLD;
	void *buffer;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(world, &rank);
	MPI_Comm_size(world, &size);
	MPI_Buffer_attach(room, sizeof room);
	if (n > MOST) {
		fail("usage", "side_by_side PROGRAM SEED N STEPS DIRECTORY");
	}
	for (int i = 0; i < n; i++) {
		char dir[4096];
		snprintf(dir, sizeof dir, "%s/%d", argv[5], i);
		mkdir(dir, 0777); /* another rank may have made it */
		load(&programs[i], argv[1]);
		if (i > 0) { /* the first one has the world itself */
			MPI_Comm_dup(MPI_COMM_WORLD, &world);
		}
		operations += programs[i].begin(MPI_Comm_c2f(world), seed + (uint64_t)i, steps, dir, i);
	}
	if (hf_init_mpi(MPI_COMM_WORLD) != HF_OK) {
		fail("hf_init", hf_error());
	}
	for (int i = 0; i < n; i++) {
		programs[i].protect();
	}
	const int restored = hf_restore();
	if (restored < 0) {
		fail("hf_restore", hf_error());
	}
	for (int i = 0; i < n; i++) {
		began += programs[i].resume(restored);
	}
	at = began;
	if (getenv("CUT") != NULL) {
		sscanf(getenv("CUT"), "%d:%ld", &cut_rank, &thousandths);
	}
	cut_at = (int)(thousandths * operations / 1000);
	for (int s = 0; s <= steps; s++) {
		for (int i = 0; i < n; i++) {
			programs[i].step(s, before);
		}
	}
	for (int i = 0; i < n; i++) {
		programs[i].check();
	}
	printf("rank %d of %d: right, %d operations of %d programs, began at %d\n", rank, size, operations, n, began);
	fflush(stdout);
	if (hf_finalize() != HF_OK) {
		fail("hf_finalize", hf_error());
	}
	for (int i = 0; i < n; i++) {
		programs[i].close();
	}
	MPI_Buffer_detach(&buffer, &bytes);
	MPI_Finalize();
	return 0;
}
