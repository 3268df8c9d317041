# Ginnel's front door. Each target installs what it lacks (Debian 12), builds and runs.
#
#   make demo          real servers and clients, plainly and through Ginnel, as one table
#   make demo-peers    the same servers and clients, with more connections, and through the kernel's sockmap too
#   make test          something of everything, in a quarter of an hour on two processors
#   make test-all      every test, before a piece of work is called done (docs/tests.md says which is where)
#   make test-iceoryx2 those of crates/iceoryx2, a workspace of its own; a part of test-all
#   make wheel         the module for Python with its library, as a wheel in target/wheel
#   make iceoryx2-python   iceoryx2's Python module over a segment, as a wheel in target/iceoryx2-python/dist
#   make iceoryx2-c    iceoryx2's C library over a segment, in target/iceoryx2-c/dist (SOURCES=FOLDER: its authors' v0.10.0)
#   make bench         single properties with their targets, as one table (BENCH_ARGS=--list names them)
#   make bench-peers   the same beside the kernel's sockmap, UCX, boost.interprocess and iceoryx2
#   make bench-compare BASE=REV   this build against that of another revision, in turn; fails where it is worse
#   make bench-instructions   instructions of a message in the library, by valgrind: also on a busy machine
#   make bench-mpi     NetPIPE between two ranks of Open MPI, by every way, beside its own shared memory
#   make bench-mpi-programs  OSU's patterns, HPCC, LAMMPS and NWChem between two ranks by every way, with charts
#   make bench-mpi-guests  UCX's benchmark, NetPIPE, LAMMPS and HPCC between two virtual machines
#   make bench-iceoryx2-guests  iceoryx2's patterns between two virtual machines, beside the same over TCP
#   make bench-guests  those between two virtual machines
#   make bench-switch  frames through ginnel-switch beside DPDK's testpmd and Open vSwitch, and between two hosts, as one table
#   make bench-switch-guests  two virtual machines at ginnel-switch, and on a bridge by taps (BENCH_ARGS: rounds)
#   make bench-cp      ginnel cp beside cp, nc, rsync and scp, between namespaces (RECORD=FOLDER keeps it)
#   make bench-cache   ginnel-cache beside memcached: reads, load, hits (CACHE_ARGS=get names a part), then YCSB (bench-ycsb)
#   make bench-ycsb    memcached and ginnel-cache under YCSB's load, between namespaces (YCSB_ARGS=--help)
#   make musl          the library for programs that use musl, beside the other (a part of make build)
#   make portable      ginnel, ginnel-bench, ginneld and the library for older C libraries, in target/portable
#   make docs          this project's documentation as a site, in target/site
#   make test-kubernetes   the agent and its own tests, what helm makes of the chart, and pods beside a containerd of its own; as root
#   make test-cluster  the chart on a cluster of one node, with Kubernetes' own programs (the first run builds them: half an hour); as root
#   make install       what was built (make build, or FROM=DIRECTORY), below PREFIX (/usr/local); DESTDIR for who packs it
#   make uninstall     takes that away again
#   make packages      Debian packages of the portable build, and an apt repository of them, in target/packages (MACHINE=aarch64: by a cross build, in target/packages-aarch64)
#   make rpms          rpm packages of it, in target/rpms
#   make conformance   other people's test suites, plainly and through Ginnel (an hour and a half); writes docs/compatibility.md
#
# DEMO_ARGS, TEST_ARGS, BENCH_ARGS and CONFORMANCE_ARGS are handed on: make demo DEMO_ARGS=--quick
# LOAD_SECONDS: for how long make conformance loads each real server (120).

CARGO  ?= cargo
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)

.PHONY: help build demo demo-peers test test-all test-iceoryx2 iceoryx2-python iceoryx2-c wheel test-kubernetes test-cluster bench bench-cache bench-cp bench-peers bench-compare bench-guests bench-instructions bench-switch bench-switch-guests bench-mpi bench-mpi-programs bench-mpi-guests bench-iceoryx2-guests bench-ycsb portable install uninstall packages rpms docs conformance lint clean product musl loom deps-demo deps-test deps-bench deps-peers deps-switch deps-packages deps-kubernetes deps-conformance deps-mpi deps-ycsb

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

deps-demo deps-test deps-bench deps-peers deps-switch deps-packages deps-kubernetes deps-conformance deps-mpi deps-ycsb: deps-%:
	@scripts/install-deps.sh $*

