// mpi.cpp - VELOC_Init for programs that do not compile veloc.h: Fortran, Python by ctypes, and those that were built
// against other headers. It finds the MPI that the program has loaded when it is called; the library links none.
#include <dlfcn.h>

#include <climits>
#include <cstdint>
#include <cstdlib>

#include "log.hpp"
#include "veloc.h"

extern "C" int veloc_init_comm(const struct veloc_comm *comm, const char *cfg_file);

namespace {

// A handle of MPI: a pointer in Open MPI and in MPI's standard ABI, an int in MPICH, which has it in the lower half.
using handle = std::intptr_t;

// The functions that the library calls. All of it lasts as long as the process: an MPI cannot be begun twice.
struct mpi {
	handle world = 0, null = 0, byte = 0;
	int (*initialized)(int *) = nullptr;
	int (*finalized)(int *) = nullptr;
	int (*dup)(handle, handle *) = nullptr;
	int (*free)(handle *) = nullptr;
	int (*rank)(handle, int *) = nullptr;
	int (*size)(handle, int *) = nullptr;
	int (*group)(handle, handle *) = nullptr;
	int (*group_free)(handle *) = nullptr;
	int (*translate)(handle, int, const int *, handle, int *) = nullptr;
	int (*allgather)(const void *, int, handle, void *, int, handle, handle) = nullptr;
	int (*abi)(int *, int *) = nullptr;
	handle (*f2c)(int) = nullptr; // where handles of Fortran are others

	bool load();

private:
	template <typename F> bool find(void *in, const char *name, F &f) {
		f = reinterpret_cast<F>(dlsym(in, name));
		return f != nullptr;
	}
};

// The library that is loaded: seen by all, as a program that links it has it, or by those alone that asked for it.
void *loaded() {
	if (dlsym(RTLD_DEFAULT, "MPI_Comm_dup") != nullptr) {
		return RTLD_DEFAULT;
	}
	for (const char *name : { "libmpi.so.40", "libmpich.so.12", "libmpi.so.12", "libmpi_abi.so.0" }) {
		if (void *so = dlopen(name, RTLD_LAZY | RTLD_NOLOAD)) {
			return so;
		}
	}
	return nullptr;
}

bool mpi::load() {
	void *in = loaded();
	if (in == nullptr && dlsym(RTLD_DEFAULT, "MPI_Comm_dup") == nullptr) {
		return false;
	}
	if (void *ompi = dlsym(in, "ompi_mpi_comm_world")) {
		world = reinterpret_cast<handle>(ompi);
		null = reinterpret_cast<handle>(dlsym(in, "ompi_mpi_comm_null"));
		byte = reinterpret_cast<handle>(dlsym(in, "ompi_mpi_byte"));
		find(in, "MPI_Comm_f2c", f2c);
	} else if (int major = -1, minor = -1;
			   find(in, "MPI_Abi_get_version", abi) && abi(&major, &minor) == 0 && major > 0) {
		world = 0x101;
		null = 0x100;
		byte = 0x247;
	} else {
		world = 0x44000000;
		null = 0x04000000;
		byte = 0x4c00010d;
	}
	return null != 0 && byte != 0 && find(in, "MPI_Initialized", initialized) && find(in, "MPI_Finalized", finalized) &&
		find(in, "MPI_Comm_dup", dup) && find(in, "MPI_Comm_free", free) && find(in, "MPI_Comm_rank", rank) &&
		find(in, "MPI_Comm_size", size) && find(in, "MPI_Comm_group", group) &&
		find(in, "MPI_Group_free", group_free) && find(in, "MPI_Group_translate_ranks", translate) &&
		find(in, "MPI_Allgather", allgather);
}

mpi the;

int gather(void *all, const void *mine, size_t bytes, void *arg) {
	int over = 0;
	if (bytes > INT_MAX || the.finalized(&over) != 0 || over != 0) {
		return 1;
	}
	int n = static_cast<int>(bytes);
	return the.allgather(mine, n, the.byte, all, n, the.byte, *static_cast<handle *>(arg)) != 0;
}

void release(void *arg) {
	int over = 0;
	if (the.finalized(&over) == 0 && over == 0) {
		the.free(static_cast<handle *>(arg));
	}
	delete static_cast<handle *>(arg);
}

// Finds where rank 0 of comm is in the world.
bool first(handle comm, veloc_comm *c) {
	handle mine = 0, all = 0;
	int zero = 0;
	if (the.size(the.world, &c->world) != 0 || the.group(comm, &mine) != 0) {
		return false;
	}
	bool good = the.group(the.world, &all) == 0;
	if (good) {
		good = the.translate(mine, 1, &zero, all, &c->first) == 0;
		the.group_free(&all);
	}
	the.group_free(&mine);
	return good;
}

// Describes comm by a duplicate of it. Collective.
const char *describe(handle comm, veloc_comm *c) {
	int begun = 0, over = 0;
	if (!the.load()) {
		return "the program has loaded no MPI that is known: Open MPI, MPICH, or one with MPICH's or the standard ABI; "
			   "compile it with veloc.h";
	}
	if (the.initialized(&begun) != 0 || begun == 0 || the.finalized(&over) != 0 || over != 0) {
		return "call it between MPI_Init and MPI_Finalize";
	}
	const handle least_pointer = 4096; // below it are the numbers that Fortran has
	if (the.f2c != nullptr && comm >= 0 && comm < least_pointer) {
		comm = the.f2c(static_cast<int>(comm));
	}
	if (comm == 0 || comm == the.null) {
		return "the communicator is MPI_COMM_NULL";
	}
	handle *mine = new handle(0);
	if (the.dup(comm, mine) != 0 || the.rank(*mine, &c->rank) != 0 || the.size(*mine, &c->size) != 0 ||
		!first(*mine, c)) {
		delete mine;
		return "MPI cannot duplicate the communicator";
	}
	c->allgather = gather;
	c->release = release;
	c->arg = mine;
	return nullptr;
}

} // namespace

// The library's headers have another VELOC_Init, which is static; this one is for those without it.
extern "C" int VELOC_Init(void *comm, const char *cfg_file) {
	veloc_comm c = {};
	try {
		if (const char *why = describe(reinterpret_cast<handle>(comm), &c)) {
			veloc::say(-1, std::string("VELOC_Init: ") + why);
			return VELOC_FAILURE;
		}
	} catch (const std::exception &e) {
		veloc::say(-1, std::string("VELOC_Init: ") + e.what());
		return VELOC_FAILURE;
	}
	return veloc_init_comm(&c, cfg_file);
}
