// log.hpp - the library's messages: to standard error, or to a file in log_prefix.
#ifndef VELOC_LOG_HPP
#define VELOC_LOG_HPP

#include <string>

namespace veloc {

// Sends messages from now on to a file in a directory, named for host and user; empty: to standard error.
void log_to(const std::string &directory);

// Says a line. rank is -1 for a process that has none.
void say(int rank, const std::string &line);

} // namespace veloc

#endif
