// veloc.hpp - VeloC's class for C++, on Holdfast. veloc.h describes each call under the same name, with its callers and
// costs; true stands for VELOC_SUCCESS.
#ifndef VELOC_HPP
#define VELOC_HPP

#include <cstddef>
#include <functional>
#include <iostream>
#include <map>
#include <set>
#include <stdexcept>
#include <string>

#include "veloc/comm.h"
#include "veloc/defs.h"

namespace veloc {

class client_t {
public:
	// Writes the state of an object to a stream, and reads it back: false, or an exception, fails the restore.
	using serializer_t = std::function<void(std::ostream &)>;
	using deserializer_t = std::function<bool(std::istream &)>;
	using observer_t = std::function<void(const std::string &name, int version)>;

	// Regions: memory, or an object that call-backs write and read. The same id again replaces the region. All
	// return true if the id is valid; mem_unprotect if there was such a region.
	virtual bool mem_protect(int id, void *ptr, size_t count, size_t base_size, const std::string &name = "") = 0;
	virtual bool mem_protect(int id, const serializer_t &s, const deserializer_t &d, const std::string &name = "") = 0;
	virtual bool mem_unprotect(int id, const std::string &name = "") = 0;
	virtual void mem_clear(const std::string &name = "") = 0;

	// Calls obs when a checkpoint has ended on this rank (VELOC_OBSERVE_CKPT_END), in checkpoint_end.
	virtual bool register_observer(int type, const observer_t &obs) = 0;

	virtual std::string route_file(const std::string &original) = 0; // empty if it fails
	virtual bool cleanup(const std::string &name) = 0;

	virtual bool checkpoint(const std::string &name, int version) = 0;
	virtual bool checkpoint_begin(const std::string &name, int version) = 0;
	virtual bool checkpoint_mem(int mode = VELOC_CKPT_ALL, const std::set<int> &ids = {}) = 0;
	virtual bool checkpoint_end(bool success = true) = 0;
	virtual bool checkpoint_wait() = 0;
	virtual bool checkpoint_finished() = 0;

	// target_rank asks for another rank's checkpoint, which Holdfast refuses: -1, the default, is the rank's own.
	virtual int restart_test(const std::string &name, int version, int target_rank = -1) = 0;
	virtual bool restart(const std::string &name, int version, int target_rank = -1) = 0;
	virtual bool restart_begin(const std::string &name, int version, int target_rank = -1) = 0;
	virtual size_t recover_size(int id) = 0; // 0 if the region was not saved
	virtual bool recover_mem(int mode = VELOC_RECOVER_ALL, const std::set<int> &ids = {}) = 0;
	virtual bool restart_end(bool success = true) = 0;

	// Collective. Checkpoints that are under way become durable first.
	virtual ~client_t() = 0;
};

// A client for one process. Delete it to end. Throws std::runtime_error, with the remedy.
client_t *get_client(unsigned int id, const std::string &cfg_file);

// A client for the ranks of a communicator that is described. It takes comm over.
client_t *get_client(const veloc_comm &comm, const std::string &cfg_file);

#ifndef VELOC_WITHOUT_MPI
// A client for the ranks of comm. Collective, after MPI_Init.
inline client_t *get_client(MPI_Comm comm, const std::string &cfg_file) {
	veloc_comm c;

	if (veloc_comm_of(comm, &c) != 0) {
		throw std::runtime_error("veloc: get_client needs a communicator, between MPI_Init and MPI_Finalize");
	}
	return get_client(c, cfg_file);
}
#endif

} // namespace veloc

#endif
