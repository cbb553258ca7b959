// holdfast_mpi.hpp - holdfast::session by way of the program's MPI, with which it is compiled.
#ifndef HOLDFAST_MPI_HPP
#define HOLDFAST_MPI_HPP

#include "holdfast.hpp"
#include "holdfast_mpi.h"

namespace holdfast {

// A session of the ranks of comm, which are all of the job. Collective: hf_init_mpi.
inline session open(MPI_Comm comm) { return session(detail::result{ hf_init_mpi(comm) }); }

// Makes the request in a variable part of every checkpoint of the session: hf_protect_request. Local.
inline void protect_request(session &, const std::string &name, MPI_Request &request) {
	check(hf_protect_request(name.c_str(), &request));
}

} // namespace holdfast

#endif
