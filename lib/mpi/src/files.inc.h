/* files.inc.h - files of MPI-IO, which are open on a communicator: their collectives count as those of one. */

static inline struct hfm_comm *file_of(MPI_File file) { return hfm_get(&hfm_files, WORD(file)); }

static int hfm_File_open(MPI_Comm comm, const char *filename, int amode, MPI_Info info, MPI_File *fh) {
	if (!hfm_enter(HFM_File_open)) {
		return REAL(File_open)(comm, filename, amode, info, fh);
	}
	struct hfm_comm *c = hfm_begin_collective(HFM_File_open, comm_of(comm));
	hfm_step_out();
	int rc = REAL(File_open)(comm, filename, amode, info, fh);
	hfm_step_in();
	uint64_t number = c != NULL ? ++c->files : 0;
	if (rc == MPI_SUCCESS && c != NULL) {
		char *path = *filename == '/' ? NULL : realpath(filename, NULL);
		struct hfm_comm *f =
			hfm_new_object(&hfm_files, c, 'f', number, HFM_File_open, WORD(*fh), path != NULL ? path : filename);
		f->writes = (amode & MPI_MODE_RDONLY) == 0;
		free(path);
	}
	hfm_end_collective(c, MPI_SUCCESS);
	return rc;
}

static int hfm_File_close(MPI_File *fh) {
	if (!hfm_enter(HFM_File_close)) {
		return REAL(File_close)(fh);
	}
	struct hfm_comm *f = hfm_begin_collective(HFM_File_close, file_of(*fh));
	hfm_step_out();
	int rc = REAL(File_close)(fh);
	hfm_step_in();
	if (rc == MPI_SUCCESS && f != NULL) {
		hfm_free_object(&hfm_files, f);
		f = NULL;
	}
	hfm_end_collective(f, MPI_SUCCESS);
	return rc;
}

/* hfm_splits notes the begin or the end of a split collective. */
static struct hfm_comm *hfm_splits(struct hfm_comm *f, enum hfm_call call, bool begin) {
	if (f != NULL) {
		f->split = begin ? call : HFM_CALLS;
	}
	return f;
}

/* to_write reports whether the program's writes to a file are to be synchronized. */
static inline bool to_write(const struct hfm_comm *f) { return f != NULL && f->writes && f->split == HFM_CALLS; }

static int by_name(const void *a, const void *b) {
	return strcmp((*(struct hfm_comm *const *)a)->name, (*(struct hfm_comm *const *)b)->name);
}

/* sync_path synchronizes a file without MPI, which refuses it to a program that has requests for the file. */
static int sync_path(const char *path) {
	int fd = open(path, O_RDONLY | O_CLOEXEC), error = 0;
	if (fd < 0 && errno == ENOENT && strchr(path, ':') != NULL) { /* ROMIO takes a name of the file system before it */
		fd = open(strchr(path, ':') + 1, O_RDONLY | O_CLOEXEC);
	}
	if (fd < 0) {
		return errno == ENOENT ? 0 : errno; /* one without a name will not be there after a restart */
	}
	if (fsync(fd) != 0 && errno != EINVAL && errno != EROFS) {
		error = errno;
	}
	close(fd);
	return error;
}

/* sync_file returns the error, or an empty text. */
static void sync_file(const struct hfm_comm *f, bool busy, char *text, size_t room) {
	int class = 0, rc = busy ? sync_path(f->parent) : REAL(File_sync)(HANDLE(MPI_File, f->handle));
	*text = 0;
	if (busy && rc != 0) {
		snprintf(text, room, "fsync of %s: %s", f->parent, strerror(rc));
	} else if (rc != MPI_SUCCESS) {
		REAL(Error_class)(rc, &class);
		snprintf(text, room, "MPI_File_sync of %s fails with an error of class %d", f->parent, class);
	}
}

/* sync_files has the program's writes to files reach their storage. All members do it, in the same order. */
static const char *sync_files(bool busy) {
	static char first[400];
	char text[sizeof first];
	size_t n = 0;
	struct hfm_comm **all = hfm_need(calloc(hfm_files.used + 1, sizeof *all));
	for (size_t i = 0; i < hfm_files.room; i++) {
		struct hfm_comm *f = hfm_files.values[i];
		if (to_write(f)) {
			all[n++] = f;
		}
	}
	qsort(all, n, sizeof *all, by_name);
	*first = 0;
	for (size_t i = 0; i < n; i++) {
		sync_file(all[i], busy, text, sizeof text);
		if (*first == 0) {
			memcpy(first, text, sizeof first);
		}
	}
	free(all);
	return *first != 0 ? first : NULL;
}
