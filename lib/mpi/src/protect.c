/* protect.c - the requests that the program has named, and their records of a restart. */
#include <stdlib.h>
#include <string.h>

#include "layer.h"

struct hfm_named *hfm_named;
struct hfm_kept *hfm_kept;
const struct hf_memory *hfm_memory;
bool hfm_may_post;
const char *(*hfm_post)(void);

const struct hfm_named *hfm_named_as(const char *name) {
	const struct hfm_named *w = hfm_named;
	while (w != NULL && strcmp(w->name, name) != 0) {
		w = w->next;
	}
	return w;
}

/* hfm_protect names a variable, or gives a name another one. A request that a restart has brought under the name is
 * made again, once the program's memory is as it was. */
const char *hfm_protect(const char *name, void *variable, int fortran, const struct hf_memory *memory) {
	struct hfm_named **at = &hfm_named;
	hfm_memory = memory;
	while (*at != NULL && strcmp((*at)->name, name) != 0) {
		at = &(*at)->next;
	}
	if (*at == NULL) {
		*at = hfm_need(calloc(1, sizeof **at));
		(*at)->name = hfm_need(strdup(name));
	}
	(*at)->variable = variable;
	(*at)->fortran = fortran != 0;
	return hfm_may_post && hfm_kept != NULL ? hfm_post() : NULL;
}

/* hfm_unprotect forgets a name; NULL: all. It is false if there is none. */
bool hfm_unprotect(const char *name) {
	struct hfm_named **at = &hfm_named;
	bool any = false;
	while (*at != NULL) {
		struct hfm_named *w = *at;
		if (name != NULL && strcmp(w->name, name) != 0) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		free(w->name);
		free(w);
		any = true;
	}
	hfm_may_post = hfm_may_post && name != NULL;
	return any;
}

const char *hfm_post_again(void) {
	hfm_may_post = true;
	return hfm_kept != NULL ? hfm_post() : NULL;
}

void hfm_forget_kept(struct hfm_kept *k) {
	struct hfm_kept **at = &hfm_kept;
	while (*at != NULL && *at != k) {
		at = &(*at)->next;
	}
	if (*at == k) {
		*at = k->next;
	}
	free(k->name);
	free(k->comm);
	free(k->call);
	free(k->array);
	free(k->type);
	free(k->mail);
	free(k);
}
