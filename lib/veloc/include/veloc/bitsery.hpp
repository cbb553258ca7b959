// veloc/bitsery.hpp - call-backs for client_t::mem_protect that use the bitsery library. data must outlive the region.
#ifndef VELOC_BITSERY_HPP
#define VELOC_BITSERY_HPP

#include <bitsery/adapter/stream.h>
#include <bitsery/bitsery.h>
#include <functional>
#include <istream>
#include <ostream>

namespace veloc {
namespace bitsery {

template <typename T> std::function<void(std::ostream &)> serializer(T &data) {
	return [&data](std::ostream &to) {
		::bitsery::Serializer<::bitsery::OutputBufferedStreamAdapter> out{ to };
		out.object(data);
		out.adapter().flush();
	};
}

template <typename T> std::function<bool(std::istream &)> deserializer(T &data) {
	return [&data](std::istream &from) {
		return ::bitsery::quickDeserialization<::bitsery::InputStreamAdapter>(from, data).first ==
			::bitsery::ReaderError::NoError;
	};
}

} // namespace bitsery
} // namespace veloc

#endif
