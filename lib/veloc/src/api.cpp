// api.cpp - the calls of veloc.h, on a client that the process has between VELOC_Init and VELOC_Finalize.
#include <cstring>

#include "client.hpp"
#include "log.hpp"
#include "veloc.h"

namespace {

veloc::client *the; // a process that exits without VELOC_Finalize must not wait for others: no destructor

int result(bool good) { return good ? VELOC_SUCCESS : VELOC_FAILURE; }

// Runs a call on the client. No exception leaves the library.
template <typename F> int with(const char *call, F f) {
	try {
		if (the != nullptr) {
			return f(*the);
		}
		veloc::say(-1, std::string(call) + ": call VELOC_Init first");
	} catch (const std::exception &e) {
		veloc::say(-1, std::string(call) + ": " + e.what());
	}
	return VELOC_FAILURE;
}

int init(const veloc_comm &comm, const char *cfg_file) {
	try {
		if (the != nullptr) {
			if (comm.release != nullptr) {
				comm.release(comm.arg);
			}
			throw std::runtime_error("it was called before; call VELOC_Finalize first");
		}
		the = new veloc::client(comm, cfg_file != nullptr ? cfg_file : "");
		return VELOC_SUCCESS;
	} catch (const std::exception &e) {
		veloc::say(comm.allgather != nullptr ? comm.rank : -1, std::string("VELOC_Init: ") + e.what());
		return VELOC_FAILURE;
	}
}

std::set<int> set_of(const int *ids, int n) {
	if (n < 0 || (ids == nullptr && n > 0)) {
		throw std::runtime_error(std::to_string(n) + " ids at NULL");
	}
	return std::set<int>(ids, ids + n);
}

std::string text(const char *s) {
	if (s == nullptr) {
		throw std::runtime_error("the name is NULL");
	}
	return s;
}

} // namespace

extern "C" {

int veloc_init_comm(const struct veloc_comm *comm, const char *cfg_file) {
	if (comm == nullptr) {
		veloc::say(-1, "VELOC_Init: it needs a communicator, between MPI_Init and MPI_Finalize");
		return VELOC_FAILURE;
	}
	return init(*comm, cfg_file);
}

int VELOC_Init_single(unsigned int id, const char *cfg_file) { return init(veloc::alone(id), cfg_file); }

int VELOC_Finalize(int) {
	return with("VELOC_Finalize", [](veloc::client &c) {
		bool good = c.finish();
		delete the;
		the = nullptr;
		return result(good);
	});
}

int VELOC_Mem_protect(int id, void *ptr, size_t count, size_t base_size) {
	return with("VELOC_Mem_protect", [&](auto &c) { return result(c.mem_protect(id, ptr, count, base_size, "")); });
}

int VELOC_Region_protect(int id, void *ptr, size_t count, size_t base_size, const char *name) {
	return with(
		"VELOC_Region_protect", [&](auto &c) { return result(c.mem_protect(id, ptr, count, base_size, text(name))); });
}

int VELOC_Mem_unprotect(int id) {
	return with("VELOC_Mem_unprotect", [&](auto &c) { return result(c.mem_unprotect(id, "")); });
}

int VELOC_Region_unprotect(int id, const char *name) {
	return with("VELOC_Region_unprotect", [&](auto &c) { return result(c.mem_unprotect(id, text(name))); });
}

int VELOC_Mem_clear(void) {
	return with("VELOC_Mem_clear", [&](auto &c) { return c.mem_clear(""), VELOC_SUCCESS; });
}

int VELOC_Region_clear(const char *name) {
	return with("VELOC_Region_clear", [&](auto &c) { return c.mem_clear(text(name)), VELOC_SUCCESS; });
}

int VELOC_Route_file(const char *original, char *routed) {
	return with("VELOC_Route_file", [&](auto &c) {
		std::string path = c.route_file(original != nullptr ? original : "");
		if (routed == nullptr || path.empty()) {
			return VELOC_FAILURE;
		}
		memcpy(routed, path.c_str(), path.size() + 1);
		return VELOC_SUCCESS;
	});
}

int VELOC_Cleanup(const char *name) {
	return with("VELOC_Cleanup", [&](auto &c) { return result(c.cleanup(text(name))); });
}

int VELOC_Checkpoint_begin(const char *name, int version) {
	return with("VELOC_Checkpoint_begin", [&](auto &c) { return result(c.checkpoint_begin(text(name), version)); });
}

int VELOC_Checkpoint_selective(int mode, int *ids, int id_count) {
	return with(
		"VELOC_Checkpoint_selective", [&](auto &c) { return result(c.checkpoint_mem(mode, set_of(ids, id_count))); });
}

int VELOC_Checkpoint_mem(void) {
	return with("VELOC_Checkpoint_mem", [&](auto &c) { return result(c.checkpoint_mem(VELOC_CKPT_ALL, {})); });
}

int VELOC_Checkpoint_end(int success) {
	return with("VELOC_Checkpoint_end", [&](auto &c) { return result(c.checkpoint_end(success != 0)); });
}

int VELOC_Checkpoint_wait(void) {
	return with("VELOC_Checkpoint_wait", [&](auto &c) { return result(c.checkpoint_wait()); });
}

int VELOC_Checkpoint_finished(void) {
	return with("VELOC_Checkpoint_finished", [&](auto &c) { return result(c.checkpoint_finished()); });
}

int VELOC_Checkpoint(const char *name, int version) {
	return with("VELOC_Checkpoint", [&](auto &c) { return result(c.checkpoint(text(name), version)); });
}

int VELOC_Restart_test(const char *name, int version) {
	return with("VELOC_Restart_test", [&](auto &c) { return c.restart_test(text(name), version, -1); });
}

int VELOC_Restart_begin(const char *name, int version) {
	return with("VELOC_Restart_begin", [&](auto &c) { return result(c.restart_begin(text(name), version, -1)); });
}

int VELOC_Recover_selective(int mode, int *ids, int id_count) {
	return with("VELOC_Recover_selective", [&](auto &c) { return result(c.recover_mem(mode, set_of(ids, id_count))); });
}

int VELOC_Recover_mem(void) {
	return with("VELOC_Recover_mem", [&](auto &c) { return result(c.recover_mem(VELOC_RECOVER_ALL, {})); });
}

int VELOC_Restart_mem(void) { return VELOC_Recover_mem(); }

int VELOC_Recover_size(int id) {
	return with("VELOC_Recover_size", [&](auto &c) {
		long long bytes = c.saved_size(id);
		if (bytes > INT_MAX) {
			throw std::runtime_error("region " + std::to_string(id) + " has " + std::to_string(bytes) +
				" bytes, more than an int holds; use recover_size of client_t");
		}
		return static_cast<int>(bytes);
	});
}

int VELOC_Restart_end(int success) {
	return with("VELOC_Restart_end", [&](auto &c) { return result(c.restart_end(success != 0)); });
}

int VELOC_Restart(const char *name, int version) {
	return with("VELOC_Restart", [&](auto &c) { return result(c.restart(text(name), version, -1)); });
}

} // extern "C"
