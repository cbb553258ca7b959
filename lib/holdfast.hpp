// holdfast.hpp - holdfast.h for C++17: a session that ends by itself, arrays and containers as they are, exceptions.
//
//     #include <holdfast_mpi.hpp>                    // or holdfast.hpp, without MPI
//
//     MPI_Init(&argc, &argv);
//     {
//         auto hf = holdfast::open(MPI_COMM_WORLD);
//         hf.protect("step", step);
//         hf.protect("u", u);                        // a std::vector<double>
//         hf.restore();                              // a first start changes nothing
//         for (; step < steps; step++) {
//             if (hf.point())
//                 break;                             // the final checkpoint is durable
//             ...
//         }
//     }                                              // waits until the last checkpoint is at all levels
//     MPI_Finalize();
//
// Link with -lholdfast. holdfast.h describes the needs and costs of each call, its callers (all ranks or one), and its
// threads. A call here differs from the call of that name only as its comment says.
//
// Errors are thrown as holdfast::error, whose what() is hf_error(), with the remedy. An error of one rank does not
// reach the others: catch it around the session and call MPI_Abort, or let it end the process, so that the other
// ranks end, too.
#ifndef HOLDFAST_HPP
#define HOLDFAST_HPP

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <istream>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <streambuf>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "holdfast.h"

namespace holdfast {

// The error of a call of the library.
class error : public std::runtime_error {
public:
	error(int code, const char *text) : std::runtime_error(text), code_(code) {}

	// One of HF_E_ARG, HF_E_ORDER, ... of holdfast.h.
	int code() const noexcept { return code_; }

	// Another rank has ended: exit.
	bool lost() const noexcept { return code_ == HF_E_LOST; }

private:
	int code_;
};

// Throws unless code is a result.
inline int check(int code) {
	if (code < 0) {
		throw error(code, hf_error());
	}
	return code;
}

// hf_start: call it before MPI_Init if the MPI does not allow processes to be started later.
inline void start() { check(hf_start()); }

// hf_elastic: allows the job to continue from a checkpoint of another number of ranks. Call it on all ranks before
// the session is made.
inline void elastic() { check(hf_elastic()); }

// A box that a rank owns of a global array, and its place in memory: hf_box. Its lists have an entry for each
// dimension, or none for zeros.
//
//     box{{row0, col0}, {rows, cols}, {1, 1}, {1, 1}}        // start, count, and a ghost on each side
struct box {
	std::vector<std::int64_t> start = {}, count = {}, low = {}, high = {}, pitch = {}, block = {}, stride = {};
	std::int64_t offset = 0;
};

namespace detail {

template <class T> struct is_complex : std::false_type {};
template <class T> struct is_complex<std::complex<T>> : std::true_type {};

template <class T, class = void> struct is_contiguous : std::false_type {};
template <class T>
struct is_contiguous<T, std::void_t<decltype(std::declval<T &>().data()), decltype(std::declval<T &>().size())>>
	: std::is_pointer<decltype(std::declval<T &>().data())> {};

template <class C, class = void> struct can_resize : std::false_type {};
template <class C>
struct can_resize<C, std::void_t<decltype(std::declval<C &>().resize(std::size_t{}))>> : std::true_type {};

template <class T> constexpr hf_type integer_type() {
	constexpr bool is_signed = std::is_signed_v<T>;
	switch (sizeof(T)) {
	case 1:
		return is_signed ? HF_INT8 : HF_UINT8;
	case 2:
		return is_signed ? HF_INT16 : HF_UINT16;
	case 4:
		return is_signed ? HF_INT32 : HF_UINT32;
	case 8:
		return is_signed ? HF_INT64 : HF_UINT64;
	}
	return HF_BYTE;
}

// The type that elements T have in a checkpoint: HF_BYTE for bool, characters and structures.
template <class T> constexpr hf_type type_of() {
	if constexpr (std::is_same_v<T, float>) {
		return HF_FLOAT;
	} else if constexpr (std::is_same_v<T, double>) {
		return HF_DOUBLE;
	} else if constexpr (std::is_same_v<T, std::complex<float>>) {
		return HF_FLOAT_COMPLEX;
	} else if constexpr (std::is_same_v<T, std::complex<double>>) {
		return HF_DOUBLE_COMPLEX;
	} else if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, char>) {
		return HF_BYTE;
	} else if constexpr (std::is_enum_v<T>) {
		return integer_type<std::underlying_type_t<T>>();
	} else if constexpr (std::is_integral_v<T>) {
		return integer_type<T>();
	} else {
		return HF_BYTE;
	}
}

// The number of elements of type_of<T>() in one T.
template <class T> constexpr std::size_t elements_in() { return type_of<T>() == HF_BYTE ? sizeof(T) : 1; }

template <class T> void check_element() {
	static_assert(!std::is_const_v<T>, "holdfast: a restart writes what is protected, and this is const");
	static_assert(!std::is_pointer_v<T> && !std::is_member_pointer_v<T>,
		"holdfast: an address is of no use after a restart; protect what it points to: protect(name, p, n)");
	static_assert(std::is_trivially_copyable_v<T> || is_complex<T>::value,
		"holdfast: this type cannot be copied as bytes; give functions that write and read it: "
		"protect(name, [&](std::ostream &to) { ... }, [&](std::istream &from) { ... })");
}

// The stream of hf_fopen.
class file : public std::streambuf {
public:
	file(const std::string &name, const char *mode) : f_(hf_fopen(name.c_str(), mode)) {
		if (f_ == nullptr) {
			throw error(HF_E_FAILED, hf_error());
		}
	}