build:
	$(CARGO) build --release --workspace
	CARGO="$(CARGO)" scripts/build-musl.sh

musl:
	CARGO="$(CARGO)" scripts/build-musl.sh

demo: deps-demo
	$(CARGO) build --release --workspace
	$(TARGET)/release/ginnel-demo $(DEMO_ARGS)

# From end to end with what the kernel has of its own.
demo-peers: deps-demo
	$(CARGO) build --release --workspace
	mkdir -p $(TARGET)/bench-programs
	$(CC) -O2 -std=gnu11 -Wall -Wextra -o $(TARGET)/bench-programs/sockmap crates/bench/programs/sockmap.c
	$(TARGET)/release/ginnel-demo --sockmap $(TARGET)/bench-programs/sockmap --further $(DEMO_ARGS)

# What the tests run is the release build, as users have it; they themselves are compiled by the
# profile `testing`, without link-time optimisation. More run at once than there are processors:
# most of them wait, and those that compute ask for a permit (tests/src/permit.rs).
PRODUCT  := -p ginnel-cache -p ginnel-cache-capi -p ginnel-cache-preload -p ginnel-shim -p ginnel-sysv -p ginnel-capi -p ginnel-preload -p ginnel-fabric-provider -p ginnel-ucx -p ginnel-cli -p ginnel-host -p ginnel-bench -p ginnel-demo -p ginnel-guest -p ginnel-switch
RUN_TESTS = RUST_TEST_THREADS=8 $(CARGO) test --workspace --profile testing --no-fail-fast $(TEST_ARGS)

test: deps-test product loom
	$(RUN_TESTS)

# With those that are marked for it. Some are for a night, by hand.
test-all: deps-test deps-packages product loom test-iceoryx2
	$(RUN_TESTS) -- --include-ignored --skip by_hand

# iceoryx2's own tests and ours, one after the other, as its authors run them.
test-iceoryx2:
	$(CARGO) test --manifest-path crates/iceoryx2/Cargo.toml --target-dir $(abspath $(TARGET))/iceoryx2 --locked --no-fail-fast -- --include-ignored --skip by_hand

# LIBRARY: what it is to bring along, in place of the one that is built here; PLATFORM: what that is for.
wheel:
	CARGO="$(CARGO)" LIBRARY="$(LIBRARY)" PLATFORM="$(PLATFORM)" scripts/build-wheel.sh $(TARGET)/wheel

# Its sources come from PyPI, by their checksum.
iceoryx2-python:
	CARGO="$(CARGO)" scripts/build-iceoryx2-python.sh

# No registry has its sources.
iceoryx2-c:
	CARGO="$(CARGO)" scripts/build-iceoryx2-c.sh "$(SOURCES)"

# Everything in it is in namespaces of its own. The first run builds containerd and helm, some minutes.
test-kubernetes: deps-kubernetes product
	CARGO_TARGET_DIR=$(abspath $(TARGET)) kubernetes/test.sh

test-cluster: deps-kubernetes product
	CARGO="$(CARGO)" CARGO_TARGET_DIR=$(abspath $(TARGET)) kubernetes/cluster.sh

product:
	$(CARGO) build --release $(PRODUCT)
	CARGO="$(CARGO)" scripts/build-musl.sh

# The models of the rings and of the cache's buckets, compiled with loom's atomics instead, apart from the rest.
loom:
	RUSTFLAGS="--cfg loom" $(CARGO) test -p ginnel-ring -p ginnel-cache --test loom --profile testing --target-dir $(TARGET)/loom

bench: deps-bench
	$(CARGO) build --release --workspace
	$(CARGO) run --release -p ginnel-bench --bin ginnel-bench-table -- $(BENCH_ARGS)

bench-cp:
	$(CARGO) build --release -p ginnel-cli -p ginnel-bench
	scripts/bench-cp.sh $(BENCH_ARGS)

# Every server in it is its own, on loopback. GINNEL_DIR is a folder of its own, too.
bench-cache: deps-test
	$(CARGO) build --release -p ginnel-cache --bins --example bench
	$(TARGET)/release/examples/bench $(CACHE_ARGS)
	$(MAKE) bench-ycsb

