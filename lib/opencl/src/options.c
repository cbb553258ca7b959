/* Files that a source includes are looked for by the compiler at the server, whose working directory is another one. So
   it gets the program's directories by their whole names. */
#define _GNU_SOURCE
#include "hfcl.h"
#include <stdio.h>
#include <unistd.h>

/* directory gives where in an option for a directory of headers its name begins, NULL for other options. */
static const char *directory(const char *option) {
	return strncmp(option, "-I", 2) == 0 ? option + 2 + strspn(option + 2, " \t\n") : NULL;
}

/* includes_own reports whether a source includes something else than <a header of the compiler>. */
static bool includes_own(const char *source) {
	for (const char *at = source == NULL ? NULL : strchr(source, '#'); at != NULL; at = strchr(at, '#')) {
		at++;
		at += strspn(at, " \t");
		if (strncmp(at, "include", 7) == 0 && at[7 + strspn(at + 7, " \t")] != '<') {
			return true;
		}
	}
	return false;
}

/* placed gives options as a compiler elsewhere has to see them. */
static char *placed(const char *options, const char *source) {
	char *own = getcwd(NULL, 0), *text = NULL;
	size_t size;
	FILE *to = own == NULL ? NULL : open_memstream(&text, &size);
	if (to == NULL) { /* without a working directory nothing is found in it */
		free(own);
		return strdup(options);
	}
	bool quoted = false;
	for (const char *at = options; *at != 0; at++) {
		bool begins = !quoted && (at == options || strchr(" \t\n", at[-1]) != NULL);
		const char *name = begins ? directory(at) : NULL;
		if (name != NULL) {
			name += *name == '"';
			fwrite(at, 1, (size_t)(name - at), to);
			quoted = name[-1] == '"';
			if (*name != '/' && *name != 0) {
				fprintf(to, "%s/", own);
			}
			at = name;
			if (*at == 0) {
				break;
			}
		}
		quoted ^= *at == '"';
		putc(*at, to);
	}
	if (includes_own(source) && strpbrk(own, " \t\n") == NULL) { /* compilers differ in how they take such a name */
		fprintf(to, " -I %s", own);
	}
	free(own);
	if (fclose(to) != 0) {
		free(text);
		return NULL;
	}
	return text;
}

bool hfcl_add_source(struct recipe *r, const char *text, size_t size, const char *options) {
	char *whole = placed(options, text);
	bool added = whole != NULL && hfcl_add_unit(r, text, size, whole);
	free(whole);
	return added;
}
