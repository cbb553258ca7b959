// veloc/cereal.hpp - call-backs for client_t::mem_protect that use the cereal library. data must outlive the region.
#ifndef VELOC_CEREAL_HPP
#define VELOC_CEREAL_HPP

#include <cereal/archives/binary.hpp>
#include <exception>
#include <functional>
#include <istream>
#include <ostream>

namespace veloc {
namespace cereal {

template <typename T> std::function<void(std::ostream &)> serializer(T &data) {
	return [&data](std::ostream &to) { ::cereal::BinaryOutputArchive{ to }(data); };
}

template <typename T> std::function<bool(std::istream &)> deserializer(T &data) {
	return [&data](std::istream &from) {
		try {
			::cereal::BinaryInputArchive{ from }(data);
			return true;
		} catch (const std::exception &) {
			return false;
		}
	};
}

} // namespace cereal
} // namespace veloc

#endif