# Java and Maven are for this alone; YCSB comes from Maven Central.
bench-ycsb: deps-ycsb
	$(CARGO) build --release -p ginnel-cache -p ginnel-cache-capi -p ginnel-cli -p ginnel-shim -p ginnel-bench
	benchmarks/ycsb/build.sh $(TARGET)/ycsb $(TARGET)/release
	$(TARGET)/release/ginnel-bench-ycsb --ycsb $(TARGET)/ycsb --product $(TARGET)/release $(YCSB_ARGS)

# With what others have built, in the same rounds. iceoryx2 is fetched and built then.
bench-peers: deps-peers
	$(CARGO) build --release --workspace
	$(CARGO) run --release -p ginnel-bench --bin ginnel-bench-table -- --peers $(BENCH_ARGS)

bench-compare: deps-bench
	CARGO="$(CARGO)" scripts/bench-compare.sh "$(BASE)" $(BENCH_ARGS)

bench-instructions: deps-bench
	$(CARGO) build --release -p ginnel-shim -p ginnel-cli
	scripts/bench-instructions.sh $(BENCH_ARGS)

# Between two network namespaces.
bench-mpi: deps-mpi
	$(CARGO) build --release -p ginnel-shim -p ginnel-fabric-provider -p ginnel-ucx -p ginnel-cli
	scripts/bench-mpi.sh $(BENCH_ARGS)

# BENCH_ARGS='ROUNDS OUT': 3 rounds, some minutes, into target/bench-mpi-programs.
bench-mpi-programs: deps-mpi
	$(CARGO) build --release -p ginnel-shim -p ginnel-fabric-provider -p ginnel-ucx -p ginnel-cli
	$(CARGO) run --release -p ginnel-bench --example mpi_programs -- measure $(BENCH_ARGS)

# From guest to guest; BENCH_ARGS='ROUNDS PROGRAM...': 3 rounds of all.
bench-mpi-guests: deps-test deps-mpi
	$(CARGO) build --release -p ginnel-shim -p ginnel-host -p ginnel-fabric-provider -p ginnel-ucx -p ginnel-cli -p ginnel-guest
	$(CARGO) run --release -p ginnel-bench --example mpi -- $(BENCH_ARGS)

# The same for iceoryx2's patterns, which are built in a workspace of their own.
bench-iceoryx2-guests: deps-test
	$(CARGO) build --release -p ginnel-shim -p ginnel-host -p ginnel-cli -p ginnel-guest
	$(CARGO) run --release -p ginnel-bench --example iceoryx2 -- $(BENCH_ARGS)

# From guest to guest, in two virtual machines.
bench-guests: deps-test
	$(CARGO) build --release --workspace
	$(CARGO) run --release -p ginnel-bench --bin ginnel-bench-table -- --guests $(BENCH_ARGS)

# From port to port of the switch; BENCH_ARGS is the number of rounds.
bench-switch: deps-switch
	$(CARGO) build --release -p ginnel-switch --bins --example hosts --example rates
	scripts/bench-switch.sh $(BENCH_ARGS)

# From guest to guest, over the switch and over a bridge; BENCH_ARGS is the number of rounds.
bench-switch-guests: deps-test
	$(CARGO) build --release -p ginnel-switch -p ginnel-cli -p ginnel-guest
	$(CARGO) run --release -p ginnel-guest --example switch -- $(BENCH_ARGS)

# PORTABLE_GLIBC: for which version and later ones.
portable:
	CARGO="$(CARGO)" scripts/portable.sh $(PORTABLE_GLIBC)

# The first time it builds mdBook, which takes some minutes.
docs:
	CARGO="$(CARGO)" scripts/build-docs.sh

# Builds nothing: installing is root's, and building is not.
install uninstall:
	PREFIX="$(PREFIX)" LIBDIR="$(LIBDIR)" DESTDIR="$(DESTDIR)" FROM="$(FROM)" scripts/install.sh $@

packages: deps-packages
	CARGO="$(CARGO)" scripts/packages.sh

rpms: deps-packages
	CARGO="$(CARGO)" scripts/rpms.sh

# About an hour and a half; what was fetched and built stays in the target folder.
conformance: deps-conformance
	$(CARGO) build --release --workspace
	$(CARGO) run --release -p ginnel-tests --bin conformance -- --page docs/compatibility.md $(CONFORMANCE_ARGS)

# By the profile of the tests, which has compiled most of what clippy needs.
lint:
	scripts/check-tests.sh
	scripts/check-docs.sh
	scripts/check-circles.py
	scripts/check-length.sh
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --profile testing -- -D warnings

clean:
	$(CARGO) clean
