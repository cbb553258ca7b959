// client.cpp - regions, and the phases of checkpoints and restarts.
#include "client.hpp"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <sstream>

#include "log.hpp"

namespace veloc {

namespace {

// Names of pieces in a checkpoint.
const char index_piece[] = "veloc.index"; // ids of the regions, as int32, and then the number of files
const char names_piece[] = "veloc.files"; // of several files: route_file's argument for each, and a zero
std::string file_piece(size_t i) { return i == 0 ? "veloc.file" : "veloc.file." + std::to_string(i); }
std::string region_piece(int id) { return "region." + std::to_string(id); }

[[noreturn]] void fail(const std::string &what) { throw std::runtime_error(what); }

void check_name(const std::string &name, int version) {
	const char *may = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
	if (name.empty() || name.find_first_not_of(may) != std::string::npos || name.size() > 200) {
		fail("\"" + name + "\": invalid checkpoint name; use 1 to 200 letters, digits, '_' and '.'");
	}
	if (version < 0) {
		fail("version " + std::to_string(version) + " is negative");
	}
}

std::string label(const std::string &name, int version) { return name + " version " + std::to_string(version); }

} // namespace

bool client::stat_of(const std::string &path, stamp *to) {
	struct stat st;
	if (::stat(path.c_str(), &st) != 0) {
		return false;
	}
	*to = { static_cast<unsigned long long>(st.st_ino), static_cast<long long>(st.st_size),
		static_cast<long long>(st.st_mtim.tv_sec), st.st_mtim.tv_nsec };
	return true;
}

client::client(const veloc_comm &c, const std::string &cfg_file) : comm(c) {
	try {
		std::string wrong;
		try {
			cfg = read_config(cfg_file);
			files_in = cfg.scratch;
			if (std::string job = job_of(comm); job != whole_job) {
				if (comm.rank == 0) {
					tell_others(job);
				}
				add_directory(cfg, job);
				if (comm.allgather != nullptr) {
					files_in = cfg.scratch;
				}
			}
		} catch (const std::exception &e) {
			wrong = e.what();
		}
		if (!agree(wrong.empty())) {
			fail(wrong.empty() ? "the configuration of another rank is wrong, which says why" : wrong);
		}
		log_to(cfg.log_prefix);
		if (comm.rank == 0) {
			for (const std::string &note : cfg.notes) {
				say(-1, note);
			}
		}
		note_files();
		holdfast = std::make_unique<engine>(comm, cfg);
	} catch (const std::exception &) {
		if (comm.release != nullptr) {
			comm.release(comm.arg);
		}
		throw;
	}
}

client::~client() {
	finish();
	if (comm.release != nullptr) {
		comm.release(comm.arg);
	}
}

bool client::finish() {
	if (now == phase::checkpoint) {
		say(comm.rank, "finalize: " + label(name, version) + " was begun and not ended; it is dropped");
	}
	now = phase::none;
	return tried(
		"finalize", [&] { holdfast->finish(); }, true);
}

// Ranks that begin at the same one, and are another number, have checkpoints that these do not find: says so.
void client::tell_others(const std::string &job) const {
	std::string first = job.substr(0, job.rfind('-') + 1);
	if (comm.allgather == nullptr || access((cfg.scratch + "/" + job).c_str(), F_OK) == 0) {
		return;
	}
	DIR *dir = opendir(cfg.scratch.c_str());
	if (dir == nullptr) {
		return; // the next call reports the error
	}
	while (const dirent *d = readdir(dir)) {
		if (std::string name = d->d_name; name != job && name.compare(0, first.size(), first) == 0) {
			say(-1,
				std::to_string(comm.size) + " of " + std::to_string(comm.world) + " ranks begin anew in " +
					cfg.scratch + "/" + job + "; those in " + name + " beside it are of another number of ranks");
		}
	}
	closedir(dir);
}

// Runs a call, and reports its failure. The first rank reports a failure of all ranks alike.
bool client::tried(const char *call, const std::function<void()> &work, bool collective) {
	try {
		work();
		return true;
	} catch (const std::exception &e) {
		if (!collective || comm.rank == 0) {
			say(comm.rank, std::string(call) + ": " + e.what());
		}
	} catch (...) { // of the program's call-backs; this rank must not leave the others alone in a collective
		say(comm.rank, std::string(call) + ": a callback threw an unknown exception type");
	}
	return false;
}

// Whether all ranks are content. Collective.
bool client::agree(bool good) {
	if (comm.size == 1) {
		return good;
	}
	std::vector<char> all(static_cast<size_t>(comm.size));
	char mine = good;
	if (comm.allgather(all.data(), &mine, 1, comm.arg) != 0) {
		say(comm.rank, "the ranks cannot be reached through MPI; call VELOC_Finalize before MPI_Finalize");
		return false;
	}
	for (char c : all) {
		good = good && c != 0;
	}
	return good;
}

void client::must_be(phase p, const char *first) const {
	if (now != p) {
		fail(std::string("call ") + first + " first");
	}
}

// Regions

void client::protect(int id, const region &r, const std::string &group) {
	if (r.write == nullptr && r.at == nullptr && r.bytes > 0) {
		fail("region " + std::to_string(id) + " has " + std::to_string(r.bytes) + " bytes at NULL");
	}
	groups[group][id] = r;
}

bool client::mem_protect(int id, void *ptr, size_t count, size_t base_size, const std::string &group) {
	return tried("mem_protect", [&] {
		if (base_size != 0 && count > SIZE_MAX / 2 / base_size) {
			fail("region " + std::to_string(id) + " of " + std::to_string(count) + " elements of " +
				std::to_string(base_size) + " bytes is larger than memory");
		}
		region r;
		r.at = ptr;
		r.bytes = count * base_size;
		protect(id, r, group);
	});
}

bool client::mem_protect(int id, const serializer_t &s, const deserializer_t &d, const std::string &group) {
	return tried("mem_protect", [&] {
		if (!s || !d) {
			fail("region " + std::to_string(id) + " needs a serializer and a deserializer");
		}
		region r;
		r.write = s;
		r.read = d;
		protect(id, r, group);
	});
}

bool client::mem_unprotect(int id, const std::string &group) {
	auto g = groups.find(group);
	return g != groups.end() && g->second.erase(id) > 0;
}

void client::mem_clear(const std::string &group) { groups.erase(group); }

bool client::register_observer(int type, const observer_t &obs) {
	return tried("register_observer", [&] {
		if (type != VELOC_OBSERVE_CKPT_END) {
			fail("type " + std::to_string(type) + " is none; use VELOC_OBSERVE_CKPT_END");
		}
		observers[type] = obs;
	});
}

// Those of a checkpoint's own name, else those without a name.
const client::regions &client::regions_of(const std::string &of) const {
	static const regions none;
	auto g = groups.find(of);
	if (g == groups.end() || g->second.empty()) {
		g = groups.find("");
	}
	return g == groups.end() ? none : g->second;
}

// Files

// The rank, or the number of a process by itself.
std::string client::place() const {
	return comm.allgather != nullptr ? std::to_string(comm.rank) : std::to_string(static_cast<unsigned>(comm.first));
}

// The first file has VeloC's own name, which programs may make themselves.
std::string client::path_of(const std::string &of, int v, size_t i) const {
	return files_in + "/" + of + "-" + place() + "-" + std::to_string(v) + (i == 0 ? "" : "." + std::to_string(i)) +
		".dat";
}

// Notes the files that earlier starts have left in scratch, so that none is taken for one that was just written.
void client::note_files() {
	DIR *dir = opendir(files_in.c_str());
	if (dir == nullptr) {
		fail("read directory " + files_in + ": " + strerror(errno));
	}
	std::string middle = "-" + place() + "-";
	while (const dirent *d = readdir(dir)) {
		std::string path = files_in + "/" + d->d_name;
		stamp s;
		if (strstr(d->d_name, middle.c_str()) != nullptr && stat_of(path, &s)) {
			files[path] = s;
		}
	}
	closedir(dir);
}

// Which of this checkpoint's files the program means: the first one, unless it has others. A restart may call a
// single file as it likes.
size_t client::file_named(const std::string &original) {
	auto f = std::find(routes.begin(), routes.end(), original);
	if (f != routes.end()) {
		return static_cast<size_t>(f - routes.begin());
	}
	if (now == phase::checkpoint) {
		routes.push_back(original);
		if (routes.size() > 1) {
			drop_earlier(path_of(name, version, routes.size() - 1));
		}
		return routes.size() - 1;
	}
	if (routes.size() > 1) {
		std::string have;
		for (const std::string &r : routes) {
			have += (have.empty() ? "" : ", ") + r;
		}
		fail(label(name, version) + " has several files, and none of them was called " + original +
			" when it was taken: " + have);
	}
	return 0;
}

std::string client::route_file(const std::string &original) {
	std::string path;
	tried("route_file", [&] {
		if (version < 0) {
			fail("call checkpoint_begin or restart_begin first");
		}
		std::string p = path_of(name, version, file_named(original));
		if (p.size() >= VELOC_MAX_NAME) {
			fail(p + " has more than " + std::to_string(VELOC_MAX_NAME - 1) + " bytes; give scratch a shorter path");
		}
		path = p;
	});
	return path;
}

bool client::cleanup(const std::string &of) {
	return tried("cleanup", [&] {
		check_name(of, 0);
		DIR *dir = opendir(files_in.c_str());
		if (dir == nullptr) {
			fail("read directory " + files_in + ": " + strerror(errno));
		}
		std::string from = of + "-" + place() + "-";
		while (const dirent *d = readdir(dir)) {
			if (strncmp(d->d_name, from.c_str(), from.size()) != 0) {
				continue;
			}
			std::string path = files_in + "/" + d->d_name;
			if (unlink(path.c_str()) != 0 && errno != ENOENT) {
				say(comm.rank, "cleanup: remove " + path + ": " + strerror(errno));
			}
			files.erase(path);
		}
		closedir(dir);
	});
}

// Checkpoints

void client::begin(const std::string &of, int v) {
	if (now == phase::checkpoint) {
		fail(label(name, version) + " is under way; end it first");
	}
	check_name(of, v);
	if (now == phase::restart) {
		holdfast->shut();
	}
	now = phase::checkpoint;
	name = of;
	version = v;
	routes.clear();
	staged.clear();
	objects.clear();
	drop_earlier(path_of(of, v, 0));
}

// Removes a file that an earlier checkpoint has left in the way of the one that is under way.
void client::drop_earlier(const std::string &path) {
	stamp s;
	auto f = files.find(path);
	if (f == files.end() || !stat_of(path, &s) || !(s == f->second)) {
		return; // there is none, or the program has written it ahead
	}
	if (unlink(path.c_str()) != 0) {
		fail("remove the file of an earlier checkpoint, " + path + ": " + strerror(errno));
	}
	files.erase(f);
}

// Ids of the regions that mode says, out of `all`.
static std::vector<int> choose(int mode, const std::set<int> &ids, const std::set<int> &all) {
	if (mode != VELOC_CKPT_ALL && mode != VELOC_CKPT_SOME && mode != VELOC_CKPT_REST) {
		fail("mode " + std::to_string(mode) + " is none");
	}
	std::vector<int> chosen;
	if (mode == VELOC_CKPT_SOME) {
		for (int id : ids) {
			if (all.count(id) == 0) {
				fail("region " + std::to_string(id) + " is not there");
			}
		}
	}
	for (int id : all) {
		if (mode == VELOC_CKPT_ALL || (ids.count(id) != 0) == (mode == VELOC_CKPT_SOME)) {
			chosen.push_back(id);
		}
	}
	return chosen;
}

// Takes regions into the checkpoint. Without copy their memory stays as it is until end is called.
void client::stage(int mode, const std::set<int> &ids, bool copy) {
	must_be(phase::checkpoint, "checkpoint_begin");
	const regions &mine = regions_of(name);
	std::set<int> all;
	for (const auto &[id, r] : mine) {
		all.insert(id);
	}
	std::vector<int> chosen = choose(mode, ids, all);
	if (chosen.empty()) {
		fail("there is no region to save; protect one, of 0 elements if this rank has nothing");
	}
	for (int id : chosen) {
		const region &r = mine.at(id);
		piece p;
		p.name = region_piece(id);
		p.at = r.at;
		p.bytes = r.bytes;
		if (r.write != nullptr) {
			std::ostringstream out(std::ios::out | std::ios::binary);
			r.write(out);
			if (!out) {
				fail("region " + std::to_string(id) + ": its serializer left the stream in an error");
			}
			objects[id] = out.str();
		} else if (copy) {
			objects[id].resize(r.bytes);
			read_memory(objects[id].data(), r.at, r.bytes);
		}
		if (r.write != nullptr || copy) {
			p.at = objects[id].data();
			p.bytes = objects[id].size();
		}
		staged[id] = p;
	}
}

// Finds the files that the program has written for this checkpoint. If it has routed one, and saved nothing else, there
// must be one; if it has routed several, all.
void client::stage_files() {
	bool routed = !routes.empty();
	if (!routed && !staged.empty()) {
		return;
	}
	if (!routed) {
		routes.push_back(""); // it has made the path itself
	}
	for (size_t i = 0; i < routes.size(); i++) {
		std::string path = path_of(name, version, i);
		stamp s;
		auto f = files.find(path);
		bool there = stat_of(path, &s), fresh = there && (f == files.end() || !(f->second == s));
		if (fresh) {
			continue;
		}
		if (!staged.empty() && routes.size() == 1) {
			routes.clear();
			return;
		}
		if (there) {
			fail("the file " + path + " is that of an earlier checkpoint; write it anew");
		}
		fail(routed ? "there is no file " + path + "; write it between checkpoint_begin and checkpoint_end"
					: "nothing was saved; call checkpoint_mem, or write the file that route_file names");
	}
}

// Files in scratch for this checkpoint are its own; files of earlier ones are of no use any more.
void client::keep_files() {
	std::set<std::string> mine;
	for (size_t i = 0; i < routes.size(); i++) {
		mine.insert(path_of(name, version, i));
	}
	std::string from = files_in + "/" + name + "-" + place() + "-";
	for (auto f = files.begin(); f != files.end();) {
		bool old = f->first.compare(0, from.size(), from) == 0 && mine.count(f->first) == 0;
		if (old) {
			unlink(f->first.c_str());
		}
		f = old ? files.erase(f) : std::next(f);
	}
	for (const std::string &path : mine) {
		if (stamp s; stat_of(path, &s)) {
			files[path] = s;
		}
	}
}

// Takes the checkpoint of the staged data, unless a rank has failed.
bool client::end(bool success) {
	must_be(phase::checkpoint, "checkpoint_begin");
	now = phase::none;
	std::vector<int32_t> index;
	std::vector<piece> pieces;
	std::string names;
	bool good = success && tried("checkpoint_end", [&] {
		stage_files();
		for (const auto &[id, p] : staged) {
			index.push_back(id);
			pieces.push_back(p);
		}
		index.push_back(static_cast<int32_t>(routes.size()));
		for (size_t i = 0; i < routes.size(); i++) {
			pieces.push_back({ file_piece(i), nullptr, 0, path_of(name, version, i) });
			names += routes[i] + '\0';
		}
		if (routes.size() > 1) {
			pieces.push_back({ names_piece, names.data(), names.size(), "" });
		}
		pieces.push_back({ index_piece, index.data(), index.size() * sizeof index[0], "" });
	});
	good = tried(
			   "checkpoint_end",
			   [&] {
				   if (!good) {
					   pieces.clear();
				   }
				   ended = true;
				   holdfast->save(name, good ? version : engine::no_part, pieces);
				   if (cfg.sync) {
					   holdfast->wait();
				   }
			   },
			   true) &&
		good;
	objects.clear();
	staged.clear();
	if (good && !routes.empty()) {
		keep_files();
	}
	return good;
}

bool client::checkpoint_begin(const std::string &of, int v) {
	return tried("checkpoint_begin", [&] { begin(of, v); });
}

bool client::checkpoint_mem(int mode, const std::set<int> &ids) {
	return tried("checkpoint_mem", [&] { stage(mode, ids, true); });
}

bool client::checkpoint_end(bool success) {
	bool good = false;
	if (!tried("checkpoint_end", [&] { good = end(success); })) {
		return false;
	}
	auto o = observers.find(VELOC_OBSERVE_CKPT_END);
	if (good && o != observers.end() && o->second) {
		o->second(name, version);
	}
	return good;
}

// No region is copied but by Holdfast: the program cannot change one before the end.
bool client::checkpoint(const std::string &of, int v) {
	if (ended) { // one before: it has the outcome of that; this one may fare better
		checkpoint_wait();
	}
	if (!checkpoint_begin(of, v)) {
		return false;
	}
	bool good = tried("checkpoint", [&] { stage(VELOC_CKPT_ALL, {}, false); });
	return checkpoint_end(good) && good;
}

bool client::checkpoint_wait() {
	return tried("checkpoint_wait", [&] {
		if (now == phase::checkpoint) {
			fail(label(name, version) + " is under way; end it first");
		}
		holdfast->wait();
	});
}

bool client::checkpoint_finished() {
	bool finished = false;
	tried("checkpoint_finished", [&] {
		if (now == phase::checkpoint) {
			fail(label(name, version) + " is under way; end it first");
		}
		finished = holdfast->finished();
	});
	return finished;
}

// Restarts

int client::restart_test(const std::string &of, int v, int target_rank) {
	int found = VELOC_FAILURE;
	tried("restart_test", [&] {
		check_name(of, v);
		if (target_rank >= 0 && target_rank != comm.rank) {
			fail("rank " + std::to_string(target_rank) + ": a rank can restore its own checkpoints alone");
		}
		if (now == phase::checkpoint) {
			fail(label(name, version) + " is under way; end it first");
		}
		if (now == phase::restart) {
			now = phase::none;
		}
		found = holdfast->newest(of, v == 0 ? -1 : v);
	});
	return found < 0 ? VELOC_FAILURE : found;
}

// The original names of the files of the open checkpoint.
std::vector<std::string> client::load_names() {
	std::vector<std::string> names;
	std::string text(static_cast<size_t>(std::max(0LL, holdfast->held(names_piece))), '\0');
	if (!text.empty()) {
		holdfast->load({ { names_piece, text.data(), text.size(), "" } });
	}
	for (size_t at = 0, end; (end = text.find('\0', at)) != std::string::npos; at = end + 1) {
		names.push_back(text.substr(at, end - at));
	}
	return names;
}

void client::open(const std::string &of, int v, int target_rank) {
	check_name(of, v);
	if (target_rank >= 0 && target_rank != comm.rank) {
		fail("rank " + std::to_string(target_rank) + ": a rank can restore its own checkpoints alone");
	}
	if (now == phase::checkpoint) {
		fail(label(name, version) + " is under way; end it first");
	}
	now = phase::none;
	saved.clear();
	holdfast->open(of, v);
	long long bytes = holdfast->held(index_piece);
	if (bytes < static_cast<long long>(sizeof(int32_t)) || bytes % static_cast<long long>(sizeof(int32_t)) != 0) {
		fail(label(of, v) + " was not taken through VeloC's interface");
	}
	std::vector<int32_t> index(static_cast<size_t>(bytes) / sizeof(int32_t));
	holdfast->load({ { index_piece, index.data(), static_cast<size_t>(bytes), "" } });
	size_t count = static_cast<size_t>(index.back());
	index.pop_back();
	for (int32_t id : index) {
		saved[id] = holdfast->held(region_piece(id));
	}
	std::vector<std::string> were = count > 1 ? load_names() : std::vector<std::string>(count);
	if (were.size() != count) {
		fail(label(of, v) + " has " + std::to_string(count) + " files, and " + std::to_string(were.size()) + " names");
	}
	for (size_t i = 0; i < count; i++) {
		std::string path = path_of(of, v, i);
		holdfast->load({ { file_piece(i), nullptr, 0, path } });
		if (stamp s; stat_of(path, &s)) {
			files[path] = s;
		}
	}
	now = phase::restart;
	name = of;
	version = v;
	routes = were;
}

bool client::restart_begin(const std::string &of, int v, int target_rank) {
	if (agree(tried("restart_begin", [&] { open(of, v, target_rank); }))) {
		return true;
	}
	if (now == phase::restart) { // of this rank alone
		restart_end(false);
	}
	return false;
}

long long client::saved_size(int id) {
	auto s = saved.find(id);
	return s == saved.end() ? -1 : s->second;
}

size_t client::recover_size(int id) { return saved_size(id) < 0 ? 0 : static_cast<size_t>(saved_size(id)); }

// Ids to recover, each of which is protected, with room for the saved data.
std::vector<int> client::chosen(int mode, const std::set<int> &ids) const {
	must_be(phase::restart, "restart_begin");
	std::set<int> all;
	for (const auto &[id, bytes] : saved) {
		all.insert(id);
	}
	std::vector<int> some = choose(mode, ids, all);
	const regions &mine = regions_of(name);
	for (int id : some) {
		auto r = mine.find(id);
		if (r == mine.end()) {
			fail("region " + std::to_string(id) + " of " + label(name, version) +
				" is not protected; protect it, or "
				"choose others");
		}
		if (r->second.write == nullptr && static_cast<long long>(r->second.bytes) < saved.at(id)) {
			fail("region " + std::to_string(id) + " has " + std::to_string(r->second.bytes) + " bytes, and " +
				std::to_string(saved.at(id)) + " were saved; protect more");
		}
	}
	return some;
}

void client::recover(const std::vector<int> &ids) {
	const regions &mine = regions_of(name);
	std::vector<piece> pieces;
	std::map<int, std::string> texts;
	for (int id : ids) {
		const region &r = mine.at(id);
		piece p{ region_piece(id), r.at, static_cast<size_t>(saved.at(id)), "" };
		if (r.write != nullptr) {
			texts[id].resize(p.bytes);
			p.at = texts[id].data();
		}
		pieces.push_back(p);
	}
	holdfast->load(pieces);
	for (const auto &[id, text] : texts) {
		std::istringstream in(text, std::ios::in | std::ios::binary);
		if (!mine.at(id).read(in)) {
			fail("region " + std::to_string(id) + ": its deserializer has failed");
		}
	}
}

bool client::recover_mem(int mode, const std::set<int> &ids) {
	return tried("recover_mem", [&] { recover(chosen(mode, ids)); });
}

bool client::restart_end(bool) {
	return tried("restart_end", [&] {
		must_be(phase::restart, "restart_begin");
		now = phase::none;
		holdfast->shut();
		if (cfg.sync) { // for the work that brings the checkpoint back to levels that have lost it
			holdfast->wait();
		}
	});
}

// Fails on all ranks or on none.
bool client::restart(const std::string &of, int v, int target_rank) {
	if (!restart_begin(of, v, target_rank)) {
		return false;
	}
	std::vector<int> ids;
	bool good = agree(tried("restart", [&] { ids = chosen(VELOC_RECOVER_ALL, {}); })) &&
		agree(tried("restart", [&] { recover(ids); }));
	return restart_end(good) && good;
}

veloc_comm alone(unsigned int id) { return { 0, 1, static_cast<int>(id), 1, nullptr, nullptr, nullptr }; }

client_t::~client_t() = default;

client_t *get_client(const veloc_comm &comm, const std::string &cfg_file) { return new client(comm, cfg_file); }

client_t *get_client(unsigned int id, const std::string &cfg_file) { return new client(alone(id), cfg_file); }

} // namespace veloc
