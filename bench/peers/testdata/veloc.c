/* A stand-in for VeloC: one file per rank in the directory "scratch" of its configuration. FLIP in the environment
 * makes it damage the restored memory. */
#include "veloc.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char file[4096];
static char *mem;
static size_t size;

int VELOC_Init(MPI_Comm comm, const char *cfg) {
	char line[4096], dir[4000];
	int rank;
	FILE *f = fopen(cfg, "r");
	if (!f || !fgets(line, sizeof line, f) || sscanf(line, "scratch = %3999s", dir) != 1) return 1;
	fclose(f);
	MPI_Comm_rank(comm, &rank);
	snprintf(file, sizeof file, "%s/%d", dir, rank);
	return 0;
}
int VELOC_Mem_protect(int id, void *ptr, size_t count, size_t base) {
    (void)id;
    mem = ptr;
    size = count * base;
    return 0;
}
int VELOC_Checkpoint(const char *name, int version) {
	FILE *f = fopen(file, "w");
	(void)name;
	int bad = !f || fwrite(&version, sizeof version, 1, f) != 1 || fwrite(mem, 1, size, f) != size;
	return bad || fclose(f);
}
int VELOC_Checkpoint_wait(void) { return 0; }
int VELOC_Restart_test(const char *name, int version) {
	FILE *f = fopen(file, "r");
	(void)name;
	if (!f || fread(&version, sizeof version, 1, f) != 1) return -1;
	fclose(f);
	return version;
}
int VELOC_Restart(const char *name, int version) {
	FILE *f = fopen(file, "r");
	(void)name;
	if (!f || fread(&version, sizeof version, 1, f) != 1 || fread(mem, 1, size, f) != size) return 1;
	if (getenv("FLIP")) mem[size / 2] ^= 1;
	return fclose(f);
}
int VELOC_Finalize(int drain) { (void)drain; return 0; }
