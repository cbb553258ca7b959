// config.hpp - VeloC's configuration: a file of lines "key = value" and the variables VELOC_<KEY>, which come first.
#ifndef VELOC_CONFIG_HPP
#define VELOC_CONFIG_HPP

#include <map>
#include <string>
#include <vector>

namespace veloc {

struct config {
	std::string scratch, persistent; // directories, which exist; persistent may be empty
	bool sync = true;
	int max_versions = 0;     // of each name that stay; 0: all
	int scratch_versions = 0; // of these in scratch; 0: max_versions
	// Seconds between the checkpoints that go there; 0: all, negative: none.
	int ec_interval = 0, persistent_interval = 0;
	std::string log_prefix;         // directory for the log; empty: standard error
	std::vector<std::string> notes; // keys without effect here, and Holdfast's way instead
};

// Reads the file, if it has a name, and the environment, and makes the directories. Throws std::runtime_error: it names
// the key, and the remedy.
config read_config(const std::string &file);

// Moves a configuration to directories of a name below its own, which it makes.
void add_directory(config &c, const std::string &name);

// How checkpoints of a job on so many nodes survive the loss of one, as the node daemon's setting `redundancy`: "none"
// with an ec_interval below 0; empty if the user has set it, or there is nothing to choose. VeloC's default is a
// code over all nodes for every checkpoint.
std::string redundancy_of(const config &c, int nodes);

// The settings of the node daemon that the configuration asks for, as variables. An empty value unsets one.
std::map<std::string, std::string> settings_of(const config &c, int nodes);

} // namespace veloc

#endif