	file(const file &) = delete;
	file &operator=(const file &) = delete;

	~file() override {
		if (f_ != nullptr) {
			std::fclose(f_);
		}
	}

	// Written bytes count from here on.
	void close() {
		if (std::fclose(std::exchange(f_, nullptr)) != 0) {
			throw error(HF_E_MEMORY, "a protected stream cannot be closed: no memory for what was written to it");
		}
	}

protected:
	int_type overflow(int_type c) override {
		if (traits_type::eq_int_type(c, traits_type::eof())) {
			return traits_type::not_eof(c);
		}
		return std::fputc(c, f_) == EOF ? traits_type::eof() : c;
	}

	std::streamsize xsputn(const char *s, std::streamsize n) override {
		return static_cast<std::streamsize>(std::fwrite(s, 1, static_cast<std::size_t>(n), f_));
	}

	int_type underflow() override {
		const std::size_t n = std::fread(read_, 1, sizeof read_, f_);
		if (n == 0) {
			return traits_type::eof();
		}
		setg(read_, read_, read_ + n);
		return traits_type::to_int_type(read_[0]);
	}

	pos_type seekoff(off_type by, std::ios_base::seekdir from, std::ios_base::openmode) override {
		if (from == std::ios_base::cur) {
			by -= egptr() - gptr(); // the file stands behind the bytes read ahead
		}
		setg(nullptr, nullptr, nullptr);
		const int whence = from == std::ios_base::beg ? SEEK_SET : from == std::ios_base::cur ? SEEK_CUR : SEEK_END;
		return std::fseek(f_, static_cast<long>(by), whence) != 0 ? pos_type(off_type(-1))
																  : pos_type(off_type(std::ftell(f_)));
	}

