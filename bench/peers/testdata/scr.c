/* A stand-in for SCR: files lie in SCR_CACHE_BASE, the name of the newest dataset in
 * SCR_PREFIX. As SCR does, it wants names below SCR_PREFIX, makes no directories of the
 * program's when it bypasses the cache, which is its default, and takes a call only
 * where it belongs. */
#include "scr.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum { CLOSED, IDLE, OUTPUT, RESTART } now;
static char open_name[256], newest[1024];
static int rank;

int SCR_Init(void) {
	if (now != CLOSED || !getenv("SCR_PREFIX") || !getenv("SCR_CACHE_BASE")) return 1;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	snprintf(newest, sizeof newest, "%s/newest", getenv("SCR_PREFIX"));
	now = IDLE;
	return 0;
}
int SCR_Finalize(void) { now = CLOSED; return 0; }
int SCR_Start_output(const char *name, int flags) {
	if (now != IDLE || flags != SCR_FLAG_CHECKPOINT) return 1;
	snprintf(open_name, sizeof open_name, "%s", name);
	now = OUTPUT;
	return 0;
}
int SCR_Route_file(const char *name, char *file) {
	const char *bypass = getenv("SCR_CACHE_BYPASS"), *prefix = getenv("SCR_PREFIX");
	if (now != OUTPUT && now != RESTART) return 1;
	if (strncmp(name, prefix, strlen(prefix)) || name[strlen(prefix)] != '/') return 1;
	if (!bypass || strcmp(bypass, "0")) snprintf(file, SCR_MAX_FILENAME, "%s", name);
	else snprintf(file, SCR_MAX_FILENAME, "%s/%s.%s", getenv("SCR_CACHE_BASE"), open_name, strrchr(name, '/') + 1);
	return 0;
}
int SCR_Complete_output(int valid) {
	FILE *f = NULL;
	if (now != OUTPUT || !valid) return 1;
	if (!rank && (!(f = fopen(newest, "w")) || fprintf(f, "%s\n", open_name) < 0 || fclose(f))) return 1;
	now = IDLE;
	return 0;
}
int SCR_Have_restart(int *flag, char *name) {
	FILE *f = fopen(newest, "r");
	*flag = f && fscanf(f, "%255s", name) == 1;
	if (f) fclose(f);
	return 0;
}
int SCR_Start_restart(char *name) {
	if (now != IDLE) return 1;
	snprintf(open_name, sizeof open_name, "%s", name);
	now = RESTART;
	return 0;
}
int SCR_Complete_restart(int valid) { int bad = now != RESTART || !valid; now = IDLE; return bad; }
