/* audit.c - the library as an auditor of the dynamic linker (LD_AUDIT): a program that opens the driver by a path or by
 * another name gets the library. The linker has a copy of it for that, of which nothing else runs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <sys/stat.h>

#include "library.h"

#define EXPORT __attribute__((visibility("default")))

static const char *own_file;

EXPORT unsigned la_version(unsigned version) {
	Dl_info info;

	if (dladdr(&own_file, &info) != 0) {
		own_file = info.dli_fname;
	}
	return version < LAV_CURRENT ? version : LAV_CURRENT;
}

EXPORT unsigned la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie) {
	(void)space;
	*cookie = (uintptr_t)map;
	return 0; /* calls need no look */
}

static bool is_own(const char *file) {
	struct stat a, b;

	return stat(file, &a) == 0 && stat(own_file, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* The library opens the driver, and the driver may open itself. */
EXPORT char *la_objsearch(const char *name, uintptr_t *cookie, unsigned flag) {
	const struct link_map *by = (const struct link_map *)*cookie;

	(void)flag;
	if (own_file == NULL || !hf_is_driver(name) || hf_is_driver(by->l_name) || is_own(by->l_name)) {
		return (char *)name;
	}
	return (char *)own_file;
}
