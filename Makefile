# Holdfast. `make help` lists the targets.

GO      ?= go
BIN     := bin
TIMEOUT ?= 45m
# Packages tested at the same time in a lane of make test: two more than there are cores for each of the
# big ones, since many wait, for daemons, compilers and time limits.
TEST_P  ?= $(shell echo $$(($$(nproc) / 2 + 2)))

# hwloc's OpenCL plugin would initialise every OpenCL platform inside MPI_Init;
# Mesa's rusticl offers its software device only when asked to.
export HWLOC_COMPONENTS ?= -opencl
export RUSTICL_ENABLE   ?= llvmpipe

.DEFAULT_GOAL := help
.PHONY: help setup lib veloc opencl cuda mpi demo wanted test test-slurm test-ranks test-others test-linted test-raced test-programs \
	test-bench test-abi test-compiled test-criu race race-ranks race-others race-bench soak soak-damage soak-store soak-restart soak-elastic soak-slurm soak-node soak-layer soak-opencl soak-images test-model test-gpu bench bench-full man site lint libraries build tool install clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install all Debian packages that demo, tests and pages need (as root)
	@sh scripts/setup.sh all

# The OpenCL vendor library is built where the headers of the API are.
OPENCL := $(if $(shell printf '\#include <CL/cl_icd.h>' | $(CC) -E - >/dev/null 2>&1 && echo yes),opencl)

# The library in front of CUDA's driver has stubs for this processor.
CUDA := $(if $(filter x86_64%,$(shell $(CC) -dumpmachine)),cuda)

libraries: lib mpi $(if $(shell command -v $(CXX)),veloc) $(OPENCL) $(CUDA)

build: libraries ## build tool and applications into bin/, the libraries into lib/
	@mkdir -p $(BIN)
	$(GO) build -o $(BIN)/ ./cmd/... ./apps/... ./examples/... ./test/demo
	$(GO) -C bench build -o $(abspath $(BIN))/ ./...

tool: ## build only the command holdfast into bin/
	@mkdir -p $(BIN)
	$(GO) build -o $(BIN)/ ./cmd/holdfast

