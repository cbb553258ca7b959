// veloc/boost.hpp - call-backs for client_t::mem_protect that use Boost.Serialization. data must outlive the region.
#ifndef VELOC_BOOST_HPP
#define VELOC_BOOST_HPP

#include <boost/archive/binary_iarchive.hpp>
#include <boost/archive/binary_oarchive.hpp>
#include <exception>
#include <functional>
#include <istream>
#include <ostream>

namespace veloc {
namespace boost {

template <typename T> std::function<void(std::ostream &)> serializer(T &data) {
	return [&data](std::ostream &to) {
		::boost::archive::binary_oarchive archive{ to };
		const T &saved = data;
		archive << saved;
	};
}

template <typename T> std::function<bool(std::istream &)> deserializer(T &data) {
	return [&data](std::istream &from) {
		try {
			::boost::archive::binary_iarchive archive{ from };
			archive >> data;
			return true;
		} catch (const std::exception &) {
			return false;
		}
	};
}

} // namespace boost
} // namespace veloc

#endif
