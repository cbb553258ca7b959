/* A process that holds BYTES of memory, for a checkpoint by DMTCP. usage: hold DIR BYTES It times raw write+fsync and
 * read, says "ready RAW READ" in the file DIR/ready, and ends when DIR/go is there: with 0 if its memory is unchanged.
 * */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static unsigned long long next(unsigned long long z) { z ^= z << 13; z ^= z >> 7; return z ^ z << 17; }

int main(int argc, char **argv) {
	char name[4096];
	if (argc != 3) return 2;
	long n = atol(argv[2]) / 8;
	unsigned long long *mem = malloc((size_t)n * 8), z = 88172645463325252ULL;
	if (!mem) return 2;
	for (long i = 0; i < n; i++) mem[i] = z = next(z);
	snprintf(name, sizeof name, "%s/raw", argv[1]);
	double since = now();
	int f = open(name, O_CREAT | O_TRUNC | O_RDWR, 0644);
	for (long at = 0; at < n * 8;) {
		ssize_t w = write(f, (char *)mem + at, (size_t)(n * 8 - at));
		if (w <= 0) return 2;
		at += w;
	}
	if (fsync(f)) return 2;
	double raw = now() - since;
	double rawread = 0;
	for (int round = 0; round < 2; round++) {
		lseek(f, 0, SEEK_SET);
		since = now();
		for (long at = 0; at < n * 8;) {
			ssize_t r = read(f, (char *)mem + at, (size_t)(n * 8 - at));
			if (r <= 0) return 2;
			at += r;
		}
		rawread = now() - since;
	}
	close(f);
	unlink(name);
	snprintf(name, sizeof name, "%s/ready.tmp", argv[1]);
	FILE *out = fopen(name, "w");
	if (!out) return 2;
	fprintf(out, "%.9f %.9f\n", raw, rawread);
	fclose(out);
	char to[4096];
	snprintf(to, sizeof to, "%s/ready", argv[1]);
	if (rename(name, to)) return 2;
	snprintf(name, sizeof name, "%s/go", argv[1]);
	struct timespec pause = {0, 2000000};
	while (access(name, F_OK)) nanosleep(&pause, NULL);
	z = 88172645463325252ULL;
	for (long i = 0; i < n; i++) {
		z = next(z);
		if (mem[i] != z) return 1;
	}
	return 0;
}
