/* client.c - the client of this process, and the text of its last error: the lowest layer, which calls no other. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "client.h"

_Atomic uint64_t hf_armed = HFP_POINT_ARMED, hf_idle = 0; /* flags of a client that has no page */
_Atomic uint64_t hf_unseen;

struct hf_client hf_the = { .flags = &hf_armed, .points = &hf_unseen, .sock = -1 };

static _Thread_local char text[4096] = "no error";

int hf_fail(int code, const char *format, ...) {
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	return code;
}

int hf_fail_plain(int code, const char *what) {
	size_t n = 0;

	for (; what[n] != 0 && n < sizeof text - 1; n++) {
		text[n] = what[n];
	}
	text[n] = 0;
	return code;
}

API const char *hf_error(void) { return text; }

size_t hf_elem(hf_type type) {
	static const size_t bytes[] = { 0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 8, 16 };
	return (size_t)type < sizeof bytes / sizeof bytes[0] ? bytes[type] : 0;
}

int hf_in_turn(const char *call, enum hf_stage from, enum hf_stage to, const char *remedy) {
	if (hf_the.stage >= from && hf_the.stage <= to) {
		return HF_OK;
	}
	return hf_fail(HF_E_ORDER, "%s: %s", call, remedy);
}

void hf_free_heir(struct hf_client *c) {
	struct hf_heir *h = c->heir;

	c->heir = NULL;
	if (h == NULL) {
		return;
	}
	free(h->settings.program);
	free(h->settings.dir);
	free(h->settings.environ);
	free(h->settings.text);
	free(h);
}
