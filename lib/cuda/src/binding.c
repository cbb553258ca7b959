/* binding.c - finds the driver, and the function of each name. Nothing here runs while the driver initialises itself
 * but the resolver, which takes no lock. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "library.h"

const char *const hf_names[HF_COUNT] = { HF_NAMES };
hf_any *hf_real[HF_COUNT];
atomic_bool hf_bound;
struct hf_settings hf_settings = { .seed = 1, .calls = 1000, .wait = 60 };

/* Where distributions, containers and WSL have the driver, after LD_LIBRARY_PATH. */
static const char *const usual[] = { "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib/x86_64-linux-gnu",
	"/lib64", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib", "/run/opengl-driver/lib",
	"/usr/lib64/nvidia", "/usr/lib/nvidia" };

bool hf_is_driver(const char *file) {
	static const char driver[] = "libcuda.so";
	const char *name = strrchr(file, '/');

	name = name != NULL ? name + 1 : file;
	return strncmp(name, driver, sizeof driver - 1) == 0 &&
		(name[sizeof driver - 1] == 0 || name[sizeof driver - 1] == '.');
}

/* The C library's dlopen, or that of a tool. */
void *(*hf_dlopen)(const char *file, int flags);

/* The file that dlopen is to open. The dynamic linker finds the library by the name libcuda.so.1 alone. Some programs
 * (numba, OpenMP of LLVM) ask for libcuda.so, and would get the driver. */
const char *hf_file(const char *file);
const char *hf_file(const char *file) {
	void *at = dlsym(RTLD_NEXT, "dlopen");

	memcpy(&hf_dlopen, &at, sizeof at);
	return file != NULL && strcmp(file, "libcuda.so") == 0 ? "libcuda.so.1" : file;
}

static CUresult no_driver(void) { return CUDA_ERROR_NO_DEVICE; }

static CUresult no_function(void) { return CUDA_ERROR_NOT_SUPPORTED; }

/* If the library is an auditor, each path by which the program has opened the driver is a name of the library for the
 * dynamic linker. This path is spelt as no program does it. */