	pos_type seekpos(pos_type at, std::ios_base::openmode which) override {
		return seekoff(off_type(at), std::ios_base::beg, which);
	}

private:
	std::FILE *f_;
	char read_[4096];
};

// How something is protected: per rank, or for any number of ranks.
struct shape {
	bool replicated = false;
	std::vector<std::int64_t> size; // of a global array
	std::vector<box> boxes;
};

inline void copy_entries(const std::vector<std::int64_t> &from, std::int64_t *to, std::size_t dims) {
	if (!from.empty() && from.size() != dims) {
		throw error(HF_E_ARG, "protect_global: the lists of a box have an entry for each dimension, or none");
	}
	std::copy(from.begin(), from.end(), to);
}

// The box in C. The bytes of an element that is a structure are one more dimension.
inline hf_box in_c(const box &b, std::size_t dims, std::size_t bytes) {
	hf_box c{};
	if (dims + (bytes > 1) > HF_MAX_DIMS) {
		throw error(HF_E_ARG, "protect_global: the array has too many dimensions; 8 is the most, 7 of structures");
	}
	copy_entries(b.start, c.start, dims);
	copy_entries(b.count, c.count, dims);
	copy_entries(b.low, c.low, dims);
	copy_entries(b.high, c.high, dims);
	copy_entries(b.pitch, c.pitch, dims);
	copy_entries(b.block, c.block, dims);
	copy_entries(b.stride, c.stride, dims);
	c.offset = b.offset * static_cast<std::int64_t>(bytes);
	if (bytes > 1) {
		c.count[dims] = static_cast<std::int64_t>(bytes);
	}
	return c;
}

template <class T> void place(const std::string &name, T *ptr, std::size_t count, const shape &as);

// hf_resize_fn of a container.
template <class C> void *resize(std::size_t count, void *container) noexcept {
	C &c = *static_cast<C *>(container);
	try {
		c.resize(count / elements_in<std::remove_pointer_t<decltype(c.data())>>());
		return c.data();
	} catch (...) {
		return nullptr; // there is no memory
	}
}

// Protects the elements of a container.
template <class C> void place_in(const std::string &name, C &c, const shape &as) {
	using T = std::remove_pointer_t<decltype(c.data())>;
	check_element<T>();
	const auto count = static_cast<std::size_t>(c.size());
	if constexpr (can_resize<C>::value && std::is_default_constructible_v<T>) {
		if (!as.replicated && as.size.empty()) {
			constexpr std::size_t parts = elements_in<T>();
			check(hf_protect_resizable(name.c_str(), c.data(), count * parts, type_of<T>(), parts, resize<C>, &c));
			return;
		}
	}
	place(name, static_cast<T *>(c.data()), count, as);
}

// Protects count elements at ptr.
template <class T> void place(const std::string &name, T *ptr, std::size_t count, const shape &as) {
	check_element<T>();
	constexpr std::size_t parts = elements_in<T>();
	if (as.replicated) {
		check(hf_protect_replicated(name.c_str(), ptr, count * parts, type_of<T>()));
		return;
	}
	if (as.size.empty()) {
		check(hf_protect(name.c_str(), ptr, count * parts, type_of<T>()));
		return;
	}
	std::vector<std::int64_t> size = as.size;
	std::vector<hf_box> boxes;
	for (const box &b : as.boxes) {
		boxes.push_back(in_c(b, as.size.size(), parts));
	}
	if (parts > 1) {
		size.push_back(static_cast<std::int64_t>(parts));
	}
	check(hf_protect_global(name.c_str(), ptr, count * parts, type_of<T>(), static_cast<int>(size.size()), size.data(),
		boxes.data(), boxes.size()));
}

struct result { // of an hf_init
	int code;
};

} // namespace detail

class recovery;

// This process's connection to the node daemon, and its protected data. A process makes one session in its life.
//
// Protected data has to outlive the session: declare the session after it.
class session {
public:
	// hf_init: rank and size are those of the launcher's environment, and all ranks are on this node.
	session() : session(nullptr) {}

	// hf_init with c, which may be null.
	explicit session(const hf_config *c) : session(detail::result{ hf_init(c) }) {}

	// After a call to hf_init of one's own; see holdfast::open.
	explicit session(detail::result r) { check(r.code); }

	// hf_init with allgather(void *all, const void *mine, std::size_t bytes). It gathers the bytes at mine of every
	// rank into all, in order of rank, and returns 0, or any other number if it failed.
	template <class Allgather>
	session(int rank, int size, Allgather &&allgather) : session(detail::result{ init(rank, size, allgather) }) {}

	session(const session &) = delete;
	session &operator=(const session &) = delete;

	// finalize, except that an error is not thrown: the daemon prints it. If an exception ends the block, it does
	// nothing, because other ranks may never call finalize. The process must then end.
	~session() {
		if (final_ || std::uncaught_exceptions() > exceptions_) {
			return;
		}
		try {
			finalize();
		} catch (...) { // callers that want the error call finalize
		}
	}

	// Protects count elements at ptr.
	template <class T> void protect(const std::string &name, T *ptr, std::size_t count) {
		protect_as(name, ptr, count, {});
	}

