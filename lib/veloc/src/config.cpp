// config.cpp - reads VeloC's configuration and translates it for Holdfast.
#include "config.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <stdexcept>

extern char **environ;

namespace veloc {

namespace {

enum class kind { path, number, boolean, text };

// A key of VeloC. One without effect has a note, for when it is set to anything but `otherwise`.
struct key {
	const char *name;
	kind of;
	const char *note, *otherwise;
};

const key keys[] = {
	{ "scratch", kind::path, nullptr, nullptr },
	{ "persistent", kind::path, nullptr, nullptr },
	{ "mode", kind::text, nullptr, nullptr },
	{ "max_versions", kind::number, nullptr, nullptr },
	{ "ec_interval", kind::number, nullptr, nullptr },
	{ "persistent_interval", kind::number, nullptr, nullptr },
	{ "log_prefix", kind::path, nullptr, nullptr },
	{ "scratch_versions", kind::number, nullptr, nullptr },
	{ "failure_domain", kind::text, "a node is the failure domain; copies and parity are on other nodes", "" },
	{ "watchdog_interval", kind::number, "the end of a rank is noticed at once", "0" },
	{ "axl_type", kind::text, "Holdfast copies to persistent itself", "" },
	{ "chksum", kind::boolean, "all checkpoints have checksums, which are verified when they are read", "true" },
	{ "meta", kind::path, "checksums are in the checkpoints", "" },
	{ "threaded", kind::boolean, "the daemon of the node copies in the background", "false" },
	{ "aggregated", kind::boolean, "the ranks of a node always share a file in persistent", "true" },
	{ "axl_config", kind::path, "Holdfast copies to persistent itself", "" },
	{ "max_parallelism", kind::number, "the daemon of the node chooses how much it does at a time", "0" },
};

// Keys for features that Holdfast lacks: taking them would leave checkpoints elsewhere than meant.
const char *const refused[] = { "daos_pool", "daos_cont", "daos_pool_uuid", "daos_cont_uuid" };

[[noreturn]] void fail(const std::string &what) { throw std::runtime_error("configuration: " + what); }

std::string trim(const std::string &s) {
	const char *blank = " \t\r";
	size_t from = s.find_first_not_of(blank);
	return from == std::string::npos ? "" : s.substr(from, s.find_last_not_of(blank) - from + 1);
}

std::string changed(std::string s, int (*f)(int)) {
	for (char &c : s) {
		c = static_cast<char>(f(static_cast<unsigned char>(c)));
	}
	return s;
}

const key *find(const std::string &name) {
	for (const key &k : keys) {
		if (name == k.name) {
			return &k;
		}
	}
	return nullptr;
}

// How many letters must be changed, added or removed to make one of the other.
size_t distance(const std::string &a, const std::string &b) {
	std::vector<size_t> row(b.size() + 1);
	for (size_t j = 0; j <= b.size(); j++) {
		row[j] = j;
	}
	for (size_t i = 1; i <= a.size(); i++) {
		size_t before = row[0];
		row[0] = i;
		for (size_t j = 1; j <= b.size(); j++) {
			size_t here = row[j];
			row[j] = std::min({ row[j] + 1, row[j - 1] + 1, before + (a[i - 1] != b[j - 1]) });
			before = here;
		}
	}
	return row[b.size()];
}

// The key that was meant; empty if none is near.
std::string meant(const std::string &name) {
	const key *best = nullptr;
	size_t least = 3;
	for (const key &k : keys) {
		if (size_t d = distance(name, k.name); d < least) {
			best = &k, least = d;
		}
	}
	return best != nullptr ? best->name : "";
}

struct value {
	std::string text, from; // from says where, for errors
};

using values = std::map<std::string, value>;

// An unknown key is reported and left out, as VeloC does; one that is near a key was meant to have an effect.
void take(values &all, std::vector<std::string> &notes, const std::string &name, const value &v) {
	for (const char *r : refused) {
		if (name == r) {
			fail(v.from + ": " + name +
				": Holdfast does not store in DAOS; set persistent to a directory that all nodes see");
		}
	}
	if (find(name) == nullptr) {
		if (std::string near = meant(name); !near.empty()) {
			fail(v.from + ": " + name + " is no key; did you mean " + near + "?");
		}
		notes.push_back(v.from + ": " + name + " has no effect: there is no such key");
		return;
	}
	if (!v.text.empty()) {
		all[name] = v;
	}
}

// The value in the rest of a line: a comment begins after a blank.
std::string value_in(std::string text) {
	for (size_t i = 1; i < text.size(); i++) {
		if ((text[i] == ';' || text[i] == '#') && (text[i - 1] == ' ' || text[i - 1] == '\t')) {
			text.resize(i);
			break;
		}
	}
	return trim(text);
}

values read_file(const std::string &file, std::vector<std::string> &notes) {
	std::ifstream in(file);
	if (!in) {
		fail(file + ": " + strerror(errno) + "; give the path of the configuration file");
	}
	values all;
	std::string line;
	for (int n = 1; std::getline(in, line); n++) {
		std::string from = file + ":" + std::to_string(n);
		line = trim(line);
		if (n == 1 && line.compare(0, 3, "\xef\xbb\xbf") == 0) {
			line = line.substr(3); // the mark that some editors write
		}
		if (line.empty() || line[0] == '#' || line[0] == ';') {
			continue;
		}
		if (line[0] == '[') {
			fail(from + ": " + line + ": the keys are in no section; remove the line");
		}
		size_t at = line.find_first_of("=:");
		if (at == std::string::npos) {
			fail(from + ": \"" + line + "\" has no value; write key = value");
		}
		take(all, notes, changed(trim(line.substr(0, at)), tolower), { value_in(line.substr(at + 1)), from });
	}
	if (in.bad()) {
		fail(file + ": cannot be read: " + strerror(errno));
	}
	return all;
}

// Variables come before the file. Names that are near a key's are taken for mistakes; VELOC_BIN and others are not
// ours.
void read_environment(values &all, std::vector<std::string> &notes) {
	const std::string prefix = "VELOC_";
	for (char **e = environ; *e != nullptr; e++) {
		std::string entry = *e;
		size_t at = entry.find('=');
		if (at == std::string::npos || entry.compare(0, prefix.size(), prefix) != 0) {
			continue;
		}
		std::string variable = entry.substr(0, at), name = changed(variable.substr(prefix.size()), tolower);
		if (find(name) == nullptr && (name.size() < 6 || meant(name).empty())) {
			continue;
		}
		take(all, notes, name, { entry.substr(at + 1), "environment, " + variable });
	}
}

int number(const values &all, const char *name) {
	auto it = all.find(name);
	if (it == all.end()) {
		return 0;
	}
	errno = 0;
	char *end;
	long n = strtol(it->second.text.c_str(), &end, 10);
	if (errno != 0 || *end != 0 || n < INT_MIN || n > INT_MAX) {
		fail(it->second.from + ": " + name + ": \"" + it->second.text + "\" is no whole number");
	}
	return static_cast<int>(n);
}

void check(const key &k, const value &v) {
	if (k.of == kind::boolean) {
		static const std::set<std::string> known = { "true", "false", "yes", "no", "on", "off", "1", "0" };
		if (known.count(changed(v.text, tolower)) == 0) {
			fail(v.from + ": " + k.name + ": \"" + v.text + "\" is neither true nor false");
		}
	}
}

std::string text(const values &all, const char *name) {
	auto it = all.find(name);
	return it == all.end() ? "" : it->second.text;
}

// Makes a directory and those above it, unless they are there.
void make_directory(const char *name, const std::string &path) {
	for (size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
		std::string part = path.substr(0, at);
		if (mkdir(part.c_str(), 0777) != 0 && errno != EEXIST && errno != EISDIR && errno != EROFS && errno != EACCES) {
			fail(std::string(name) + ": make directory " + part + ": " + strerror(errno));
		}
		if (at == std::string::npos) {
			break;
		}
	}
	struct stat st;
	if (stat(path.c_str(), &st) != 0) {
		fail(std::string(name) + ": make directory " + path + ": " + strerror(errno) +
			"; name one that you may write to");
	}
	if (!S_ISDIR(st.st_mode)) {
		fail(std::string(name) + ": " + path + " is no directory");
	}
	if (access(path.c_str(), R_OK | W_OK | X_OK) != 0) {
		fail(std::string(name) + ": " + path + ": " + strerror(errno) + "; name a directory that you may write to");
	}
}

std::string absolute(const std::string &path) {
	char here[PATH_MAX];
	std::string p = path;
	while (p.size() > 1 && p.back() == '/') {
		p.pop_back();
	}
	if (p.empty() || p[0] == '/') {
		return p;
	}
	if (getcwd(here, sizeof here) == nullptr) {
		fail("the working directory: " + std::string(strerror(errno)));
	}
	return std::string(here) + "/" + p;
}

} // namespace

config read_config(const std::string &file) {
	config c;
	values all;
	if (!file.empty()) {
		all = read_file(file, c.notes);
	}
	read_environment(all, c.notes);
	for (const auto &[name, v] : all) {
		const key &k = *find(name);
		check(k, v);
		if (k.of == kind::number) {
			number(all, k.name);
		}
		if (k.note != nullptr && changed(v.text, tolower) != k.otherwise) {
			c.notes.push_back(v.from + ": " + name + " has no effect: " + k.note);
		}
	}
	std::string where = file.empty() ? "the environment" : file, mode = text(all, "mode");
	c.scratch = absolute(text(all, "scratch"));
	c.persistent = absolute(text(all, "persistent"));
	if (c.scratch.empty()) {
		fail(where + " has no scratch; set it to a directory on the node's own disk");
	}
	if (mode.empty()) {
		c.notes.push_back(where + " has no mode: it is sync, where each checkpoint waits until it is durable");
	} else if (mode != "sync" && mode != "async") {
		fail(where + ": mode is " + mode + "; set it to sync or async");
	}
	c.sync = mode != "async";
	c.max_versions = number(all, "max_versions");
	if (c.max_versions < 0) {
		fail(all["max_versions"].from + ": max_versions is negative; 0 keeps all");
	}
	if (c.max_versions == 1) {
		c.notes.push_back(all["max_versions"].from +
			": max_versions is 1, and 2 stay: the one before the newest is "
			"what is left when a job dies while it writes");
	}
	c.ec_interval = number(all, "ec_interval");
	c.persistent_interval = number(all, "persistent_interval");
	c.scratch_versions = number(all, "scratch_versions");
	if (c.scratch_versions < 0) {
		fail(all["scratch_versions"].from + ": scratch_versions is negative; 0 keeps as many as max_versions");
	}
	if (c.scratch_versions == 1 && (c.persistent.empty() || c.persistent_interval < 0)) {
		c.scratch_versions = 2;
		c.notes.push_back(all["scratch_versions"].from +
			": scratch_versions is 1, and 2 stay, since there is no "
			"persistent: one of them is left if the other is damaged");
	}
	make_directory("scratch", c.scratch);
	if (!c.persistent.empty()) {
		make_directory("persistent", c.persistent);
	}
	c.log_prefix = absolute(text(all, "log_prefix"));
	if (!c.log_prefix.empty()) {
		make_directory("log_prefix", c.log_prefix);
	}
	return c;
}

void add_directory(config &c, const std::string &name) {
	c.scratch += "/" + name;
	make_directory("scratch", c.scratch);
	if (c.persistent.empty()) {
		return;
	}
	c.persistent += "/" + name;
	make_directory("persistent", c.persistent);
}

// Whether the user has a setting of Holdfast: as a variable, or in its configuration file.
static bool has_setting(const std::string &key) {
	std::string variable = "HOLDFAST_" + changed(key, toupper);
	if (const char *v = getenv(variable.c_str()); v != nullptr && *v != 0) {
		return true;
	}
	const char *named = getenv("HOLDFAST_CONFIG");
	std::ifstream in(named != nullptr && *named != 0 ? named : "holdfast.yaml");
	for (std::string line; std::getline(in, line);) {
		if (changed(line, tolower).compare(0, key.size() + 1, key + ":") == 0) {
			return true;
		}
	}
	return false;
}

std::string redundancy_of(const config &c, int nodes) {
	if (c.ec_interval < 0) {
		return "none";
	}
	if (nodes < 2 || c.persistent == c.scratch || has_setting("redundancy")) {
		return "";
	}
	return "parity:7+1";
}

std::map<std::string, std::string> settings_of(const config &c, int nodes) {
	std::map<std::string, std::string> all;
	bool persistent = !c.persistent.empty() && c.persistent_interval >= 0;
	all["HOLDFAST_LOCAL"] = persistent && c.persistent == c.scratch ? "" : c.scratch;
	all["HOLDFAST_GLOBAL"] = persistent ? c.persistent : "";
	for (const char *name : { "HOLDFAST_LOCAL", "HOLDFAST_GLOBAL" }) { // off stays off
		const char *v = getenv(name);
		if (v != nullptr && strcmp(v, "off") == 0) {
			all[name] = v;
		}
	}
	const auto used = [&](const char *name) { return !all[name].empty() && all[name] != "off"; };
	if (used("HOLDFAST_GLOBAL") && used("HOLDFAST_LOCAL") && c.persistent_interval > 0) {
		all["HOLDFAST_GLOBAL_EVERY"] = std::to_string(c.persistent_interval) + "s";
	}
	if (c.scratch_versions > 0 && used("HOLDFAST_LOCAL")) {
		all["HOLDFAST_KEEP_LOCAL"] = std::to_string(c.scratch_versions);
	}
	if (std::string r = redundancy_of(c, nodes); !r.empty()) {
		all["HOLDFAST_REDUNDANCY"] = r;
	}
	// Checkpoints are taken when the program says so; it has no points at which another could be.
	all["HOLDFAST_INTERVAL"] = "off"; // before holdfast.yaml and the default
	for (const char *name : { "HOLDFAST_MTBF", "HOLDFAST_DEADLINE_LEAD" }) {
		all[name] = "";
	}
	if (c.ec_interval > 0) {
		all["HOLDFAST_REDUNDANCY_EVERY"] = std::to_string(c.ec_interval) + "s";
	}
	return all;
}

} // namespace veloc
