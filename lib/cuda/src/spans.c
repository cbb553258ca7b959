/* spans.c - addresses of the process. While the driver is stopped nothing of the program may come to where its memory
 * was, since the driver puts that back to its old place without a look. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "library.h"

bool hf_spans_read(struct hf_spans *spans) {
	FILE *in = fopen("/proc/self/maps", "re");
	struct hf_span *more, s;
	size_t room = 0, length = 0;
	char *line = NULL;
	bool all = in != NULL;

	*spans = (struct hf_spans){ 0 };
	while (all && getline(&line, &length, in) > 0) {
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &s.from, &s.to) != 2) {
			continue;
		}
		s.driver = strstr(line, " /dev/nvidia") != NULL;
		if (spans->count == room) {
			room = room == 0 ? 512 : room * 2;
			if ((more = realloc(spans->list, room * sizeof *more)) == NULL) {
				all = false;
				break;
			}
			spans->list = more;
		}
		spans->list[spans->count++] = s;
	}
	free(line);
	if (in != NULL) {
		fclose(in);
	}
	return all;
}

static bool reserve(uintptr_t from, uintptr_t to) {
	void *want, *at;

	memcpy(&want, &from, sizeof want);
	at = mmap(want, to - from, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	if (at != MAP_FAILED && at != want) { /* a kernel that takes the address for a hint */
		munmap(at, to - from);
	}
	return at == want;
}

bool hf_spans_fill(const struct hf_spans *before) {
	const struct hf_span *s, *a;
	struct hf_spans after;
	size_t i, j = 0, k;
	uintptr_t at;
	bool free_all = hf_spans_read(&after);

	for (i = 0; free_all && i < before->count; i++) {
		s = &before->list[i];
		while (j < after.count && after.list[j].to <= s->from) {
			j++;
		}
		for (at = s->from, k = j; free_all && at < s->to; k++) {
			a = k < after.count && after.list[k].from < s->to ? &after.list[k] : NULL;
			if (a == NULL || a->from > at) {
				free_all = reserve(at, a == NULL ? s->to : a->from);
			}
			if (a == NULL) {
				break;
			}
			at = a->to;
		}
	}
	free(after.list);
	return free_all;
}
