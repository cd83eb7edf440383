# The two front doors. Everything else is cargo and tests/run.
#
#   make serve                   build, make a demo disk, serve it on 127.0.0.1:3260
#   make serve DISK=my.img PORT=3261
#   make test                    every test; installs what the tests need (Debian packages)
#   make test STAGE="unit cli"   some stages; tests/run --list names them
#   make check                   what to run before each commit: format, lints, unit tests, 100 seeds of the simulated world
#   make upgrade                 replace an earlier daemon by this one under load, in a VM: builds both, a quarter of an hour
#   make upgrade OLD=COMMIT      from that commit, or from a binary
#   make mutants                 plant bugs and see what finds them: an hour or more
#   make mutants SEED=7          the same with COUNT=200 bugs that seed 7 draws by chance: some hours
#   make kernel                  a real Linux initiator in a VM against Tarn: all scenarios, of which make test runs some without KVM
#   make calls                   every system call that may fail during a start, a change or the end of a daemon is made to fail:
#                                an hour
#   make soak                    long runs: ten million inputs for each fuzz target of HyperSCSI, 10,000 seeds of the simulated
#                                world; hours. make soak INPUTS=100000 SEEDS=100 TARGETS="hyperscsi-pdu" for less
#   make web                     build the web console anew: web/dist, which is committed
#   make site                    the documents as a site: target/site/book; installs mdBook below target
#   make bench                   measure Tarn beside tgt and istgt (bench/out/report.html, table.md), HyperSCSI on a wire between two
#                                namespaces, and the stores beside what they stand on; an hour, as root
#   make bench ROUNDS=15         with more repeats
#   make advisories              known faults of the dependencies, from the network; says 'skipped' where there is none
#   make deb                     the Debian package: target/debian/tarn_*.deb
#   make static                  one binary that needs no library: target/x86_64-unknown-linux-musl/release/tarn

ROUNDS ?= 5
INPUTS ?= 10000000
SEEDS ?= 10000
SEED ?=
COUNT ?= 200
TARGETS ?= hyperscsi-pdu hyperscsi-login hyperscsi-exchange hyperscsi-session
DISK ?= demo.img
PORT ?= 3260
STAGE ?=
OLD ?= 46980bd
DEMO_SIZE := 1G
IQN := iqn.2026-11.example.tarn:demo

.PHONY: serve test check upgrade mutants kernel calls soak build web site bench advisories deb static

serve: build $(DISK)
	@[ "$$(id -u)" -ne 0 ] || echo "serve: running as root; an ordinary user is enough"
	@[ "$(origin PORT)" != "command line" ] || [ ! -e "$(DISK).toml" ] || grep -q ":$(PORT)\"" "$(DISK).toml" \
		|| { [ "$(PORT)" = 3260 ] && ! grep -q portals "$(DISK).toml"; } || { \
		echo "serve: $(DISK).toml does not listen on port $(PORT): change it with tarn portal, or remove the file" >&2; exit 2; }
	@exec target/release/tarn serve --listen 127.0.0.1:$(PORT) --target $(IQN) --save $(DISK).toml $(DISK)

# Sparse: takes room only as it is written to.
$(DISK):
	truncate -s $(DEMO_SIZE) $@

build:
	@tools/need cc=build-essential
	cargo build --release --package tarn

test:
	@tools/need cc=build-essential python3=python3
	@tests/run $(STAGE)

check:
	@tools/need cc=build-essential
	cargo fmt --all --check
	cargo clippy --quiet --workspace --all-targets -- -D warnings
	cargo test --quiet --workspace
	@# Built by the line above, for a test of it.
	target/debug/sim --seeds 100

upgrade:
	@tools/need cc=build-essential git=git python3=python3 qemu-system-x86_64=qemu-system-x86 qemu-img=qemu-utils \
		mmdebstrap=mmdebstrap mke2fs=e2fsprogs cpio=cpio tar=tar
	cargo build --profile quick --package tarn
	@tests/rig/upgrade $(OLD) target/quick/tarn

mutants:
	@tools/need cc=build-essential git=git python3=python3
	@$(if $(SEED),tests/mutants/draw $(SEED) $(COUNT),tests/mutants/run)

kernel: build
	@tools/need python3=python3 qemu-system-x86_64=qemu-system-x86 qemu-img=qemu-utils mmdebstrap=mmdebstrap mke2fs=e2fsprogs \
		cpio=cpio tar=tar xorriso=xorriso
	@TARN_BIN=target/release/tarn tests/rig/suite.py --all

calls:
	@tools/need cc=build-essential python3=python3 mkfs.xfs=xfsprogs /usr/include/x86_64-linux-gnu/asm/unistd_64.h=linux-libc-dev
	cargo build --profile quick --package tarn
	@TARN_BIN=target/quick/tarn tests/calls/suite.py --all

soak:
	@tools/need cc=build-essential
	cargo build --profile quick --package fuzz --package sim --bin fuzz --bin sim
	target/quick/fuzz --inputs $(INPUTS) $(addprefix --target ,$(TARGETS))
	target/quick/sim --seeds $(SEEDS)

web:
	@tools/need node=nodejs npm=npm
	cd web && npm ci && node tools/types.mjs && NODE_ENV=production npm run build

site:
	@tools/need cc=build-essential python3=python3
	@tools/site

bench: build
	@tools/need cc=build-essential tgtd=tgt istgt=istgt nbdkit=nbdkit python3=python3 /usr/include/liburing.h=liburing-dev \
		fusermount3=fuse3 mkfs.xfs=xfsprogs ip=iproute2 nft=nftables ethtool=ethtool
	@bench/run $(ROUNDS)
	@bench/hyperscsi.py --rounds 3
	@bench/snapshots.py
	@if command -v ceph-mon >/dev/null; then bench/takeover.py; else echo "takeover: skipped, install ceph-mon, ceph-osd, ceph-common"; fi
	@bench/stores.py
	@if command -v chromium >/dev/null && command -v node >/dev/null; then bench/console.py; else echo "console: skipped, install chromium, nodejs, npm"; fi

advisories:
	@tools/need git=git python3=python3
	@tests/deny/advisories

# The Debian package, in target/debian.
deb: build
	@tools/need dpkg-deb=dpkg strip=binutils
	@packaging/deb/build

# For machines with another C library, or none. The file needs no more than a kernel.
static:
	@tools/need cc=build-essential musl-gcc=musl-tools
	rustup target add x86_64-unknown-linux-musl
	cargo build --release --package tarn --target x86_64-unknown-linux-musl
