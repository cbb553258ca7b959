/* values.c - protected bytes, to and from the arenas of the daemon. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client.h"

static int read_whole(int fd, char *to, size_t bytes) {
	char more;
	ssize_t n = 1;

	while (bytes > 0) {
		n = read(fd, to, bytes);
		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n <= 0) {
			return n < 0 ? errno : ESTALE; /* it is shorter than it was */
		}
		to += n;
		bytes -= (size_t)n;
	}
	do {
		n = read(fd, &more, 1);
	} while (n < 0 && errno == EINTR);
	return n == 0 ? 0 : n < 0 ? errno : ESTALE;
}

/* Copies an array to where a capture wants it, except for its first `from` bytes, which only memory of a device has
 * elsewhere. Returns 0 or an errno. */
int hf_save_to(const struct hf_array *a, char *to, size_t bytes, size_t from) {
	int fd, err;

	if (a->place.device != NULL && from == bytes) {
		return 0;
	}
	if (a->place.device != NULL) {
		return a->kind == HF_GLOBAL
			? hf_copy_device_boxes(a, to, bytes, true)
			: hf_copy_from_device(&a->place, (const char *)a->ptr + from, to + from, bytes - from);
	}
	if (a->kind == HF_GLOBAL) {
		hf_copy_array(a, to, bytes, true, false);
		return 0;
	}
	if (a->kind != HF_FILE) {
		hf_copy(to, a->ptr, bytes, false);
		return 0;
	}
	fd = open(a->path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		return errno;
	}
	err = read_whole(fd, to, bytes);
	close(fd);
	return err;
}

static int write_whole(int fd, const char *from, size_t bytes) {
	while (bytes > 0) {
		ssize_t n = write(fd, from, bytes);
		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0) {
			return errno;
		}
		from += n;
		bytes -= (size_t)n;
	}
	return 0;
}

/* Says that the program writes to a file that has been replaced. */
static void tell_of_open(const char *path, const struct stat *old) {
	DIR *all = opendir("/proc/self/fd");
	struct dirent *e;
	struct stat st;

	while (all != NULL && (e = readdir(all)) != NULL) {
		const int fd = atoi(e->d_name);

		if (e->d_name[0] != '.' && fstat(fd, &st) == 0 && st.st_dev == old->st_dev && st.st_ino == old->st_ino &&
			(fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY) {
			fprintf(stderr,
				"holdfast: rank %d: the program had %s open when that was restored to a new file: what it writes there "
				"is lost; open it after the restore\n",
				hf_rank(), path);
			break;
		}
	}
	if (all != NULL) {
		closedir(all);
	}
}

/* Replaces a file, or that which a link names, by one of the same mode, or leaves it as it is. */
static int replace_file(const char *path, const char *from, size_t bytes) {
	struct stat old;
	char *real = realpath(path, NULL), *temp = NULL;
	const char *to = real != NULL ? real : path;
	const bool there = stat(to, &old) == 0;
	int fd, err;

	if (asprintf(&temp, "%s.holdfast", to) < 0) {
		free(real);
		return ENOMEM;
	}
	fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, there ? 0600 : 0666);
	if (fd < 0) {
		err = errno;
		free(temp);
		free(real);
		return err;
	}
	err = there && fchmod(fd, old.st_mode & 07777) != 0 ? errno : write_whole(fd, from, bytes);
	if (err == 0 && fsync(fd) != 0) {
		err = errno;
	}
	if (close(fd) != 0 && err == 0) {
		err = errno;
	}
	if (err == 0 && rename(temp, to) != 0) {
		err = errno;
	}
	if (err != 0) {
		unlink(temp);
	} else if (there) {
		tell_of_open(path, &old);
	}
	free(temp);
	free(real);
	return err;
}

/* Lets the program give an array room for its part in a checkpoint. Returns 0 or an errno. */
static int make_room(struct hf_array *a, size_t bytes) {
	const size_t count = bytes / hf_elem(a->type);
	void *at;

	if (a->resize == NULL || count == a->count) {
		return 0;
	}
	if (bytes % hf_elem(a->type) != 0 || count % a->item != 0) {
		return EINVAL;
	}
	at = a->resize(count, a->resize_arg);
	if (at == NULL && count > 0) {
		return ENOMEM;
	}
	a->ptr = at;
	a->count = count;
	a->dirty = true;
	return hf_place_of(a->name, at, &a->place) == HF_OK ? 0 : EINVAL;
}

/* Copies an array's part in a checkpoint to it; once as in hf_copy. Returns 0 or an errno. */
int hf_load_from(struct hf_array *a, const char *from, size_t bytes, bool once) {
	void *mine;
	int err;

	switch (a->kind) {
	case HF_FILE:
		return replace_file(a->path, from, bytes);
	case HF_STREAM:
		if ((mine = malloc(bytes + 1)) == NULL) {
			return ENOMEM;
		}
		if (bytes > 0) {
			memcpy(mine, from, bytes);
		}
		free(a->ptr);
		a->ptr = mine;
		a->count = bytes;
		a->dirty = true;
		return 0;
	case HF_ARRAY:
	case HF_GLOBAL:
	case HF_REPLICATED:
		if ((err = make_room(a, bytes)) != 0) {
			return err;
		}
		break;
	}
	if (a->place.device != NULL) {
		return a->kind == HF_GLOBAL ? hf_copy_device_boxes(a, (char *)(uintptr_t)from, bytes, false)
									: hf_copy_to_device(&a->place, a->ptr, from, bytes);
	}
	if (a->kind == HF_GLOBAL) {
		hf_copy_array(a, (char *)(uintptr_t)from, bytes, false, once);
	} else if (bytes > 0) {
		hf_copy(a->ptr, from, bytes, once);
	}
	return 0;
}
