// client.hpp - the class behind client_t and the calls of veloc.h.
#ifndef VELOC_CLIENT_HPP
#define VELOC_CLIENT_HPP

#include <memory>
#include <vector>

#include "config.hpp"
#include "engine.hpp"
#include "veloc.hpp"

namespace veloc {

// A process by itself. Its number stands where a communicator has the place of its first rank.
veloc_comm alone(unsigned int id);

class client final : public client_t {
public:
	client(const veloc_comm &comm, const std::string &cfg_file);
	~client() override;

	bool mem_protect(int id, void *ptr, size_t count, size_t base_size, const std::string &name) override;
	bool mem_protect(int id, const serializer_t &s, const deserializer_t &d, const std::string &name) override;
	bool mem_unprotect(int id, const std::string &name) override;
	void mem_clear(const std::string &name) override;
	bool register_observer(int type, const observer_t &obs) override;

	std::string route_file(const std::string &original) override;
	bool cleanup(const std::string &name) override;

	bool checkpoint(const std::string &name, int version) override;
	bool checkpoint_begin(const std::string &name, int version) override;
	bool checkpoint_mem(int mode, const std::set<int> &ids) override;
	bool checkpoint_end(bool success) override;
	bool checkpoint_wait() override;
	bool checkpoint_finished() override;

	int restart_test(const std::string &name, int version, int target_rank) override;
	bool restart(const std::string &name, int version, int target_rank) override;
	bool restart_begin(const std::string &name, int version, int target_rank) override;
	size_t recover_size(int id) override;
	bool recover_mem(int mode, const std::set<int> &ids) override;
	bool restart_end(bool success) override;

	// Bytes that were saved of a region; -1 if none were.
	long long saved_size(int id);

	// Ends; the destructor does it otherwise. Collective.
	bool finish();

private:
	// Memory, or an object that call-backs write and read.
	struct region {
		void *at = nullptr;
		size_t bytes = 0;
		serializer_t write;
		deserializer_t read;
	};
	using regions = std::map<int, region>;

	enum class phase { none, checkpoint, restart };

	// Separates a file that was written again from the one before.
	struct stamp {
		unsigned long long inode;
		long long bytes, seconds, nanoseconds;
		bool operator==(const stamp &o) const {
			return inode == o.inode && bytes == o.bytes && seconds == o.seconds && nanoseconds == o.nanoseconds;
		}
	};
	static bool stat_of(const std::string &path, stamp *to);

	const regions &regions_of(const std::string &of) const;
	std::string place() const;
	std::string path_of(const std::string &of, int v, size_t i) const;
	void protect(int id, const region &r, const std::string &group);
	void tell_others(const std::string &job) const;
	void note_files();
	void must_be(phase p, const char *first) const;
	bool agree(bool good);

	size_t file_named(const std::string &original);
	void drop_earlier(const std::string &path);
	std::vector<std::string> load_names();
	void begin(const std::string &of, int v);
	void stage(int mode, const std::set<int> &ids, bool copy);
	void stage_files();
	void keep_files();
	bool end(bool success);
	void open(const std::string &of, int v, int target_rank);
	std::vector<int> chosen(int mode, const std::set<int> &ids) const;
	void recover(const std::vector<int> &ids);
	bool tried(const char *call, const std::function<void()> &work, bool collective = false);

	veloc_comm comm;
	config cfg;
	std::string files_in; // directory of routed files
	std::unique_ptr<engine> holdfast;
	std::map<std::string, regions> groups; // by the name of checkpoints; "" is for those that have none of their own
	std::map<int, observer_t> observers;

	phase now = phase::none;
	std::string name; // of the checkpoint that is under way, or was last
	int version = -1;
	bool ended = false;                 // a checkpoint was, well or not
	std::vector<std::string> routes;    // the program's names of the files of this phase
	std::map<int, std::string> objects; // copies of regions and output of call-backs, by id
	std::map<int, piece> staged;        // by id
	std::map<int, long long> saved;     // regions of the checkpoint that is being restored, and their sizes
	std::map<std::string, stamp> files; // in scratch, that no checkpoint is to take: they are of an earlier one
};

} // namespace veloc

#endif