	// Protects a variable: a number, a complex number, an enumerator, an array of these, a structure that can be copied
	// as bytes, or a container that stores such elements contiguously. Of a structure, a checkpoint has the bytes
	// with their padding, and knows only the size.
	//
	// Of a container that can grow (std::vector, std::string) the session keeps the address of the object, which must
	// not move until finalize. Its size and the place of its elements may change. restore and recover give it the
	// size that it had at the checkpoint.
	template <class T> void protect(const std::string &name, T &variable) {
		if constexpr (std::is_array_v<T>) {
			protect(name, reinterpret_cast<std::remove_all_extents_t<T> *>(&variable),
				sizeof variable / sizeof(std::remove_all_extents_t<T>));
		} else if constexpr (!detail::is_contiguous<T>::value) {
			protect(name, &variable, 1);
		} else if constexpr (std::is_trivially_copyable_v<T>) { // std::array, std::span
			protect(name, variable.data(), static_cast<std::size_t>(variable.size()));
		} else {
			follow(name, variable, {});
		}
	}

	// The same for a view that is made on the spot, such as std::span(p, n).
	template <class T, class = std::enable_if_t<!std::is_lvalue_reference_v<T>>>
	void protect(const std::string &name, T &&view) {
		static_assert(detail::is_contiguous<T>::value && std::is_trivially_copyable_v<T>,
			"holdfast: what is protected must be there until finalize, and this is a temporary");
		protect(name, view.data(), static_cast<std::size_t>(view.size()));
	}

	// hf_protect_replicated of a variable that protect accepts and that is the same on all ranks.
	template <class T> void protect_replicated(const std::string &name, T &variable) {
		detail::shape s;
		s.replicated = true;
		if constexpr (std::is_array_v<T>) {
			protect_as(name, reinterpret_cast<std::remove_all_extents_t<T> *>(&variable),
				sizeof variable / sizeof(std::remove_all_extents_t<T>), s);
		} else if constexpr (!detail::is_contiguous<T>::value) {
			protect_as(name, &variable, 1, s);
		} else if constexpr (std::is_trivially_copyable_v<T>) {
			protect_as(name, variable.data(), static_cast<std::size_t>(variable.size()), s);
		} else {
			follow(name, variable, s);
		}
	}

	// hf_protect_global: this rank's boxes of a global array of this size, which lie in count elements at ptr, or in a
	// container, whose object is remembered as by protect. Elements may be structures that can be copied as bytes.
	//
	//     hf.protect_global("u", u, {n, n}, {{{row0, col0}, {rows, cols}, {1, 1}, {1, 1}}});
	template <class T>
	void protect_global(
		const std::string &name, T *ptr, std::size_t count, std::vector<std::int64_t> size, std::vector<box> boxes) {
		protect_as(name, ptr, count, detail::shape{ false, std::move(size), std::move(boxes) });
	}

	template <class C>
	void protect_global(const std::string &name, C &container, std::vector<std::int64_t> size, std::vector<box> boxes) {
		const detail::shape s{ false, std::move(size), std::move(boxes) };
		if constexpr (std::is_trivially_copyable_v<C>) {
			protect_as(name, container.data(), static_cast<std::size_t>(container.size()), s);
		} else {
			follow(name, container, s);
		}
	}

	// Protects the bytes that save writes to a std::ostream and load reads from a std::istream: objects of any kind
	// and size.
	//
	//     hf.protect("list", [&](std::ostream &to) { to << list; }, [&](std::istream &from) { from >> list; });
	//
	// save is called only just before a checkpoint, load only in restore or recover. Their data has to outlive the
	// session. Their exceptions pass through the call of the session, and that rank takes no checkpoint.
	template <class Save, class Load,
		class = std::enable_if_t<std::is_invocable_v<Save &, std::ostream &> &&
			std::is_invocable_v<Load &, std::istream &>>>
	void protect(const std::string &name, Save save, Load load) {
		check(hf_protect_stream(name.c_str()));
		check(hf_before(before, this));
		forget(name);
		serialised_.push_back({ name, std::move(save), std::move(load) });
	}