LIB      ?= lib
COMMON_OBJECTS = $(patsubst lib/common/%.c,$(LIB)/common-%.o,$(wildcard lib/common/*.c))
HF_OBJECTS = $(patsubst lib/src/%.c,$(LIB)/%.o,$(wildcard lib/src/*.c)) $(COMMON_OBJECTS)
CFLAGS   ?= -O2 -g
HF_CFLAGS = -std=c11 -fPIC -fvisibility=hidden -pthread -Wall -Wextra -Wpedantic -Wconversion -Werror
HF_LINK   = -shared -pthread -Wl,-soname,libholdfast.so.0 -Wl,--version-script,lib/libholdfast.map -Wl,-z,nodelete -Wl,-z,defs

lib: $(LIB)/libholdfast.so $(LIB)/libholdfast.a ## build libholdfast, for programs in C: into LIB=lib

$(LIB)/%.o: lib/src/%.c $(wildcard lib/src/*.h lib/common/*.h) lib/holdfast.h
	$(CC) $(HF_CFLAGS) $(CFLAGS) -c $< -o $@

# What the libraries have in common.
$(LIB)/common-%.o: lib/common/%.c $(wildcard lib/common/*.h)
	$(CC) $(HF_CFLAGS) $(CFLAGS) -c $< -o $@

$(LIB)/libholdfast.so: $(HF_OBJECTS) lib/libholdfast.map
	$(CC) $(CFLAGS) $(HF_LINK) $(HF_OBJECTS) -o $@.0
	ln -sf libholdfast.so.0 $@

$(LIB)/libholdfast.a: $(HF_OBJECTS)
	rm -f $@
	$(AR) rcs $@ $(HF_OBJECTS)

# The OpenCL vendor library.
HFCL_SOURCES = $(wildcard lib/opencl/src/*.c lib/opencl/wire/*.c)
HFCL_HEADERS = $(wildcard lib/opencl/src/*.h lib/opencl/wire/*.h lib/common/*.h)
HFCL_OBJECTS = $(patsubst %.c,$(LIB)/opencl-%.o,$(notdir $(HFCL_SOURCES))) $(COMMON_OBJECTS)
HFCL_LINK = -shared -Wl,-soname,libholdfast-opencl.so.0 -Wl,-Bsymbolic -Wl,-z,nodelete -Wl,-z,defs

opencl: $(LIB)/libholdfast-opencl.so ## build libholdfast-opencl, for OpenCL programs as they are

$(LIB)/opencl-%.o: lib/opencl/src/%.c $(HFCL_HEADERS)
	$(CC) $(HF_CFLAGS) $(CFLAGS) -c $< -o $@

$(LIB)/opencl-%.o: lib/opencl/wire/%.c $(HFCL_HEADERS)
	$(CC) $(HF_CFLAGS) $(CFLAGS) -c $< -o $@

$(LIB)/libholdfast-opencl.so: $(HFCL_OBJECTS)
	$(CC) $(CFLAGS) $(HFCL_LINK) -pthread $(HFCL_OBJECTS) -o $@.0
	ln -sf libholdfast-opencl.so.0 $@

# The library in front of CUDA's driver. Its table of names becomes stubs, a header and hooks.
HFCUDA_OBJECTS = $(patsubst lib/cuda/src/%,$(LIB)/cuda-%.o,$(basename $(wildcard lib/cuda/src/*.c lib/cuda/src/*.S))) \
	$(LIB)/cuda-stubs.o $(LIB)/cuda-submits.o
HFCUDA_HEADERS = $(wildcard lib/cuda/src/*.h lib/common/ledger.h) $(LIB)/cuda-names.h
HFCUDA_LINK = -shared -pthread -Wl,-soname,libcuda.so.1 -Wl,-z,nodelete -Wl,-z,defs -Wl,-e,hf_start

cuda: $(LIB)/libholdfast-cuda.so ## build libholdfast-cuda, for CUDA programs as they are

$(LIB)/cuda-names.h $(LIB)/cuda-stubs.S $(LIB)/cuda-submits.c: lib/cuda/stubs.awk lib/cuda/names.txt
	awk -v WHAT=$(basename $(patsubst cuda-%,%,$(notdir $@))) -f lib/cuda/stubs.awk lib/cuda/names.txt >$@.new
	mv $@.new $@

$(LIB)/cuda-%.o: lib/cuda/src/%.c $(HFCUDA_HEADERS)
	$(CC) $(HF_CFLAGS) $(CFLAGS) -I$(LIB) -c $< -o $@

$(LIB)/cuda-%.o: lib/cuda/src/%.S
	$(CC) $(CFLAGS) -c $< -o $@

$(LIB)/cuda-hash.o: gpustate/internal/chunkhash/chunkhash.ptx

$(LIB)/cuda-submits.o: $(LIB)/cuda-submits.c $(HFCUDA_HEADERS)
	$(CC) $(HF_CFLAGS) $(CFLAGS) -I$(LIB) -Ilib/cuda/src -c $< -o $@

$(LIB)/cuda-stubs.o: $(LIB)/cuda-stubs.S
	$(CC) $(CFLAGS) -c $< -o $@

$(LIB)/libholdfast-cuda.so: $(HFCUDA_OBJECTS)
	$(CC) $(CFLAGS) $(HFCUDA_LINK) $(HFCUDA_OBJECTS) -o $@

# The MPI layer: one file for Open MPI, MPICH and MPI 5's ABI.
HFM_ABIS = openmpi mpich standard
HFM_MADE = $(LIB)/mpi-api.gen.h $(LIB)/mpi-classes.gen.h $(LIB)/mpi-entries.gen.c
HFM_OBJECTS = $(patsubst %,$(LIB)/mpi-%.o,layer page protect watch entries $(HFM_ABIS:%=body-%)) $(LIB)/common-launch.o \
  $(LIB)/common-shm.o
HFM_CFLAGS = $(HF_CFLAGS) -D_GNU_SOURCE -Ilib/mpi/src -I$(LIB)
HFM_LINK = -shared -pthread -Wl,-soname,libholdfast-mpi.so.0 -Wl,-z,nodelete -Wl,-z,defs

mpi: $(LIB)/libholdfast-mpi.so ## build libholdfast-mpi, which stands between programs and their MPI

$(HFM_MADE) &: lib/mpi/api.txt lib/mpi/gen.go
	$(GO) run lib/mpi/gen.go lib/mpi/api.txt $(LIB)

$(patsubst %,$(LIB)/mpi-%.o,layer page protect watch): $(LIB)/mpi-%.o: lib/mpi/src/%.c lib/mpi/src/layer.h \
  $(wildcard lib/common/*.h) lib/src/protocol.h $(HFM_MADE)
	$(CC) $(HFM_CFLAGS) $(CFLAGS) -c $< -o $@

$(LIB)/mpi-entries.o: $(LIB)/mpi-entries.gen.c lib/mpi/src/layer.h lib/common/messages.h $(HFM_MADE)
	$(CC) $(HFM_CFLAGS) $(CFLAGS) -c $< -o $@

$(LIB)/mpi-body-%.o: lib/mpi/src/body.c $(wildcard lib/mpi/src/*.h) lib/common/messages.h $(HFM_MADE)
	$(CC) $(HFM_CFLAGS) $(CFLAGS) -DHFM_ABI='"abi-$*.h"' -c $< -o $@

$(LIB)/libholdfast-mpi.so: $(HFM_OBJECTS)
	$(CC) $(CFLAGS) $(HFM_LINK) $(HFM_OBJECTS) -ldl -o $@.0
	ln -sf libholdfast-mpi.so.0 $@

# The module for Fortran, for programs of this compiler; others compile the source.
FC := $(if $(filter default undefined,$(origin FC)),$(shell command -v gfortran),$(FC))
FFLAGS ?= -O2 -g

$(LIB)/libholdfast_fortran.a: lib/holdfast.F90
	$(FC) $(FFLAGS) -fPIC -J$(LIB) -c $< -o $(LIB)/holdfast_fortran.o
	rm -f $@
	$(AR) rcs $@ $(LIB)/holdfast_fortran.o

PREFIX     ?= /usr/local
BINDIR     ?= $(PREFIX)/bin
LIBDIR     ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
DATADIR    ?= $(PREFIX)/share
MANDIR     ?= $(DATADIR)/man
PYTHONDIR  ?= $(LIBDIR)/holdfast/python

install: libraries tool $(if $(FC),$(LIB)/libholdfast_fortran.a) ## install command, libraries, pages and modules below PREFIX=/usr/local; DESTDIR= for packages
	$(GO) -C bench build -o $(abspath $(BIN))/ ./cmd/holdfast-bench
	PREFIX='$(PREFIX)' BINDIR='$(BINDIR)' LIBDIR='$(LIBDIR)' INCLUDEDIR='$(INCLUDEDIR)' DATADIR='$(DATADIR)' \
		MANDIR='$(MANDIR)' PYTHONDIR='$(PYTHONDIR)' DESTDIR='$(DESTDIR)' sh scripts/install.sh $(BIN) $(LIB)

VELOC_OBJECTS = $(patsubst lib/veloc/src/%.cpp,$(LIB)/veloc-%.o,$(wildcard lib/veloc/src/*.cpp)) $(LIB)/common-launch.o
CXXFLAGS ?= -O2 -g
VELOC_CXXFLAGS = -std=c++17 -fPIC -pthread -Wall -Wextra -Wpedantic -Wconversion -Werror -DVELOC_WITHOUT_MPI \
	-Ilib -Ilib/veloc/include
VELOC_LINK = -shared -Wl,-soname,libveloc-client.so.0 -Wl,--version-script,lib/veloc/libveloc.map -Wl,-z,nodelete \
	-Wl,-z,defs -Wl,-rpath,'$$ORIGIN'

veloc: $(LIB)/libveloc-client.so $(LIB)/veloc-backend ## build libveloc-client, for programs that are written for VeloC

$(LIB)/veloc-%.o: lib/veloc/src/%.cpp $(wildcard lib/veloc/src/*.hpp lib/veloc/include/*.h* lib/veloc/include/veloc/*.h) lib/holdfast.h
	$(CXX) $(VELOC_CXXFLAGS) $(CXXFLAGS) -c $< -o $@

$(LIB)/libveloc-client.so: $(VELOC_OBJECTS) lib/veloc/libveloc.map $(LIB)/libholdfast.so
	$(CXX) $(CXXFLAGS) $(VELOC_LINK) $(VELOC_OBJECTS) -L$(LIB) -lholdfast -o $@.0
	ln -sf libveloc-client.so.0 $@

$(LIB)/veloc-backend: lib/veloc/backend.cpp $(LIB)/veloc-config.o
	$(CXX) $(VELOC_CXXFLAGS) $(CXXFLAGS) $^ -o $@

demo: ## checkpoint, kill and restart an N-body run elsewhere; under 2 minutes
	@sh scripts/setup.sh demo
	@exec sh scripts/demo.sh $(GO) $(BIN)

wanted:
	@sh scripts/setup.sh || echo "make: continuing with what is installed; tests that need more say why they skip" >&2

test: wanted ## install what is missing (as root), lint, all tests
	@export GOFLAGS="$$GOFLAGS $(BARE)"; $(MAKE) $(LANES) test-slurm & slurm=$$!; \
		GOGC=off GOMEMLIMIT=1GiB nice -n 19 $(MAKE) $(LANES) -j2 test-compiled test-criu; first=$$?; \
		$(MAKE) $(LANES) -j3 test-ranks test-others test-linted test-raced test-programs test-bench test-abi; rest=$$?; \
		wait $$slurm && exit $$((first | rest))

# What one target leaves of the cores, others use; a failure stops none of them. test/slurm waits for Slurm most of the
# time; at first it has compilers beside it, at the lowest priority. Those that it waits for come before: compilers
# spend a fifth of their time on collecting garbage otherwise. Then come the others, three at a time.
LANES = --no-print-directory -k
test-slurm:
	@GOGC=off GOMEMLIMIT=1GiB $(GO) list -export -test ./test/slurm ./cmd/holdfast ./apps/transpose ./test/e2e/testprog >/dev/null
	$(TEST) ./test/slurm

# Each test runs once, whole, without the race detector. A tenth of the packages that the detector is of use for run
# besides with it and with invariants, -short: the commit says which tenth; make race runs all of them. NO_RACE has the
# others: the package starts programs that were built without the detector, or does one thing at a time
# (SEQUENTIAL: no goroutine, lock or unsafe pointer is in its files). STORES link the client of the object store, which
# takes long to compile: they have three of the tenths. Each other tenth has one of HEAVY, which take longest. A tenth of
# the commits have go vet, staticcheck and revive, and make lint always; the rest of lint runs each time. sort has the
# packages that take longest come first. Programs are compiled (BARE) and linked without what debuggers alone read: that
# takes an eighth of the time of the compiler and half of that of the linker. Go links tests itself, without gcc; the
# programs that they start are linked as users do.
BARE = -gcflags=all=-dwarf=false
TEST = GOFLAGS="$$GOFLAGS -ldflags=-s" $(GO) test -ldflags='-s -linkmode=internal' -count=1 -vet=off -timeout $(TIMEOUT)
NO_RACE = $(JOBS)|$(PROGRAMS)|$(SEQUENTIAL)|cmd/holdfast|coordinated/cut
JOBS = test/(cluster|cuda|e2e|examples|messages|mpilayer|node|opencl|readme|remote|slurm|veloc|yield)
PROGRAMS = apps/(matmul|nbody|smithwaterman|transpose)
HEAVY = coordinated/internal/(capture|persist)|gpustate|gpustate/(gpud|gputest)|internal/report|mpiwrap/mpitest
STORES = apps|cmd|storage|coordinated/jobtest|internal/(doctor|supervise)
SEQUENTIAL = $(subst $(space),|,$(filter-out $(call folders,^[[:space:]]+go |"sync|"unsafe"|errgroup|\.Parallel|\.Go[^a-z],*.go),\
	$(call folders,^func (Test|Fuzz),*_test.go)))
folders = $(sort $(patsubst %/,%,$(dir $(shell grep -rlE '$(1)' --include='$(2)' *))))

# RANKS put more ranks or nodes on a small machine than it has cores, and are tested one at a time. Ranks that wait for
# one that does not run spend processor time, so the others are BEHIND them. Those of LATER do so when the packages with
# the detector are done: so all lanes end at about the same time.
BEHIND = nice -n 5 env
RANKS = test/(cluster|e2e|mpilayer|yield)|mpiwrap/mpitest|compat/mpi
LATER = $(PROGRAMS)|cmd/holdfast(/internal/jobs)?

PACKAGES = $(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...
of = grep -E '^github.com/holdfast-hpc/holdfast/($(1))$$'
but = grep -vE '^github.com/holdfast-hpc/holdfast/($(1))$$'
space := $() $()
PART = $$((0x$$(git rev-parse --short=7 HEAD 2>/dev/null || echo 0) % 10))
TENTH = awk -v part=$(PART) '$$0 ~ "/holdfast/($(STORES))" ? stores++ % 3 == part : \
	($$0 ~ "/holdfast/($(HEAVY))$$" ? heavy++ : others++) % 7 == part - 3'

# Simulated file systems make much garbage in small heaps, which is collected less often than usual.
test-ranks:
	$(TEST) -p 1 $$($(PACKAGES) | $(call of,$(RANKS)))
test-others:
	GOGC=400 $(BEHIND) $(TEST) -p $(TEST_P) $$($(PACKAGES) | $(call but,$(RANKS)|$(LATER)|test/slurm) | sort -r)
test-programs:
	$(TEST) -p 1 $$($(PACKAGES) | $(call of,$(LATER)))
test-raced:
	$(BEHIND) $(RACE) -p 1 $$($(PACKAGES) | $(call but,$(NO_RACE)) | $(TENTH))
test-linted:
	@sh scripts/lint.sh $(GO) $$([ $(PART) = 0 ] || echo quick)
test-bench: # make race has its packages with the detector
	cd bench && $(BEHIND) $(TEST) -p 1 ./...
test-abi:
	@sh scripts/abi-tests.sh $(GO)

# The detector takes cgo, MPI and OpenCL as they are. It would wait a second at the end of each package.
RACE = GORACE=atexit_sleep_ms=0 GOGC=200 $(TEST) $(DETECTOR) -short
DETECTOR = -race -tags invariants
race: race-others race-ranks race-bench ## all tests that the race detector is of use for, short ones, with invariants checked
race-ranks:
	$(RACE) -p 1 $$($(PACKAGES) | $(call but,$(NO_RACE)) | $(call of,$(RANKS)))
race-others:
	$(RACE) -p $(TEST_P) $$($(PACKAGES) | $(call but,$(NO_RACE)) | $(call but,$(RANKS)))
race-bench:
	cd bench && $(RACE) -p 1 $$($(GO) list ./... | grep -vE '/cmd/|/gpu$$')

test-criu:
	@sh scripts/setup.sh criu || echo "make: tests of images skip" >&2

# Compiles what the tests of the root need, and links nothing.
test-compiled:
	@$(GO) list -export -test ./... >/dev/null
	@$(GO) list -export -test $(DETECTOR) $$($(PACKAGES) | $(call but,$(NO_RACE)) | $(TENTH)) >/dev/null

test-model: ## check the cut protocol's model with spin; half a minute
	@sh coordinated/cut/model/run.sh

MOMENTS ?= 100000
soak: ## MOMENTS restarts from checkpoints at random moments of real MPI programs, and as many at each call on simulated ranks; random programs of the cut protocol, of MPI calls, and on each device and connection
	$(GO) test -count=1 -timeout 0 ./coordinated/jobtest -run EveryMomentOfDevices -v -args -device-programs 40
	$(GO) test -count=1 -timeout 0 ./test/e2e -run RestartsInProcess -v -args -soak $(MOMENTS) -soak-seed $(or $(SEED),$$(date +%s))
	$(GO) test -count=1 -timeout 0 ./coordinated/jobtest -run EveryMoment -v -args -pairs $(MOMENTS) -pairs-seed $(or $(SEED),$$(date +%s))
	$(GO) test -count=1 -timeout 0 ./test/remote -run MovedAtRandomMoments -v -args -moves $$(( ($(MOMENTS) + 4999) / 5000 )) -move-seed $(or $(SEED),$$(date +%s))
	$(GO) test -count=1 -timeout 0 ./gpustate/gputest -run Conformance -v -args -programs $$(( ($(MOMENTS) + 999) / 1000 ))
	$(GO) test -count=1 -timeout 0 ./coordinated/cut -args -programs $$(( ($(MOMENTS) + 19) / 20 ))
	$(GO) test -count=1 -timeout 0 ./mpiwrap/mpitest -args -times $$(( ($(MOMENTS) + 9999) / 10000 ))
	$(GO) test -count=1 -timeout 0 ./test/e2e -run CutAtRandomMoments -v -args -moments $$(( ($(MOMENTS) + 299) / 300 )) -seed $(or $(SEED),$$(date +%s))

DAMAGES ?= 5000
soak-damage: ## DAMAGES damages to checkpoint directories, as many mixtures of directories of several runs, 300 restarts from damaged ones and DAMAGES on other numbers of ranks (as root), shards above 4 GiB
	$(GO) test -count=1 -timeout 0 ./storage/checkpoints -run TestDamages -v -args -damages $(DAMAGES) -damage-seed $(or $(SEED),$$(date +%s))
	$(GO) test -count=1 -timeout 0 ./storage/checkpoints -run TestRepairDamages -v -args -repairs $(DAMAGES) -damage-seed $(or $(SEED),$$(date +%s))
	$(GO) test -count=1 -timeout 0 ./storage/checkpoints -run 'TestCrashOfRepair$$|TestRepairInStore' -v -args -repair-kills
	$(GO) test -count=1 -timeout 0 ./storage -run TestLargeShards -v -args -large
	$(GO) test -count=1 -timeout 0 ./coordinated/jobtest -run TestShuffledRuns -v -args -shuffles $(DAMAGES) -shuffle-seed $(or $(SEED),$$(date +%s))
	$(GO) test -count=1 -timeout 0 ./coordinated/jobtest -run TestDamagedRestarts -v -args -restarts 300 -restart-seed $(or $(SEED),$$(date +%s))
	$(GO) test -count=1 -timeout 0 ./coordinated/jobtest -run 'TestResizeFlipped|TestResizeDamaged' -v -args -resize-all -resize-damages $(DAMAGES) -resize-seed $(or $(SEED),$$(date +%s))

FAULTS ?= 10000
soak-store: ## FAULTS faults of an object store under jobs, and a kill before and after every request
	$(GO) test -count=1 -timeout 0 ./storage/storagetest/campaigns -run TestStoreFaults -v -args -store-faults $(FAULTS) -store-seed $(or $(SEED),$$(date +%s))
	$(GO) test -count=1 -timeout 0 ./storage/storagetest/campaigns -run TestKilledBetweenRequests -v -args -store-kills
	$(GO) test -count=1 -timeout 0 ./storage/checkpoints -run TestKilledCopyToStore -v -args -store-kills

soak-restart: N = 300
soak-restart: ## N cycles of cut, kill -9 and restart elsewhere under the other MPI, a fifth killed in the first commit
	$(GO) test -count=1 -timeout 0 ./storage/storagetest/campaigns -run TestSimulatedCycles -args -cycles $$(( $(N) * 10 )) -cycles-seed $(or $(SEED),$$(date +%s))
	$(GO) test -count=1 -timeout 0 ./test/e2e -run TestRestartCycles -v -args -cycles $(N) -cycles-seed $(or $(SEED),$$(date +%s))

KILLS ?= 200
FUZZ ?= 1m
soak-node: ## KILLS deaths of a daemon, and of a rank of a C program before random instructions of a restore, put or flush, and at as many moments; arrays that change lengths; nonsense both ways
	$(GO) test -count=1 -timeout 0 ./test/node -run 'TestKilledA|TestDaemonKilled' -v -args -instructions $(KILLS) -kills $(KILLS) -deaths $(KILLS) -kill-seed $(or $(SEED),$$(date +%s))
	$(GO) test -count=1 -timeout 0 ./test/node -run TestLengths -v -args -length-starts $(KILLS) -length-seed $(or $(SEED),$$(date +%s))
	$(GO) test -count=1 -timeout 0 ./test/node -run TestSanitized/replies -v -args -replies $$(( $(KILLS) * 10000 )) -kill-seed $(or $(SEED),$$(date +%s))
	$(GO) test -count=1 -timeout 0 ./internal/node -run TestAnyClient -v -args -clients $$(( $(KILLS) * 5 )) -client-seed $(or $(SEED),$$(date +%s))
	$(GO) test -count=1 -timeout 0 ./internal/node -run '^$$' -fuzz FuzzClient -fuzzminimizetime 1x -fuzztime $(FUZZ)
	$(GO) test -count=1 -timeout 0 ./internal/node/wire -run '^$$' -fuzz FuzzDecode -fuzztime $(FUZZ)

MOVES ?= 300
soak-layer: N = 1000
soak-layer: ## N random programs in C and Fortran (messages, files, windows): CUTS times cut, kill -9, restart under the other MPI
	$(GO) test -count=1 -timeout 0 ./test/mpilayer -run 'RandomPrograms' -v -args -bugs -programs $(N) -cuts $(or $(CUTS),3) -at-once $(or $(AT_ONCE),4) -seed $(or $(SEED),$$(date +%s))

soak-opencl: KILLS = 40
soak-opencl: ## OpenCL programs in C at random moments: MOVES moves between PoCL and rusticl and two servers, KILLS kills of each process
	$(GO) test -count=1 -timeout 0 ./test/opencl -run TestMovedAtRandom -v -args -moves $(MOVES) -move-seed $(or $(SEED),$$(date +%s))
	$(GO) test -count=1 -timeout 0 ./test/opencl -run 'TestKilledAtRandom|TestGarbage|TestThreadsSanitized' -v -args -sanitize -kills $(KILLS) -kill-seed $(or $(SEED),$$(date +%s))

soak-images: IMAGES = 300
soak-images: ## IMAGES times for each of four OpenCL programs in C, at random moments: an image, one with a kill, and a restore, on PoCL and rusticl in turn
	$(GO) test -count=1 -timeout 0 ./test/opencl -run TestImaged -v -args -images $(IMAGES) -pause-seed $(or $(SEED),$$(date +%s))

soak-elastic: ## restarts on other numbers of ranks: all pairs up to 8, up to 4 under both MPIs, after lost nodes, random layouts
	$(GO) test -count=1 -timeout 0 ./coordinated/jobtest -run 'TestResize$$|TestResizeUnderMPI|TestResizeAfterLoss|TestChanging|TestQuietUnderMPI' -v -args -resize-all
	$(GO) test -count=1 -timeout 0 ./internal/layout -args -rapid.checks=100000

N ?= 50
soak-slurm: ## N random deaths of Slurm nodes in all phases of a checkpoint, and a table of them (as root)
	$(GO) test -count=1 -timeout 0 ./test/slurm -run RandomDeaths -v -args -deaths $(N) -seed $(or $(SEED),$$(date +%s))

test-gpu: ## the GPU packages' tests on this machine's GPU (HOLDFAST_DEVICE, default cuda:0) and on PoCL
	HOLDFAST_DEVICE=$${HOLDFAST_DEVICE:-cuda:0} HOLDFAST_TEST_GPU=1 \
		$(GO) test -count=1 -p 1 -timeout $(TIMEOUT) ./gpustate/... ./apps/...
	HOLDFAST_DEVICE=pocl $(GO) test -count=1 -p 1 -timeout $(TIMEOUT) ./apps/...
	HOLDFAST_TEST_GPU=1 $(GO) test -count=1 -p 1 -timeout $(TIMEOUT) ./test/cuda ./test/messages ./test/node ./test/veloc \
		-run TestCUDA
	HOLDFAST_TEST_GPU=1 $(GO) test -count=1 -p 1 -timeout $(TIMEOUT) ./test/opencl
	$(GO) test -count=1 -p 1 -timeout $(TIMEOUT) ./examples/... ./test/examples

# Where make bench keeps its results: JSON lines and charts.
BENCH_OUT ?= holdfast-bench

bench: build ## what checkpoints, cuts, captures and messages cost here; under 5 minutes
	$(BIN)/holdfast bench storage --quick --dir . --plot $(BENCH_OUT)
	$(BIN)/holdfast bench storage --quick --resize 4 --dir .
	$(BIN)/holdfast bench cut --ranks 2,4 --epochs 10 --plot $(BENCH_OUT)
	$(BIN)/holdfast bench gpu --runs 1 --plot $(BENCH_OUT)
	$(BIN)/holdfast bench remote --quick --cases bandwidth,launches,migration --plot $(BENCH_OUT)
	$(BIN)/holdfast bench mpi --runs 3 --plot $(BENCH_OUT)
	$(BIN)/holdfast bench apps --dir . --time 80s --plot $(BENCH_OUT)
	$(BIN)/holdfast bench peers --dir . --plot $(BENCH_OUT)
	$(BIN)/holdfast bench c --quick --dir . --plot $(BENCH_OUT)
	$(BIN)/holdfast bench opencl --quick --plot $(BENCH_OUT)
	$(GO) test -count=1 -run '^$$' -bench 'Point|Idle' -timeout $(TIMEOUT) ./coordinated/...

bench-full: build ## the same at full size, and all Go benchmarks; for a real machine
	$(BIN)/holdfast bench storage --dir . --plot $(BENCH_OUT)
	$(BIN)/holdfast bench storage --resize 4 --dir .
	$(BIN)/holdfast bench cut --plot $(BENCH_OUT)
	$(BIN)/holdfast bench gpu --plot $(BENCH_OUT)
	$(BIN)/holdfast bench remote --plot $(BENCH_OUT)
	$(BIN)/holdfast bench mpi --plot $(BENCH_OUT)
	$(BIN)/holdfast bench apps --dir . --runs 5 --seconds 5 --plot $(BENCH_OUT)
	$(BIN)/holdfast bench peers --dir . --mib 256 --plot $(BENCH_OUT)
	$(BIN)/holdfast bench c --dir . --plot $(BENCH_OUT)
	$(BIN)/holdfast bench opencl --plot $(BENCH_OUT)
	$(GO) test -run '^$$' -bench . -skip AgainstC -p 1 -timeout 0 ./...

man: build ## write the manual pages to bin/man
	$(BIN)/holdfast man $(BIN)/man

SITE ?= $(BIN)/site
site: tool ## render the documentation and the manual pages into bin/site/html
	@sh scripts/site.sh $(BIN) $(SITE)

lint: ## gofmt, clang-format, go vet, staticcheck, doc comments, shellcheck
	@sh scripts/lint.sh $(GO)

clean: ## remove what the build and the demo left
	rm -rf $(BIN) holdfast-demo $(BENCH_OUT) lib/*.o lib/*.a lib/*.so lib/*.so.0 lib/*.mod lib/veloc-backend \
		lib/cuda-* lib/*.gen.[ch]
	$(GO) clean
