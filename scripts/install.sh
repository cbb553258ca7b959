#!/bin/sh
# Installs what `make install` has built: the command and its benchmarks, libholdfast and its headers, libveloc-client,
# libholdfast-opencl, libholdfast-cuda, libholdfast-mpi, Fortran modules, the package for Python, files for CMake and
# pkg-config, manual pages, completions, a module file, and in DATADIR/holdfast documents, examples, scripts for Slurm
# and a first holdfast.yaml.
#
# Directories come from the environment, as from `make install`: PREFIX, and BINDIR, LIBDIR, INCLUDEDIR, DATADIR,
# MANDIR, PYTHONDIR below it. DESTDIR is put before each, and remembered nowhere: for packages.
#
# usage: install.sh BIN LIB, the folders that the command and the library were built in
set -eu
[ $# -eq 2 ] || { echo "usage: install.sh BIN LIB; see make install" >&2; exit 2; }
bin=$1
lib=$2
cd "$(dirname "$0")/.."

for d in "$PREFIX" "$BINDIR" "$LIBDIR" "$INCLUDEDIR" "$DATADIR" "$MANDIR" "$PYTHONDIR"; do
	case $d in
	/*) ;;
	*) echo "install: \"$d\" is not an absolute path; give PREFIX and the other directories as such" >&2; exit 2 ;;
	esac
done

number() { sed -n "s/^#define HF_VERSION_$1 \\([0-9]*\\)\$/\\1/p" lib/holdfast.h; }
major=$(number MAJOR)
version=$major.$(number MINOR).$(number PATCH)
fortran=$LIBDIR/holdfast/fortran
sources=$DATADIR/holdfast/fortran
cmake=$LIBDIR/cmake/holdfast

# put MODE DIRECTORY FILE...
put() {
	mode=$1
	to=$DESTDIR$2
	shift 2
	install -d "$to"
	install -m "$mode" "$@" "$to/"
}

# Programs find the library where pkg-config has found it. The linker finds a distribution's without that.
case $LIBDIR in
/usr/lib | /usr/lib/* | /usr/lib64) rpath= ;;
*) rpath="-Wl,-rpath,\${libdir} " ;;
esac

# fill FILE DIRECTORY [NAME] writes a template. Files there find the others from where they lie themselves, so that
# the whole tree can be moved.
fill() {
	install -d "$DESTDIR$2"
	sed -e "s|@VERSION@|$version|g" -e "s|@MAJOR@|$major|g" \
		-e "s|@PREFIX@|$(from "$2" "$PREFIX")|g" -e "s|@BINDIR@|$(from "$2" "$BINDIR")|g" \
		-e "s|@LIBDIR@|$(from "$2" "$LIBDIR")|g" -e "s|@INCLUDEDIR@|$(from "$2" "$INCLUDEDIR")|g" \
		-e "s|@SOURCES@|$(from "$2" "$sources")|g" -e "s|@FORTRAN@|$(from "$2" "$fortran")|g" \
		-e "s|@RPATH@|$rpath|g" \
		-e "s|@MANDIR@|$(from "$2" "$MANDIR")|g" -e "s|@PYTHONDIR@|$(from "$2" "$PYTHONDIR")|g" \
		"$1" >"$DESTDIR$2/${3:-$(basename "$1" .in)}"
}
from() { realpath -m --relative-to="$1" "$2"; }

put 755 "$BINDIR" "$bin/holdfast" "$bin/holdfast-bench"
put 644 "$INCLUDEDIR" lib/holdfast.h lib/holdfast_mpi.h lib/holdfast_opencl.h lib/holdfast.hpp lib/holdfast_mpi.hpp
put 644 "$LIBDIR" "$lib/libholdfast.a"
install -m 755 "$lib/libholdfast.so.$major" "$DESTDIR$LIBDIR/libholdfast.so.$version"
ln -sf "libholdfast.so.$version" "$DESTDIR$LIBDIR/libholdfast.so.$major"
ln -sf "libholdfast.so.$major" "$DESTDIR$LIBDIR/libholdfast.so"

install -m 755 "$lib/libholdfast-mpi.so.0" "$DESTDIR$LIBDIR/libholdfast-mpi.so.0"
ln -sf libholdfast-mpi.so.0 "$DESTDIR$LIBDIR/libholdfast-mpi.so"

put 644 "$sources" lib/holdfast.F90 lib/holdfast_mpi.F90
if [ -f "$lib/libholdfast_fortran.a" ]; then
	put 644 "$fortran" "$lib/holdfast.mod"
	put 644 "$LIBDIR" "$lib/libholdfast_fortran.a"
	fill lib/pkgconfig/holdfast-fortran.pc.in "$LIBDIR/pkgconfig"
fi
put 644 "$PYTHONDIR/holdfast" python/holdfast/*.py python/holdfast/py.typed

fill lib/pkgconfig/holdfast.pc.in "$LIBDIR/pkgconfig"
fill lib/pkgconfig/holdfast-mpi.pc.in "$LIBDIR/pkgconfig"
fill lib/pkgconfig/holdfast-static.pc.in "$LIBDIR/pkgconfig"
fill lib/cmake/holdfast-config.cmake.in "$cmake"
fill lib/cmake/holdfast-config-version.cmake.in "$cmake"
if [ -f "$lib/libveloc-client.so.$major" ]; then
	put 755 "$BINDIR" "$lib/veloc-backend"
	put 755 "$LIBDIR" "$lib/libveloc-client.so.$major"
	ln -sf "libveloc-client.so.$major" "$DESTDIR$LIBDIR/libveloc-client.so"
	put 644 "$INCLUDEDIR" lib/veloc/include/*.h lib/veloc/include/*.hpp
	put 644 "$INCLUDEDIR/veloc" lib/veloc/include/veloc/*
	fill lib/cmake/veloc-config.cmake.in "$LIBDIR/cmake/veloc"
	fill lib/pkgconfig/veloc.pc.in "$LIBDIR/pkgconfig"
fi

if [ -f "$lib/libholdfast-opencl.so.0" ]; then
	put 755 "$LIBDIR" "$lib/libholdfast-opencl.so.0"
	ln -sf libholdfast-opencl.so.0 "$DESTDIR$LIBDIR/libholdfast-opencl.so"
	# A folder of its own: OCL_ICD_VENDORS selects it, and nothing loads the library unasked. It has no path, since
	# the tree can be moved.
	install -d "$DESTDIR$DATADIR/holdfast/opencl"
	echo libholdfast-opencl.so.0 >"$DESTDIR$DATADIR/holdfast/opencl/holdfast.icd"
fi

if [ -f "$lib/libholdfast-cuda.so" ]; then
	# In LIBDIR itself ldconfig would make it the libcuda.so.1 of all programs: that is its soname.
	put 755 "$LIBDIR/holdfast/cuda" "$lib/libholdfast-cuda.so"
	ln -sf libholdfast-cuda.so "$DESTDIR$LIBDIR/holdfast/cuda/libcuda.so.1"
fi

fill packaging/modulefiles/holdfast.tcl.in "$DATADIR/modulefiles/holdfast" "$version"

put 644 "$MANDIR/man3" man/*.3
# Each page has the names of its calls; man finds a page by any of them.
for page in man/*.3; do
	sed -n 's/^\.Nm \([a-z_]*\)\( ,\)\{0,1\}$/\1/p' "$page" | sort -u | while read -r name; do
		[ "$name.3" = "$(basename "$page")" ] || ln -sf "$(basename "$page")" "$DESTDIR$MANDIR/man3/$name.3"
	done
done
"$DESTDIR$BINDIR/holdfast" man "$DESTDIR$MANDIR" >/dev/null

# Documents find examples and scripts by the same links as in the sources.
find README.md CHANGELOG.md LICENSE docs examples -type f ! -name '*_test.go' | while read -r file; do
	put 644 "$DATADIR/holdfast/$(dirname "$file")" "$file"
done
put 755 "$DATADIR/holdfast/slurm" slurm/*.sh
"$DESTDIR$BINDIR/holdfast" config --example >"$DESTDIR$DATADIR/holdfast/holdfast.yaml"

# completion SHELL FILE
completion() {
	install -d "$(dirname "$DESTDIR$DATADIR/$2")"
	"$DESTDIR$BINDIR/holdfast" completion "$1" >"$DESTDIR$DATADIR/$2"
}
completion bash bash-completion/completions/holdfast
completion zsh zsh/site-functions/_holdfast
completion fish fish/vendor_completions.d/holdfast.fish

echo "Holdfast $version is in $DESTDIR$PREFIX. Next: module use '$DATADIR/modulefiles'; module load holdfast"
echo "$DATADIR/holdfast/docs/START.md has a first program. holdfast doctor checks HOLDFAST_GLOBAL and the machine."
