// engine.hpp - client.cpp's view of libholdfast: the ranks' connection to their daemon, and named checkpoints.
#ifndef VELOC_ENGINE_HPP
#define VELOC_ENGINE_HPP

#include <cstddef>
#include <string>
#include <vector>

#include "config.hpp"
#include "veloc/comm.h"

namespace veloc {

// A saved or restored piece with its name: memory, or the file at path.
struct piece {
	std::string name;
	void *at = nullptr;
	size_t bytes = 0;
	std::string path;
};

// The job that holds the checkpoints of these ranks: one for all programs that use the same directories, as with VeloC,
// and another for each process by itself and for each communicator that is not of all ranks.
std::string job_of(const veloc_comm &comm);
inline const char *const whole_job = "veloc"; // of all ranks

// Copies from memory of a region, which may be that of a device.
void read_memory(void *to, const void *from, size_t bytes);

// A client's use of the connection of this process, of which there is one: for clients of the same ranks, with the same
// directories and settings. Functions throw std::runtime_error with the cause and the
// remedy. Those that are collective throw on all ranks or on none, unless a rank is lost.
class engine {
public:
	// Connects. Collective over comm.
	engine(const veloc_comm &comm, const config &c);
	engine(const engine &) = delete;
	engine &operator=(const engine &) = delete;

	// Ends: waits until checkpoints are durable at all levels. Collective. The last client ends the connection.
	void finish();

	// Takes a checkpoint of the pieces, as they are now. Collective. With the version no_part this rank has none, so
	// that no rank takes one.
	static constexpr int no_part = -1;
	void save(const std::string &name, int version, const std::vector<piece> &pieces);

	// Waits until the newest checkpoint is durable. Local.
	void wait();

	// Whether wait would not wait. Local.
	bool finished();

	// The newest version of a name up to `most`, negative for any; -1 if there is none. Collective.
	int newest(const std::string &name, int most);

	// Reads a checkpoint and verifies it on all ranks. Collective.
	void open(const std::string &name, int version);

	// Bytes that the open checkpoint holds of a piece that is memory; -1 for none. Local.
	long long held(const std::string &piece);

	// Copies pieces from the open checkpoint to memory that is at least as large as the saved data, and to files.
	// Local. Changes nothing if it fails.
	void load(const std::vector<piece> &pieces);

	// Forgets the open checkpoint, if there is one. Local.
	void shut();

private:
	void use(const std::string &name);
	void protect(const std::vector<piece> &pieces);

	void must_be_open() const;

	int keep;
	bool finished_before = false;
};

} // namespace veloc

#endif
