// engine.cpp - named checkpoints by libholdfast.
#include "engine.hpp"

#include <holdfast.h>

#include <csignal>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <set>
#include <stdexcept>
#include <unistd.h>

#include "../../common/launch.h"
#include "log.hpp"

namespace veloc {

namespace {

// The connection of this process, which all its clients share.
struct connection {
	std::string job;
	int rank;
	std::map<std::string, std::string> settings;
	int clients;
	const engine *opened; // whose checkpoint is open; nullptr: none
};

connection *shared = nullptr; // of clients, or of a program that leaves without VELOC_Finalize
int connections = 0;          // that this process has had

// Throws what libholdfast has to say about a failure.
int check(int code) {
	if (code < 0) {
		throw std::runtime_error(hf_error());
	}
	return code;
}

std::string variable(const char *name) {
	const char *v = getenv(name);
	return v != nullptr ? v : "";
}

// The name of a daemon for a job of its own, or for another one than before; empty if libholdfast decides. The program
// may not be the only one of its launcher, so that the settings have their part in it.
std::string key_of(const veloc_comm &comm, const std::map<std::string, std::string> &settings) {
	std::string own, all; // own first, since only so many bytes of a key count
	if (comm.allgather == nullptr) {
		own = "p" + std::to_string(getpid()) + ".";
	} else if (comm.size != comm.world) {
		own = "c" + std::to_string(comm.first) + ".";
	}
	if (connections > 0) {
		own = "n" + std::to_string(connections) + "." + own;
	}
	std::string key = variable("HOLDFAST_NODE_KEY");
	if (own.empty() || !key.empty()) {
		return key.empty() ? "" : own + key;
	}
	for (const auto &[name, value] : settings) {
		all += name + "=" + value + "\n";
	}
	own += std::to_string(std::hash<std::string>()(all)) + ".";
	char launch[128];
	hf_launch_name(launch, sizeof launch);
	return own + launch;
}

// The tool in the folder that VeloC's programs name, empty if there is none: libholdfast finds it then.
std::string tool() {
	std::string beside = variable("VELOC_BIN") + "/holdfast";
	bool there = !variable("VELOC_BIN").empty() && access(beside.c_str(), X_OK) == 0;
	return there && variable("HOLDFAST_BIN").empty() ? beside : "";
}

// Variables that hold for as long as it lives: the daemon takes its settings from them.
class environment {
public:
	void set(const std::string &name, const std::string &value) {
		const char *v = getenv(name.c_str());
		before.push_back({ name, v != nullptr, v != nullptr ? v : "" });
		if (value.empty()) {
			unsetenv(name.c_str());
		} else {
			setenv(name.c_str(), value.c_str(), 1);
		}
	}
	~environment() {
		for (auto b = before.rbegin(); b != before.rend(); ++b) {
			if (b->there) {
				setenv(b->name.c_str(), b->value.c_str(), 1);
			} else {
				unsetenv(b->name.c_str());
			}
		}
	}

private:
	struct entry {
		std::string name;
		bool there;
		std::string value;
	};
	std::vector<entry> before;
};

// Signal handlers, put back when it ends: a program that is written for VeloC has no points, so that nothing can come
// of a signal that asks for a checkpoint, and TERM must end it.
class handlers {
public:
	handlers() {
		for (int s = 1; s < NSIG; s++) {
			there[s] = sigaction(s, nullptr, &was[s]) == 0;
		}
	}
	~handlers() {
		for (int s = 1; s < NSIG; s++) {
			struct sigaction is;
			if (there[s] && sigaction(s, nullptr, &is) == 0 &&
				(is.sa_flags != was[s].sa_flags || is.sa_handler != was[s].sa_handler)) {
				sigaction(s, &was[s], nullptr);
			}
		}
	}

private:
	struct sigaction was[NSIG];
	bool there[NSIG] = {};
};

// A program that ends well without VELOC_Finalize has not crashed: its other ranks go on, and its checkpoint is
// finished. One that ends with an error has.
void at_exit(int status, void *) {
	bool connected = shared != nullptr;
	shared = nullptr; // a destructor that runs later must not wait for the other ranks
	if (status == 0 && connected) {
		hf_finalize(); // its text is also in the daemon's log
	}
}

std::vector<const char *> names_of(const std::vector<piece> &pieces) {
	std::vector<const char *> names;
	for (const piece &p : pieces) {
		names.push_back(p.name.c_str());
	}
	return names;
}

} // namespace

std::string job_of(const veloc_comm &comm) {
	if (comm.allgather == nullptr) {
		return "single-" + std::to_string(static_cast<unsigned>(comm.first));
	}
	if (comm.size == comm.world) {
		return whole_job;
	}
	return "from-" + std::to_string(comm.first) + "-of-" + std::to_string(comm.size);
}

// On how many nodes the ranks are. Collective.
static int nodes_of(const veloc_comm &comm) {
	const size_t room = HOST_NAME_MAX + 1;
	std::vector<char> mine(room), all(room * static_cast<size_t>(comm.size));
	if (comm.size == 1 || gethostname(mine.data(), room - 1) != 0) {
		return 1;
	}
	if (comm.allgather(all.data(), mine.data(), room, comm.arg) != 0) {
		throw std::runtime_error("the ranks cannot be reached through MPI");
	}
	std::set<std::string> names;
	for (size_t r = 0; r < static_cast<size_t>(comm.size); r++) {
		names.insert(std::string(&all[r * room]));
	}
	return static_cast<int>(names.size());
}

engine::engine(const veloc_comm &comm, const config &c)
	: keep(c.max_versions == 0     ? INT_MAX
			  : c.max_versions < 2 ? 2
								   : c.max_versions) {
	hf_config h = HF_CONFIG_INIT;
	std::string job = job_of(comm);
	h.rank = comm.rank;
	h.size = comm.size;
	h.program = job.c_str();
	h.allgather = comm.allgather;
	h.arg = comm.arg;
	h.world = comm.allgather != nullptr ? comm.world : 0;
	int nodes = nodes_of(comm);
	std::map<std::string, std::string> settings = settings_of(c, nodes);
	if (shared != nullptr) {
		if (shared->job != job || shared->rank != comm.rank || shared->settings != settings) {
			throw std::runtime_error("this process has a client already, of another communicator or with other "
									 "directories or settings; finalize or delete that first");
		}
		shared->clients++;
		return;
	}
	std::string red = redundancy_of(c, nodes);
	if (comm.rank == 0 && !red.empty() && red != "none") {
		say(-1,
			std::to_string(nodes) + " nodes: each checkpoint gets redundancy " + red +
				", so that it survives the loss of a node; ec_interval = -1, or HOLDFAST_REDUNDANCY, changes that");
	}
	handlers put_back;
	environment e;
	for (const auto &[name, value] : settings) {
		e.set(name, value);
	}
	e.set("HOLDFAST_NODE_KEY", key_of(comm, settings));
	if (variable("HOLDFAST_JOB").empty()) {
		e.set("HOLDFAST_JOB", job);
	}
	if (std::string t = tool(); !t.empty()) {
		e.set("HOLDFAST_BIN", t);
	}
	check(hf_init(&h));
	if (connections++ == 0) {
		on_exit(at_exit, nullptr);
	}
	shared = new connection{ job, comm.rank, settings, 1, nullptr };
}

void engine::finish() {
	bool before = finished_before || shared == nullptr;
	finished_before = true;
	if (before) {
		return;
	}
	shut();
	if (--shared->clients > 0) {
		wait();
		return;
	}
	delete shared;
	shared = nullptr;
	check(hf_finalize());
}

// Prepares a call about checkpoints of a name: the open one is shut, even that of another client, and the number of the
// configuration stays.
void engine::use(const std::string &name) {
	if (shared != nullptr && shared->opened != nullptr) {
		shared->opened = nullptr;
		check(hf_restart_end());
	}
	check(hf_keep(name.c_str(), keep));
}

void read_memory(void *to, const void *from, size_t bytes) { check(hf_read_memory(to, from, bytes)); }

void engine::protect(const std::vector<piece> &pieces) {
	for (const piece &p : pieces) {
		if (!p.path.empty()) {
			check(hf_protect_file(p.name.c_str(), p.path.c_str()));
		} else {
			check(hf_protect(p.name.c_str(), p.at, p.bytes, HF_BYTE));
		}
	}
}

void engine::save(const std::string &name, int version, const std::vector<piece> &pieces) {
	use(name);
	protect(pieces);
	std::vector<const char *> names = names_of(pieces);
	check(hf_checkpoint_some(name.c_str(), version, names.data(), names.size()));
}

void engine::wait() { check(hf_wait(nullptr)); }

bool engine::finished() { return check(hf_test(nullptr)) == HF_FOUND; }

int engine::newest(const std::string &name, int most) {
	int64_t version = -1;
	use(name);
	return check(hf_restart_test(name.c_str(), most, &version)) == HF_FOUND && version <= INT_MAX
		? static_cast<int>(version)
		: -1;
}

void engine::open(const std::string &name, int version) {
	use(name);
	check(hf_restart_begin(name.c_str(), version));
	shared->opened = this;
}

void engine::must_be_open() const {
	if (shared == nullptr || shared->opened != this) {
		throw std::runtime_error("the restart is over: another client of this process has begun something else");
	}
}

long long engine::held(const std::string &piece) {
	size_t bytes;
	must_be_open();
	return check(hf_saved(piece.c_str(), &bytes, nullptr)) == HF_FOUND ? static_cast<long long>(bytes) : -1;
}

void engine::load(const std::vector<piece> &pieces) {
	must_be_open();
	protect(pieces);
	std::vector<const char *> names = names_of(pieces);
	if (!names.empty()) {
		check(hf_recover(names.data(), names.size()));
	}
}

void engine::shut() {
	if (shared != nullptr && shared->opened == this) {
		shared->opened = nullptr;
		check(hf_restart_end());
	}
}

} // namespace veloc
