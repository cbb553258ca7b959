#include "log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

namespace veloc {

namespace {
int to = STDERR_FILENO;
}

void log_to(const std::string &directory) {
	if (to != STDERR_FILENO) {
		close(to);
	}
	to = STDERR_FILENO;
	if (directory.empty()) {
		return;
	}
	char host[HOST_NAME_MAX + 1] = "";
	gethostname(host, sizeof host - 1);
	std::string file = directory + "/veloc-client-" + host + "-" + std::to_string(getuid()) + ".log";
	int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (fd < 0) {
		say(-1, "log " + file + ": " + strerror(errno) + "; messages go to standard error");
	} else {
		to = fd;
	}
}

void say(int rank, const std::string &line) {
	std::string text = "veloc: " + (rank >= 0 ? "rank " + std::to_string(rank) + ": " : "") + line + "\n";
	size_t done = 0;
	while (done < text.size()) { // one write, so that lines of several ranks stay whole
		ssize_t n = write(to, text.data() + done, text.size() - done);
		if (n < 0 && errno != EINTR) {
			return; // there is no reader
		}
		done += n > 0 ? static_cast<size_t>(n) : 0;
	}
}

} // namespace veloc
