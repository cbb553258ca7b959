/* launch.c - who has started this process. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "launch.h"

const char *hf_environ(const char *name) {
	const char *v = getenv(name);

	return v != NULL && *v != 0 ? v : NULL;
}

void hf_launch_name(char *to, size_t room) {
	const char *space = hf_environ("PMIX_NAMESPACE"), *step = hf_environ("SLURM_STEP_ID");
	const char *job = hf_environ("SLURM_JOB_ID");

	if (space != NULL) {
		snprintf(to, room, "%s", space);
	} else if (step != NULL) {
		snprintf(to, room, "slurm.%s.%s", job != NULL ? job : "", step);
	} else {
		snprintf(to, room, "parent.%ld", (long)getppid());
	}
}
