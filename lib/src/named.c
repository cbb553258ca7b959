/* named.c - checkpoints with a name and a version that the program chooses. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "client.h"

static const char *const between = "call it between hf_init and hf_finalize";

/* Length of a name that checkpoints can have; 0 for another. */
static size_t length(const char *name) {
	const size_t n = name != NULL ? strnlen(name, HFP_NAME_BYTES + 1) : 0;

	return n > 0 && n <= HFP_NAME_BYTES &&
			strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n
		? n
		: 0;
}

static int bad_name(const char *call) {
	return hf_fail(
		HF_E_ARG, "%s: the name of a checkpoint has 1 to %d letters, digits, '.', '_', '-'", call, HFP_NAME_BYTES);
}

static uint32_t keep_of(const struct hf_client *c, const char *name) {
	size_t i;

	for (i = 0; i < c->nkept; i++) {
		if (strcmp(c->kept[i].name, name) == 0) {
			return c->kept[i].keep;
		}
	}
	return 0;
}

API int hf_keep(const char *name, int versions) {
	struct hf_client *c = &hf_the;
	struct hf_kept *more;
	size_t i;
	int code = hf_in_turn("hf_keep", HF_READY, HF_RESTORED_STAGE, between);

	if (code != HF_OK) {
		return code;
	}
	if (length(name) == 0) {
		return bad_name("hf_keep");
	}
	if (versions != 0 && versions < 2) {
		return hf_fail(HF_E_ARG,
			"hf_keep \"%s\": %d is too few; the one before the newest is what is left when a job "
			"dies while it writes: keep 2 or more",
			name, versions);
	}
	for (i = 0; i < c->nkept; i++) {
		if (strcmp(c->kept[i].name, name) == 0) {
			c->kept[i].keep = (uint32_t)versions;
			return HF_OK;
		}
	}
	more = realloc(c->kept, (c->nkept + 1) * sizeof *more);
	if (more != NULL) {
		c->kept = more;
	}
	if (more == NULL || (more[c->nkept].name = strdup(name)) == NULL) {
		return hf_fail(HF_E_MEMORY, "hf_keep \"%s\": no memory", name);
	}
	more[c->nkept++].keep = (uint32_t)versions;
	return HF_OK;
}

/* Numbers of arrays by their names. */
static int numbers(const char *call, const char *const *arrays, size_t n, void *to) {
	char *at = to;
	size_t i;

	if (n > HFP_MOST_PICKED) {
		return hf_fail(HF_E_ARG, "%s: %zu arrays are too many to be chosen, %d is the most; protect some as one", call,
			n, HFP_MOST_PICKED);
	}
	for (i = 0; i < n; i++) {
		const struct hf_array *a = arrays[i] != NULL ? hf_array_named(&hf_the, arrays[i]) : NULL;
		uint32_t id;
		if (a == NULL || a->dropped) {
			return hf_fail(HF_E_ARG, "%s: \"%s\" is not protected", call, arrays[i] != NULL ? arrays[i] : "NULL");
		}
		id = (uint32_t)(a - hf_the.arrays);
		memcpy(at + i * sizeof id, &id, sizeof id);
	}
	return HF_OK;
}

/* Sends a message about checkpoints of a name. picked is HFP_ALL, or how many numbers follow the name. */
static int named(const char *name, struct hfp_named *m, uint16_t type, uint32_t picked, uint64_t *value) {
	m->keep = keep_of(&hf_the, name);
	m->picked = picked;
	m->n = (uint32_t)strlen(name);
	memcpy(m->text, name, m->n);
	if (picked == HFP_ALL) {
		picked = 0;
	}
	return hf_call(&hf_the, m, type, offsetof(struct hfp_named, text) + m->n + picked * sizeof(uint32_t), value);
}

static int not_begun(const char *call) {
	int code = hf_in_turn(call, HF_READY, HF_RESTORED_STAGE, between);

	if (code == HF_OK && hf_the.restarting) {
		code = hf_fail(HF_E_ORDER, "%s: a restart was begun; call hf_restart_end first", call);
	}
	return code;
}

int hf_save(const char *name, int64_t version, const char *const *arrays, size_t n, bool all) {
	struct hfp_named *m;
	int code = not_begun("hf_checkpoint");

	if (code != HF_OK) {
		return code;
	}
	if (length(name) == 0) {
		return bad_name("hf_checkpoint");
	}
	if (hf_unsure(&hf_the)) {
		return hf_refuse(&hf_the, "hf_checkpoint");
	}
	if (version >= 0 && (code = hf_refresh(&hf_the)) != HF_OK) {
		return code;
	}
	if ((m = malloc(sizeof *m)) == NULL) {
		return hf_fail(HF_E_MEMORY, "hf_checkpoint \"%s\": no memory", name);
	}
	m->version = version; /* a negative one fails on all ranks */
	code = numbers("hf_checkpoint", arrays, n, m->text + strlen(name));
	if (code == HF_OK) {
		code = named(name, m, HFP_SAVE, all ? HFP_ALL : (uint32_t)n, NULL);
	}
	free(m);
	return version < 0 && code == HF_E_FAILED ? HF_E_ARG : code;
}