	// hf_protect_file, hf_unprotect.
	void protect_file(const std::string &name, const std::string &path) {
		check(hf_protect_file(name.c_str(), path.c_str()));
	}

	// hf_protect_cuda.
	void protect_cuda() { check(hf_protect_cuda()); }

	void unprotect(const std::string &name) {
		check(hf_unprotect(name.c_str()));
		forget(name);
	}

	// hf_restore: reports whether an epoch was restored.
	bool restore() {
		update_places();
		if (check(hf_restore()) != HF_RESTORED) {
			return false;
		}
		for (serialised &s : serialised_) {
			s.read();
		}
		return true;
	}

	// hf_point: reports whether to stop, because the final checkpoint is durable. No message is in flight here, and
	// all ranks reach the same number of points. With libholdfast-mpi neither is required: messages in flight are
	// part of the checkpoint.
	[[nodiscard]] bool point() { return done(going_on(hf_point())) == HF_STOP; }

	// hf_checkpoint of the job: reports whether to stop, as point does.
	[[nodiscard]] bool checkpoint() { return done(going_on(hf_checkpoint(nullptr, 0))) == HF_STOP; }

	// hf_checkpoint with a name and version, of everything protected or of some.
	void checkpoint(const std::string &name, std::int64_t version) { done(hf_checkpoint(name.c_str(), version)); }

	void checkpoint(const std::string &name, std::int64_t version, const std::vector<std::string> &some) {
		const auto names = pointers(some);
		done(hf_checkpoint_some(name.c_str(), version, names.data(), names.size()));
	}

	void keep(const std::string &name, int versions) { check(hf_keep(name.c_str(), versions)); }

	// hf_restart_test: the highest version of a name that is not above at_most, if there is one.
	std::optional<std::int64_t> find(const std::string &name, std::int64_t at_most = -1) {
		std::int64_t version = 0;
		if (check(hf_restart_test(name.c_str(), at_most, &version)) != HF_FOUND) {
			return std::nullopt;
		}
		return version;
	}

	// hf_restart_begin: the result describes the checkpoint and recovers it. Its destruction ends the restart.
	recovery begin_restart(const std::string &name, std::int64_t version);

	// hf_restart: back to a version of a name.
	void restart(const std::string &name, std::int64_t version);

	// hf_wait and hf_test: wait until the newest checkpoints are durable, or report whether they are, at a level or at
	// all levels in use.
	void wait(const char *level = nullptr) { check(hf_wait(level)); }
	bool durable(const char *level = nullptr) { return check(hf_test(level)) == HF_FOUND; }

	void request(bool stop = false) { check(hf_request(stop)); }
	bool stop_asked() const noexcept { return hf_stop_asked() != 0; }
	int rank() const noexcept { return hf_rank(); }
	int size() const noexcept { return hf_size(); }

	// hf_finalize. Do not use the session afterwards.
	void finalize() {
		const int code = hf_finalize();
		final_ = true;
		done(code);
	}

private:
	friend class recovery;

	// A container whose size may change.
	struct followed {
		std::string name;
		void *container;
		void (*now)(followed &); // protects it again if it has changed
		const void *ptr;
		std::size_t count;
		detail::shape as;
	};

	// Data that functions write and read.
	struct serialised {
		std::string name;
		std::function<void(std::ostream &)> save;
		std::function<void(std::istream &)> load;

		void write() const {
			detail::file f(name, "w");
			std::ostream to(&f);
			save(to);
			if (!to) {
				throw error(HF_E_FAILED, ("protect \"" + name + "\": save has left its stream failed").c_str());
			}
			f.close();
		}

		void read() const {
			detail::file f(name, "r");
			std::istream from(&f);
			load(from);
			f.close();
		}
	};

	template <class Allgather> static int init(int rank, int size, Allgather &allgather) {
		hf_config c = HF_CONFIG_INIT;
		c.rank = rank;
		c.size = size;
		c.arg = const_cast<void *>(static_cast<const void *>(&allgather));
		c.allgather = [](void *all, const void *mine, std::size_t bytes, void *arg) noexcept -> int {
			try {
				return (*static_cast<Allgather *>(arg))(all, mine, bytes);
			} catch (...) {
				return -1; // no exception may pass the library
			}
		};
		return hf_init(&c);
	}

