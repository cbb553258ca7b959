/* tool.c - finds the command holdfast, and makes its environment. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"

extern char **environ;

const char *hf_tool(char beside[PATH_MAX]) {
	static const char here;
	const char *named = getenv("HOLDFAST_BIN"), *end;
	Dl_info self;
	int n;

	if (named != NULL && *named != 0) {
		return named;
	}
	if (dladdr(&here, &self) != 0 && self.dli_fname != NULL && (end = strrchr(self.dli_fname, '/')) != NULL) {
		n = snprintf(beside, PATH_MAX, "%.*s/../bin/holdfast", (int)(end - self.dli_fname), self.dli_fname);
		if (n < PATH_MAX && access(beside, X_OK) == 0) {
			return beside;
		}
	}
	return "holdfast";
}

char **hf_tool_environ(void) {
	char **vars;
	size_t n = 0, i;

	while (environ[n] != NULL) {
		n++;
	}
	if ((vars = calloc(n + 1, sizeof *vars)) == NULL) {
		return NULL;
	}
	for (i = n = 0; environ[i] != NULL; i++) {
		if (strncmp(environ[i], "LD_PRELOAD=", 11) != 0 && strncmp(environ[i], "DMTCP_", 6) != 0) {
			vars[n++] = environ[i];
		}
	}
	return vars;
}