API int hf_checkpoint_some(const char *name, int64_t version, const char *const *arrays, size_t n) {
	if (arrays == NULL && n > 0) {
		return hf_fail(HF_E_ARG, "hf_checkpoint_some: name the arrays");
	}
	return hf_save(name, version, arrays, n, false);
}

/* FIND and BEGIN. */
static int look(const char *call, const char *name, int64_t version, uint16_t type, uint64_t *value) {
	struct hfp_named *m;
	int code = not_begun(call);

	if (code != HF_OK) {
		return code;
	}
	if (length(name) == 0) {
		return bad_name(call);
	}
	if (hf_unsure(&hf_the)) {
		return hf_refuse(&hf_the, call);
	}
	if ((m = malloc(sizeof *m)) == NULL) {
		return hf_fail(HF_E_MEMORY, "%s: no memory", call);
	}
	m->version = version;
	code = named(name, m, type, HFP_ALL, value);
	free(m);
	return code;
}

API int hf_restart_test(const char *name, int64_t at_most, int64_t *version) {
	uint64_t found = 0;
	int code = look("hf_restart_test", name, at_most < 0 ? -1 : at_most, HFP_FIND, &found);

	if (code == HF_FOUND && version != NULL) {
		*version = (int64_t)found;
	}
	return code;
}

API int hf_restart_begin(const char *name, int64_t version) {
	int code;

	if (version < 0) {
		return hf_fail(
			HF_E_ARG, "hf_restart_begin: version %lld is negative; hf_restart_test finds one", (long long)version);
	}
	code = look("hf_restart_begin", name, version, HFP_BEGIN, NULL);
	hf_the.restarting = hf_the.restarting || code == HF_OK;
	return code;
}

static int begun(const char *call) {
	int code = hf_in_turn(call, HF_READY, HF_RESTORED_STAGE, between);

	if (code == HF_OK && !hf_the.restarting) {
		code = hf_fail(HF_E_ORDER, "%s: no restart was begun; call hf_restart_begin first", call);
	}
	return code;
}

API int hf_saved(const char *array, size_t *count, hf_type *type) {
	struct hfp_text m = { .flags = 0 };
	const size_t n = array != NULL ? strnlen(array, HFP_NAME_BYTES + 1) : 0;
	uint64_t value = 0;
	int code = hf_in_turn("hf_saved", HF_READY, HF_RESTORED_STAGE, between);

	if (code == HF_OK && !hf_the.restarting && hf_the.stage != HF_READY) {
		code = hf_fail(HF_E_ORDER, "hf_saved: call it before hf_restore, or after hf_restart_begin");
	}

	if (code != HF_OK) {
		return code;
	}
	if (n == 0 || n > HFP_NAME_BYTES) {
		return hf_fail(HF_E_ARG, "hf_saved: a name has 1 to %d bytes", HFP_NAME_BYTES);
	}
	m.n = (uint32_t)n;
	memcpy(m.text, array, n);
	code = hf_call(&hf_the, &m, HFP_HELD, offsetof(struct hfp_text, text) + n, &value);
	if (code <= 0) {
		return code;
	}
	if (count != NULL) {
		*count = (size_t)value;
	}
	if (type != NULL) {
		*type = (hf_type)code;
	}
	return HF_FOUND;
}

API int hf_recover(const char *const *arrays, size_t n) {
	struct hfp_picked *m;
	int code = begun("hf_recover");

	if (code != HF_OK) {
		return code;
	}
	if ((m = malloc(sizeof *m)) == NULL) {
		return hf_fail(HF_E_MEMORY, "hf_recover: no memory");
	}
	if (arrays == NULL) {
		n = 0;
	}
	m->zero = 0;
	m->picked = arrays == NULL ? HFP_ALL : (uint32_t)n;
	code = numbers("hf_recover", arrays, n, m->array);
	if (code == HF_OK) {
		code = hf_call(&hf_the, m, HFP_RECOVER, offsetof(struct hfp_picked, array) + n * sizeof m->array[0], NULL);
	}
	free(m);
	return code;
}

API int hf_restart_end(void) {
	struct hfp_header m;
	int code = begun("hf_restart_end");

	if (code != HF_OK) {
		return code;
	}
	hf_the.restarting = false;
	return hf_call(&hf_the, &m, HFP_END, sizeof m, NULL);
}

API int hf_restart(const char *name, int64_t version) {
	int code = hf_restart_begin(name, version), ended;

	if (code != HF_OK) {
		return code;
	}
	code = hf_recover(NULL, 0);
	ended = hf_restart_end();
	if (code != HF_OK) {
		return code;
	}
	return ended != HF_OK ? ended : HF_RESTORED;
}