	template <class T> void protect_as(const std::string &name, T *ptr, std::size_t count, const detail::shape &as) {
		detail::place(name, ptr, count, as);
		forget(name);
	}

	template <class C> void follow(const std::string &name, C &container, const detail::shape &as) {
		auto now = [](followed &f) {
			C &c = *static_cast<C *>(f.container);
			const auto count = static_cast<std::size_t>(c.size());
			if (c.data() == f.ptr && count == f.count) {
				return;
			}
			detail::place_in(f.name, c, f.as);
			f.ptr = c.data();
			f.count = count;
		};
		const auto count = static_cast<std::size_t>(container.size());
		detail::place_in(name, container, as);
		forget(name);
		check(hf_before(before, this));
		followed_.push_back({ name, &container, now, container.data(), count, as });
	}

	void forget(const std::string &name) {
		const auto named = [&](const auto &x) { return x.name == name; };
		followed_.erase(std::remove_if(followed_.begin(), followed_.end(), named), followed_.end());
		serialised_.erase(std::remove_if(serialised_.begin(), serialised_.end(), named), serialised_.end());
	}

	// hf_before_fn: brings everything into the protected memory.
	static int before(void *arg) noexcept {
		session &s = *static_cast<session *>(arg);
		try {
			s.update_places();
			for (serialised &x : s.serialised_) {
				x.write();
			}
			return 0;
		} catch (...) {
			s.thrown_ = std::current_exception(); // no exception may pass the library
			return -1;
		}
	}

	void update_places() {
		for (followed &f : followed_) {
			f.now(f);
		}
	}

	// The death of a daemon ends no run: the library has reported it, and another daemon takes a checkpoint soon. An
	// unexpected exception would end the run.
	static int going_on(int code) noexcept { return code == HF_E_DAEMON ? HF_OK : code; }

	// check, after a call that may have called before.
	int done(int code) {
		if (thrown_) {
			std::rethrow_exception(std::exchange(thrown_, nullptr));
		}
		return check(code);
	}

	static std::vector<const char *> pointers(const std::vector<std::string> &names) {
		std::vector<const char *> p;
		for (const std::string &name : names) {
			p.push_back(name.c_str());
		}
		return p;
	}

	std::vector<followed> followed_;
	std::vector<serialised> serialised_;
	std::exception_ptr thrown_;
	const int exceptions_ = std::uncaught_exceptions();
	bool final_ = false;
};

// A checkpoint with a name that is being restarted from: session::begin_restart. No checkpoint may be taken until its
// end, hf_restart_end.
class recovery {
public:
	recovery(session &s, const std::string &name, std::int64_t version) : session_(s) {
		check(hf_restart_begin(name.c_str(), version));
	}

	recovery(const recovery &) = delete;
	recovery &operator=(const recovery &) = delete;
	~recovery() { (void)hf_restart_end(); }

	// hf_saved: the number of elements that the checkpoint has under a name, if any; bytes for a structure.
	std::optional<std::size_t> count(const std::string &name) const {
		std::size_t n = 0;
		if (check(hf_saved(name.c_str(), &n, nullptr)) != HF_FOUND) {
			return std::nullopt;
		}
		return n;
	}

	// hf_recover of everything in the checkpoint, or of some arrays.
	void recover() {
		session_.update_places();
		check(hf_recover(nullptr, 0));
		for (const auto &s : session_.serialised_) {
			if (count(s.name)) {
				s.read();
			}
		}
	}

	void recover(const std::vector<std::string> &some) {
		const auto names = session::pointers(some);
		session_.update_places();
		check(hf_recover(names.data(), names.size()));
		for (const auto &s : session_.serialised_) {
			if (std::find(some.begin(), some.end(), s.name) != some.end()) {
				s.read();
			}
		}
	}

private:
	session &session_;
};

inline recovery session::begin_restart(const std::string &name, std::int64_t version) {
	return recovery(*this, name, version);
}

inline void session::restart(const std::string &name, std::int64_t version) { begin_restart(name, version).recover(); }

} // namespace holdfast

#endif