static void *driver_at(const char *folder, size_t length, const struct stat *self) {
	char path[4096];
	struct stat there;
	int n = snprintf(path, sizeof path, "%.*s/./libcuda.so.1", (int)length, folder);

	if (length == 0 || n < 0 || (size_t)n >= sizeof path || stat(path, &there) != 0 ||
		(there.st_dev == self->st_dev && there.st_ino == self->st_ino)) {
		return NULL;
	}
	return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/* The driver, by an absolute path: its name alone is this library's. */
static void *open_driver(void) {
	const char *named = getenv("HOLDFAST_CUDA_DRIVER"), *path = getenv("LD_LIBRARY_PATH");
	const char *slash = named != NULL ? strrchr(named, '/') : NULL;
	struct stat self = { 0 };
	void *driver = NULL;
	char spelt[4096];
	Dl_info info;
	size_t i, length;

	if (named != NULL && *named != 0) {
		snprintf(spelt, sizeof spelt, "%.*s%s%s", slash != NULL ? (int)(slash - named) : 0, named,
			slash != NULL ? "/./" : "", slash != NULL ? slash + 1 : named);
		if ((driver = dlopen(spelt, RTLD_NOW | RTLD_LOCAL)) == NULL) {
			hf_say("HOLDFAST_CUDA_DRIVER: %s", dlerror());
		} else if (dlsym(driver, "hf_cuda_ledger") != NULL) {
			hf_say("HOLDFAST_CUDA_DRIVER: %s is a name of this library", named);
			driver = NULL;
		}
		return driver;
	}
	if (dladdr(&hf_settings, &info) != 0) {
		(void)stat(info.dli_fname, &self);
	}
	for (; driver == NULL && path != NULL && *path != 0; path += length + (path[length] != 0)) {
		length = strcspn(path, ":;");
		driver = driver_at(path, length, &self);
	}
	for (i = 0; driver == NULL && i < sizeof usual / sizeof *usual; i++) {
		driver = driver_at(usual[i], strlen(usual[i]), &self);
	}
	return driver;
}

static uint64_t number(const char *name, uint64_t otherwise) {
	const char *text = getenv(name);
	char *end;
	uint64_t n;

	if (text == NULL || *text == 0) {
		return otherwise;
	}
	n = strtoull(text, &end, 10);
	if (*end != 0 || *text == '-') {
		hf_say("%s=%s is not a number, %llu is used", name, text, (unsigned long long)otherwise);
		return otherwise;
	}
	return n;
}

/* A variable that is on or off. */
static bool is_on(const char *name, bool otherwise) {
	const char *text = getenv(name);

	if (text == NULL || *text == 0) {
		return otherwise;
	}
	if (strcmp(text, "on") != 0 && strcmp(text, "off") != 0) {
		hf_say("%s=%s is neither on nor off, %s is used", name, text, otherwise ? "on" : "off");
		return otherwise;
	}
	return strcmp(text, "on") == 0;
}

static void read_settings(void) {
	const char *check = getenv("HOLDFAST_CUDA_CHECK"), *list = getenv("HOLDFAST_CUDA_LIST");

	hf_settings.pause = is_on("HOLDFAST_CUDA_PAUSE", false);
	hf_settings.arena = is_on("HOLDFAST_CUDA_ARENA", hf_settings.pause);
	hf_settings.share = is_on("HOLDFAST_CUDA_IPC", true);
	hf_settings.gate = hf_settings.pause || (check != NULL && *check != 0);
	hf_settings.moments = (unsigned)number("HOLDFAST_CUDA_CHECK", 0);
	hf_settings.seed = number("HOLDFAST_CUDA_SEED", hf_settings.seed);
	hf_settings.calls = number("HOLDFAST_CUDA_CALLS", hf_settings.calls);
	hf_settings.wait = (double)number("HOLDFAST_CUDA_WAIT", (uint64_t)hf_settings.wait);
	hf_settings.list = list != NULL && *list != 0 ? list : NULL;
}

/* The means to start a process beside the program: the files by their whole paths, and the environment as it is now,
 * since the program may change it while it is read. */
static void remember(void *driver) {
	struct link_map *map;
	Dl_info info;
	size_t n;

	if (dladdr(&hf_settings, &info) != 0) {
		hf_settings.library = realpath(info.dli_fname, NULL);
	}
	if (dlinfo(driver, RTLD_DI_LINKMAP, &map) == 0) {
		hf_settings.driver = realpath(map->l_name, NULL);
	}
	for (n = 0; environ[n] != NULL; n++) {
	}
	if ((hf_settings.variables = calloc(n + 1, sizeof *environ)) != NULL) {
		while (n-- > 0) {
			hf_settings.variables[n] = strdup(environ[n]);
		}
	}
}

static hf_any *function(void *handle, const char *name) {
	void *at = dlsym(handle, name);
	hf_any *f;

	memcpy(&f, &at, sizeof f);
	return f;
}

/* Whether a name leads to the library's own function. A call that submits work does so only where the gate is asked
 * for: the driver's own address is not slower than it was. */
static bool hooked(unsigned i) {
	return hf_hooks[i] != NULL &&
		(hf_when[i] == HF_ALWAYS || (hf_when[i] != HF_ARENA && hf_settings.gate) ||
			(hf_when[i] != HF_GATED && hf_settings.arena));
}

static void bind_all(void) {
	void *driver;
	unsigned i;

	atomic_store(&hf_bound, true);
	read_settings();
	if ((driver = open_driver()) == NULL) {
		hf_say("there is no driver libcuda.so.1 on this machine; HOLDFAST_CUDA_DRIVER can name it");
	}
	for (i = 0; i < HF_COUNT; i++) {
		hf_real[i] = driver == NULL ? NULL : function(driver, hf_names[i]);
	}
	for (i = 0; i < HF_COUNT; i++) {
		hf_slots[i] = driver == NULL ? (hf_any *)no_driver
			: hf_real[i] == NULL     ? (hf_any *)no_function
			: hooked(i)              ? hf_hooks[i]
									 : hf_real[i];
	}
	if (driver != NULL && hf_settings.pause) {
		remember(driver);
	}
	hf_ledger_start();
	if (driver != NULL && hf_settings.moments != 0) {
		hf_check_start();
	}
}

hf_any *hf_bind(unsigned index) {
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, bind_all);
	return hf_slots[index];
}

/* A name of the table is a version or a twin of the requested one. */
static bool version_of(const char *row, const char *name) {
	size_t n = strlen(name);

	return strncmp(row, name, n) == 0 &&
		(row[n] == 0 || strncmp(row + n, "_v", 2) == 0 || strncmp(row + n, "_pt", 3) == 0);
}

/* Puts the library's function in place of the driver's. Whatever else the driver has found stays: functions that are
 * newer than this library, and versions that it does nothing for. */
static void replace(const char *name, void **address, int version) {
	bool known = false;
	hf_any *found;
	unsigned i;

	memcpy(&found, address, sizeof found);
	for (i = 0; i < HF_COUNT; i++) {
		if (hf_real[i] == found) {
			if (hooked(i)) {
				memcpy(address, &hf_hooks[i], sizeof found);
				return;
			}
			known = true;
		}
	}
	for (i = 0; i < HF_COUNT && !known; i++) { /* a runtime asks for hundreds of names, and this comparison is slow */
		if (hooked(i) && version_of(hf_names[i], name)) {
			hf_check_unknown(name, version);
			break;
		}
	}
}

/* The driver picks the version by the caller's arguments. */
CUresult hf_cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags, int *status);
CUresult hf_cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags, int *status) {
	CUresult e = REAL(cuGetProcAddress_v2)(name, address, version, flags, status);

	if (e == CUDA_SUCCESS && address != NULL && *address != NULL) {
		replace(name, address, version);
	}
	return e;
}

CUresult hf_cuGetProcAddress(const char *name, void **address, int version, uint64_t flags);
CUresult hf_cuGetProcAddress(const char *name, void **address, int version, uint64_t flags) {
	CUresult e = REAL(cuGetProcAddress)(name, address, version, flags);

	if (e == CUDA_SUCCESS && address != NULL && *address != NULL) {
		replace(name, address, version);
	}
	return e;
}
